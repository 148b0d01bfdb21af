#include "fake_blas.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define API EXPORT int

static struct fake_blas state_ = {.refused = -1};
static const uint64_t mark = 0x616c676f72697468;

struct algorithm {
    uint64_t mark, id, rest[6];
};
struct choice {
    struct algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

EXPORT struct fake_blas *fake_blas(void) { return &state_; }

static int make(void **out)
{
    *out = malloc(1);
    state_.alive += *out != NULL;
    return *out ? 0 : 3;
}
static int drop(void *object)
{
    state_.alive--;
    free(object);
    return 0;
}

API cublasLtCreate(void **handle);
API cublasLtCreate(void **handle) { return make(handle); }
API cublasLtDestroy(void *handle);
API cublasLtDestroy(void *handle) { return drop(handle); }
EXPORT const char *cublasLtGetStatusString(int status);
EXPORT const char *cublasLtGetStatusString(int status) { return status ? "refused" : "success"; }
EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void) { return 130002; }
API cublasLtMatmulDescCreate(void **out, int compute, int scale);
API cublasLtMatmulDescCreate(void **out, int compute, int scale) { return compute == 68 && scale == 0 ? make(out) : 7; }
API cublasLtMatmulDescDestroy(void *operation);
API cublasLtMatmulDescDestroy(void *operation) { return drop(operation); }
API cublasLtMatmulDescSetAttribute(void *operation, int attribute, const void *value, size_t bytes);
API cublasLtMatmulDescSetAttribute(void *operation, int attribute, const void *value, size_t bytes)
{
    (void)operation, (void)value;
    return attribute == 3 && bytes == 4 ? 0 : 7;
}
API cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t leading);
API cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t leading)
{
    return (type == 0 || type == 14) && cols && leading >= (int64_t)rows ? make(out) : 7;
}
API cublasLtMatrixLayoutDestroy(void *layout);
API cublasLtMatrixLayoutDestroy(void *layout) { return drop(layout); }
API cublasLtMatmulPreferenceCreate(void **out);
API cublasLtMatmulPreferenceCreate(void **out) { return make(out); }
API cublasLtMatmulPreferenceDestroy(void *preference);
API cublasLtMatmulPreferenceDestroy(void *preference) { return drop(preference); }
API cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes);
API cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes)
{
    (void)preference, (void)attribute, (void)value;
    return bytes == 4 || bytes == 8 ? 0 : 7;
}
API cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, struct choice *out, int *count);
API cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, struct choice *out, int *count)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    state_.heuristics++;
    for (*count = 0; *count < wanted && *count < FAKE_BLAS_CHOICES; ++*count) {
        memset(&out[*count], 0, sizeof *out);
        out[*count].algorithm.mark = mark, out[*count].algorithm.id = (uint64_t)*count;
    }
    return 0;
}
API cublasLtMatmulAlgoCheck(void *handle, void *operation, void *a, void *b, void *c, void *d, const struct algorithm *algorithm, struct choice *out);
API cublasLtMatmulAlgoCheck(void *handle, void *operation, void *a, void *b, void *c, void *d, const struct algorithm *algorithm, struct choice *out)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d;
    state_.checks++;
    memset(out, 0, sizeof *out);
    return algorithm->mark == mark && algorithm->id < FAKE_BLAS_CHOICES && (int)algorithm->id != state_.refused ? 0 : 15;
}
API cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                   void *d_layout, const struct algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream);
API cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                   void *d_layout, const struct algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream)
{
    (void)handle, (void)operation, (void)alpha, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c, (void)c_layout, (void)d_layout;
    (void)workspace, (void)workspace_bytes, (void)stream;
    if (algorithm->mark != mark || (int)algorithm->id == state_.refused) return 15;
    state_.matmuls++;
    state_.last = (int)algorithm->id;
    state_.w = a, state_.y = d;
    if (state_.matmul) state_.matmul(state_.last);
    return 0;
}
