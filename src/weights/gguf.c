/* GGUF files: header, metadata, tensor descriptions, data. Little-endian throughout.
 *
 *     | "GGUF" | version u32 | tensors u64 | pairs u64 | pairs… | descriptions… | padding | data |
 *       description: name (u64 length, bytes), dimensions u32, each u64 with the innermost first, type u32,
 * offset u64
 *
 * Offsets count from the data's begin; both are multiples of general.alignment (32 if absent). A split model
 * is several files NAME-00001-of-0000N.gguf; the first has all metadata, each has split.no and split.count.
 * Format: docs/gguf.md of the ggml repository; type numbers and block sizes: enum ggml_type there. */
#include "weights/weights_internal.h"

#include <stdio.h>

enum { MAX_TENSORS = 1 << 20, MAX_PAIRS = 1 << 20 };
static const size_t header_limit =
    (size_t)1 << 30; /* bytes before the data: bounds the time that a sparse file can cost */

/* Types that Rose computes with have a dtype; the others are listed and refused when bound. */
static const struct weights_format formats[] = {
    [0] = {"F32", 1, 4, DTYPE_F32},
    [1] = {"F16", 1, 2, DTYPE_F16},
    [2] = {"Q4_0", 32, 18, DTYPE_Q4_0},
    [3] = {"Q4_1", 32, 20, DTYPE_Q4_1},
    [6] = {"Q5_0", 32, 22, DTYPE_Q5_0},
    [7] = {"Q5_1", 32, 24, DTYPE_Q5_1},
    [8] = {"Q8_0", 32, 34, DTYPE_Q8_0},
    [9] = {"Q8_1", 32, 36, DTYPE_NONE},
    [10] = {"Q2_K", 256, 84, DTYPE_Q2_K},
    [11] = {"Q3_K", 256, 110, DTYPE_Q3_K},
    [12] = {"Q4_K", 256, 144, DTYPE_Q4_K},
    [13] = {"Q5_K", 256, 176, DTYPE_Q5_K},
    [14] = {"Q6_K", 256, 210, DTYPE_Q6_K},
    [15] = {"Q8_K", 256, 292, DTYPE_NONE},
    [16] = {"IQ2_XXS", 256, 66, DTYPE_NONE},
    [17] = {"IQ2_XS", 256, 74, DTYPE_NONE},
    [18] = {"IQ3_XXS", 256, 98, DTYPE_NONE},
    [19] = {"IQ1_S", 256, 50, DTYPE_NONE},
    [20] = {"IQ4_NL", 32, 18, DTYPE_IQ4_NL},
    [21] = {"IQ3_S", 256, 110, DTYPE_NONE},
    [22] = {"IQ2_S", 256, 82, DTYPE_NONE},
    [23] = {"IQ4_XS", 256, 136, DTYPE_IQ4_XS},
    [24] = {"I8", 1, 1, DTYPE_I8},
    [25] = {"I16", 1, 2, DTYPE_I16},
    [26] = {"I32", 1, 4, DTYPE_I32},
    [27] = {"I64", 1, 8, DTYPE_I64},
    [28] = {"F64", 1, 8, DTYPE_F64},
    [29] = {"IQ1_M", 256, 56, DTYPE_NONE},
    [30] = {"BF16", 1, 2, DTYPE_BF16},
    [31] = {"Q4_0_4_4", 32, 18, DTYPE_NONE},
    [32] = {"Q4_0_4_8", 32, 18, DTYPE_NONE},
    [33] = {"Q4_0_8_8", 32, 18, DTYPE_NONE},
    [34] = {"TQ1_0", 256, 54, DTYPE_NONE},
    [35] = {"TQ2_0", 256, 66, DTYPE_NONE},
    [36] = {"IQ4_NL_4_4", 32, 18, DTYPE_NONE},
    [37] = {"IQ4_NL_4_8", 32, 18, DTYPE_NONE},
    [38] = {"IQ4_NL_8_8", 32, 18, DTYPE_NONE},
    [39] = {"MXFP4", 32, 17, DTYPE_MXFP4},
    [40] = {"NVFP4", 64, 36, DTYPE_NONE},
    [41] = {"Q1_0", 128, 18, DTYPE_NONE},
};

