/* Golden models for tests: the weights that tests/golden/make_models.py describes, written as the files they
 * stand for, and the logits that transformers computed from them. The generator of values is that of the
 * script, bit for bit. */
#ifndef ROSE_TESTS_MODEL_GOLDEN_H
#define ROSE_TESTS_MODEL_GOLDEN_H

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "tensor/dtype.h"
#include "test.h"

#define GOLDEN_DIR "tests/golden/models/"

struct golden {
    struct arena arena;
    const char *name;
    char dir[128], file[160]; /* the checkpoint's directory; the GGUF file */
    const struct json *root, *config, *tensors, *cases, *flips, *same, *gguf;
    uint64_t seed;
    int32_t vocabulary;
    const float *logits; /* rows of vocabulary */
    enum golden_types { GOLDEN_AS_LISTED, GOLDEN_F32, GOLDEN_BF16, GOLDEN_F16 } types; /* of the Hugging Face files' tensors: those of the list (mixed), all F32, matrices BF16, F16 */
};

static inline uint64_t golden_fnv(struct str s, uint64_t h)
{
    for (size_t i = 0; i < s.n; i++) h = (h ^ (uint8_t)s.p[i]) * 0x100000001B3ull;
    return h;
}

static inline void golden_values(uint64_t seed, struct str name, int exponent, double mean, float *out,
                                 size_t n)
{
    const uint64_t g = 0x9E3779B97F4A7C15ull, start = golden_fnv(name, 0xCBF29CE484222325ull) + seed * g;
    for (size_t i = 0; i < n; i++) {
        uint64_t z = start + (i + 1) * g;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        int64_t sum = -126;
        for (int k = 0; k < 4; k++) sum += (int64_t)(z >> 6 * k & 63);
        out[i] = (float)(mean + ldexp((double)sum, exponent));
    }
}

static inline size_t golden_count(const struct json *shape)
{
    size_t n = 1;
    for (uint32_t i = 0; i < shape->count; i++) n *= (size_t)json_int(&shape->items[i], 0);
    return n;
}

static inline enum dtype golden_dtype(struct str s)
{
    return str_is(s, "F32") ? DTYPE_F32 : str_is(s, "F16") ? DTYPE_F16 : str_is(s, "F8_E4M3") ? DTYPE_F8_E4M3 : DTYPE_BF16;
}

/* One tensor of the list: [name, dtype, exponent, mean, shape, shard]. */
static inline const struct json *golden_tensor(const struct golden *g, struct str name)
{
    for (uint32_t i = 0; i < g->tensors->count; i++)
        if (str_eq(json_str(&g->tensors->items[i].items[0], ""), name)) return &g->tensors->items[i];
    return NULL;
}

/* Its float32 values, from malloc. */
static inline float *golden_make(const struct golden *g, const struct json *t, size_t *count)
{
    *count = golden_count(&t->items[4]);
    float *v = malloc(*count * sizeof *v);
    golden_values(g->seed, json_str(&t->items[0], ""), (int)json_int(&t->items[2], 0),
                  json_num(&t->items[3], 0), v, *count);
    return v;
}

static inline void golden_append(struct strbuf *b, enum dtype dtype, const float *v, size_t n)
{
    size_t bytes = dtype_row_bytes(dtype, n);
    strbuf_reserve(b, bytes);
    struct rose_error err;
    if (dtype_encode(dtype, v, b->p + b->n, n, &err) != ROSE_OK)
        printf("cannot encode: %s\n", err.message), exit(1);
    b->n += bytes;
}

static inline void golden_write(const char *path, const struct strbuf *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->p, 1, b->n, f) != b->n || fclose(f)) perror(path), exit(1);
}

/* The type that a tensor's file has; the values fit them all. */
static inline struct str golden_stored(const struct golden *g, const struct json *t)
{
    if (g->types == GOLDEN_F32) return STR("F32");
    if (g->types == GOLDEN_BF16 && t->items[4].count > 1) return STR("BF16");
    if (g->types == GOLDEN_F16 && t->items[4].count > 1) return STR("F16");
    return json_str(&t->items[1], "");
}

