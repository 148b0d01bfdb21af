#include "ops/dummy.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/params/dummy.h"
#include "ops/plan.h"

static float scale_of(const struct tensor *t) { return sqrtf(3.0f / (float)tensor_cols(t)); }

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void op_dummy_rows(const struct tensor *shape, uint64_t seed, uint16_t *out)
{
    size_t n = (size_t)tensor_count(shape);
    float scale = scale_of(shape);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = DUMMY_START(seed, i / 4);
        DUMMY_MIX(z);
        float v = DUMMY_VALUE(z >> i % 4 * 16 & 0xffff, scale);
        out[i] = shape->dtype == DTYPE_F16 ? f32_to_f16(v) : to_bf16(v);
    }
}

enum rose_status op_dummy(struct program *program, void *memory, const struct tensor *shape, uint64_t seed, struct rose_error *err)
{
    enum { THREADS = 256 };
    struct dummy_params p = {.y = memory, .n = (uint64_t)tensor_count(shape), .seed = seed, .scale = scale_of(shape), .one = 1};
    uint64_t blocks = (p.n / 8 + THREADS - 1) / THREADS, most = (uint64_t)program->device->info.units * 16;
    struct plan plan = {.kernel = "dummy", .rows = 1, .times = (int32_t)ROSE_MAX(1, ROSE_MIN(blocks, most)), .per = 1, .block = THREADS};
    struct program_launch l = {.name = "dummy", .layer = -1, .params = &p, .params_bytes = sizeof p};
    if (p.n % 8) return status_set(err, ROSE_UNSUPPORTED, "dummy weights of %llu elements; their number must be a multiple of 8", (unsigned long long)p.n);
    plan_int(&plan, "THREADS", THREADS);
    plan_element(&plan, shape->dtype == DTYPE_F16);
    plan.bytes = 2.0 * (double)p.n;
    ROSE_TRY(plan_record(&plan, program, EXTENT_ONE, offsetof(struct dummy_params, one), &l, err));
    program_add(program, &l);
    return ROSE_OK;
}