static enum rose_status open_cursor(const struct file_map *map, struct gguf_cursor *c, uint64_t *tensors,
                                    uint64_t *pairs, struct rose_error *err)
{
    uint32_t head[2];
    const char *file = map->path;
    *c = (struct gguf_cursor){file, map->data, ROSE_MIN(map->size, header_limit), 0, map->size > header_limit,
                              err};
    ROSE_TRY(gguf_take(c, head, 8, "the header"));
    if (memcmp(head, "GGUF", 4))
        return status_at(err, ROSE_FORMAT, file, 0, "%s does not begin with \"GGUF\"", file);
    uint32_t version = head[1];
    if (version != 2 && version != 3) {
        bool swapped = version && !(version & 0xFFFF);
        return status_at(
            err, ROSE_UNSUPPORTED, file, 4,
            swapped ? "%s is big-endian (version bytes %08x); convert it to little-endian"
                    : "%s has GGUF version %u; versions 2 and 3 are supported: convert the model again",
            file, version);
    }
    ROSE_TRY(gguf_take(c, tensors, 8, "the header"));
    ROSE_TRY(gguf_take(c, pairs, 8, "the header"));
    /* A pair takes 13 bytes at least, a description 25. */
    if (*tensors > MAX_TENSORS || *tensors > c->size / 25)
        return status_at(err, ROSE_FORMAT, file, 8, "%s claims %llu tensors, more than %s", file,
                         (unsigned long long)*tensors,
                         *tensors > MAX_TENSORS ? "the limit of 1048576" : "the file has room for");
    if (*pairs > MAX_PAIRS || *pairs > c->size / 13)
        return status_at(err, ROSE_FORMAT, file, 16, "%s claims %llu metadata pairs, more than %s", file,
                         (unsigned long long)*pairs,
                         *pairs > MAX_PAIRS ? "the limit of 1048576" : "the file has room for");
    return ROSE_OK;
}

static enum rose_status read_tensor(struct weights *w, struct gguf_cursor *c, int part)
{
    const char *what, *file = c->file;
    uint64_t at = c->at, dims[4] = {0}, offset = 0;
    uint32_t ndim = 0, type = 0;
    struct str name;
    ROSE_TRY(gguf_take_str(c, &name, "a tensor's name"));
    if (!weights_name_ok(name, WEIGHTS_MAX_NAME, &what))
        return status_at(c->err, ROSE_FORMAT, file, (int64_t)at, "%s: the tensor name at byte %llu %s", file,
                         (unsigned long long)at, what);
    struct weights_tensor *t = weights_slot(w);
    if (t) t->name = (struct str){arena_strndup(&w->arena, name.p, name.n), name.n};
    if (!t || !t->name.p) return weights_no_memory(file, c->err);
    t->file = file;
    t->part = part;
    ROSE_TRY(gguf_take(c, &ndim, 4, t->name.p));
    if (ndim > 4)
        return status_at(c->err, ROSE_FORMAT, file, (int64_t)at,
                         "%s: tensor %s at byte %llu has %u dimensions; GGUF allows 4", file, t->name.p,
                         (unsigned long long)at, ndim);
    ROSE_TRY(gguf_take(c, dims, 8 * (size_t)ndim, t->name.p));
    t->ndim = (int)ndim;
    for (int i = 0; i < t->ndim; i++)
        t->shape[t->ndim - 1 - i] = dims[i] > INT64_MAX ? -1 : (int64_t)dims[i]; /* -1 is refused below */
    uint64_t type_at = c->at;
    ROSE_TRY(gguf_take(c, &type, 4, t->name.p));
    if (type >= ROSE_COUNT(formats) || !formats[type].name)
        return status_at(c->err, ROSE_FORMAT, file, (int64_t)type_at,
                         "%s: tensor %s at byte %llu has the unknown type %u", file, t->name.p,
                         (unsigned long long)type_at, type);
    ROSE_TRY(weights_measure(t, &formats[type], true, at, c->err));
    uint64_t offset_at = c->at;
    ROSE_TRY(gguf_take(c, &offset, 8, t->name.p));
    if (offset > INT64_MAX / 2)
        return status_at(c->err, ROSE_FORMAT, file, (int64_t)offset_at,
                         "%s: tensor %s at byte %llu has its data at %llu, past the file's end", file,
                         t->name.p, (unsigned long long)at, (unsigned long long)offset);
    t->offset = offset; /* from the data's begin, for now */
    w->count++;
    return ROSE_OK;
}

static enum rose_status read_alignment(const struct gguf *meta, const char *file, uint64_t *out,
                                       struct rose_error *err)
{
    int64_t n = 32;
    const struct gguf_value *v = gguf_meta_find(meta, STR("general.alignment"));
    if (v && (v->type != GGUF_U32 || !gguf_int(v, 0, &n) || n < 1 || n & (n - 1)))
        return status_at(err, ROSE_FORMAT, file, (int64_t)v->offset,
                         "%s: general.alignment at byte %llu must be a u32 power of two", file,
                         (unsigned long long)v->offset);
    *out = (uint64_t)n;
    return ROSE_OK;
}

