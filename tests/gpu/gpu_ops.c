/* Every op case of tests/simt on a real GPU, against the same float64 references, with the case's rows and
 * with many more.
 *
 *     gpu_ops [part of a case's name]      last line "N passed, N failed"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "op_cases.h"

enum { MOST = 16 };
struct memory {
    void *p;
    size_t bytes;
};
struct context {
    struct device *device;
    struct jit *jit;
    struct memory memory[MOST];
    int count;
    bool failed;
};

static bool ok(struct context *c, enum rose_status s, const struct rose_error *err)
{
    if (s != ROSE_OK) fprintf(stderr, "%s\n", err->message), c->failed = true;
    return s == ROSE_OK;
}
static void *buffer(void *context, const char *name, size_t bytes, const void *data, bool constant)
{
    struct context *c = context;
    struct rose_error err = {0};
    (void)name, (void)constant;
    if (c->count == MOST) return NULL;
    void *p = device_alloc(c->device, bytes, DEVICE_MEMORY_LOCAL, &err);
    if (!p) return ok(c, ROSE_NO_MEMORY, &err), NULL;
    c->memory[c->count++] = (struct memory){p, bytes};
    enum rose_status s =
        data ? device_copy(c->device, p, data, bytes, &err) : cuda_fill(c->device, p, 0xff, bytes, &err);
    if (ok(c, s, &err)) ok(c, device_wait(c->device, NULL, &err), &err);
    return p;
}
static bool run(void *context, const struct plan *plan, const void *params, size_t bytes)
{
    struct context *c = context;
    struct rose_error err = {0};
    struct program_launch l = {
        .name = plan->kernel, .layer = -1, .params = params, .params_bytes = (uint32_t)bytes};
    if (c->failed || !ok(c, plan_launch(plan, c->jit, c->device, EXTENT_ROWS, &l, &err), &err)) return false;
    uint32_t grid[3];
    cuda_grid(&l, &(struct extents){.n = {1, (int32_t)plan->rows, 1, 1}}, grid);
    if (!ok(c, cuda_launch(c->device, &l, grid, &err), &err)) return false;
    return ok(c, device_wait(c->device, NULL, &err), &err);
}
static void read_back(void *context, void *dst, const void *src, size_t bytes)
{
    struct context *c = context;
    struct rose_error err = {0};
    if (ok(c, device_copy(c->device, dst, src, bytes, &err), &err))
        ok(c, device_wait(c->device, NULL, &err), &err);
}
static void reset(void *context)
{
    struct context *c = context;
    for (int i = 0; i < c->count; i++)
        device_free(c->device, c->memory[i].p, c->memory[i].bytes, DEVICE_MEMORY_LOCAL);
    c->count = 0;
}

int main(int argc, char **argv)
{
    static const int rows[] = {0, 1, 333, 1111};
    struct context c = {0};
    struct rose_error err = {0};
    struct device_options options = {.kind = DEVICE_CUDA};
    int passed = 0, failed = 0;
    if (device_open(&options, &c.device, &err) || jit_open(&(struct jit_options){0}, &c.jit, &err))
        return printf("%s\n", err.message), 1;
    /* Compile all at once, in parallel. */
    for (int i = 0; op_cases_name(i); i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct plan plan;
            const struct jit_kernel *k;
            if (op_cases_plan(i, &c.device->info, rows[r], &plan))
                ok(&c, plan_request(&plan, c.jit, c.device->info.arch, &k, &err), &err);
        }
    ok(&c, jit_compile_all(c.jit, &err), &err);
    for (int i = 0; op_cases_name(i); i++) {
        if (argc > 1 && !strstr(op_cases_name(i), argv[1])) continue;
        int wrong = 0;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct op_io io = {&c.device->info, buffer, run, read_back, reset, &c, rows[r]};
            int n = op_cases_run(i, &io);
            if (n) fprintf(stderr, "%s, rows %d: %d wrong\n", op_cases_name(i), rows[r], n);
            wrong += n;
        }
        wrong += c.failed;
        if (wrong)
            failed++, printf("FAIL %s\n", op_cases_name(i));
        else
            passed++;
        if (c.failed) break; /* a sticky error: nothing more can run */
    }
    printf("%d passed, %d failed\n", passed, failed);
    jit_close(c.jit);
    device_close(c.device);
    return failed || !passed;
}