/* A safetensors file of the tensors of one shard. */
static inline void golden_write_shard(const struct golden *g, int shard, const char *path)
{
    struct strbuf head = {0}, data = {0}, all = {0};
    strbuf_addc(&head, '{');
    for (uint32_t i = 0; i < g->tensors->count; i++) {
        const struct json *t = &g->tensors->items[i];
        if (shard >= 0 && json_int(&t->items[5], 0) != shard) continue;
        size_t n, begin = data.n;
        float *v = golden_make(g, t, &n);
        struct str type = golden_stored(g, t);
        golden_append(&data, golden_dtype(type), v, n);
        free(v);
        strbuf_printf(&head, "%s\"" STR_FMT "\":{\"dtype\":\"" STR_FMT "\",\"shape\":", head.n > 1 ? "," : "",
                      STR_ARG(json_str(&t->items[0], "")), STR_ARG(type));
        json_add_value(&head, &t->items[4]);
        strbuf_printf(&head, ",\"data_offsets\":[%zu,%zu]}", begin, data.n);
    }
    strbuf_addc(&head, '}');
    while (head.n % 8) strbuf_addc(&head, ' ');
    uint64_t n = head.n;
    strbuf_add(&all, &n, 8);
    strbuf_add(&all, head.p, head.n);
    strbuf_add(&all, data.p, data.n);
    golden_write(path, &all);
    strbuf_free(&head), strbuf_free(&data), strbuf_free(&all);
}

/* config.json under a patch (RFC 7386; "__absent__" takes a key away). */
static inline void golden_merge(struct strbuf *b, const struct json *value, const struct json *patch)
{
    if (!json_is(patch, JSON_OBJECT) || !json_is(value, JSON_OBJECT)) {
        json_add_value(b, patch);
        return;
    }
    bool first = true;
    strbuf_addc(b, '{');
    for (int pass = 0; pass < 2; pass++) {
        const struct json *from = pass ? patch : value;
        for (uint32_t i = 0; i < from->count; i++) {
            char key[128];
            snprintf(key, sizeof key, STR_FMT, STR_ARG(from->members[i].key));
            const struct json *old = json_get(value, key), *new = json_get(patch, key);
            if ((pass && old) || str_is(json_str(new, ""), "__absent__")) continue;
            if (!first) strbuf_addc(b, ',');
            first = false;
            json_add_str(b, from->members[i].key);
            strbuf_addc(b, ':');
            if (new &&old)
                golden_merge(b, old, new);
            else
                json_add_value(b, new ? new : old);
        }
    }
    strbuf_addc(b, '}');
}

static inline void golden_write_config(const struct golden *g, const struct json *patch)
{
    static const struct json none = {.type = JSON_OBJECT};
    struct strbuf b = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/config.json", g->dir);
    golden_merge(&b, g->config, patch ? patch : &none);
    golden_write(path, &b);
    strbuf_free(&b);
}

static inline void golden_write_index(const struct golden *g, int shards)
{
    struct strbuf b = {0};
    char path[256];
    strbuf_adds(&b, "{\"metadata\":{},\"weight_map\":{");
    for (uint32_t i = 0; i < g->tensors->count; i++) {
        const struct json *t = &g->tensors->items[i];
        strbuf_printf(&b, "%s\"" STR_FMT "\":\"model-%05d-of-%05d.safetensors\"", i ? "," : "",
                      STR_ARG(json_str(&t->items[0], "")), (int)json_int(&t->items[5], 0) + 1, shards);
    }
    strbuf_adds(&b, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", g->dir);
    golden_write(path, &b);
    strbuf_free(&b);
}

/* The Hugging Face directory. */
static inline void golden_write_hf(const struct golden *g)
{
    char path[256];
    int shards = 1;
    for (uint32_t i = 0; i < g->tensors->count; i++) {
        int s = (int)json_int(&g->tensors->items[i].items[5], 0) + 1;
        if (s > shards) shards = s;
    }
    golden_write_config(g, NULL);
    for (int s = 0; s < shards; s++) {
        if (shards == 1)
            snprintf(path, sizeof path, "%s/model.safetensors", g->dir);
        else
            snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", g->dir, s + 1, shards);
        golden_write_shard(g, shards == 1 ? -1 : s, path);
    }
    if (shards > 1) golden_write_index(g, shards);
}

/* Rows of each head regrouped: first and second half interleaved. */
static inline void golden_permute(float *v, size_t count, size_t rows, size_t heads)
{
    size_t cols = count / rows, half = rows / heads / 2;
    float *copy = malloc(count * sizeof *copy);
    memcpy(copy, v, count * sizeof *copy);
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < half; i++)
            for (size_t k = 0; k < 2; k++)
                memcpy(v + (h * 2 * half + 2 * i + k) * cols, copy + (h * 2 * half + k * half + i) * cols,
                       cols * sizeof *v);
    free(copy);
}

