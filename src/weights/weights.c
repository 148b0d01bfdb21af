#include "weights/weights_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

/* ---- names, shapes, extents ---- */

int weights_compare(struct str a, struct str b)
{
    int c = memcmp(a.p, b.p, ROSE_MIN(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

bool weights_name_ok(struct str name, size_t limit, const char **what)
{
    *what = NULL;
    if (name.n == 0)
        *what = "is empty";
    else if (name.n > limit)
        *what = "is too long";
    else if (!utf8_valid(name))
        *what = "is not UTF-8";
    for (size_t i = 0; i < name.n && !*what; i++)
        if ((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7F) *what = "has control characters";
    return !*what;
}

void weights_shape_text(int ndim, const int64_t *shape, char out[static 192])
{
    size_t n = 0;
    out[n++] = '[';
    for (int i = 0; i < ndim && i < WEIGHTS_MAX_DIMS; i++) {
        if (i) n += (size_t)snprintf(out + n, 192 - n, ", ");
        n += (size_t)(shape[i] < 0 ? snprintf(out + n, 192 - n, "*")
                                   : snprintf(out + n, 192 - n, "%lld", (long long)shape[i]));
    }
    snprintf(out + n, 192 - n, "]");
}

enum rose_status weights_measure(struct weights_tensor *t, const struct weights_format *format, bool rows,
                                 uint64_t at, struct rose_error *err)
{
    int64_t total = 1, bytes;
    char shape[192];
    weights_shape_text(t->ndim, t->shape, shape);
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(total, t->shape[i], &total) || total > INT64_MAX / 16)
            return status_at(err, ROSE_FORMAT, t->file, (int64_t)at,
                             "%s: tensor %s at byte %llu has an impossible shape %s", t->file, t->name.p,
                             (unsigned long long)at, shape);
    int64_t whole = rows ? t->ndim ? t->shape[t->ndim - 1] : 1 : total;
    if (whole % format->block ||
        __builtin_mul_overflow(total / format->block, (int64_t)format->bytes, &bytes))
        return status_at(err, ROSE_FORMAT, t->file, (int64_t)at,
                         "%s: tensor %s at byte %llu is %s of shape %s, which is not whole blocks of %d",
                         t->file, t->name.p, (unsigned long long)at, format->name, shape, format->block);
    t->type = format->name;
    t->bytes = (uint64_t)bytes;
    struct tensor *v = &t->tensor;
    v->dtype = format->dtype;
    v->ndim = ROSE_MIN(t->ndim, (int)TENSOR_MAX_DIMS);
    int folded = t->ndim - v->ndim;
    int64_t first = 1; /* a prefix of the product above, so it fits */
    for (int i = 0; i <= folded && t->ndim; i++) first *= t->shape[i];
    for (int i = 0; i < v->ndim; i++) v->shape[i] = i ? t->shape[i + folded] : first;
    return ROSE_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct weights_tensor *x = *(const struct weights_tensor *const *)a,
                                *y = *(const struct weights_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The check over tensors sorted by offset. */
static enum rose_status check_extents(const struct weights_tensor **t, size_t n, const char *file,
                                      uint64_t begin, uint64_t end, bool whole, struct rose_error *err)
{
    uint64_t at = begin;
    const char *before = NULL;
    for (size_t i = 0; i < n; i++) {
        uint64_t from = t[i]->offset;
        if (from < begin || from > end || t[i]->bytes > end - from)
            return status_at(err, ROSE_FORMAT, file, (int64_t)from,
                             "%s: tensor %s wants %llu bytes at %llu, but the data ends at byte %llu: the "
                             "file is truncated or wrong",
                             file, t[i]->name.p, (unsigned long long)t[i]->bytes, (unsigned long long)from,
                             (unsigned long long)end);
        if (t[i]->bytes == 0) continue;
        if (from < at)
            return status_at(err, ROSE_FORMAT, file, (int64_t)from,
                             "%s: tensors %s and %s share bytes from %llu on", file, before, t[i]->name.p,
                             (unsigned long long)from);
        if (whole && from > at)
            return status_at(err, ROSE_FORMAT, file, (int64_t)at,
                             "%s: bytes %llu to %llu before tensor %s belong to no tensor", file,
                             (unsigned long long)at, (unsigned long long)from, t[i]->name.p);
        at = from + t[i]->bytes;
        before = t[i]->name.p;
    }
    if (whole && at != end)
        return status_at(err, ROSE_FORMAT, file, (int64_t)at,
                         "%s: bytes %llu to %llu at the end belong to no tensor", file,
                         (unsigned long long)at, (unsigned long long)end);
    return ROSE_OK;
}

enum rose_status weights_extents(struct weights *w, size_t first, uint64_t begin, uint64_t end, bool whole,
                                 struct rose_error *err)
{
    size_t n = w->count - first;
    const char *file = w->files[w->nfiles - 1].path;
    const struct weights_tensor **sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted) return weights_no_memory(file, err);
    for (size_t i = 0; i < n; i++) sorted[i] = &w->tensors[first + i];
    qsort(sorted, n, sizeof *sorted, by_offset);
    enum rose_status s = check_extents(sorted, n, file, begin, end, whole, err);
    free(sorted);
    return s;
}

/* ---- the open checkpoint ---- */

enum rose_status weights_map(struct weights *w, const char *path, int *part, struct rose_error *err)
{
    struct file_map *files = realloc(w->files, ((size_t)w->nfiles + 1) * sizeof *files);
    if (!files) return weights_no_memory(path, err);
    w->files = files;
    ROSE_TRY(file_map_open(&files[w->nfiles], path, err));
    *part = w->nfiles++;
    return ROSE_OK;
}

struct weights_tensor *weights_slot(struct weights *w)
{
    if (w->count == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 256;
        if (cap > UINT32_MAX / 2) return NULL;
        struct weights_tensor *more = realloc(w->tensors, cap * sizeof *more);
        if (!more) return NULL;
        w->tensors = more;
        w->cap = cap;
    }
    struct weights_tensor *t = &w->tensors[w->count];
    *t = (struct weights_tensor){0};
    return t;
}

static int by_name(const void *a, const void *b)
{
    const struct weights_tensor *x = *(const struct weights_tensor *const *)a,
                                *y = *(const struct weights_tensor *const *)b;
    return weights_compare(x->name, y->name);
}

enum rose_status weights_sort(struct weights *w, struct rose_error *err)
{
    if (w->by_name) return ROSE_OK;
    w->by_name = calloc(w->count + 1, sizeof *w->by_name);
    if (!w->by_name) return weights_no_memory(w->path, err);
    for (size_t i = 0; i < w->count; i++) w->by_name[i] = &w->tensors[i];
    qsort(w->by_name, w->count, sizeof *w->by_name, by_name);
    for (size_t i = 1; i < w->count; i++) {
        const struct weights_tensor *a = w->by_name[i - 1], *b = w->by_name[i];
        if (!str_eq(a->name, b->name)) continue;
        if (a->part != b->part)
            return status_at(err, ROSE_FORMAT, b->file, (int64_t)b->offset, "tensor %s is in both %s and %s",
                             a->name.p, a->file, b->file);
        return status_at(err, ROSE_FORMAT, b->file, (int64_t)b->offset,
                         "%s: two tensors are called %s (data at bytes %llu and %llu)", b->file, a->name.p,
                         (unsigned long long)ROSE_MIN(a->offset, b->offset),
                         (unsigned long long)ROSE_MAX(a->offset, b->offset));
    }
    return ROSE_OK;
}

static enum rose_status open_safetensors(struct weights *w, const char *path, struct rose_error *err)
{
    int part = 0;
    w->kind = WEIGHTS_SAFETENSORS;
    ROSE_TRY(weights_map(w, path, &part, err));
    return safetensors_read(w, part, err);
}

/* The first bytes decide, not the name: "GGUF", or a JSON object behind eight bytes of length. */
static enum rose_status open_any(struct weights *w, const char *path, struct rose_error *err)
{
    if (file_is_dir(path)) return hf_open(w, path, err);
    struct file_map map;
    ROSE_TRY(file_map_open(&map, path, err));
    bool gguf = map.size >= 4 && !memcmp(map.data, "GGUF", 4);
    bool safetensors = str_ends(str_of(path), STR(".safetensors")) || (map.size > 8 && map.data[8] == '{');
    file_map_close(&map);
    if (gguf) return gguf_open(w, path, err);
    if (safetensors) return open_safetensors(w, path, err);
    return status_at(err, ROSE_FORMAT, path, 0,
                     "%s is neither a GGUF nor a safetensors file: it does not begin with \"GGUF\" and has "
                     "no safetensors header; is the download complete?",
                     path);
}

static enum rose_status open_path(const char *path, enum rose_status (*open)(struct weights *, const char *, struct rose_error *),
                                  struct weights **out, struct rose_error *err)
{
    *out = NULL;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return weights_no_memory(path, err);
    arena_init(&w->arena, 0);
    enum rose_status s = ROSE_OK;
    w->path = arena_strndup(&w->arena, path, strlen(path));
    if (!w->path) s = weights_no_memory(path, err);
    if (s == ROSE_OK) s = open(w, path, err);
    if (s == ROSE_OK) s = weights_sort(w, err);
    if (s != ROSE_OK) {
        weights_close(w);
        return s;
    }
    *out = w;
    return ROSE_OK;
}

enum rose_status weights_open(const char *path, struct weights **out, struct rose_error *err)
{
    return open_path(path, open_any, out, err);
}

enum rose_status weights_open_config(const char *dir, struct weights **out, struct rose_error *err)
{
    return open_path(dir, hf_open_config, out, err);
}

void weights_close(struct weights *w)
{
    if (!w) return;
    for (int i = 0; i < w->nfiles; i++) file_map_close(&w->files[i]);
    free(w->files);
    free(w->tensors);
    free(w->by_name);
    arena_free(&w->arena);
    free(w);
}

enum weights_kind weights_kind(const struct weights *w)
{
    return w->kind;
}
const char *weights_path(const struct weights *w)
{
    return w->path;
}
size_t weights_count(const struct weights *w)
{
    return w->count;
}
const struct weights_tensor *weights_tensor(const struct weights *w, size_t i)
{
    return i < w->count ? &w->tensors[i] : NULL;
}
const struct json *weights_config(const struct weights *w)
{
    return w->config;
}
const struct json *weights_generation_config(const struct weights *w)
{
    return w->generation_config;
}

const struct weights_tensor *weights_lookup(const struct weights *w, struct str name)
{
    for (size_t low = 0, high = w->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        int c = weights_compare(name, w->by_name[middle]->name);
        if (c == 0) return w->by_name[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct weights_tensor *weights_find(const struct weights *w, const char *name)
{
    return weights_lookup(w, str_of(name));
}

void weights_release(const struct weights *w, const struct weights_tensor *t)
{
    file_map_release(&w->files[t->part], (size_t)t->offset, (size_t)t->bytes);
}

/* ---- summary ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct weights_type *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->type, y->type);
}

void weights_summary(const struct weights *w, struct weights_summary *out)
{
    *out = (struct weights_summary){.files = w->nfiles, .tensors = w->count};
    for (size_t i = 0; i < w->count; i++) {
        const struct weights_tensor *t = &w->tensors[i];
        uint64_t parameters = 1;
        for (int d = 0; d < t->ndim; d++) parameters *= (uint64_t)t->shape[d];
        int k = 0;
        while (k < out->types && out->type[k].type != t->type) k++; /* names are static strings */
        if (k == out->types) {
            if (k == (int)ROSE_COUNT(out->type))
                k--; /* there are fewer types than that */
            else
                out->type[out->types++].type = t->type;
        }
        out->type[k].tensors++;
        out->type[k].parameters += parameters;
        out->type[k].bytes += t->bytes;
        out->parameters += parameters;
        out->bytes += t->bytes;
    }
    qsort(out->type, (size_t)out->types, sizeof *out->type, by_bytes);
}
