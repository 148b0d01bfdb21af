#include "ops/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct plan_constant *add(struct plan *p, const char *name)
{
    /* More constants than any plan has land in the last place; plan_request reports it. */
    struct plan_constant *c =
        &p->constants[p->count < PLAN_MAX_CONSTANTS ? p->count : PLAN_MAX_CONSTANTS - 1];
    p->count++;
    c->name = name;
    c->value = 0;
    c->text[0] = 0;
    return c;
}

void plan_int(struct plan *p, const char *name, int64_t value)
{
    add(p, name)->value = value;
}

void plan_f32(struct plan *p, const char *name, float value)
{
    struct plan_constant *c = add(p, name);
    snprintf(c->text, sizeof c->text, "%.9g", (double)value);
    bool point = strpbrk(c->text, ".e") != NULL;
    size_t n = strlen(c->text);
    snprintf(c->text + n, sizeof c->text - n, "%s", point ? "f" : ".0f");
}

void plan_element(struct plan *p, bool f16)
{
    if (f16) plan_int(p, "ACT_F16", 1);
}

int64_t plan_get(const struct plan *p, const char *name)
{
    for (int i = 0; i < p->count && i < PLAN_MAX_CONSTANTS; i++)
        if (!strcmp(p->constants[i].name, name)) return p->constants[i].value;
    return 0;
}

uint32_t plan_grid(const struct plan *p, int64_t rows)
{
    if (p->tiles) return rows > 0 ? (uint32_t)((rows + p->per - 1) / p->per * p->times) : 0;
    int64_t units = rows * p->times;
    return rows > 0 ? (uint32_t)((units + p->per - 1) / p->per) : 0;
}

int plan_arch(const struct device_info *d)
{
    return strncmp(d->arch, "sm_", 3) ? 0 : atoi(d->arch + 3) * 10;
}

int plan_vector(const struct device_info *d, int64_t bytes)
{
    if (plan_arch(d) >= 1000 && bytes % 32 == 0) return 32;
    return bytes % 16 == 0 ? 16 : 0;
}

void plan_stream(struct plan *p, const struct device_info *d, double extra_us)
{
    double rate = d->bandwidth > 0 ? d->bandwidth : 1e12;
    double far = 0.5 + p->bytes / (0.885 * rate) * 1e6, near = p->bytes / (1.25 * rate) * 1e6;
    p->limit_us = p->bytes / (0.875 * rate) * 1e6;
    p->predicted_us = 0.9 + extra_us + (p->bytes < (double)d->l2_bytes / 8 && near < far ? near : far);
}

void plan_pieces(struct plan *p, const struct device_info *d, int64_t rows, int32_t cols, int vec, int threads, int per, int pieces)
{
    int64_t warps = (rows * pieces * threads + 31) / 32;
    int block = threads < 32 ? 32 : threads;
    while (block < 256 && warps * 32 > (int64_t)d->units * block) block *= 2;
    plan_int(p, "N", cols);
    plan_int(p, "VEC_BYTES", vec);
    plan_int(p, "TPR", threads);
    plan_int(p, "RPB", block / threads);
    plan_int(p, "PER", per);
    plan_int(p, "PIECES", pieces);
    p->block = (uint32_t)block;
    p->times = pieces;
    p->per = block / threads;
}

void plan_once(struct plan *p, const struct device_info *d, int vec, int choice)
{
    bool there = vec == 16 && plan_arch(d) >= 900, large = d->l2_bytes > 0 && p->bytes > 0.75 * (double)d->l2_bytes;
    int bits = choice < 0 ? 0 : choice > 0 ? choice : large ? 3 : 0;
    if (there && bits) plan_int(p, "STREAM", bits);
}

double plan_issue_us(const struct device_info *d, double cells, double ps)
{
    return cells * ps * 1e-6 * 132 / (d->units > 0 ? d->units : 132);
}

void plan_print(const struct plan *p, struct strbuf *out)
{
    strbuf_printf(out, "%s", p->kernel);
    for (int i = 0; i < p->count && i < PLAN_MAX_CONSTANTS; i++) {
        const struct plan_constant *c = &p->constants[i];
        if (c->text[0])
            strbuf_printf(out, " %s=%s", c->name, c->text);
        else
            strbuf_printf(out, " %s=%lld", c->name, (long long)c->value);
    }
    strbuf_printf(out, " | grid %u block %u", plan_grid(p, p->rows), p->block);
    if (p->shared_bytes) strbuf_printf(out, " shared %u", p->shared_bytes);
    strbuf_printf(out, " | %.4g MB, limit %.2f us, predicted %.2f us", p->bytes * 1e-6, p->limit_us,
                  p->predicted_us);
}

