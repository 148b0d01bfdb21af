/* Inside cuBLASLt's binding: shared by cuda_blas.c and cuda_blas_tune.c. */
#ifndef ROSE_DEVICE_CUDA_BLAS_INTERNAL_H
#define ROSE_DEVICE_CUDA_BLAS_INTERNAL_H

#include "device/cuda_blas.h"
#include "device/cuda_blas_table.h"

/* The few of cuBLASLt's declarations that are used (cuBLAS manual, "cublasLt API"; the same in 12 and 13). */
typedef void *blas_object; /* handle, operation, layout, preference */
typedef int blas_status;   /* 0: success */
struct blas_choice {
    struct blas_algorithm algorithm;
    size_t workspace;
    blas_status state;
    float waves;
    int reserved[4];
};
struct blas_api {
    blas_status (*create)(blas_object *handle);
    blas_status (*destroy)(blas_object handle);
    const char *(*status_string)(blas_status status);
    size_t (*version)(void);
    blas_status (*operation_create)(blas_object *out, int compute, int scale);
    blas_status (*operation_destroy)(blas_object operation);
    blas_status (*operation_set)(blas_object operation, int attribute, const void *value, size_t bytes);
    blas_status (*layout_create)(blas_object *out, int type, uint64_t rows, uint64_t cols, int64_t leading);
    blas_status (*layout_destroy)(blas_object layout);
    blas_status (*preference_create)(blas_object *out);
    blas_status (*preference_destroy)(blas_object preference);
    blas_status (*preference_set)(blas_object preference, int attribute, const void *value, size_t bytes);
    blas_status (*choose)(blas_object handle, blas_object operation, blas_object a, blas_object b, blas_object c, blas_object d,
                          blas_object preference, int wanted, struct blas_choice *out, int *count);
    blas_status (*check)(blas_object handle, blas_object operation, blas_object a, blas_object b, blas_object c, blas_object d,
                         const struct blas_algorithm *algorithm, struct blas_choice *result);
    blas_status (*matmul)(blas_object handle, blas_object operation, const void *alpha, const void *a, blas_object a_layout,
                          const void *b, blas_object b_layout, const void *beta, const void *c, blas_object c_layout, void *d,
                          blas_object d_layout, const struct blas_algorithm *algorithm, void *workspace, size_t workspace_bytes,
                          void *stream);
};

struct blas_entry {
    struct blas_key key;
    bool used;
    blas_object w, x, y;
    struct blas_algorithm algorithm;
};
enum { ENTRIES = 1024, PROBES = 8 };

struct cuda_blas {
    struct blas_api api;
    void *library;
    char path[1024], looked[2048];
    blas_object handle, operation;
    struct cuda_blas_table table;
    const struct blas_algorithm *trial; /* while algorithms are compared: the one that multiplies */
    struct blas_entry entries[ENTRIES];
    uint32_t evicted;
};

/* What a product of so many rows is, for the table and for the library's objects. */
struct blas_key cuda_blas_key(const struct cuda_blas_params *params, uint32_t rows);
/* The library's choices for a shape, best first: at most `wanted`. */
enum rose_status cuda_blas_choices(struct cuda_blas *blas, const struct blas_key *key, struct blas_choice *choices, int wanted, int *count, struct rose_error *err);
/* What is known of a shape is looked up anew. */
void cuda_blas_forget(struct cuda_blas *blas, const struct blas_key *key);

#endif
