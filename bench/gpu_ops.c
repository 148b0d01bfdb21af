/* Kernels on a GPU: graph replay over rotating buffers, beside a clone that reads and writes the same bytes
 * in the same run.
 *
 *     gpu_ops [--sweep [--stream]] [--csv FILE] [--only PART] [--kernel NAME] [--rows N] [--share I/N] [--sources DIR]
 *                                     variants of one kernel, at least N rows; one of N parts of the table; kernels of DIR instead of
 *                                     those inside the program
 *     gpu_ops --compile sm_90a        without a GPU: prints and compiles an H200's plans
 *
 * us: per launch in a graph of many. Sets of buffers rotate; together they exceed L2 three times (shapes
 * below 8 MB stay in L2, as in a forward, and rotate over eight sets). clone: the best of six copy kernels.
 * limit: bytes at 7/8 of the memory's rate (H200: 4.2 TB/s, what the best copies reach). */
#define _GNU_SOURCE
#include "gpu_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda.h"
#include "kernels/params/clone.h"
#include "tensor/dtype.h"

enum { MOST = 4096, SETS = 64, NODES = 64 };
struct bench {
    struct device *device;
    struct jit *jit;
    struct bench_entry *entries;
    int count;
    int64_t rows; /* at least */
    const char *only, *kernel, *sources; /* part of an op's name; what sweeps try, NULL: every kernel */
    bool stream;                         /* of sweeps only what leaves L2 first */
    char *memory;
    size_t bytes;
    struct bench_tables tables;
    FILE *csv;
};
static struct rose_error err_;

static void add(void *context, const struct bench_entry *e)
{
    struct bench *b = context;
    if (b->count == MOST || (b->only && !strstr(e->op, b->only))) return;
    if (e->rows < b->rows) return;
    if (e->sweep && b->kernel && strcmp(e->plan.kernel, b->kernel)) return;
    if (e->sweep && b->stream && !plan_get(&e->plan, "STREAM")) return;
    b->entries[b->count] = *e;
    b->entries[b->count++].set_bytes = (e->set_bytes + 511) & ~(size_t)255; /* every set begins aligned */
}

static int fail(void)
{
    printf("%s\n", err_.message);
    return 1;
}

/* ---- memory: random bf16 everywhere ---- */

static void *upload(struct bench *b, const void *data, size_t bytes)
{
    void *p = device_alloc(b->device, bytes, DEVICE_MEMORY_LOCAL, &err_);
    if (p && (device_copy(b->device, p, data, bytes, &err_) || device_wait(b->device, NULL, &err_)))
        return NULL;
    return p;
}

static bool fill_memory(struct bench *b)
{
    enum { PIECE = 64 << 20, TABLE = 1 << 18 };
    uint16_t *host = malloc(PIECE);
    uint32_t s = 1;
    for (size_t i = 0; i < PIECE / 2; i++) {
        s = s * 1664525u + 1013904223u;
        host[i] = f32_to_bf16((float)(int32_t)s * 0x1p-30f);
    }
    bool ok = true;
    for (size_t at = 0; at < b->bytes && ok; at += PIECE)
        ok = device_copy(b->device, b->memory + at, host, b->bytes - at < PIECE ? b->bytes - at : PIECE,
                         &err_) == ROSE_OK;
    ok = ok && device_wait(b->device, NULL, &err_) == ROSE_OK;
    int64_t *slots = malloc(TABLE * 8);
    int32_t *positions = malloc(TABLE * 4);
    float freq[256];
    for (int i = 0; i < TABLE; i++) slots[i] = i, positions[i] = i;
    for (int i = 0; i < 256; i++) freq[i] = 1.0f / (float)(1 + i * i);
    b->tables = (struct bench_tables){upload(b, host, 1 << 20), upload(b, freq, sizeof freq),
                                      upload(b, positions, TABLE * 4), upload(b, slots, TABLE * 8), NULL};
    memset(slots, 0, TABLE * 8);
    b->tables.counters = upload(b, slots, TABLE * 4);
    free(host), free(slots), free(positions);
    return ok && b->tables.counters && b->tables.weights && b->tables.inv_freq && b->tables.positions && b->tables.slots;
}

/* ---- timing ---- */

static int sets_of(const struct bench *b, size_t set_bytes, double moved)
{
    size_t l2 = b->device->info.l2_bytes, sets = moved < 8e6 ? 8 : 3 * l2 / set_bytes + 2;
    if (sets > SETS) sets = SETS;
    if (sets * set_bytes > b->bytes) sets = b->bytes / set_bytes;
    return (int)sets;
}

