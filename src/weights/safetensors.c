/* safetensors: u64 length of the header, the header (a JSON object: name -> {dtype, shape, data_offsets}),
 * the data.
 *
 *     | n: u64 | n bytes of JSON | tensor data, each byte of it in exactly one tensor |
 *                                ^ data_offsets count from here
 *
 * Format: the README of the safetensors repository ("Format"). */
#include "weights/weights_internal.h"

#include <stdio.h>

enum { HEADER_LIMIT = 100 * 1000 * 1000 }; /* bytes, the format's own */

static const struct weights_format formats[] = {
    {"F64", 1, 8, DTYPE_F64},          {"F32", 1, 4, DTYPE_F32},         {"F16", 1, 2, DTYPE_F16},
    {"BF16", 1, 2, DTYPE_BF16},        {"F8_E4M3", 1, 1, DTYPE_F8_E4M3}, {"F8_E5M2", 1, 1, DTYPE_F8_E5M2},
    {"BOOL", 1, 1, DTYPE_BOOL},        {"U8", 1, 1, DTYPE_U8},           {"I8", 1, 1, DTYPE_I8},
    {"U16", 1, 2, DTYPE_U16},          {"I16", 1, 2, DTYPE_I16},         {"U32", 1, 4, DTYPE_U32},
    {"I32", 1, 4, DTYPE_I32},          {"U64", 1, 8, DTYPE_U64},         {"I64", 1, 8, DTYPE_I64},
    {"C64", 1, 8, DTYPE_NONE},         {"F8_E8M0", 1, 1, DTYPE_NONE},    {"F8_E4M3FNUZ", 1, 1, DTYPE_NONE},
    {"F8_E5M2FNUZ", 1, 1, DTYPE_NONE}, {"F6_E2M3", 4, 3, DTYPE_NONE},    {"F6_E3M2", 4, 3, DTYPE_NONE},
    {"F4", 2, 1, DTYPE_NONE},
};

/* One header being read. */
struct reader {
    struct weights *w;
    const char *file;
    uint64_t data; /* where tensor data begins in the file */
    struct rose_error *err;
};

/* Byte 8 is where the JSON begins. */
static enum rose_status bad(struct reader *r, struct str name, const struct json *where, const char *what)
{
    uint64_t at = 8 + (where ? (uint64_t)where->offset : 0);
    return status_at(r->err, ROSE_FORMAT, r->file, (int64_t)at,
                     "%s: tensor " STR_FMT " (header byte %llu): %s", r->file,
                     (int)ROSE_MIN(name.n, (size_t)200), name.p, (unsigned long long)at, what);
}

static enum rose_status read_shape(struct reader *r, const struct json *shape, struct weights_tensor *t)
{
    if (!json_is(shape, JSON_ARRAY)) return bad(r, t->name, shape, "shape is not an array");
    if (shape->count > WEIGHTS_MAX_DIMS) return bad(r, t->name, shape, "shape has more than 8 dimensions");
    t->ndim = (int)shape->count;
    for (uint32_t i = 0; i < shape->count; i++) {
        const struct json *n = json_at(shape, i);
        if (!json_is(n, JSON_NUMBER) || !n->is_integer || n->integer < 0)
            return bad(r, t->name, n, "a dimension is not a whole number below 2^63");
        t->shape[i] = n->integer;
    }
    return ROSE_OK;
}

static enum rose_status read_offsets(struct reader *r, const struct json *offsets, struct weights_tensor *t)
{
    if (!json_is(offsets, JSON_ARRAY) || offsets->count != 2)
        return bad(r, t->name, offsets, "data_offsets is not an array of two numbers");
    for (int i = 0; i < 2; i++) {
        const struct json *n = json_at(offsets, i);
        if (!json_is(n, JSON_NUMBER) || !n->is_integer || n->integer < 0)
            return bad(r, t->name, n, "an offset is not a whole number below 2^63");
    }
    int64_t begin = json_at(offsets, 0)->integer, end = json_at(offsets, 1)->integer;
    if (end < begin) return bad(r, t->name, offsets, "data_offsets end before they begin");
    if ((uint64_t)(end - begin) != t->bytes) {
        char what[320], shape[192];
        weights_shape_text(t->ndim, t->shape, shape);
        snprintf(what, sizeof what, "data_offsets hold %lld bytes, but %s of shape %s has %llu",
                 (long long)(end - begin), t->type, shape, (unsigned long long)t->bytes);
        return bad(r, t->name, offsets, what);
    }
    t->offset = r->data + (uint64_t)begin; /* < 2^63 + 2^27 */
    return ROSE_OK;
}

