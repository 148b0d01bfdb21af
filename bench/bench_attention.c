/* Speed of op_qk, op_attention and op_sample on the CPU: time, work done, and the share of what the machine's
 * float32 multiply-adds or memory allow (measured here first). Prints CSV.
 *
 *     bench_attention [threads [isa [cpu|wall [what]]]]      cpu: count CPU time instead of wall time (1
 * thread, loaded machine); what: only rows of the table whose name begins so A shape of several layers has
 * its cache in one pool, as a model has, and gives the time of one layer. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/program.h"
#include "kernels/cpu/isa.h"
#include "ops/attention.h"
#include "ops/sample.h"

static bool cpu_time; /* on a loaded machine, with one thread: the thread's own time */
static double now(void)
{
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct bench {
    struct device *device;
    int threads;
};

static float *reals(size_t n)
{
    float *p = malloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    return p;
}

static struct op_value value(struct program *p, const char *name, float *x, int rows, int cols)
{
    return (struct op_value){
        program_external(p, name, x, (size_t)rows * (size_t)cols * 4), DTYPE_F32, EXTENT_ROWS, cols, cols, 0};
}

/* Best of several runs, seconds; the program is closed. */
static double best(struct program *p, int rows, int seqs, int samples)
{
    struct rose_error err = {0};
    struct extents e = {{1, rows, seqs, samples}};
    if (program_finish(p, NULL, 0, &err)) fprintf(stderr, "%s\n", err.message), exit(1);
    double least = 1e9, end = now() + 0.4;
    for (int i = 0; i < 3 || now() < end; i++) {
        double t = now();
        device_submit(p->device, p, &e, &err);
        device_wait(p->device, NULL, &err);
        t = now() - t;
        if (t < least) least = t;
    }
    program_close(p);
    return least;
}

struct shape {
    const char *name;
    int seqs, rows, length; /* each sequence */
    int heads, kv_heads, d;
    enum dtype dtype;
    bool deterministic;
    int layers;
};

static void run_shape(const struct bench *b, const struct shape *s)
{
    enum { PAGE = 64 };
    int total = s->seqs * s->rows, stride = (s->length + PAGE - 1) / PAGE, pages = stride * s->seqs;
    struct op_heads h = {s->heads, s->kv_heads, s->d, s->d};
    int layers = s->layers;
    struct op_cache cache = {.page_bytes = op_cache_page_bytes(s->dtype, &h, PAGE, layers),
                             .dtype = s->dtype,
                             .page_tokens = PAGE};
    cache.pool = calloc((size_t)pages, cache.page_bytes);
    int32_t *table = malloc(sizeof(int32_t) * (size_t)pages),
            *positions = malloc(sizeof(int32_t) * (size_t)total);
    int32_t *seq_rows = malloc(sizeof(int32_t) * (size_t)(s->seqs + 1)),
            *seq_length = malloc(sizeof(int32_t) * (size_t)s->seqs);
    int64_t *slot = malloc(sizeof(int64_t) * (size_t)total);
    for (int i = 0; i < pages; i++) table[i] = (i * 7 + 3) % pages == i ? i : i;
    for (int i = 0; i < s->seqs; i++) {
        seq_rows[i] = i * s->rows, seq_length[i] = s->length;
        for (int r = 0; r < s->rows; r++) {
            int at = s->length - s->rows + r;
            positions[i * s->rows + r] = at;
            slot[i * s->rows + r] = (int64_t)table[i * stride + at / PAGE] * PAGE + at % PAGE;
        }
    }
    seq_rows[s->seqs] = total;
    float *q = reals((size_t)(total * s->heads * s->d)), *y = reals((size_t)(total * s->heads * s->d));
    float *k = reals((size_t)(total * s->kv_heads * s->d)), *v = reals((size_t)(total * s->kv_heads * s->d)),
          freq[256];
    for (int i = 0; i < 256; i++) freq[i] = 1.0f / (float)(1 + i);
    double seconds[2];
    for (int which = 0; which < 2; which++) {
        struct program *p;
        struct rose_error err = {0};
        if (program_open(b->device, &p, &err)) exit(1);
        struct op_step step = {.groups = 1, .table_stride = stride, .max_rows = total, .max_seqs = s->seqs};
        step.positions = program_external(p, "positions", positions, 4);
        step.seq_rows = program_external(p, "seq_rows", seq_rows, 4);
        step.seq_length = program_external(p, "seq_length", seq_length, 4);
        step.page_table[0] = program_external(p, "table", table, 4);
        step.kv_slot[0] = program_external(p, "slot", slot, 8);
        struct op_qk qk = {.heads = h,
                           .rope = OP_ROPE_PAIRS,
                           .rotary_dim = s->d,
                           .inv_freq = freq,
                           .write = true,
                           .group_layers = layers};
        qk.q = value(p, "q", q, total, s->heads * s->d);
        qk.k = value(p, "k", k, total, s->kv_heads * s->d);
        qk.v = value(p, "v", v, total, s->kv_heads * s->d);
        struct op_attention a = {
            .heads = h, .scale = 0.125f, .group_layers = layers, .deterministic = s->deterministic};
        a.q = qk.q;
        a.y = value(p, "y", y, total, s->heads * s->d);
        for (int i = 0; i < layers; i++) {
            qk.group_layer = a.group_layer = i;
            enum rose_status st =
                which ? op_attention(p, &step, &cache, &a, &err) : op_qk(p, &step, &cache, &qk, &err);
            if (st) fprintf(stderr, "%s\n", err.message), exit(1);
        }
        seconds[which] = best(p, total, s->seqs, 0) / layers;
    }
    double sees = 0;
    for (int r = 0; r < s->rows; r++) sees += s->length - s->rows + r + 1;
    double ops = 4.0 * s->seqs * sees * s->heads * s->d,
           bytes = (double)s->seqs * s->length * (double)op_cache_token_bytes(s->dtype, &h);
    printf("%s%s,%d,%d,%d,%d/%d x %d,%s%s,%.1f,%.1f,%.1f,%.1f\n", s->name,
           layers > 1 ? " of many layers" : "", s->seqs, s->rows, s->length, s->heads, s->kv_heads, s->d,
           dtype_info(s->dtype)->name, s->deterministic ? " det" : "", seconds[0] * 1e6, seconds[1] * 1e6,
           ops / seconds[1] * 1e-9, bytes / seconds[1] * 1e-9);
    free(cache.pool), free(table), free(positions), free(seq_rows), free(seq_length), free(slot), free(q),
        free(y), free(k), free(v);
}

static void run_sample(const struct bench *b, const char *name, int rows, int vocabulary,
                       struct sample_row row)
{
    float *x = reals((size_t)rows * (size_t)vocabulary);
    for (size_t i = 0; i < (size_t)rows * (size_t)vocabulary; i++) x[i] = x[i] * x[i] * x[i] * 12;
    struct sample_row *r = malloc(sizeof *r * (size_t)rows);
    struct sample_output *out = malloc(sizeof *out * (size_t)rows);
    for (int i = 0; i < rows; i++) r[i] = row, r[i].step = (uint64_t)i;
    struct program *p;
    struct rose_error err = {0};
    if (program_open(b->device, &p, &err)) exit(1);
    struct op_sample op = {.max_samples = rows, .logits = value(p, "logits", x, rows, vocabulary)};
    op.logits.rows = EXTENT_SAMPLES;
    op.rows = program_external(p, "rows", r, 1);
    op.output = program_external(p, "out", out, 1);
    if (op_sample(p, &op, &err)) fprintf(stderr, "%s\n", err.message), exit(1);
    double t = best(p, rows, rows, rows);
    printf("sample %s,%d,%d,%.1f,%.1f\n", name, rows, vocabulary, t * 1e6,
           4.0 * rows * vocabulary / t * 1e-9);
    free(x), free(r), free(out);
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = argc > 1 ? atoi(argv[1]) : 1};
    struct rose_error err = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    cpu_time = argc > 3 && !strcmp(argv[3], "cpu");
    if (cpu_isa_select(argc > 2 ? argv[2] : "auto", &err)) return fprintf(stderr, "%s\n", err.message), 1;
    struct device_options o = {
        .kind = DEVICE_CPU, .threads = b.threads, .scratch_bytes = 8 << 20, .pin = true};
    if (device_open(&o, &b.device, &err)) return fprintf(stderr, "%s\n", err.message), 1;
    printf("# %d threads, %s, one layer\nwhat,seqs,rows,length,heads,cache,qk us,attention us,GOP/s,GB/s of "
           "cache\n",
           b.threads, cpu_isa_name(cpu_isa()));
    static const struct shape shapes[] = {
        {"prefill", 1, 512, 512, 9, 3, 64, DTYPE_F32, false, 1},
        {"prefill", 1, 512, 512, 9, 3, 64, DTYPE_F16, false, 1},
        {"prefill", 1, 512, 2048, 9, 3, 64, DTYPE_F16, false, 1},
        {"prefill", 1, 512, 2048, 9, 3, 64, DTYPE_F16, true, 1},
        {"prefill", 1, 2048, 2048, 9, 3, 64, DTYPE_F32, false, 1},
        {"prefill", 1, 2048, 2048, 9, 3, 64, DTYPE_F16, false, 1},
        {"prefill", 1, 2048, 2048, 9, 3, 64, DTYPE_BF16, false, 1},
        {"prefill", 1, 2048, 2048, 9, 3, 64, DTYPE_Q8_0, false, 1},
        {"prefill", 1, 512, 512, 32, 8, 128, DTYPE_F16, false, 1},
        {"decode", 1, 1, 128, 9, 3, 64, DTYPE_F16, false, 1},
        {"decode", 1, 1, 2048, 9, 3, 64, DTYPE_F32, false, 1},
        {"decode", 1, 1, 2048, 9, 3, 64, DTYPE_F16, false, 1},
        {"decode", 1, 1, 2048, 9, 3, 64, DTYPE_BF16, false, 1},
        {"decode", 1, 1, 2048, 9, 3, 64, DTYPE_Q8_0, false, 1},
        {"decode", 8, 1, 96, 9, 3, 64, DTYPE_F16, false, 30},
        {"decode", 32, 1, 96, 9, 3, 64, DTYPE_F16, false, 1},
        {"decode", 32, 1, 96, 9, 3, 64, DTYPE_F16, false, 30},
        {"decode", 32, 1, 512, 9, 3, 64, DTYPE_F16, false, 1},
        {"decode", 1, 1, 8192, 32, 8, 128, DTYPE_F16, false, 1},
        {"decode", 32, 1, 2048, 32, 8, 128, DTYPE_F16, false, 1},
    };
    const char *what = argc > 4 ? argv[4] : "";
    for (size_t i = 0; i < ROSE_COUNT(shapes); i++)
        if (!strncmp(shapes[i].name, what, strlen(what))) run_shape(&b, &shapes[i]);
    if (strncmp("sample", what, strlen(what))) return device_close(b.device), 0;
    struct sample_row row = SAMPLE_ROW_GREEDY;
    printf("what,rows,vocabulary,us,GB/s\n");
    static const int sizes[][2] = {{1, 49152}, {64, 49152}, {1, 151936}, {32, 151936}};
    for (int i = 0; i < 4; i++) {
        row = (struct sample_row)SAMPLE_ROW_GREEDY;
        run_sample(&b, "greedy", sizes[i][0], sizes[i][1], row);
        row.top_n = 5;
        run_sample(&b, "greedy with 5 logprobs", sizes[i][0], sizes[i][1], row);
        row.top_n = -1, row.temperature = 0.8f;
        run_sample(&b, "temperature", sizes[i][0], sizes[i][1], row);
        row.top_p = 0.95f;
        run_sample(&b, "top-p .95", sizes[i][0], sizes[i][1], row);
        row.top_k = 50;
        run_sample(&b, "top-k 50 top-p .95", sizes[i][0], sizes[i][1], row);
    }
    device_close(b.device);
    return 0;
}
