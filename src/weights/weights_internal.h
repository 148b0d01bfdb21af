/* What the readers of src/weights share. */
#ifndef ROSE_WEIGHTS_WEIGHTS_INTERNAL_H
#define ROSE_WEIGHTS_WEIGHTS_INTERNAL_H

#include "base/arena.h"
#include "base/file.h"
#include "weights/gguf.h"
#include "weights/weights.h"

struct gguf_entry {
    struct gguf_value value;
    void *kept; /* the array in the form it was first asked for */
};
struct gguf {
    struct gguf_entry *entries; /* in the order of the file */
    size_t count;
    struct gguf_entry **by_key; /* sorted */
};

struct weights {
    enum weights_kind kind;
    const char *path;
    struct arena arena;     /* names, metadata tables, parsed configs */
    struct file_map *files; /* [nfiles]; malloc */
    int nfiles;
    struct weights_tensor *tensors; /* [count]; malloc */
    size_t count, cap;
    const struct weights_tensor **by_name; /* sorted; malloc */
    const struct json *config, *generation_config;
    struct gguf gguf;
};

/* A type of a file format: `block` elements in `bytes` bytes; dtype DTYPE_NONE if Rose only knows its name.
 */
struct weights_format {
    const char *name;
    uint16_t block, bytes;
    enum dtype dtype;
};

/* ---- weights.c ---- */

/* Map one more file; its index in *part. */
enum rose_status weights_map(struct weights *w, const char *path, int *part, struct rose_error *err);
/* A zeroed slot behind the last tensor; NULL when memory runs out or there are too many. It counts once
 * weights->count is raised. */
struct weights_tensor *weights_slot(struct weights *w);
/* Printable UTF-8 of 1…limit bytes? what is the reason if not. */
bool weights_name_ok(struct str name, size_t limit, const char **what);
/* Fill t->tensor, t->bytes from t->ndim, t->shape and the format. rows: the innermost dimension must be whole
 * blocks, otherwise only the total. at: where the header describes it. */
enum rose_status weights_measure(struct weights_tensor *t, const struct weights_format *format, bool rows,
                                 uint64_t at, struct rose_error *err);
/* Tensors [first, count) lie in [begin, end) of one file without sharing bytes; whole: without holes either.
 */
enum rose_status weights_extents(struct weights *w, size_t first, uint64_t begin, uint64_t end, bool whole,
                                 struct rose_error *err);
/* Make by_name, once all tensors are there; two of one name are an error. */
enum rose_status weights_sort(struct weights *w, struct rose_error *err);
/* After weights_sort. */
const struct weights_tensor *weights_lookup(const struct weights *w, struct str name);
/* "[2, 3]". */
void weights_shape_text(int ndim, const int64_t *shape, char out[static 192]);
int weights_compare(struct str a, struct str b);
static inline enum rose_status weights_no_memory(const char *file, struct rose_error *err)
{
    return status_at(err, ROSE_NO_MEMORY, file, -1, "out of memory while reading the header of %s", file);
}

/* ---- the formats ---- */

/* Add the tensors of files[part]. */
enum rose_status safetensors_read(struct weights *w, int part, struct rose_error *err);
enum rose_status gguf_open(struct weights *w, const char *path, struct rose_error *err);
enum rose_status hf_open(struct weights *w, const char *dir, struct rose_error *err);
enum rose_status hf_open_config(struct weights *w, const char *dir, struct rose_error *err);

/* Metadata of one GGUF file, from byte *at on; *at is moved behind it. */
struct gguf_cursor {
    const char *file;
    const uint8_t *data;
    size_t size; /* of the header at most: the file's size or the limit */
    size_t at;
    bool capped;
    struct rose_error *err;
};
enum rose_status gguf_take(struct gguf_cursor *c, void *out, size_t n, const char *what);
enum rose_status gguf_take_str(struct gguf_cursor *c, struct str *out, const char *what);
enum rose_status gguf_meta_read(struct gguf_cursor *c, struct arena *arena, uint64_t count, struct gguf *out);
const struct gguf_value *gguf_meta_find(const struct gguf *g, struct str key);

#endif
