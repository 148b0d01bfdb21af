/* GGUF metadata: reading the pairs, and typed access to them.
 *
 *     pair:   key (u64 length, bytes), type u32, value
 *     string: u64 length, bytes        array: type u32, count u64, elements        bool: one byte, 0 or 1
 */
#include "weights/weights_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_KEY = 65535, MAX_ITEMS = 1 << 24 };

static const struct {
    const char *name;
    uint8_t bytes; /* 0: variable */
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].name : "unknown";
}

/* ---- reading ---- */

static enum rose_status cut(struct gguf_cursor *c, const char *what)
{
    return status_at(c->err, c->capped ? ROSE_LIMIT : ROSE_FORMAT, c->file, (int64_t)c->at,
                     c->capped
                         ? "%s: the header reaches past 1 GiB, at byte %zu in %s"
                         : "%s: the file ends at byte %zu in the middle of %s: it is truncated or wrong",
                     c->file, c->capped ? c->at : c->size, what);
}

enum rose_status gguf_take(struct gguf_cursor *c, void *out, size_t n, const char *what)
{
    if (n > c->size - c->at) return cut(c, what);
    if (n) memcpy(out, c->data + c->at, n);
    c->at += n;
    return ROSE_OK;
}

enum rose_status gguf_take_str(struct gguf_cursor *c, struct str *out, const char *what)
{
    uint64_t n = 0;
    ROSE_TRY(gguf_take(c, &n, 8, what));
    if (n > c->size - c->at) return cut(c, what);
    *out = (struct str){(const char *)c->data + c->at, (size_t)n};
    c->at += (size_t)n;
    return ROSE_OK;
}

static enum rose_status bad(struct gguf_cursor *c, const struct gguf_value *v, const char *what)
{
    return status_at(c->err, ROSE_FORMAT, c->file, (int64_t)v->offset,
                     "%s: the value of " STR_FMT " at byte %llu %s", c->file,
                     (int)ROSE_MIN(v->key.n, (size_t)200), v->key.p, (unsigned long long)v->offset, what);
}

/* Moves over count elements of one type; strings are walked, bools looked at. */
static enum rose_status skip_items(struct gguf_cursor *c, const struct gguf_value *v, const char *what)
{
    size_t size = types[v->item].bytes, bytes;
    uint64_t left = c->size - c->at;
    if (v->item == GGUF_STRING) {
        struct str s;
        if (v->count > left / 8) return bad(c, v, "claims more strings than the file has room for");
        if (v->count > MAX_ITEMS) return bad(c, v, "has more than 16777216 strings");
        for (uint64_t i = 0; i < v->count; i++) ROSE_TRY(gguf_take_str(c, &s, what));
        return ROSE_OK;
    }
    if (v->count > left || !size_mul((size_t)v->count, size, &bytes) || bytes > left)
        return bad(c, v, "claims more elements than the file has room for");
    if (v->item == GGUF_BOOL)
        for (size_t i = 0; i < bytes; i++)
            if (v->data[i] > 1) return bad(c, v, "is neither true nor false");
    c->at += bytes;
    return ROSE_OK;
}

static enum rose_status read_pair(struct gguf_cursor *c, struct gguf_value *v)
{
    uint64_t at = c->at;
    uint32_t type = 0;
    const char *what;
    char place[96];
    ROSE_TRY(gguf_take_str(c, &v->key, "a metadata key"));
    if (!weights_name_ok(v->key, MAX_KEY, &what))
        return status_at(c->err, ROSE_FORMAT, c->file, (int64_t)at, "%s: the metadata key at byte %llu %s",
                         c->file, (unsigned long long)at, what);
    snprintf(place, sizeof place, STR_FMT, (int)ROSE_MIN(v->key.n, sizeof place - 1), v->key.p);
    ROSE_TRY(gguf_take(c, &type, 4, place));
    v->offset = c->at;
    v->data = c->data + c->at;
    v->count = 1;
    if (type >= GGUF_TYPE_COUNT) return bad(c, v, "has an unknown type");
    v->type = v->item = (enum gguf_type)type;
    if (type == GGUF_ARRAY) {
        ROSE_TRY(gguf_take(c, &type, 4, place));
        ROSE_TRY(gguf_take(c, &v->count, 8, place));
        if (type == GGUF_ARRAY) return bad(c, v, "is an array of arrays, which is not supported");
        if (type >= GGUF_TYPE_COUNT) return bad(c, v, "is an array of an unknown type");
        v->item = (enum gguf_type)type;
        v->offset = c->at;
        v->data = c->data + c->at;
    }
    return skip_items(c, v, place);
}