static inline float *golden_cook(const struct golden *g, const struct json *r, size_t *count)
{
    *count = (size_t)json_int(json_get(r, "count"), 0);
    float *v = malloc(*count * sizeof *v + 1);
    const struct json *given = json_get(r, "values"), *parts = json_get(r, "parts");
    if (json_get(r, "exponent"))
        golden_values(g->seed, json_str(json_get(r, "name"), ""), (int)json_int(json_get(r, "exponent"), 0), json_num(json_get(r, "mean"), 0), v, *count);
    for (uint32_t i = 0; given && i < given->count; i++) v[i] = (float)json_num(&given->items[i], 0);
    size_t at = 0, n;
    const struct json *pick = json_get(r, "pick");
    for (uint32_t i = 0; parts && i < parts->count; i++, at += n) {
        float *p = golden_make(g, golden_tensor(g, json_str(&parts->items[i], "")), &n);
        size_t skip = (size_t)json_int(json_get(r, "skip"), 0), cols = pick ? *count / pick->count : 0;
        if (skip || pick) n = *count;
        for (uint32_t k = 0; pick && k < pick->count; k++) memcpy(v + k * cols, p + (size_t)json_int(&pick->items[k], 0) * cols, cols * sizeof *v);
        if (!pick) memcpy(v + at, p + skip, n * sizeof *v);
        free(p);
    }
    if (json_get(r, "permute"))
        golden_permute(v, *count, (size_t)json_int(json_get(r, "rows"), 0),
                       (size_t)json_int(json_get(r, "permute"), 1));
    for (size_t i = 0; i < *count; i++) v[i] += (float)json_num(json_get(r, "add"), 0);
    return v;
}

/* A matrix of random blocks (make_blocks.py says how their scales are made). */
static inline void golden_append_blocks(const struct golden *g, const struct json *r, struct strbuf *b)
{
    enum dtype dtype = DTYPE_NONE;
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (str_is(json_str(json_get(r, "dtype"), ""), dtype_info((enum dtype)d)->name)) dtype = (enum dtype)d;
    size_t bytes = dtype_row_bytes(dtype, (size_t)json_int(json_get(r, "count"), 0)), block = dtype_info(dtype)->bytes;
    const struct json *halves = json_get(r, "halves"), *single = json_get(r, "bytes");
    const uint64_t step = 0x9E3779B97F4A7C15ull, start = golden_fnv(json_str(json_get(r, "name"), ""), 0xCBF29CE484222325ull) + g->seed * step;
    strbuf_reserve(b, bytes);
    uint8_t *p = (uint8_t *)b->p + b->n;
    for (size_t i = 0; i < bytes; i++) {
        uint64_t z = start + (i / 8 + 1) * step;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        p[i] = (uint8_t)((z ^ z >> 31) >> i % 8 * 8);
    }
    for (uint8_t *at = p; at < p + bytes; at += block) {
        for (uint32_t i = 0; halves && i < halves->count; i++) {
            uint8_t *h = at + json_int(&halves->items[i].items[0], 0);
            uint32_t base = (uint32_t)json_int(&halves->items[i].items[1], 0), old = (uint32_t)(h[0] | h[1] << 8);
            uint32_t v = ((base & 0xffff) + (old & 0x1ff)) | (base >> 16 ? 0 : old & 0x8000);
            h[0] = (uint8_t)v, h[1] = (uint8_t)(v >> 8);
        }
        for (uint32_t i = 0; single && i < single->count; i++) {
            uint8_t *h = at + json_int(&single->items[i].items[0], 0);
            *h = (uint8_t)(json_int(&single->items[i].items[1], 0) + (*h & 1));
        }
    }
    b->n += bytes;
}