/* Descriptions, then the check of what they claim. */
static enum rose_status read_tensors(struct weights *w, struct gguf_cursor *c, const struct gguf *meta,
                                     uint64_t count, int part)
{
    const struct file_map *map = &w->files[part];
    size_t first = w->count;
    uint64_t alignment = 0;
    ROSE_TRY(read_alignment(meta, c->file, &alignment, c->err));
    for (uint64_t i = 0; i < count; i++) ROSE_TRY(read_tensor(w, c, part));
    uint64_t data = (c->at + alignment - 1) / alignment * alignment;
    for (size_t i = first; i < w->count; i++) {
        struct weights_tensor *t = &w->tensors[i];
        if (t->offset % alignment)
            return status_at(
                c->err, ROSE_FORMAT, c->file, (int64_t)(data + t->offset),
                "%s: tensor %s has its data at offset %llu, which is not a multiple of the alignment %llu",
                c->file, t->name.p, (unsigned long long)t->offset, (unsigned long long)alignment);
        t->offset += data;
    }
    if (w->count > first) ROSE_TRY(weights_extents(w, first, data, ROSE_MAX(map->size, data), false, c->err));
    for (size_t i = first; i < w->count; i++) {
        struct weights_tensor *t = &w->tensors[i];
        if (t->offset > map->size) t->offset = map->size; /* only an empty tensor right behind the padding */
        t->tensor.data = map->data + t->offset;
    }
    return ROSE_OK;
}

/* ---- split models ---- */

static int64_t meta_int(const struct gguf *meta, const char *key, int64_t fallback)
{
    int64_t n;
    return gguf_int(gguf_meta_find(meta, str_of(key)), 0, &n) ? n : fallback;
}

/* NAME-00002-of-00005.gguf -> the length of NAME, and 5; 0 when the path is not so. */
static size_t split_prefix(const char *path, int64_t *parts)
{
    struct str p = str_of(path);
    enum { TAIL = 20 }; /* -00002-of-00005.gguf */
    if (p.n <= TAIL) return 0;
    const char *t = p.p + p.n - TAIL;
    if (t[0] != '-' || memcmp(t + 6, "-of-", 4) || memcmp(t + 15, ".gguf", 5)) return 0;
    int64_t no;
    if (!str_to_i64((struct str){t + 1, 5}, &no) || !str_to_i64((struct str){t + 10, 5}, parts)) return 0;
    return no >= 1 && no <= *parts ? p.n - TAIL : 0;
}

static enum rose_status read_part(struct weights *w, const char *path, int64_t no, int64_t parts,
                                  struct gguf *meta, struct rose_error *err)
{
    int part = 0;
    uint64_t tensors = 0, pairs = 0;
    struct gguf_cursor c;
    ROSE_TRY(weights_map(w, path, &part, err));
    ROSE_TRY(open_cursor(&w->files[part], &c, &tensors, &pairs, err));
    ROSE_TRY(gguf_meta_read(&c, &w->arena, pairs, meta));
    if (meta_int(meta, "split.no", 0) != no || meta_int(meta, "split.count", 1) != parts)
        return status_at(err, ROSE_FORMAT, path, 0,
                         "%s says it is part %lld of %lld, but part %lld of %lld is expected here", path,
                         (long long)meta_int(meta, "split.no", 0) + 1,
                         (long long)meta_int(meta, "split.count", 1), (long long)no + 1, (long long)parts);
    return read_tensors(w, &c, meta, tensors, part);
}

static enum rose_status open_split(struct weights *w, const char *path, int64_t parts, struct rose_error *err)
{
    int64_t named = 0;
    size_t n = split_prefix(path, &named);
    if (!n || named != parts)
        return status_at(err, ROSE_FORMAT, path, 0,
                         "%s is one of %lld parts, but is not named NAME-00001-of-%05lld.gguf, so the others "
                         "cannot be found",
                         path, (long long)parts, (long long)parts);
    for (int64_t i = 0; i < parts; i++) {
        struct gguf meta;
        char *name = arena_printf(&w->arena, "%.*s-%05lld-of-%05lld.gguf", (int)n, path, (long long)i + 1,
                                  (long long)parts);
        if (!name) return weights_no_memory(path, err);
        if (!file_exists(name))
            return status_at(err, ROSE_NOT_FOUND, name, -1,
                             "%s is missing: all %lld parts of the model must lie side by side", name,
                             (long long)parts);
        ROSE_TRY(read_part(w, name, i, parts, i ? &meta : &w->gguf, err));
    }
    int64_t total = meta_int(&w->gguf, "split.tensors.count", (int64_t)w->count);
    if (total != (int64_t)w->count)
        return status_at(err, ROSE_FORMAT, path, -1,
                         "%s: the parts have %zu tensors, but split.tensors.count says %lld", path, w->count,
                         (long long)total);
    return ROSE_OK;
}

enum rose_status gguf_open(struct weights *w, const char *path, struct rose_error *err)
{
    int part = 0;
    uint64_t tensors = 0, pairs = 0;
    struct gguf_cursor c;
    w->kind = WEIGHTS_GGUF;
    ROSE_TRY(weights_map(w, path, &part, err));
    ROSE_TRY(open_cursor(&w->files[part], &c, &tensors, &pairs, err));
    ROSE_TRY(gguf_meta_read(&c, &w->arena, pairs, &w->gguf));
    int64_t parts = meta_int(&w->gguf, "split.count", 1);
    if (parts > 1) { /* once more from the first part on */
        file_map_close(&w->files[part]);
        w->nfiles = 0;
        return open_split(w, path, parts, err);
    }
    return read_tensors(w, &c, &w->gguf, tensors, part);
}
