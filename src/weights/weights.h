/* Checkpoints: safetensors and GGUF files, mapped read-only. Opening reads headers only; tensor data is
 * touched when used.
 *
 * A path is a Hugging Face directory (config.json beside model.safetensors or model.safetensors.index.json
 * with its shards), a .gguf file (v2, v3; of a split model any one of its parts), or a single .safetensors
 * file. Everything a file says is checked before it is believed: names, types, shapes, offsets, alignment,
 * overlap. A tensor whose type Rose knows but cannot compute with (I8, IQ2_XXS, …) is listed like the others;
 * binding it is the error (weights/bind.h).
 */
#ifndef ROSE_WEIGHTS_WEIGHTS_H
#define ROSE_WEIGHTS_WEIGHTS_H

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"
#include "tensor/tensor.h"

enum weights_kind { WEIGHTS_HF, WEIGHTS_SAFETENSORS, WEIGHTS_GGUF };

enum { WEIGHTS_MAX_DIMS = 8, WEIGHTS_MAX_NAME = 512 };

struct weights; /* an open checkpoint; not for use by several threads at once */

struct weights_tensor {
    struct str name;  /* NUL-terminated too; printable UTF-8 */
    const char *type; /* as the file names it: "Q4_K", "IQ2_XXS", "F8_E4M3" */
    int ndim;         /* as in the file, shape[0] outermost (GGUF's order reversed) */
    int64_t shape[WEIGHTS_MAX_DIMS];
    struct tensor tensor; /* the view into the map; dtype is DTYPE_NONE where Rose has no codec. More than
                             four dimensions are folded into shape[0]. data has the alignment that the file
                             gives it (bind checks it). */
    const char *file;     /* path */
    uint64_t offset;      /* of data in the file, bytes */
    uint64_t bytes;
    int part; /* index of the file */
};

enum rose_status weights_open(const char *path, struct weights **out, struct rose_error *err);
/* A directory's config.json (and generation_config.json) alone: no tensors. */
enum rose_status weights_open_config(const char *dir, struct weights **out, struct rose_error *err);
void weights_close(struct weights *w); /* NULL is fine; all views end here */

enum weights_kind weights_kind(const struct weights *w);
/* The path that was opened. */
const char *weights_path(const struct weights *w);
/* Tensors in the order of the files. */
size_t weights_count(const struct weights *w);
const struct weights_tensor *weights_tensor(const struct weights *w, size_t i);
/* By exact name; NULL if there is none. */
const struct weights_tensor *weights_find(const struct weights *w, const char *name);
/* The pages of a tensor lose their memory (after repacking); reading it again brings them back from the file.
 */
void weights_release(const struct weights *w, const struct weights_tensor *t);

/* A directory's config.json and generation_config.json, parsed; NULL where there is none. */
const struct json *weights_config(const struct weights *w);
const struct json *weights_generation_config(const struct weights *w);

/* What is in a checkpoint, for people. */
struct weights_summary {
    struct weights_type {
        const char *type;
        uint64_t tensors, parameters, bytes;
    } type[64]; /* by falling bytes */
    int types, files;
    uint64_t tensors, parameters, bytes;
};
void weights_summary(const struct weights *w, struct weights_summary *out);

#endif