bool plan_defines(const struct plan *p, const struct device_info *d, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "ROSE_ARCH=%d", plan_arch(d));
    for (int i = 0; i < p->count && i < PLAN_MAX_CONSTANTS && n < size; i++) {
        const struct plan_constant *c = &p->constants[i];
        if (c->text[0])
            n += (size_t)snprintf(out + n, size - n, " %s=%s", c->name, c->text);
        else
            n += (size_t)snprintf(out + n, size - n, " %s=%lld", c->name, (long long)c->value);
    }
    return n < size;
}

enum rose_status plan_request(const struct plan *p, struct jit *jit, const char *arch,
                              const struct jit_kernel **out, struct rose_error *err)
{
    struct jit_constant constants[PLAN_MAX_CONSTANTS];
    if (p->count > PLAN_MAX_CONSTANTS)
        return status_set(err, ROSE_INTERNAL, "the plan of %s has %d constants, %d fit", p->kernel, p->count,
                          PLAN_MAX_CONSTANTS);
    for (int i = 0; i < p->count; i++) {
        const struct plan_constant *c = &p->constants[i];
        constants[i] =
            (struct jit_constant){.name = c->name, .text = c->text[0] ? c->text : NULL, .value = c->value};
    }
    return jit_request(jit, p->kernel, arch, constants, p->count, out, err);
}

static void geometry(const struct plan *p, enum extent rows, struct program_launch *out)
{
    out->block[0] = p->block, out->block[1] = out->block[2] = 1;
    out->shared_bytes = p->shared_bytes;
    out->cluster = p->cluster;
    out->cooperative = p->cooperative;
    /* times * ceil(rows / per): at least as many blocks as plan_grid; kernels leave those beyond the last row
     * idle. */
    out->grid[0] = (struct program_dim){rows, p->times, p->per};
    out->grid[1] = out->grid[2] = (struct program_dim){EXTENT_ONE, 1, 0};
    if (p->rows > 0) {
        out->cost.bytes_per[rows] = p->bytes / (double)p->rows;
        out->cost.ops_per[rows] = p->ops / (double)p->rows;
    }
}

enum rose_status plan_launch(const struct plan *p, struct jit *jit, struct device *device, enum extent rows,
                             struct program_launch *out, struct rose_error *err)
{
    const struct jit_kernel *kernel = NULL;
    ROSE_TRY(plan_request(p, jit, device->info.arch, &kernel, err));
    if (jit_info(kernel).origin == JIT_NOT_READY) ROSE_TRY(jit_compile_all(jit, err));
    ROSE_TRY(jit_function(kernel, device, NULL, &out->kernel, err));
    geometry(p, rows, out);
    return ROSE_OK;
}

/* For `rose kernels`: the request again gives the same kernel. */
static enum rose_status keep(const struct plan *p, struct program *program, struct program_launch *out, struct rose_error *err)
{
    struct planned *k = ARENA_ARRAY(&program->arena, struct planned, 1);
    if (!k) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    k->plan = *p;
    out->plan = k;
    return plan_request(p, program->device->jit, program->device->info.arch, &k->kernel, err);
}

enum rose_status plan_record(const struct plan *p, struct program *program, enum extent rows,
                             size_t rows_param, struct program_launch *out, struct rose_error *err)
{
    struct device *d = program->device;
    if (!d->jit)
        return status_set(err, ROSE_UNSUPPORTED, "%s: nothing compiles kernels for %s", p->kernel,
                          d->info.name);
    if (program->draft) {
        const struct jit_kernel *kernel;
        ROSE_TRY(plan_request(p, d->jit, d->info.arch, &kernel, err));
        geometry(p, rows, out);
    } else {
        ROSE_TRY(plan_launch(p, d->jit, d, rows, out, err));
    }
    if (d->keeps_plans) ROSE_TRY(keep(p, program, out, err));
    out->rows_param = (uint16_t)(rows_param + 1);
    out->rows_extent = rows;
    out->dependent =
        true; /* every planned kernel waits for its predecessor before it touches anything but weights */
    return ROSE_OK;
}

enum rose_status plan_compile(struct device *device, struct rose_error *err)
{
    if (!device->jit) return status_set(err, ROSE_UNSUPPORTED, "nothing compiles kernels for %s", device->info.name);
    return jit_compile_all(device->jit, err);
}

int64_t plan_rows(const struct program *program, enum extent rows)
{
    int64_t n = program->expect.n[rows];
    return n > 0 ? n : 1;
}
