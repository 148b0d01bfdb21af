/* Which algorithm of cuBLASLt multiplies a shape the fastest, as measured: a table in memory, and a file beside the compiled kernels.
 *
 *     CACHE/cublaslt/<hash of the identity>    magic, SHA-256 of the rest, sizes, the identity, rows
 *
 * The identity names GPU, driver and library: an algorithm means something to the library that gave it alone. A file that is missing,
 * cut, damaged or of somebody else is an empty one. Two processes that write at once both write whole files: what one of them loses is
 * measured again by a later start. */
#ifndef ROSE_DEVICE_CUDA_BLAS_TABLE_H
#define ROSE_DEVICE_CUDA_BLAS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* cublasLtMatmulAlgo_t: opaque, may be copied and kept for equal versions of the library (its manual, "cublasLtMatmulAlgo_t"). */
struct blas_algorithm {
    uint64_t data[8];
};
/* All that an algorithm depends on; no padding. Strides in elements, alignments in bytes (of pointer and row). */
struct blas_key {
    int64_t x_stride, y_stride;
    int32_t n, k;
    uint32_t rows, align_x, align_w, align_y;
    int32_t out_f32, update; /* update: the old y is added */
};
struct blas_measured {
    struct blas_key key;
    struct blas_algorithm algorithm;
    float us, first_us; /* what it took, and what the library's own first choice took */
};

struct cuda_blas_table {
    char *path; /* NULL: memory only */
    char identity[256];
    struct blas_measured *rows;
    int count, capacity;
    bool changed; /* rows that the file has not */
};

/* cache_dir NULL: memory only. Reads what verifies. */
void cuda_blas_table_open(struct cuda_blas_table *table, const char *cache_dir, const char *identity);
/* The row of exactly this key; NULL. */
const struct blas_measured *cuda_blas_table_find(const struct cuda_blas_table *table, const struct blas_key *key);
/* The one with the fewest rows from key's on to a third more, all else equal: steps of prompts have any number of rows. */
const struct blas_measured *cuda_blas_table_near(const struct cuda_blas_table *table, const struct blas_key *key);
/* Replaces a row of the same key. */
enum rose_status cuda_blas_table_add(struct cuda_blas_table *table, const struct blas_measured *row, struct rose_error *err);
/* Writes rows that are new, beside those another process has written since. */
enum rose_status cuda_blas_table_save(struct cuda_blas_table *table, struct rose_error *err);
void cuda_blas_table_close(struct cuda_blas_table *table);

#endif