/* A graph long enough that its own launch does not show; whole rounds over the sets. */
static int nodes_of(int sets, double expected)
{
    int want = expected < 20 ? NODES : 16;
    return sets > want ? sets : sets * (want / sets);
}

/* The median of five timings of a graph of `nodes` launches. */
static double time_us(struct bench *b, const struct program_launch *l, const uint32_t (*grids)[3], int nodes,
                      double expected)
{
    double t[5];
    int replays = (int)(4000 / (expected * nodes)) + 2;
    for (int i = 0; i < 5; i++) {
        if (cuda_bench_graph_us(b->device, l, grids, nodes, i ? 1 : 3, replays, &t[i], &err_))
            return printf("%s\n", err_.message), -1;
        for (int k = i; k > 0 && t[k] < t[k - 1]; k--) {
            double x = t[k];
            t[k] = t[k - 1], t[k - 1] = x;
        }
    }
    return t[2];
}

/* dependent: as programs launch it, each launch made while its predecessor still runs. */
static double entry_us(struct bench *b, const struct bench_entry *e, bool dependent)
{
    static _Alignas(64) unsigned char params[SETS][BENCH_PARAMS];
    struct program_launch l[NODES] = {0};
    uint32_t grids[NODES][3];
    int sets = sets_of(b, e->set_bytes, e->plan.bytes);
    if (sets < 1) return printf("%s %s does not fit\n", e->op, e->shape), -1;
    int nodes = nodes_of(sets, e->plan.predicted_us);
    for (int i = 0; i < nodes; i++) {
        struct bench_memory m = {b->memory + (size_t)(i % sets) * e->set_bytes,
                                 b->memory + (size_t)(i % sets + 1) * e->set_bytes, false};
        if (plan_launch(&e->plan, b->jit, b->device, EXTENT_ROWS, &l[i], &err_))
            return printf("%s\n", err_.message), -1;
        l[i].name = e->op, l[i].params = params[i % sets], l[i].dependent = dependent;
        l[i].params_bytes = (uint32_t)e->fill(e, &b->tables, &m, params[i % sets]);
        if (m.full) return printf("%s %s: a set is larger than its table says\n", e->op, e->shape), -1;
        grids[i][0] = plan_grid(&e->plan, e->rows), grids[i][1] = grids[i][2] = 1;
    }
    return time_us(b, l, (const uint32_t(*)[3])grids, nodes, e->plan.predicted_us);
}

/* ---- the clone ---- */

/* Copy kernels to take the best of: threads, vectors a thread. */
enum { CLONES = 6 };
static const int clones[CLONES][2] = {{128, 1}, {256, 1}, {256, 4}, {512, 2}, {512, 4}, {1024, 1}};

static struct plan clone_plan(int threads, int per)
{
    struct plan p = {.kernel = "clone", .block = (uint32_t)threads, .times = 1, .per = threads * per};
    plan_int(&p, "THREADS", threads);
    plan_int(&p, "PER", per);
    plan_int(&p, "ADD", 0);
    return p;
}

static double clone_us(struct bench *b, double bytes)
{
    static struct {
        double bytes, us;
    } known[256];
    static int n;
    for (int i = 0; i < n; i++)
        if (known[i].bytes == bytes) return known[i].us;
    double best = 1e30;
    size_t half = ((size_t)(bytes / 2) + 15) / 16 * 16, set = (half + 255) / 256 * 512;
    int sets = sets_of(b, set, bytes), nodes = nodes_of(sets, bytes / 4e6 + 1);
    for (int k = 0; k < CLONES; k++) {
        struct program_launch l[NODES] = {0};
        struct clone_params params[SETS];
        uint32_t grids[NODES][3];
        struct plan p = clone_plan(clones[k][0], clones[k][1]);
        for (int i = 0; i < nodes; i++) {
            char *at = b->memory + (size_t)(i % sets) * set;
            params[i % sets] = (struct clone_params){.x = at, .y = at + set / 2, .vectors = half / 16};
            if (plan_launch(&p, b->jit, b->device, EXTENT_ROWS, &l[i], &err_))
                return printf("%s\n", err_.message), -1;
            l[i].name = "clone", l[i].params = &params[i % sets], l[i].params_bytes = sizeof params[0];
            grids[i][0] = plan_grid(&p, (int64_t)half / 16), grids[i][1] = grids[i][2] = 1;
        }
        double us = time_us(b, l, (const uint32_t(*)[3])grids, nodes, bytes / 4e6 + 1);
        if (us > 0 && us < best) best = us;
    }
    if (n < 256) known[n].bytes = bytes, known[n++].us = best;
    return best;
}

/* ---- the table ---- */

