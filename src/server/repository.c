/* Which models lie in a directory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/internal.h"
#include "server/loader.h"
#include "server/model_config.h"

enum { MAX_ENTRIES = 4096 };

static bool is_gguf(const char *name) { return str_ends(str_of(name), STR(".gguf")) && name[0] != '.'; }

/* The model in a directory itself: its config.json, else its first GGUF file by name. In the arena; NULL: none. */
static const char *model_in(struct arena *a, const char *dir)
{
    const char *config = file_join(a, dir, "config.json"), *first = NULL;
    if (config && file_exists(config)) return dir;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_gguf(e->d_name) && (!first || strcmp(e->d_name, first) < 0)) first = arena_strndup(a, e->d_name, strlen(e->d_name));
    if (d) closedir(d);
    return first ? file_join(a, dir, first) : NULL;
}

bool repository_is(const char *path)
{
    struct arena a;
    arena_init(&a, 0);
    const char *config = file_is_dir(path) ? file_join(&a, path, "config.json") : NULL;
    bool is = config && !file_exists(config);
    arena_free(&a);
    return is;
}

static enum rose_status add(struct models *m, const char *dir, const char *name, int version, const char *path, int *found, struct rose_error *err)
{
    struct model *known = models_lookup(m, str_of(name), version);
    ++*found;
    if (known && known->empty && !(known->path = strdup(path))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (known && known->empty) { /* it has come */
        known->empty = false;
        known->reason[0] = '\0';
        known->repository = dir;
    }
    if (known && known->repository && strcmp(known->repository, dir)) return status_set(err, ROSE_INVALID, "model \"%s\" lies in %s and in %s", name, known->repository, dir);
    if (known && !known->repository) return status_set(err, ROSE_INVALID, "two models are called \"%s\": one of them lies in %s; name the other with --alias", name, dir);
    return known || models_add(m, name, version, path, dir, err) ? ROSE_OK : ROSE_LIMIT;
}

/* What DIR/NAME/config.pbtxt says of versions; one that cannot be read refuses the model when it is loaded. */
static struct version_policy read_policy(const char *dir, const char *name)
{
    struct version_policy p = {0};
    struct rose_error err;
    struct model_config *config;
    if (model_config_open(dir, name, &config, &err) == ROSE_OK && config) p = config->policy;
    model_config_free(config);
    return p;
}

/* A model of another server's: it has a place in the index, where its owner looks for it, and says what is not there. */
static void add_empty(struct models *m, const char *dir, const char *name, int version)
{
    struct model *known = models_lookup(m, str_of(name), 0);
    struct rose_error err;
    char below[16] = "";
    if (known && !(known->empty && known->version == version)) return;
    if (version) snprintf(below, sizeof below, "/%d", version);
    if (!known) {
        if (!(known = models_add(m, name, version ? version : 1, NULL, dir, &err))) {
            log_line(m->options, "warning", "%s is left out: %s", name, err.message);
            return;
        }
        log_line(m->options, "error", "%s was not loaded: no config.json and no .gguf file in %s/%s%s", name, dir, name, below);
    }
    known->empty = true;
    snprintf(known->reason, sizeof known->reason, "no config.json and no .gguf file in %.300s/%s%s", dir, name, below);
}

static enum rose_status add_directory(struct models *m, struct arena *a, const char *dir, const char *name, int *found, struct rose_error *err)
{
    const char *path = file_join(a, dir, name), *own = path ? model_in(a, path) : NULL;
    struct version_policy policy = read_policy(dir, name);
    enum rose_status s = own ? add(m, dir, name, 1, own, found, err) : ROSE_OK;
    DIR *d = path && !own ? opendir(path) : NULL;
    bool configured = false;
    int before = *found, highest = 0;
    for (struct dirent *e; s == ROSE_OK && d && (e = readdir(d));) {
        int64_t version;
        configured |= !strcmp(e->d_name, "config.pbtxt");
        if (!str_to_i64(str_of(e->d_name), &version) || version < 1 || version > INT32_MAX) continue;
        const char *below = file_join(a, path, e->d_name), *model = below && file_is_dir(below) ? model_in(a, below) : NULL;
        if (below && file_is_dir(below)) highest = ROSE_MAX(highest, (int)version);
        if (model) s = add(m, dir, name, (int)version, model, found, err);
    }
    if (d) closedir(d);
    if (s == ROSE_OK && d && *found == before && (configured || highest)) add_empty(m, dir, name, highest);
    for (int i = 0; i < m->count; i++)
        if (m->models[i].repository && !strcmp(m->models[i].name, name) && !m->models[i].policy_brought) m->models[i].policy = policy;
    return s;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

enum rose_status repository_scan(struct models *m, const char *dir, struct rose_error *err)
{
    struct arena a;
    const char **names = calloc(MAX_ENTRIES, sizeof *names);
    int count = 0, found = 0;
    DIR *d = opendir(dir);
    arena_init(&a, (size_t)64 << 20);
    enum rose_status s = !names ? status_set(err, ROSE_NO_MEMORY, "out of memory") : d ? ROSE_OK : status_at(err, ROSE_NOT_FOUND, dir, -1, "cannot read the model repository %s", dir);
    for (struct dirent *e; s == ROSE_OK && count < MAX_ENTRIES && (e = readdir(d));)
        if (e->d_name[0] != '.') names[count++] = arena_strndup(&a, e->d_name, strlen(e->d_name));
    if (d) closedir(d);
    if (s == ROSE_OK) qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; s == ROSE_OK && i < count; i++) {
        const char *path = names[i] ? file_join(&a, dir, names[i]) : NULL;
        size_t ending = names[i] && path && is_gguf(names[i]) && !file_is_dir(path) ? 5 : 0;
        if (names[i] && !utf8_valid(str_of(names[i]))) { /* gRPC, JSON and Prometheus have no place for it */
            log_line(m->options, "warning", "%s: an entry is left out: its name is not UTF-8", dir);
            continue;
        }
        if (names[i] && strlen(names[i]) - ending > MODEL_NAME_MAX) { /* no request could name it, and the others are served all the same */
            log_line(m->options, "warning", "%s: \"%.60s...\" is left out: its name is longer than %d bytes", dir, names[i], MODEL_NAME_MAX);
            continue;
        }
        if (!path) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
        else if (file_is_dir(path)) s = add_directory(m, &a, dir, names[i], &found, err);
        else if (is_gguf(names[i])) s = add(m, dir, arena_strndup(&a, names[i], strlen(names[i]) - 5), 1, path, &found, err);
    }
    if (s == ROSE_OK && !found)
        s = status_at(err, ROSE_NOT_FOUND, dir, -1, "%s is no model and holds none: a model is a directory with config.json, or a .gguf file", dir);
    arena_free(&a);
    free(names);
    return s;
}
