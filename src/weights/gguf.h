/* GGUF metadata: typed access to the key-value pairs of an open GGUF checkpoint (of a split one, of its first
 * part).
 *
 * The getters accept a value stored in any integer or float type that holds it exactly where the name says
 * so, leave *out alone when they fail, and tell a missing key (ROSE_NOT_FOUND) from one of another type or
 * range (ROSE_FORMAT). On a checkpoint that is not GGUF every key is missing. err may be NULL.
 */
#ifndef ROSE_WEIGHTS_GGUF_H
#define ROSE_WEIGHTS_GGUF_H

#include "weights/weights.h"

enum gguf_type { /* the numbers of the file format */
                 GGUF_U8,
                 GGUF_I8,
                 GGUF_U16,
                 GGUF_I16,
                 GGUF_U32,
                 GGUF_I32,
                 GGUF_F32,
                 GGUF_BOOL,
                 GGUF_STRING,
                 GGUF_ARRAY,
                 GGUF_U64,
                 GGUF_I64,
                 GGUF_F64,
                 GGUF_TYPE_COUNT
};

struct gguf_value {
    struct str key;
    enum gguf_type type;
    enum gguf_type item; /* type of the elements of an array, else type */
    uint64_t count;      /* elements of an array, else 1 */
    const uint8_t *data; /* in the map, unaligned */
    uint64_t offset;     /* of data in the file */
};

/* "u32", "string", … */
const char *gguf_type_name(enum gguf_type type);
/* All pairs in the order of the file; 0 for a checkpoint that is not GGUF. */
size_t gguf_count(const struct weights *w);
const struct gguf_value *gguf_at(const struct weights *w, size_t i);
/* By key; NULL if there is none. */
const struct gguf_value *gguf_get(const struct weights *w, const char *key);

/* One number: element i of a numeric or bool array, or the scalar itself (i = 0). false: no such element, not
 * a number, or (gguf_int) not an integer type or beyond int64. */
bool gguf_int(const struct gguf_value *v, uint64_t i, int64_t *out);
bool gguf_num(const struct gguf_value *v, uint64_t i, double *out);
/* A string scalar. */
bool gguf_text(const struct gguf_value *v, struct str *out);

enum rose_status gguf_u64(const struct weights *w, const char *key, uint64_t *out,
                          struct rose_error *err); /* any integer type >= 0 */
enum rose_status gguf_i64(const struct weights *w, const char *key, int64_t *out,
                          struct rose_error *err); /* any integer type */
enum rose_status gguf_f64(const struct weights *w, const char *key, double *out,
                          struct rose_error *err); /* any number */
enum rose_status gguf_bool(const struct weights *w, const char *key, bool *out,
                           struct rose_error *err); /* bool only */
enum rose_status gguf_str(const struct weights *w, const char *key, struct str *out,
                          struct rose_error *err); /* a view, no NUL */

/* Arrays, one type each: string arrays as views into the map (found on first use and kept), f32 and i32 as
 * aligned copies (kept too). i32 also takes u32 elements below 2^31 and smaller integer types. They belong to
 * w. */
enum rose_status gguf_strings(const struct weights *w, const char *key, const struct str **out, size_t *n,
                              struct rose_error *err);
enum rose_status gguf_f32s(const struct weights *w, const char *key, const float **out, size_t *n,
                           struct rose_error *err);
enum rose_status gguf_i32s(const struct weights *w, const char *key, const int32_t **out, size_t *n,
                           struct rose_error *err);

#endif
