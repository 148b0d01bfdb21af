/* Every op case of tests/simt on a real GPU, against the same float64 references, with the case's rows and
 * with many more.
 *
 *     gpu_ops [--driver LIBRARY] [--device N] [--share I/N] [--log FILE] [part of a case's name]      last line "N passed, N failed"
 *
 * The references take most of the time, on one core: --share 3/8 runs the fourth, twelfth, … case, for eight processes side by side.
 * --log tells what runs and how many seconds each case took.
 *
 * With tests/simt's driver (which is also its NVRTC) it needs no GPU and takes fewer rows.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "kernels/params/kv_layout.h"
#include "op_cases.h"
#include "op_cases_internal.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

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
static void map(void *context, struct tensor_map *out, const void *base, const struct layout_tma *box)
{
    struct context *c = context;
    struct rose_error err = {0};
    ok(c, cuda_tensor_map(c->device, box, 2, (void *)(uintptr_t)base, out, &err), &err);
}
static void reset(void *context)
{
    struct context *c = context;
    for (int i = 0; i < c->count; i++)
        device_free(c->device, c->memory[i].p, c->memory[i].bytes, DEVICE_MEMORY_LOCAL);
    c->count = 0;
}

/* Ops recorded into a program, run with changing rows (eager, captured, replayed): z = relu2(norm(x += add)),
 * and k and v of a packed row into pages. The residual grows from run to run. */
enum {
    COLS = 512,
    HEADS = 4,
    KV = 2,
    DIM = 64,
    TOKENS = 16,
    MOST_ROWS = 700,
    WIDTH = (HEADS + 2 * KV) * DIM
};
struct program_data {
    uint16_t x[MOST_ROWS * COLS], add[MOST_ROWS * COLS], z[MOST_ROWS * COLS], qkv[MOST_ROWS * WIDTH],
        got[MOST_ROWS * WIDTH];
    uint16_t pool[(MOST_ROWS / TOKENS + 1) * TOKENS * KV * DIM * 2];
    float weight[COLS];
    int64_t slots[MOST_ROWS];
};

static bool program_record(struct context *c, struct program *p, void *const buffers[6],
                           struct rose_error *err)
{
    program_buffer_id x = program_external(p, "x", buffers[0], sizeof(((struct program_data *)0)->x));
    program_buffer_id add = program_external(p, "add", buffers[1], sizeof(((struct program_data *)0)->add));
    program_buffer_id z = program_external(p, "z", buffers[2], sizeof(((struct program_data *)0)->z));
    program_buffer_id qkv = program_external(p, "qkv", buffers[3], sizeof(((struct program_data *)0)->qkv));
    program_buffer_id slots =
        program_external(p, "slots", buffers[5], sizeof(((struct program_data *)0)->slots));
    program_buffer_id y = program_buffer(p, "y", MOST_ROWS * COLS * 2);
#define VALUE(id, n) \
    ((struct op_value){.buffer = (id), .dtype = DTYPE_BF16, .rows = EXTENT_ROWS, .cols = (n), .stride = (n)})
    struct op_value row = VALUE(qkv, WIDTH);
    struct op_step step = {.groups = 1, .kv_slot = {slots}, .max_rows = MOST_ROWS};
    struct op_cache cache = {buffers[4], KV_ROWS_LAYER_BYTES(KV, TOKENS, DIM, DIM, 2), DTYPE_BF16, TOKENS};
    struct op_qk qk = {.heads = {HEADS, KV, DIM, DIM},
                       .q = op_slice(row, 0, HEADS * DIM),
                       .k = op_slice(row, HEADS * DIM, KV * DIM),
                       .v = op_slice(row, (HEADS + KV) * DIM, KV * DIM),
                       .group_layers = 1,
                       .write = true};
    struct op_norm norm = {.eps = 1e-6f,
                           .weight = c->memory[c->count - 1].p,
                           .x = VALUE(x, COLS),
                           .add = VALUE(add, COLS),
                           .y = VALUE(y, COLS)};
    struct op_act act = {.activation = OP_ACT_RELU2, .gate = VALUE(y, COLS), .y = VALUE(z, COLS)};
    return ok(c, op_norm(p, &norm, err), err) && ok(c, op_act(p, &act, err), err) &&
           ok(c, op_qk(p, &step, &cache, &qk, err), err) && ok(c, program_finish(p, NULL, 0, err), err);
}

