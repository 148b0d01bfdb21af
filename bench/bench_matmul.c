/* The matrix products of a SmolLM2-135M-shaped model, as the forward records them, against this machine's
 * limits measured in the same run: bytes against read bandwidth, operations against the int8 dot-product (or
 * fp32 FMA) peak.
 *
 *     bench_matmul [--threads N] [--isa NAME] [--dtype NAME] [--head NAME] [--rows LIST] [--seconds S]
 * [--layers L] [--batch 1]
 *
 * Rows are one sequence's, with --batch 1 as many sequences' (batched decode).
 *
 * One line a row count: time of a pass, projected tokens/s (products only), GB/s and GOP/s with their share
 * of the limit, then the time of each product by name. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/isa.h"
#include "ops/matmul.h"

enum { WIDTH = 576, KV = 192, FFN = 1536, VOCABULARY = 49152, MAX_LAYERS = 64, MAX_ROWS = 2048, MAX_SAMPLES = 32 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct rose_error err;
static void must(enum rose_status s)
{
    if (s == ROSE_OK) return;
    fprintf(stderr, "bench_matmul: %s\n", err.message);
    exit(1);
}

/* ---- limits ---- */

struct limit {
    const char *data;
    size_t bytes;
    double result[1024];
    bool avx512;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static long read_all(const char *p, size_t bytes)
{
    __m512i s = _mm512_setzero_si512(), t = s;
    for (size_t i = 0; i < bytes; i += 256) {
        for (int k = 0; k < 4; k += 2) {
            s = _mm512_xor_si512(s, _mm512_loadu_si512(p + i + 64 * k));
            t = _mm512_xor_si512(t, _mm512_loadu_si512(p + i + 64 * k + 64));
        }
        for (int k = 0; k < 4; k++) _mm_prefetch(p + i + 2048 + 64 * k, _MM_HINT_T0);
    }
    return (long)_mm512_reduce_add_epi64(_mm512_xor_si512(s, t));
}
#define CHAINS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9)
#define DECLARE(i) a##i = _mm512_setzero_si512(),
#define STEP(i)                             \
    a##i = _mm512_dpbusd_epi32(a##i, x, x); \
    __asm__("" : "+v"(a##i));
#define SUM(i) s = _mm512_xor_si512(s, a##i);
__attribute__((target("avx512f,avx512vnni"))) static double vnni_ops(long *sink)
{
    enum { ROUNDS = 2000000 };
    __m512i s = _mm512_setzero_si512(), CHAINS(DECLARE) x = _mm512_set1_epi8((char)*sink);
    double t = now();
    for (int i = 0; i < ROUNDS; i++) {
        CHAINS(STEP)
    }
    t = now() - t;
    CHAINS(SUM)
    *sink += (long)_mm512_reduce_add_epi64(s);
    return ROUNDS * 10.0 * 128 / t;
}
#else
static long read_all(const char *p, size_t bytes)
{
    long s = 0;
    for (size_t i = 0; i < bytes; i += 64) s += p[i];
    return s;
}
#endif

static void read_part(void *arg, struct worker *w)
{
    struct limit *l = arg;
    size_t begin, end;
    worker_range(w, l->bytes, 4096, &begin, &end);
    l->result[w->index] = (double)read_all(l->data + begin, end - begin);
}

static void peak_part(void *arg, struct worker *w)
{
    struct limit *l = arg;
    long sink = 0;
    l->result[w->index] = 0;
#if defined(__x86_64__)
    if (l->avx512) l->result[w->index] = vnni_ops(&sink);
#endif
    (void)sink;
}

/* ---- the model ---- */

static uint32_t seed = 1;
static void fill(unsigned char *p, size_t n, enum dtype dtype)
{
    const struct dtype_info *info = dtype_info(dtype);
    for (size_t i = 0; i < n; i++) seed = seed * 1664525u + 1013904223u, p[i] = (unsigned char)(seed >> 24);
    for (size_t i = 0; i + info->bytes <= n;
         i += info->bytes) { /* scales that are no NaN: every 16-bit field gets a small exponent */
        if (info->block == 1)
            p[i + info->bytes - 1] = 0x30;
        else
            p[i + 1] = 0x20, p[i + info->bytes - 1] = 0x20;
        if (info->block == 32 && info->bytes > 18) p[i + 3] = 0x20;
    }
}

/* All weights lie in one piece of memory, as a model's do: it comes in large pages, which read twice as fast as small ones. */
static void *weight_memory(struct device *d, size_t bytes)
{
    enum { ARENA = 1 << 30, ALIGN = 4096 };
    static char *arena;
    static size_t used;
    if (!arena) arena = device_alloc(d, ARENA, DEVICE_MEMORY_LOCAL, &err);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!arena || used + bytes > ARENA) {
        fprintf(stderr, "bench_matmul: more than %d MB of weights: take fewer --layers\n", ARENA >> 20);
        exit(2);
    }
    return arena + (used += bytes) - bytes;
}

static struct op_weight make_weight(struct device *d, enum dtype dtype, int n, int k, double *pack_seconds)
{
    size_t row = dtype_row_bytes(dtype, (size_t)k);
    if (!row) {
        fprintf(stderr, "bench_matmul: %d columns are not whole blocks of %s\n", k, dtype_info(dtype)->name);
        exit(2);
    }
    unsigned char *source = malloc((size_t)n * row);
    if (!source) exit(1);
    fill(source, (size_t)n * row, dtype);
    struct tensor t = {.dtype = dtype, .ndim = 2, .shape = {n, k}, .data = source};
    struct op_weight w;
    size_t bytes = op_weight_bytes(d, &t);
    void *memory = weight_memory(d, bytes);
    double start = now();
    must(op_weight_pack(d, &t, memory, &w, &err));
    *pack_seconds += now() - start;
    free(source);
    return w;
}

static enum dtype dtype_named(const char *name)
{
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (!strcmp(dtype_info((enum dtype)i)->name, name)) return (enum dtype)i;
    fprintf(stderr, "bench_matmul: unknown dtype %s\n", name);
    exit(2);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct options {
    int threads, layers;
    double seconds;
    const char *isa, *rows, *dtype, *head;
    bool deterministic, batch;
};

static struct options options_read(int argc, char **argv)
{
    struct options o = {.layers = 30, .seconds = 0.5, .isa = "auto", .rows = "1,2,4,8,16,32,64,128,512", .dtype = "Q4_1", .head = "Q8_0"};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--threads")) o.threads = atoi(value);
        else if (!strcmp(name, "--isa")) o.isa = value;
        else if (!strcmp(name, "--dtype")) o.dtype = value;
        else if (!strcmp(name, "--head")) o.head = value;
        else if (!strcmp(name, "--rows")) o.rows = value;
        else if (!strcmp(name, "--seconds")) o.seconds = atof(value);
        else if (!strcmp(name, "--layers")) o.layers = atoi(value);
        else if (!strcmp(name, "--batch")) o.batch = atoi(value) != 0;
        else if (!strcmp(name, "--deterministic")) o.deterministic = atoi(value) != 0;
    }
    if (o.layers > MAX_LAYERS) o.layers = MAX_LAYERS;
    return o;
}

struct layer {
    struct op_weight q, k, v, o, gate, up, down;
};

static struct model {
    struct layer layers[MAX_LAYERS];
    struct op_weight head;
    int count;
    double bytes, operations, head_operations, pack_seconds; /* of one row; a pass reads all bytes once */
} model;

static void make_model(struct device *d, const struct options *o)
{
    enum dtype dtype = dtype_named(o->dtype), head_dtype = dtype_named(o->head);
    double *pack = &model.pack_seconds;
    model.count = o->layers;
    for (int l = 0; l < o->layers; l++) {
        struct layer *y = &model.layers[l];
        y->q = make_weight(d, dtype, WIDTH, WIDTH, pack);
        y->k = make_weight(d, dtype, KV, WIDTH, pack);
        y->v = make_weight(d, dtype, KV, WIDTH, pack);
        y->o = make_weight(d, dtype, WIDTH, WIDTH, pack);
        y->gate = make_weight(d, dtype, FFN, WIDTH, pack);
        y->up = make_weight(d, dtype, FFN, WIDTH, pack);
        y->down = make_weight(d, dtype, WIDTH, FFN, pack);
        const struct op_weight *all[] = {&y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down};
        for (int i = 0; i < 7; i++) model.bytes += all[i]->bytes_read, model.operations += 2.0 * all[i]->n * all[i]->k;
    }
    model.head = make_weight(d, head_dtype, VOCABULARY, WIDTH, pack);
    model.bytes += model.head.bytes_read;
    model.head_operations = 2.0 * VOCABULARY * WIDTH;
}

/* A layer's products as the forward has them; x [rows][WIDTH] comes back in x. */
static void record_layer(struct program *p, int l, struct op_value x, struct op_value qkv, struct op_value h, bool deterministic)
{
    const struct layer *y = &model.layers[l];
    const struct op_matmul products[] = {
        {.name = "qkv", .x = x, .parts_count = 3,
         .parts = {{&y->q, NULL, op_slice(qkv, 0, WIDTH)}, {&y->k, NULL, op_slice(qkv, WIDTH, KV)}, {&y->v, NULL, op_slice(qkv, WIDTH + KV, KV)}}},
        {.name = "o", .x = op_slice(qkv, 0, WIDTH), .parts_count = 1, .accumulate = true, .alpha = 1e-6f, .parts = {{&y->o, NULL, x}}},
        {.name = "gate_up", .x = x, .parts_count = 2, .gated = true, .activation = OP_ACT_SILU, .parts = {{&y->gate, NULL, h}, {&y->up, NULL, {0}}}},
        {.name = "down", .x = h, .parts_count = 1, .accumulate = true, .alpha = 1e-6f, .parts = {{&y->down, NULL, x}}}};
    for (size_t i = 0; i < ROSE_COUNT(products); i++) {
        struct op_matmul m = products[i];
        m.layer = l;
        m.deterministic = deterministic;
        must(op_matmul(p, &m, &err));
    }
}

static struct program *record(struct device *d, bool deterministic)
{
    struct program *p;
    must(program_open(d, &p, &err));
    program_buffer_id xb = program_buffer(p, "x", sizeof(float) * MAX_ROWS * WIDTH),
                      qkvb = program_buffer(p, "qkv", sizeof(float) * MAX_ROWS * (WIDTH + 2 * KV)),
                      hb = program_buffer(p, "h", sizeof(float) * MAX_ROWS * FFN),
                      lb = program_buffer(p, "logits", sizeof(float) * MAX_SAMPLES * VOCABULARY);
    struct op_value x = {xb, DTYPE_F32, EXTENT_ROWS, WIDTH, WIDTH, 0},
                    qkv = {qkvb, DTYPE_F32, EXTENT_ROWS, WIDTH + 2 * KV, WIDTH + 2 * KV, 0},
                    h = {hb, DTYPE_F32, EXTENT_ROWS, FFN, FFN, 0}, xs = x,
                    logits = {lb, DTYPE_F32, EXTENT_SAMPLES, VOCABULARY, VOCABULARY, 0};
    xs.rows = EXTENT_SAMPLES;
    for (int l = 0; l < model.count; l++) record_layer(p, l, x, qkv, h, deterministic);
    must(op_matmul(p, &(struct op_matmul){.name = "head", .x = xs, .parts_count = 1, .deterministic = deterministic, .parts = {{&model.head, NULL, logits}}}, &err));
    must(program_finish(p, NULL, 0, &err));
    float *xm = program_address(p, xb);
    for (int i = 0; i < MAX_ROWS * WIDTH; i++) xm[i] = (float)(i % 113) / 56.0f - 1.0f;
    return p;
}

/* Passes and the machine's limits in turns; one line. */
static void measure(struct device *d, struct program *p, struct limit *limit, int rows, const struct options *o)
{
    int samples = rows < MAX_SAMPLES || (o->batch && rows == MAX_SAMPLES) ? rows : 1, n = 0;
    struct extents e = {{1, rows, o->batch ? rows : 1, samples}};
    double times[4096], best_read = 1e9, peak = 0, end = now() + o->seconds;
    do {
        double t = now();
        must(device_submit(d, p, &e, &err));
        must(device_wait(d, NULL, &err));
        times[n++] = now() - t;
        t = now();
        workers_run(d->workers, read_part, limit);
        t = now() - t;
        if (t < best_read) best_read = t;
        if (n % 64 == 1) {
            double sum = 0;
            workers_run(d->workers, peak_part, limit);
            for (int i = 0; i < workers_count(d->workers); i++) sum += limit->result[i];
            if (sum > peak) peak = sum;
        }
    } while (n < 4096 && (now() < end || n < 5));
    qsort(times, (size_t)n, sizeof *times, compare);
    double t = times[n / 2], best = times[0], ops = model.operations * rows + model.head_operations * samples, bandwidth = (double)limit->bytes / best_read;
    printf("rows %4d: median %8.3f ms, best %8.3f | %8.0f tok/s | %6.1f GB/s (%3.0f%% of %.1f) | %6.0f GOP/s", rows, t * 1e3, best * 1e3, rows / t,
           model.bytes / t / 1e9, model.bytes / t / bandwidth * 100, bandwidth / 1e9, ops / t / 1e9);
    if (peak > 0) printf(" (%3.0f%% of VNNI %.0f)", ops / t / peak * 100, peak / 1e9);
    printf("\n");
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv);
    struct device *device;
    static struct limit limit;
    char list[256];
    must(cpu_isa_select(o.isa, &err));
    must(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = o.threads, .pin = true}, &device, &err));
    make_model(device, &o);
    printf("%s (head %s), %d threads, %s: %.1f MB of weights, packed in %.0f ms\n", o.dtype, o.head, workers_count(device->workers), cpu_isa_name(cpu_isa()),
           model.bytes / 1e6, model.pack_seconds * 1e3);
    struct program *p = record(device, o.deterministic);
    limit.bytes = (size_t)96 << 20;
    char *memory = device_alloc(device, limit.bytes, DEVICE_MEMORY_LOCAL, &err);
    memset(memory, 1, limit.bytes);
    limit.data = memory;
    limit.avx512 = cpu_isa_available(CPU_ISA_AVX512);
    snprintf(list, sizeof list, "%s", o.rows);
    for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
        int rows = atoi(item);
        if (rows >= 1 && rows <= MAX_ROWS) measure(device, p, &limit, rows, &o);
    }
    program_close(p);
    device_close(device);
    return 0;
}
