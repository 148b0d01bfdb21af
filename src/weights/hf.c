/* A Hugging Face model directory: config.json, generation_config.json, and model.safetensors or the shards
 * that model.safetensors.index.json lists ({"weight_map": {tensor: file}}). */
#include "weights/weights_internal.h"

#include <dirent.h>
#include <stdlib.h>

enum { CONFIG_LIMIT = 2 << 20, INDEX_LIMIT = 48 << 20 }; /* bytes */

/* Parse dir/name; *out stays NULL when there is no such file. */
static enum rose_status read_json(struct arena *arena, const char *dir, const char *name, size_t limit,
                                  const struct json **out, struct rose_error *err)
{
    struct str text;
    char *path = file_join(arena, dir, name);
    if (!path) return weights_no_memory(dir, err);
    if (!file_exists(path)) return ROSE_OK;
    ROSE_TRY(file_read(arena, path, limit, &text, err));
    enum rose_status s = json_parse(arena, path, text, out, err);
    if (s != ROSE_OK) return status_wrap(err, s, "%s", path);
    if ((*out)->type == JSON_OBJECT) return ROSE_OK;
    return status_at(err, ROSE_FORMAT, path, 0, "%s: an object was expected, found: %s", path,
                     json_type_name((*out)->type));
}

static int by_file(const void *a, const void *b)
{
    const struct json_member *x = *(const struct json_member *const *)a,
                             *y = *(const struct json_member *const *)b;
    return weights_compare(x->value.string, y->value.string);
}

static enum rose_status open_shard(struct weights *w, const char *dir, struct str name, const char *index,
                                   struct rose_error *err)
{
    const char *what;
    int part = 0;
    if (!weights_name_ok(name, 255, &what) || memchr(name.p, '/', name.n) || name.p[0] == '.')
        return status_at(err, ROSE_FORMAT, index, -1,
                         "%s: weight_map names a file that is not a plain name in this directory", index);
    char *plain = arena_strndup(&w->arena, name.p, name.n),
         *path = plain ? file_join(&w->arena, dir, plain) : NULL;
    if (!path) return weights_no_memory(dir, err);
    if (!file_exists(path))
        return status_at(err, ROSE_NOT_FOUND, path, -1,
                         "%s is missing, but %s lists it: the download is incomplete", path, index);
    ROSE_TRY(weights_map(w, path, &part, err));
    return safetensors_read(w, part, err);
}

/* Each file of the map once, in the order of their names. */
static enum rose_status open_shards(struct weights *w, const char *dir, const struct json *map,
                                    const char *index, struct rose_error *err)
{
    const struct json_member **entries = calloc((size_t)map->count + 1, sizeof *entries);
    if (!entries) return weights_no_memory(index, err);
    enum rose_status s = ROSE_OK;
    for (uint32_t i = 0; i < map->count && s == ROSE_OK; i++) {
        entries[i] = json_member(map, i);
        if (json_member(map, i)->value.type != JSON_STRING)
            s = status_at(err, ROSE_FORMAT, index, (int64_t)json_member(map, i)->value.offset,
                          "%s: weight_map: the file of a tensor is not a string", index);
    }
    if (s == ROSE_OK) qsort(entries, map->count, sizeof *entries, by_file);
    for (uint32_t i = 0; i < map->count && s == ROSE_OK; i++)
        if (i == 0 || by_file(&entries[i - 1], &entries[i]))
            s = open_shard(w, dir, entries[i]->value.string, index, err);
    free(entries);
    return s;
}

static bool path_ends_in(const char *path, struct str name)
{
    struct str p = str_of(path);
    return p.n > name.n && p.p[p.n - name.n - 1] == '/' && str_ends(p, name);
}