static void report(struct bench *b, const struct bench_entry *e, double us, double dependent)
{
    struct strbuf plan = {0};
    double clone = clone_us(b, e->plan.bytes), tbs = e->plan.bytes / us * 1e-6;
    plan_print(&e->plan, &plan);
    char bound[40] = "";
    if (e->bound_us > 0)
        snprintf(bound, sizeof bound, "  %s %.1f", us <= e->bound_us ? "ok <=" : "ABOVE", e->bound_us);
    printf("%-36s %-18s %9.2f us %9.3f MB %6.2f TB/s %5.1f%% of limit, clone %8.2f (%+5.1f%%), predicted "
           "%8.2f (%+5.1f%%), dependent %8.2f%s\n",
           e->op, e->shape, us, e->plan.bytes * 1e-6, tbs, 100 * e->plan.limit_us / us, clone,
           100 * (us / clone - 1), e->plan.predicted_us, 100 * (e->plan.predicted_us / us - 1), dependent,
           bound);
    if (b->csv)
        fprintf(b->csv, "%s,%s,%.3f,%.3f,%.0f,%.0f,%.3f,%.1f,%.3f,%.3f,%.2f,%s\n", e->op, e->shape, us,
                dependent, e->plan.bytes, e->plan.ops, tbs, 100 * e->plan.limit_us / us, clone, us / clone,
                e->plan.predicted_us, plan.p ? plan.p : "");
    strbuf_free(&plan);
}