/* The GGUF file; false when it is not the one the script made. */
static inline bool golden_write_gguf(const struct golden *g)
{
    struct arena a;
    struct rose_error err;
    struct str head;
    struct strbuf b = {0};
    char path[256], want[17];
    arena_init(&a, 0);
    snprintf(path, sizeof path, GOLDEN_DIR "%s.gguf-head", g->name);
    if (file_read(&a, path, 1 << 20, &head, &err) != ROSE_OK) return printf("%s\n", err.message), false;
    strbuf_add(&b, head.p, head.n);
    const struct json *list = json_get(g->gguf, "tensors");
    for (uint32_t i = 0; i < list->count; i++) {
        size_t n;
        if (json_get(&list->items[i], "halves")) {
            golden_append_blocks(g, &list->items[i], &b);
            while (b.n % 32) strbuf_addc(&b, 0);
            continue;
        }
        float *v = golden_cook(g, &list->items[i], &n);
        golden_append(&b, golden_dtype(json_str(json_get(&list->items[i], "dtype"), "")), v, n);
        while (b.n % 32) strbuf_addc(&b, 0);
        free(v);
    }
    snprintf(want, sizeof want, "%016" PRIx64, golden_fnv(strbuf_str(&b), 0xCBF29CE484222325ull));
    bool same = str_is(json_str(json_get(g->gguf, "hash"), ""), want);
    golden_write(g->file, &b);
    strbuf_free(&b);
    arena_free(&a);
    return same;
}

static inline void golden_open(struct golden *g, const char *name)
{
    struct rose_error err = {0};
    struct str text;
    char path[256];
    *g = (struct golden){.name = name};
    arena_init(&g->arena, 0);
    snprintf(path, sizeof path, GOLDEN_DIR "%s.json", name);
    enum rose_status s = file_read(&g->arena, path, 1 << 24, &text, &err);
    if (s == ROSE_OK) s = json_parse(&g->arena, path, text, &g->root, &err);
    snprintf(path, sizeof path, GOLDEN_DIR "%s.logits", name);
    if (s == ROSE_OK) s = file_read(&g->arena, path, 1 << 24, &text, &err);
    if (s != ROSE_OK) printf("%s (run tests from the repository's root)\n", err.message), exit(1);
    g->logits = (const float *)(const void *)text.p;
    g->config = json_get(g->root, "config");
    g->tensors = json_get(g->root, "tensors");
    g->cases = json_get(g->root, "cases");
    g->flips = json_get(g->root, "flips");
    g->same = json_get(g->root, "same");
    g->gguf = json_get(g->root, "gguf");
    g->seed = (uint64_t)json_int(json_get(g->root, "seed"), 0);
    g->vocabulary = (int32_t)json_int(json_get(g->root, "vocabulary"), 0);
    const char *tmp = "/tmp";
    snprintf(g->dir, sizeof g->dir, "%s/rose-golden-%s-XXXXXX", tmp, name);
    if (!mkdtemp(g->dir)) perror(g->dir), exit(1);
    snprintf(g->file, sizeof g->file, "%s/model.gguf", g->dir);
}

static inline void golden_close(struct golden *g)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", g->dir);
    if (system(command)) printf("cannot remove %s\n", g->dir);
    arena_free(&g->arena);
}

/* The prompt or text of a case, from malloc. */
static inline int32_t *golden_ids(const struct json *list, int32_t *count)
{
    *count = (int32_t)list->count;
    int32_t *v = malloc((list->count + 1) * sizeof *v);
    for (uint32_t i = 0; i < list->count; i++) v[i] = (int32_t)json_int(&list->items[i], -1);
    return v;
}

static inline double golden_distance(const float *a, const float *b, int32_t n)
{
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

#endif