static int by_key(const void *a, const void *b)
{
    const struct gguf_entry *x = *(struct gguf_entry *const *)a, *y = *(struct gguf_entry *const *)b;
    return weights_compare(x->value.key, y->value.key);
}

enum rose_status gguf_meta_read(struct gguf_cursor *c, struct arena *arena, uint64_t count, struct gguf *out)
{
    *out = (struct gguf){ARENA_ARRAY(arena, struct gguf_entry, (size_t)count), (size_t)count,
                         ARENA_ARRAY(arena, struct gguf_entry *, (size_t)count)};
    if (!out->entries || !out->by_key) return weights_no_memory(c->file, c->err);
    for (size_t i = 0; i < out->count; i++) {
        ROSE_TRY(read_pair(c, &out->entries[i].value));
        out->by_key[i] = &out->entries[i];
    }
    qsort(out->by_key, out->count, sizeof *out->by_key, by_key);
    for (size_t i = 1; i < out->count; i++)
        if (by_key(&out->by_key[i - 1], &out->by_key[i]) == 0)
            return bad(c, &out->by_key[i]->value, "is the second under this key");
    return ROSE_OK;
}

/* ---- access ---- */

static struct gguf_entry *find(const struct gguf *g, struct str key)
{
    for (size_t low = 0, high = g->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = weights_compare(key, g->by_key[middle]->value.key);
        if (order == 0) return g->by_key[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct gguf_value *gguf_meta_find(const struct gguf *g, struct str key)
{
    const struct gguf_entry *e = find(g, key);
    return e ? &e->value : NULL;
}

size_t gguf_count(const struct weights *w)
{
    return w->gguf.count;
}
const struct gguf_value *gguf_at(const struct weights *w, size_t i)
{
    return i < w->gguf.count ? &w->gguf.entries[i].value : NULL;
}
const struct gguf_value *gguf_get(const struct weights *w, const char *key)
{
    return gguf_meta_find(&w->gguf, str_of(key));
}

#define LOAD(type) (memcpy(&(type##_), p, sizeof(type##_)), type##_)

bool gguf_int(const struct gguf_value *v, uint64_t i, int64_t *out)
{
    if (!v || i >= v->count || !types[v->item].bytes) return false;
    const uint8_t *p = v->data + i * types[v->item].bytes;
    uint16_t u16_;
    int16_t i16_;
    uint32_t u32_;
    int32_t i32_;
    uint64_t u64_;
    int64_t i64_;
    switch (v->item) {
    case GGUF_U8:
    case GGUF_BOOL: return *out = *p, true;
    case GGUF_I8: return *out = (int8_t)*p, true;
    case GGUF_U16: return *out = LOAD(u16), true;
    case GGUF_I16: return *out = LOAD(i16), true;
    case GGUF_U32: return *out = LOAD(u32), true;
    case GGUF_I32: return *out = LOAD(i32), true;
    case GGUF_I64: return *out = LOAD(i64), true;
    case GGUF_U64:
        if (LOAD(u64) > INT64_MAX) return false;
        return *out = (int64_t)u64_, true;
    default: return false;
    }
}

bool gguf_num(const struct gguf_value *v, uint64_t i, double *out)
{
    int64_t n;
    if (!v || i >= v->count || !types[v->item].bytes) return false;
    const uint8_t *p = v->data + i * types[v->item].bytes;
    float f32_;
    double f64_;
    uint64_t u64_;
    if (v->item == GGUF_F32) return *out = (double)LOAD(f32), true;
    if (v->item == GGUF_F64) return *out = LOAD(f64), true;
    if (v->item == GGUF_U64) return *out = (double)LOAD(u64), true;
    if (!gguf_int(v, i, &n)) return false;
    return *out = (double)n, true;
}

bool gguf_text(const struct gguf_value *v, struct str *out)
{
    uint64_t n;
    if (!v || v->type != GGUF_STRING) return false;
    memcpy(&n, v->data, 8); /* checked when the file was opened */
    *out = (struct str){(const char *)v->data + 8, (size_t)n};
    return true;
}

/* ---- getters with errors ---- */

static const char *meta_file(const struct weights *w)
{
    return w->nfiles ? w->files[0].path : w->path;
}

static enum rose_status missing(const struct weights *w, const char *key, struct rose_error *err)
{
    return status_at(err, ROSE_NOT_FOUND, meta_file(w), -1, "%s has no metadata key %s", meta_file(w), key);
}

static enum rose_status wrong(const struct weights *w, const struct gguf_value *v, const char *expected,
                              struct rose_error *err)
{
    bool array = v->type == GGUF_ARRAY;
    return status_at(err, ROSE_FORMAT, meta_file(w), (int64_t)v->offset,
                     "%s: " STR_FMT " at byte %llu is %s%s, expected %s", meta_file(w),
                     (int)ROSE_MIN(v->key.n, (size_t)200), v->key.p, (unsigned long long)v->offset,
                     array ? "an array of " : "", gguf_type_name(v->item), expected);
}

enum rose_status gguf_i64(const struct weights *w, const char *key, int64_t *out, struct rose_error *err)
{
    const struct gguf_value *v = gguf_get(w, key);
    if (!v) return missing(w, key, err);
    if (v->type == GGUF_ARRAY || v->type == GGUF_BOOL || !gguf_int(v, 0, out))
        return wrong(w, v, "an integer below 2^63", err);
    return ROSE_OK;
}

enum rose_status gguf_u64(const struct weights *w, const char *key, uint64_t *out, struct rose_error *err)
{
    const struct gguf_value *v = gguf_get(w, key);
    int64_t n;
    if (!v) return missing(w, key, err);
    if (v->type == GGUF_U64) {
        memcpy(out, v->data, 8);
        return ROSE_OK;
    }
    if (v->type == GGUF_ARRAY || v->type == GGUF_BOOL || !gguf_int(v, 0, &n) || n < 0)
        return wrong(w, v, "an integer that is not negative", err);
    *out = (uint64_t)n;
    return ROSE_OK;
}

enum rose_status gguf_f64(const struct weights *w, const char *key, double *out, struct rose_error *err)
{
    const struct gguf_value *v = gguf_get(w, key);
    if (!v) return missing(w, key, err);
    if (v->type == GGUF_ARRAY || v->type == GGUF_BOOL || !gguf_num(v, 0, out))
        return wrong(w, v, "a number", err);
    return ROSE_OK;
}

enum rose_status gguf_bool(const struct weights *w, const char *key, bool *out, struct rose_error *err)
{
    const struct gguf_value *v = gguf_get(w, key);
    if (!v) return missing(w, key, err);
    if (v->type != GGUF_BOOL) return wrong(w, v, "bool", err);
    *out = *v->data != 0;
    return ROSE_OK;
}

enum rose_status gguf_str(const struct weights *w, const char *key, struct str *out, struct rose_error *err)
{
    const struct gguf_value *v = gguf_get(w, key);
    if (!v) return missing(w, key, err);
    return gguf_text(v, out) ? ROSE_OK : wrong(w, v, "string", err);
}

/* ---- arrays ---- */

/* The entry, if it is an array; its memory is kept in the arena, which the caller's const does not protect.
 */
static enum rose_status find_array(const struct weights *w, const char *key, const char *expected,
                                   struct gguf_entry **out, struct rose_error *err)
{
    struct gguf_entry *e = find(&w->gguf, str_of(key));
    if (!e) return missing(w, key, err);
    if (e->value.type != GGUF_ARRAY) return wrong(w, &e->value, expected, err);
    if (e->value.count > MAX_ITEMS)
        return status_at(err, ROSE_LIMIT, meta_file(w), (int64_t)e->value.offset,
                         "%s: %s has %llu elements; the limit is %d", meta_file(w), key,
                         (unsigned long long)e->value.count, MAX_ITEMS);
    *out = e;
    return ROSE_OK;
}

static enum rose_status keep(const struct weights *w, struct gguf_entry *e, size_t size,
                             struct rose_error *err)
{
    struct arena *arena = &((struct weights *)(uintptr_t)w)->arena;
    e->kept = arena_zalloc(arena, (size_t)e->value.count + 1, size);
    return e->kept ? ROSE_OK : weights_no_memory(meta_file(w), err);
}

enum rose_status gguf_strings(const struct weights *w, const char *key, const struct str **out, size_t *n,
                              struct rose_error *err)
{
    struct gguf_entry *e;
    ROSE_TRY(find_array(w, key, "an array of string", &e, err));
    if (e->value.item != GGUF_STRING) return wrong(w, &e->value, "an array of string", err);
    if (!e->kept) {
        ROSE_TRY(keep(w, e, sizeof(struct str), err));
        struct str *s = e->kept;
        const uint8_t *p = e->value.data;
        for (uint64_t i = 0; i < e->value.count; i++) { /* lengths were checked when the file was opened */
            uint64_t bytes;
            memcpy(&bytes, p, 8);
            s[i] = (struct str){(const char *)p + 8, (size_t)bytes};
            p += 8 + bytes;
        }
    }
    *out = e->kept;
    *n = (size_t)e->value.count;
    return ROSE_OK;
}

enum rose_status gguf_f32s(const struct weights *w, const char *key, const float **out, size_t *n,
                           struct rose_error *err)
{
    struct gguf_entry *e;
    ROSE_TRY(find_array(w, key, "an array of f32", &e, err));
    if (e->value.item != GGUF_F32) return wrong(w, &e->value, "an array of f32", err);
    if (!e->kept) {
        ROSE_TRY(keep(w, e, sizeof(float), err));
        memcpy(e->kept, e->value.data, (size_t)e->value.count * sizeof(float));
    }
    *out = e->kept;
    *n = (size_t)e->value.count;
    return ROSE_OK;
}

enum rose_status gguf_i32s(const struct weights *w, const char *key, const int32_t **out, size_t *n,
                           struct rose_error *err)
{
    struct gguf_entry *e;
    int64_t x = 0;
    ROSE_TRY(find_array(w, key, "an array of i32", &e, err));
    if (e->value.item == GGUF_BOOL || e->value.item == GGUF_STRING || e->value.item == GGUF_F32 ||
        e->value.item == GGUF_F64)
        return wrong(w, &e->value, "an array of i32", err);
    if (!e->kept) {
        for (uint64_t i = 0; i < e->value.count; i++)
            if (!gguf_int(&e->value, i, &x) || x < INT32_MIN || x > INT32_MAX)
                return wrong(w, &e->value, "an array of i32 (an element does not fit)", err);
        ROSE_TRY(keep(w, e, sizeof(int32_t), err));
        for (uint64_t i = 0; i < e->value.count; i++) {
            gguf_int(&e->value, i, &x);
            ((int32_t *)e->kept)[i] = (int32_t)x;
        }
    }
    *out = e->kept;
    *n = (size_t)e->value.count;
    return ROSE_OK;
}