static int program_check(const struct program_data *d, int rows)
{
    int wrong = 0;
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < COLS; i++) sum += pow((double)bf16_to_f32(d->x[r * COLS + i]), 2) / COLS;
        for (int i = 0; i < COLS; i++) {
            double v = (double)bf16_to_f32(d->x[r * COLS + i]) / sqrt(sum + 1e-6) * (double)d->weight[i];
            v = v > 0 ? v * v : 0;
            /* y is rounded once more before the square */
            wrong += !(fabs((double)bf16_to_f32(d->z[r * COLS + i]) - v) <= v * 0.0125 + 1e-5);
        }
        for (int k = 0; k < 2 * KV; k++) {
            int64_t at = (k < KV ? 0 : KV_ROWS_VALUES(KV, TOKENS, DIM, 2)) +
                         KV_ROWS_TOKEN(k % KV, d->slots[r] % TOKENS, TOKENS, DIM, 2) +
                         d->slots[r] / TOKENS * KV_ROWS_LAYER_BYTES(KV, TOKENS, DIM, DIM, 2);
            wrong += memcmp((const char *)d->pool + at, d->qkv + r * WIDTH + (HEADS + k) * DIM, DIM * 2) != 0;
        }
    }
    return wrong;
}

static int program_case(struct context *c)
{
    static const int runs[] = {5, 5, 300, 5, 300, 300, MOST_ROWS};
    struct program_data *d = calloc(1, sizeof *d);
    struct program *p = NULL;
    struct rose_error err = {0};
    int wrong = 0;
    op_fill(d->x, MOST_ROWS * COLS, 1, 31), op_fill(d->add, MOST_ROWS * COLS, 1, 32),
        op_fill(d->qkv, MOST_ROWS * WIDTH, 1, 33);
    for (int i = 0; i < COLS; i++) d->weight[i] = 0.5f + (float)i / COLS;
    for (int r = 0; r < MOST_ROWS; r++) d->slots[r] = MOST_ROWS - 1 - r;
    void *buffers[6] = {
        buffer(c, "x", sizeof d->x, d->x, false),       buffer(c, "add", sizeof d->add, d->add, false),
        buffer(c, "z", sizeof d->z, NULL, false),       buffer(c, "qkv", sizeof d->qkv, d->qkv, false),
        buffer(c, "pool", sizeof d->pool, NULL, false), buffer(c, "slots", sizeof d->slots, d->slots, false)};
    buffer(c, "weight", sizeof d->weight, d->weight, true);
    if (!ok(c, program_open(c->device, &p, &err), &err)) return 1;
    p->expect.n[EXTENT_ROWS] = 300;
    if (!program_record(c, p, buffers, &err)) wrong++;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && !wrong; i++) {
        struct extents e = {.n = {1, runs[i], 1, 1}};
        uint16_t before[COLS];
        memcpy(before, d->x + (runs[i] - 1) * COLS, sizeof before);
        if (!ok(c, device_submit(c->device, p, &e, &err), &err)) wrong++;
        read_back(c, d->x, buffers[0], sizeof d->x), read_back(c, d->z, buffers[2], sizeof d->z),
            read_back(c, d->pool, buffers[4], sizeof d->pool);
        for (int k = 0; k < COLS; k++) /* the last row was touched, once */
            wrong += d->x[(runs[i] - 1) * COLS + k] !=
                     f32_to_bf16(bf16_to_f32(before[k]) + bf16_to_f32(d->add[(runs[i] - 1) * COLS + k]));
        wrong += program_check(d, runs[i]);
    }
    program_close(p);
    reset(c);
    free(d);
    return wrong;
}

