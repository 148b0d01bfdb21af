/* Where a model name leads: a path as it is, or ORG/NAME[@REVISION] in the Hugging Face hub's cache (base/hub.h). */
#include "base/hub.h"

#include <dirent.h>
#include <stdio.h>

#include "api/internal.h"
#include "base/file.h"

/* A snapshot that holds a single GGUF file and no config.json is that file. Of a model in parts any one stands for all. */
static const char *only_gguf(struct arena *a, const char *dir)
{
    if (file_exists(file_join(a, dir, "config.json"))) return dir;
    DIR *d = opendir(dir);
    const char *found = NULL;
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct str name = str_of(e->d_name);
        if (!str_ends(name, STR(".gguf")) || (str_find(name, STR("-of-"), 0) >= 0 && str_find(name, STR("-00001-of-"), 0) < 0)) continue;
        found = file_join(a, dir, e->d_name);
        count++;
    }
    if (d) closedir(d);
    return count == 1 && found ? found : dir;
}

/* The directory of a revision: a reference's commit, or the commit itself. NULL: it is not in the cache. */
static const char *snapshot(struct arena *a, const char *repo, struct str revision)
{
    struct str commit;
    const char *ref = arena_printf(a, "%s/refs/" STR_FMT, repo, STR_ARG(revision));
    if (!ref || !file_exists(ref) || file_read(a, ref, 256, &commit, NULL) != ROSE_OK) commit = revision;
    while (commit.n && (unsigned char)commit.p[commit.n - 1] <= ' ') commit.n--;
    const char *dir = hub_is_hash(commit) ? arena_printf(a, "%s/snapshots/" STR_FMT, repo, STR_ARG(commit)) : NULL;
    return dir && file_is_dir(dir) ? dir : NULL;
}

enum rose_status hub_resolve(struct arena *a, const char *model, const char **path, struct rose_error *err)
{
    struct str org, name, revision;
    if (!model || !*model) return status_set(err, ROSE_INVALID, "no model is named: give a directory, a .gguf file, or ORG/NAME");
    if (file_exists(model)) {
        *path = file_is_dir(model) ? only_gguf(a, model) : model;
        return ROSE_OK;
    }
    if (!hub_name(model, &org, &name, &revision) || str_ends(name, STR(".gguf")) || str_ends(name, STR(".safetensors")))
        return status_at(err, ROSE_NOT_FOUND, model, -1, "%s: no such file or directory", model);
    const char *cache = hub_cache_dir(a), *repo = cache ? hub_repo_dir(a, cache, org, name) : NULL;
    const char *dir = repo && file_is_dir(repo) ? snapshot(a, repo, revision.n ? revision : STR("main")) : NULL;
    if (!dir)
        return status_at(err, ROSE_NOT_FOUND, model, -1, "%s is neither a path nor in the hub's cache%s%s; fetch it with: rose pull %s", model, cache ? " " : "", cache ? cache : "",
                         model);
    *path = only_gguf(a, dir);
    return ROSE_OK;
}
