/* Where a model name leads: a path as it is, or ORG/NAME in the Hugging Face hub's cache, whose layout is
 * <cache>/models--ORG--NAME/{refs/main, snapshots/<commit>/...}. */
#include <dirent.h>
#include <stdio.h>

#include "api/internal.h"
#include "base/file.h"
#include "base/option.h"

static const char *cache_dir(struct arena *a)
{
    const char *dir = option_env("HF_HUB_CACHE");
    if (dir) return dir;
    if ((dir = option_env("HF_HOME"))) return file_join(a, dir, "hub");
    if ((dir = option_env("XDG_CACHE_HOME"))) return file_join(a, dir, "huggingface/hub");
    if ((dir = option_env("HOME"))) return file_join(a, dir, ".cache/huggingface/hub");
    return NULL;
}

static bool looks_like_name(const char *model)
{
    const char *slash = strchr(model, '/');
    return slash && slash != model && slash[1] && !strchr(slash + 1, '/') && model[0] != '.' && model[0] != '~';
}

/* A snapshot that holds a single GGUF file and no config.json is that file. */
static const char *only_gguf(struct arena *a, const char *dir)
{
    if (file_exists(file_join(a, dir, "config.json"))) return dir;
    DIR *d = opendir(dir);
    const char *found = NULL;
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (str_ends(str_of(e->d_name), STR(".gguf"))) {
            found = file_join(a, dir, e->d_name);
            count++;
        }
    if (d) closedir(d);
    return count == 1 && found ? found : dir;
}

static const char *snapshot(struct arena *a, const char *repo)
{
    struct str commit;
    const char *ref = file_join(a, repo, "refs/main");
    if (ref && file_read(a, ref, 256, &commit, NULL) == ROSE_OK) {
        while (commit.n && (unsigned char)commit.p[commit.n - 1] <= ' ') commit.n--;
        const char *dir = arena_printf(a, "%s/snapshots/" STR_FMT, repo, STR_ARG(commit));
        if (dir && file_is_dir(dir)) return dir;
    }
    return NULL;
}

enum rose_status hub_resolve(struct arena *a, const char *model, const char **path, struct rose_error *err)
{
    if (!model || !*model) return status_set(err, ROSE_INVALID, "no model is named: give a directory, a .gguf file, or ORG/NAME");
    if (file_exists(model)) {
        *path = file_is_dir(model) ? only_gguf(a, model) : model;
        return ROSE_OK;
    }
    if (!looks_like_name(model)) return status_at(err, ROSE_NOT_FOUND, model, -1, "%s: no such file or directory", model);
    const char *cache = cache_dir(a), *slash = strchr(model, '/');
    const char *repo = cache ? arena_printf(a, "%s/models--%.*s--%s", cache, (int)(slash - model), model, slash + 1) : NULL;
    const char *dir = repo && file_is_dir(repo) ? snapshot(a, repo) : NULL;
    if (!dir)
        return status_at(err, ROSE_NOT_FOUND, model, -1, "%s is neither a path nor in the hub's cache%s%s; fetch it with: rose pull %s", model, cache ? " " : "", cache ? cache : "",
                         model);
    *path = only_gguf(a, dir);
    return ROSE_OK;
}