/* Each tensor of the map must be where the map says. */
static enum rose_status check_map(struct weights *w, const struct json *map, const char *index,
                                  struct rose_error *err)
{
    ROSE_TRY(weights_sort(w, err));
    for (uint32_t i = 0; i < map->count; i++) {
        struct str name = json_member(map, i)->key, file = json_member(map, i)->value.string;
        const struct weights_tensor *t = weights_lookup(w, name);
        const char *what;
        if (t && path_ends_in(t->file, file)) continue;
        if (!weights_name_ok(name, WEIGHTS_MAX_NAME, &what)) name = STR("?");
        return status_at(err, ROSE_FORMAT, index, (int64_t)json_member(map, i)->value.offset,
                         "%s: tensor " STR_FMT " is not in " STR_FMT ", where weight_map puts it", index,
                         STR_ARG(name), STR_ARG(file));
    }
    return ROSE_OK;
}

/* What else is there, for a message that helps. */
static enum rose_status no_weights(const char *dir, struct rose_error *err)
{
    char gguf[256] = "";
    bool pickled = false;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct str name = str_of(e->d_name);
        if (str_ends(name, STR(".gguf")) && name.n < sizeof gguf) memcpy(gguf, name.p, name.n + 1);
        if (str_ends(name, STR(".bin")) || str_ends(name, STR(".pth")) || str_ends(name, STR(".pt")))
            pickled = true;
    }
    if (d) closedir(d);
    if (*gguf)
        return status_at(err, ROSE_NOT_FOUND, dir, -1,
                         "%s has no model.safetensors; to open the GGUF file in it, name %s/%s", dir, dir,
                         gguf);
    if (pickled)
        return status_at(err, ROSE_UNSUPPORTED, dir, -1,
                         "%s has only pickled weights (.bin, .pth), which can run code when loaded: convert "
                         "them to safetensors",
                         dir);
    return status_at(err, ROSE_NOT_FOUND, dir, -1,
                     "%s has neither model.safetensors nor model.safetensors.index.json: give a model's "
                     "directory or a .gguf file",
                     dir);
}

static enum rose_status open_index(struct weights *w, const char *dir, const char *path,
                                   struct arena *scratch, struct rose_error *err)
{
    const struct json *index = NULL;
    ROSE_TRY(read_json(scratch, dir, "model.safetensors.index.json", INDEX_LIMIT, &index, err));
    const struct json *map = json_get(index, "weight_map");
    if (!json_is(map, JSON_OBJECT) || !map->count)
        return status_at(err, ROSE_FORMAT, path, -1, "%s has no weight_map", path);
    ROSE_TRY(open_shards(w, dir, map, path, err));
    return check_map(w, map, path, err);
}

enum rose_status hf_open(struct weights *w, const char *dir, struct rose_error *err)
{
    w->kind = WEIGHTS_HF;
    char *single = file_join(&w->arena, dir, "model.safetensors"),
         *index_path = file_join(&w->arena, dir, "model.safetensors.index.json");
    if (!single || !index_path) return weights_no_memory(dir, err);
    bool one = file_exists(single);
    if (!one && !file_exists(index_path)) return no_weights(dir, err);
    ROSE_TRY(read_json(&w->arena, dir, "config.json", CONFIG_LIMIT, &w->config, err));
    if (!w->config)
        return status_at(err, ROSE_NOT_FOUND, dir, -1,
                         "%s has no config.json, without which the weights mean nothing", dir);
    ROSE_TRY(read_json(&w->arena, dir, "generation_config.json", CONFIG_LIMIT, &w->generation_config, err));
    if (one) {
        int part = 0;
        ROSE_TRY(weights_map(w, single, &part, err));
        return safetensors_read(w, part, err);
    }
    struct arena scratch;
    arena_init(&scratch, (size_t)INDEX_LIMIT * 12); /* a real index takes about 3 bytes a byte */
    enum rose_status s = open_index(w, dir, index_path, &scratch, err);
    arena_free(&scratch);
    return s;
}

enum rose_status hf_open_config(struct weights *w, const char *dir, struct rose_error *err)
{
    w->kind = WEIGHTS_HF;
    ROSE_TRY(read_json(&w->arena, dir, "config.json", CONFIG_LIMIT, &w->config, err));
    if (!w->config) return status_at(err, ROSE_NOT_FOUND, dir, -1, "%s has no config.json", dir);
    return read_json(&w->arena, dir, "generation_config.json", CONFIG_LIMIT, &w->generation_config, err);
}