static enum rose_status read_tensor(struct reader *r, const struct json_member *m, int part)
{
    const char *what;
    const struct json *v = &m->value, *field[3] = {0};
    static const char *const names[3] = {"dtype", "shape", "data_offsets"};
    if (!weights_name_ok(m->key, WEIGHTS_MAX_NAME, &what))
        return status_at(r->err, ROSE_FORMAT, r->file, (int64_t)(8 + v->offset),
                         "%s: the tensor name before byte %zu %s", r->file, 8 + v->offset, what);
    if (v->type != JSON_OBJECT) return bad(r, m->key, v, "an object was expected");
    for (uint32_t i = 0; i < v->count; i++)
        for (int k = 0; k < 3; k++) {
            if (!str_is(json_member(v, i)->key, names[k])) continue;
            if (field[k]) return bad(r, m->key, v, "dtype, shape or data_offsets is given twice");
            field[k] = &json_member(v, i)->value;
        }
    for (int k = 0; k < 3; k++)
        if (!field[k])
            return bad(r, m->key, v,
                       k == 0   ? "dtype is missing"
                       : k == 1 ? "shape is missing"
                                : "data_offsets is missing");

    struct weights_tensor *t = weights_slot(r->w);
    if (t) t->name = (struct str){arena_strndup(&r->w->arena, m->key.p, m->key.n), m->key.n};
    if (!t || !t->name.p) return weights_no_memory(r->file, r->err);
    t->file = r->file;
    t->part = part;
    const struct weights_format *format = NULL;
    struct str type = json_str(field[0], "");
    for (size_t i = 0; i < ROSE_COUNT(formats) && !format; i++)
        if (str_is(type, formats[i].name)) format = &formats[i];
    if (!format) return bad(r, t->name, field[0], "unknown dtype");
    ROSE_TRY(read_shape(r, field[1], t));
    ROSE_TRY(weights_measure(t, format, false, 8 + field[1]->offset, r->err));
    ROSE_TRY(read_offsets(r, field[2], t));
    r->w->count++;
    return ROSE_OK;
}

static enum rose_status read_header(struct reader *r, int part, const struct json *root)
{
    const struct file_map *map = &r->w->files[part];
    size_t first = r->w->count;
    bool metadata = false;
    if (root->type != JSON_OBJECT)
        return status_at(r->err, ROSE_FORMAT, r->file, 8, "%s: the header is not a JSON object", r->file);
    for (uint32_t i = 0; i < root->count; i++) {
        const struct json_member *m = json_member(root, i);
        if (!str_is(m->key, "__metadata__")) {
            ROSE_TRY(read_tensor(r, m, part));
            continue;
        }
        if (metadata || m->value.type != JSON_OBJECT)
            return status_at(r->err, ROSE_FORMAT, r->file, (int64_t)(8 + m->value.offset),
                             "%s: __metadata__ is given twice or is not an object", r->file);
        metadata = true;
    }
    ROSE_TRY(weights_extents(r->w, first, r->data, map->size, true, r->err));
    for (size_t i = first; i < r->w->count; i++)
        r->w->tensors[i].tensor.data = map->data + r->w->tensors[i].offset;
    return ROSE_OK;
}

enum rose_status safetensors_read(struct weights *w, int part, struct rose_error *err)
{
    const struct file_map *map = &w->files[part];
    const char *file = map->path;
    uint64_t n;
    if (map->size < 8)
        return status_at(err, ROSE_FORMAT, file, 0, "%s has %zu bytes, too few for a safetensors header",
                         file, map->size);
    memcpy(&n, map->data, 8);
    if (n > map->size - 8)
        return status_at(
            err, ROSE_FORMAT, file, 0,
            "%s: the header has %llu bytes, but the file only %zu: it is truncated or no safetensors file",
            file, (unsigned long long)n, map->size);
    if (n > HEADER_LIMIT)
        return status_at(err, ROSE_LIMIT, file, 0, "%s: the header has %llu bytes; the format allows %d",
                         file, (unsigned long long)n, HEADER_LIMIT);
    /* A real header makes about 8 bytes of nodes a byte; the bound keeps a hostile one from making many times
     * more. */
    struct arena scratch;
    arena_init(&scratch, (size_t)n * 24 + 65536);
    const struct json *root = NULL;
    enum rose_status s =
        json_parse(&scratch, file, (struct str){(const char *)map->data + 8, (size_t)n}, &root, err);
    if (s == ROSE_OK) {
        struct reader r = {w, file, 8 + n, err};
        s = read_header(&r, part, root);
    } else if (err) {
        if (err->offset >= 0) err->offset += 8;
        status_wrap(err, s, "%s: the header", file);
    }
    arena_free(&scratch);
    return s;
}