/* Variants of one op and shape, to compare with the plan's own choice above. */
static void report_sweep(struct bench *b, const struct bench_entry *e, double us)
{
    const struct plan *p = &e->plan;
    char what[160];
    int n = snprintf(what, sizeof what, "%s block %u", p->kernel, p->block);
    static const char *const names[] = {"TPR", "REP", "PER", "STAGES", "STORE", "SHARE", "MIN_BLOCKS", "STREAM", "VEC_BYTES", "AHEAD"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (plan_get(p, names[i])) n += snprintf(what + n, sizeof what - (size_t)n, " %s %lld", names[i], (long long)plan_get(p, names[i]));
    if (p->tiles) snprintf(what + n, sizeof what - (size_t)n, " grid %d", p->times);
    printf("  sweep %-26s %-16s %-60s %8.2f us\n", e->op, e->shape, what, us);
    if (b->csv) fprintf(b->csv, "sweep %s,%s,%.3f,,%.0f,,,,,,,%s\n", e->op, e->shape, us, p->bytes, what);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* A kernel of each kind by itself, as nothing else compiles, by a compiler that has started: the best of three in one process. */
static int compile_alone(struct bench *b, const char *arch)
{
    struct jit *jit;
    if (jit_open(&(struct jit_options){.threads = 1, .override_dir = b->sources}, &jit, &err_)) return fail();
    int failed = 0;
    for (int i = 0; i < b->count && !failed; i++) {
        const struct plan *p = &b->entries[i].plan;
        const struct jit_kernel *k[3];
        int before = 0;
        while (before < i && strcmp(b->entries[before].plan.kernel, p->kernel)) before++;
        if (before < i) continue;
        for (int try = 0; try < 3 && !failed; try++) {
            struct plan again = *p;
            plan_int(&again, "TRY", try);
            failed = plan_request(&again, jit, arch, &k[try], &err_) != ROSE_OK;
        }
        failed = failed || jit_compile_all(jit, &err_) != ROSE_OK;
        double best = 0;
        for (int try = 0; try < 3 && !failed; try++) {
            struct jit_info info = jit_info(k[try]);
            if (info.origin == JIT_COMPILED && (best == 0 || info.compile_ms < best)) best = info.compile_ms;
        }
        if (best > 0) printf("compile %s alone: %.1f ms\n", p->kernel, best);
        if (b->csv && best > 0) fprintf(b->csv, "compile %s,alone,%.0f,,,,,,,,40000,\n", p->kernel, best * 1e3);
    }
    jit_close(jit);
    return failed ? fail() : 0;
}

static int compile(struct bench *b, const char *arch)
{
    const struct jit_kernel **k = calloc((size_t)b->count + CLONES, sizeof *k);
    int n = 0, failed = compile_alone(b, arch);
    for (int i = 0; i < b->count && !failed; i++)
        failed = plan_request(&b->entries[i].plan, b->jit, arch, &k[n++], &err_) != ROSE_OK;
    for (int i = 0; i < CLONES && !failed; i++) {
        struct plan p = clone_plan(clones[i][0], clones[i][1]);
        failed = plan_request(&p, b->jit, arch, &k[n++], &err_) != ROSE_OK;
    }
    double from = now_ms(), sum = 0, most = 0;
    if (!failed) failed = jit_compile_all(b->jit, &err_) != ROSE_OK;
    for (int i = 0; i < n && !failed; i++) {
        double ms = jit_info(k[i]).compile_ms;
        sum += ms, most = ms > most ? ms : most;
    }
    if (!failed)
        printf("%d kernels compiled in %.0f ms: %.1f ms each, the slowest %.1f\n", n, now_ms() - from,
               sum / n, most);
    free(k);
    return failed ? fail() : 0;
}

static int run(struct bench *b)
{
    int failed = compile(b, b->device->info.arch);
    if (failed) return failed;
    for (int i = 0; i < b->count; i++) {
        const struct bench_entry *e = &b->entries[i];
        double us = entry_us(b, e, false), dependent = us > 0 && !e->sweep ? entry_us(b, e, true) : 0;
        failed += us <= 0;
        if (us > 0 && e->sweep)
            report_sweep(b, e, us);
        else if (us > 0)
            report(b, e, us, dependent);
        fflush(stdout);
        if (us <= 0 && failed > 3) break;
    }
    printf("%d measured, %d failed\n", b->count - failed, failed);
    return failed;
}

int main(int argc, char **argv)
{
    struct bench b = {.bytes = (size_t)3 << 30};
    struct device_options options = {.kind = DEVICE_CUDA};
    const char *csv = NULL, *arch = NULL, *sources = NULL;
    bool sweep = false;
    int share = 0, shares = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--sweep"))
            sweep = true;
        else if (!strcmp(argv[i], "--stream"))
            b.stream = true;
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            csv = argv[++i];
        else if (!strcmp(argv[i], "--compile") && i + 1 < argc)
            arch = argv[++i];
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            b.only = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc)
            b.rows = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--kernel") && i + 1 < argc)
            b.kernel = argv[++i];
        else if (!strcmp(argv[i], "--share") && i + 1 < argc && sscanf(argv[i + 1], "%d/%d", &share, &shares) == 2 && share >= 0 && share < shares)
            i++;
        else if (!strcmp(argv[i], "--sources") && i + 1 < argc)
            sources = argv[++i];
        else
            return printf("gpu_ops [--sweep [--stream]] [--csv FILE] [--only PART] [--kernel NAME] [--rows N] [--share I/N] [--sources DIR] [--compile ARCH]\n"), 2;
    }
    b.entries = calloc(MOST, sizeof *b.entries);
    b.sources = sources;
    if (arch) { /* without a GPU: an H200's plans, compiled for arch */
        struct device_info info = {.kind = DEVICE_CUDA,
                                   .units = 132,
                                   .l2_bytes = 60 << 20,
                                   .bandwidth = 4.8e12,
                                   .warp = 32,
                                   .max_threads_per_unit = 2048,
                                   .max_threads_per_block = 1024};
        snprintf(info.arch, sizeof info.arch, "%s", arch);
        if (jit_open(&(struct jit_options){.override_dir = sources}, &b.jit, &err_)) return fail();
        bench_table(&info, sweep, add, &b);
        for (int i = 0; i < b.count && !sweep; i++) {
            struct strbuf line = {0};
            plan_print(&b.entries[i].plan, &line);
            printf("%-36s %-18s %s\n", b.entries[i].op, b.entries[i].shape, line.p);
            strbuf_free(&line);
        }
        int rc = compile(&b, arch);
        struct strbuf table = {0};
        jit_print_kernels(b.jit, &table); /* registers, spills */
        printf("%s", table.p ? table.p : "");
        strbuf_free(&table);
        jit_close(b.jit);
        return rc;
    }
    if (device_open(&options, &b.device, &err_) || jit_open(&(struct jit_options){.override_dir = sources}, &b.jit, &err_))
        return fail();
    b.memory = device_alloc(b.device, b.bytes, DEVICE_MEMORY_LOCAL, &err_);
    if (!b.memory || !fill_memory(&b)) return fail();
    if (csv && !(b.csv = fopen(csv, "w"))) return printf("cannot write %s\n", csv), 1;
    if (b.csv) setvbuf(b.csv, NULL, _IOLBF, 1 << 14); /* a run cut short leaves the rows it had */
    if (b.csv)
        fprintf(b.csv,
                "op,shape,us,us dependent,bytes,ops,TB/s,%% of limit,clone us,us/clone,predicted us,plan\n");
    bench_table(&b.device->info, sweep, add, &b);
    const int from = (int)((int64_t)b.count * share / shares);
    b.count = (int)((int64_t)b.count * (share + 1) / shares) - from;
    memmove(b.entries, b.entries + from, (size_t)b.count * sizeof *b.entries);
    int rc = run(&b);
    if (b.csv) fclose(b.csv);
    jit_close(b.jit);
    device_close(b.device);
    return rc != 0;
}
