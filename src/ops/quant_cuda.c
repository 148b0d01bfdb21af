#include "ops/quant_cuda.h"

enum rose_status quant_cuda_blocks_plan(int64_t rows, int64_t cols, const struct device_info *device, struct plan *out, struct rose_error *err)
{
    enum { SIDE = 128, THREADS = 256 };
    if (rows < 1 || cols < 8 || cols % 8 || rows > INT32_MAX || cols > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "quantise: weights [%lld, %lld]; the CUDA kernel takes rows of multiples of 8", (long long)rows, (long long)cols);
    int64_t across = (cols + SIDE - 1) / SIDE;
    if (across * ((rows + SIDE - 1) / SIDE) > INT32_MAX) return status_set(err, ROSE_UNSUPPORTED, "quantise: more than %d blocks", INT32_MAX);
    *out = (struct plan){.kernel = "quant_blocks", .rows = rows, .times = (int32_t)across, .per = SIDE, .tiles = true, .block = THREADS};
    plan_int(out, "SIDE", SIDE);
    out->bytes = (double)rows * (double)cols * 3 + 4.0 * (double)across * (double)((rows + SIDE - 1) / SIDE);
    out->ops = (double)rows * (double)cols * 4;
    plan_stream(out, device, 0.3);
    return ROSE_OK;
}
