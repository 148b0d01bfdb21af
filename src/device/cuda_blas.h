/* cuBLASLt, where it is installed: products of many rows. Loaded at run time; without it own kernels serve. */
#ifndef ROSE_DEVICE_CUDA_BLAS_H
#define ROSE_DEVICE_CUDA_BLAS_H

#include "base/str.h"
#include "device/program.h"

struct cuda_blas;

/* Where to look; all may be NULL. */
struct cuda_blas_places {
    const char *path;                   /* the library itself, or its directory: then nowhere else */
    const char *cuda_home, *venv, *home; /* values of CUDA_HOME, VIRTUAL_ENV, HOME */
    const char *cache_dir;              /* where measured choices are kept (cuda_blas_table.h); NULL: nowhere */
};
/* ROSE_NOT_FOUND: not on this machine, the message says where it was looked for. The caller puts it into device->blas and closes
 * it after the device's programs. */
enum rose_status cuda_blas_open(struct device *device, const struct cuda_blas_places *places, struct cuda_blas **out,
                                struct rose_error *err);
void cuda_blas_close(struct cuda_blas *blas);
/* "cuBLASLt 13.0.2 (/usr/local/cuda/lib64/libcublasLt.so.13)" */
void cuda_blas_print(const struct cuda_blas *blas, struct strbuf *out);

enum { CUDA_BLAS_WORKSPACE = 32 << 20 }; /* bytes a product may use, 256-byte aligned */

/* y = alpha x w^T + beta y: the params of a program_launch whose host is cuda_blas_run. */
struct cuda_blas_params {
    struct cuda_blas *blas;
    const void *x;    /* bf16 [rows, k] */
    const void *w;    /* bf16 [n, k], rows dense */
    void *y;          /* bf16 or f32 [rows, n] */
    void *workspace;  /* CUDA_BLAS_WORKSPACE bytes */
    int64_t x_stride, y_stride; /* elements */
    int32_t n, k;
    uint32_t rows;
    float alpha, beta;
    bool out_f32;
};
/* The algorithm is the fastest that was measured for the shape, else the library's own choice; looked up once for a shape. */
enum rose_status cuda_blas_run(void *stream, const void *params, struct rose_error *err);

/* Measures the products of finished programs, each with the rows that its program expects, over the weights of all layers in turn: a few
 * of the library's choices a shape, the fastest goes into the table and its file. Shapes that are there already cost nothing; what does
 * not fit into limit_s is left to a later start. While loading, when nothing runs: results are overwritten. */
struct cuda_blas_tuned {
    int shapes, measured, changed; /* changed: of all shapes those whose fastest is not the library's first choice */
    double seconds;
};
enum rose_status cuda_blas_tune(struct device *device, struct program *const *programs, int count, double limit_s, struct cuda_blas_tuned *out, struct rose_error *err);
/* limit_s of a model that is opened: a cold start stays below six seconds */
#define CUDA_BLAS_TUNE_S 0.6

#endif