/* Does a case's name have one of the parts in it? Without parts: every one. */
struct share {
    int index, count;
};
static bool wanted(const struct share *share, int i, int parts, char **part)
{
    if (i % share->count != share->index) return false;
    for (int p = 0; p < parts; p++)
        if (strstr(op_cases_name(i), part[p])) return true;
    return parts <= 0;
}

/* One case with all its rows; log: NULL or where its name and time go. */
static int run_case(struct context *c, int i, const int rows[4], FILE *log)
{
    int wrong = 0;
    struct timespec from, to;
    if (log) fprintf(log, "%s:", op_cases_name(i)), fflush(log);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (size_t r = 0; r < 4; r++) {
        struct op_io io = {&c->device->info, buffer, run, read_back, reset, c, rows[r], map};
        int n = op_cases_run(i, &io);
        if (n) fprintf(stderr, "%s, rows %d: %d wrong\n", op_cases_name(i), rows[r], n);
        wrong += n;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (log) fprintf(log, " %.2f s\n", (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9), fflush(log);
    return wrong + c->failed;
}

int main(int argc, char **argv)
{
    static const int gpu_rows[4] = {0, 1, 333, 1111}, simt_rows[4] = {0, 1, 37, 70};
    struct context c = {0};
    struct rose_error err = {0};
    struct device_options options = {.kind = DEVICE_CUDA};
    int passed = 0, failed = 0;
    struct share share = {0, 1};
    FILE *log = NULL;
    for (; argc > 2 && !strncmp(argv[1], "--", 2); argc -= 2, argv += 2)
        if (!strcmp(argv[1], "--driver"))
            options.driver = argv[2];
        else if (!strcmp(argv[1], "--log")) {
            if (!(log = fopen(argv[2], "we"))) return printf("cannot write %s\n", argv[2]), 2;
        } else if (strcmp(argv[1], "--share"))
            options.index = atoi(argv[2]);
        else if (sscanf(argv[2], "%d/%d", &share.index, &share.count) != 2 || share.count < 1)
            return printf("--share wants I/N\n"), 2;
    const int *rows = options.driver ? simt_rows : gpu_rows;
    if (device_open(&options, &c.device, &err) ||
        jit_open(&(struct jit_options){.nvrtc_path = options.driver}, &c.jit, &err))
        return printf("%s\n", err.message), 1;
    c.device->jit = c.jit;
    /* Compile all at once, in parallel. */
    for (int i = 0; op_cases_name(i); i++)
        for (size_t r = 0; r < 4; r++) {
            struct plan plan;
            const struct jit_kernel *k;
            if (wanted(&share, i, argc - 1, argv + 1) && op_cases_plan(i, &c.device->info, rows[r], &plan))
                ok(&c, plan_request(&plan, c.jit, c.device->info.arch, &k, &err), &err);
        }
    ok(&c, jit_compile_all(c.jit, &err), &err);
    for (int i = 0; op_cases_name(i); i++) {
        if (!wanted(&share, i, argc - 1, argv + 1) || !op_cases_there(i, &c.device->info)) continue;
        if (run_case(&c, i, rows, log))
            failed++, printf("FAIL %s\n", op_cases_name(i));
        else
            passed++;
        if (c.failed) break; /* a sticky error: nothing more can run */
    }
    int wrong = c.failed ? 1 : program_case(&c);
    if (wrong || c.failed)
        failed++, printf("FAIL ops in a program: %d wrong\n", wrong);
    else
        passed++;
    printf("%d passed, %d failed\n", passed, failed);
    if (log) fclose(log);
    jit_close(c.jit);
    device_close(c.device);
    return failed || !passed;
}
