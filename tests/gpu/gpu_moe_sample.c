/* MoE routing, dispatch and combine, sampling, and the grid barrier on a GPU: checked against float64, then
 * measured by replay of graphs over rotating buffers. Needs NVRTC there.
 *
 *     gpu_moe_sample [--csv FILE] [--no-check] [--only moe|sample|barrier] [--few N] [--cluster N] [--threads N] [--rows N] [--sources DIR]   last line "N passed, N failed"
 *     gpu_moe_sample --compile sm_90a                                          without a GPU: compiles the
 * kernels
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "gpu_program.h"
#include "kernels/params/grid_barrier.h"
#include "moe_reference.h"
#include "ops/act_cuda.h"
#include "ops/sample_cuda.h"
#include "sample_reference.h"

enum { MAX_LAUNCHES = 600, VOCABULARY = 151936 };
#define COPY_LIMIT 4.2e6 /* bytes a microsecond: the best kernels that read and write, and that only read */
#define READ_LIMIT 4.55e6

static void say(const char *name, bool good)
{
    if (good)
        passed_++;
    else
        failed_++, printf("FAIL %s\n", name);
}
static void launch_of(const struct plan *p, const void *params, size_t bytes, struct program_launch *l,
                      uint32_t grid[3])
{
    *l = (struct program_launch){
        .name = p->kernel, .layer = -1, .params = params, .params_bytes = (uint32_t)bytes};
    ok(plan_launch(p, jit_, dev_, EXTENT_ROWS, l, &err_));
    l->dependent = dev_->info.dependent_launch && !p->cooperative;
    grid[0] = plan_grid(p, p->rows), grid[1] = grid[2] = 1;
}
static void run(const struct plan *p, const void *params, size_t bytes)
{
    struct program_launch l;
    uint32_t grid[3];
    launch_of(p, params, bytes, &l, grid);
    if (l.kernel) ok(cuda_launch(dev_, &l, grid, &err_));
}
/* `each` launches are one operation. */
static double measure(const struct program_launch *l, const uint32_t (*grids)[3], int n, int each)
{
    double best = 1e30, us = 0;
    for (int i = 0; i < 3; i++) {
        if (!ok(cuda_bench_graph_us(dev_, l, grids, n, 2, 20, &us, &err_))) return 0;
        best = us < best ? us : best;
    }
    return best * each;
}
/* A plan's prediction is a launch's by itself; in a chain of dependent ones each takes 0.3 us less (docs/facts.md). */
static double chained(double predicted, int launches, bool cooperative)
{
    return cooperative ? predicted : predicted - 0.3 * launches;
}
static void row(const char *op, const char *shape, double us, double bytes, double limit, double predicted,
                double target)
{
    char verdict[40] = "";
    if (target > 0) snprintf(verdict, sizeof verdict, "  %s %.1f", us <= target ? "ok <=" : "ABOVE", target);
    printf("%-18s %-34s %9.2f us %9.3f MB %6.2f TB/s %5.1f%% of limit, predicted %8.2f (%+.0f%%)%s\n", op,
           shape, us, bytes * 1e-6, bytes / us * 1e-6, bytes / us / limit * 100, predicted,
           (predicted / us - 1) * 100, verdict);
    if (csv_)
        fprintf(csv_, "%s,%s,%.3f,%.0f,,%.3f,%.1f,,,%.2f,%s\n", op, shape, us, bytes, bytes / us * 1e-6,
                bytes / us / limit * 100, predicted, verdict);
}

/* ---- MoE
 * ----------------------------------------------------------------------------------------------------------------
 */

struct moe_set {
    struct moe_dispatch_params d;
    struct moe_combine_params c;
    size_t bytes[13];
    void *memory[13];
    int n;
};
static int few_, cluster_, threads_; /* as the shapes have them */
static struct jit *alone_;   /* compiles in one process, one kernel after the other */
static int64_t rows_;      /* 0, or the only number of tokens that is measured */
static void *moe_get(struct moe_set *s, size_t bytes)
{
    s->bytes[s->n] = bytes;
    return s->memory[s->n++] = get(bytes);
}
static struct moe_set moe_make(const struct moe_cuda_shape *s, const struct moe_cuda_dispatch *plan,
                               int32_t slices)
{
    struct moe_set m = {.n = 0};
    size_t t = (size_t)s->tokens, k = (size_t)s->top_k, e = (size_t)s->experts, h = (size_t)s->hidden;
    m.d = (struct moe_dispatch_params){.logits = moe_get(&m, t * e * 4),
                                       .bias = moe_get(&m, e * 4),
                                       .x = moe_get(&m, t * h * 2),
                                       .ids = moe_get(&m, t * k * 4),
                                       .weights = moe_get(&m, t * k * 4),
                                       .position = moe_get(&m, t * k * 4),
                                       .counts = moe_get(&m, e * 4),
                                       .offsets = moe_get(&m, (e + 1) * 4),
                                       .rows = moe_get(&m, (size_t)moe_cuda_rows(s) * h * 2),
                                       .block_base = moe_get(&m, (t / 16 + 1) * e * 4),
                                       .barrier = moe_get(&m, 8),
                                       .logits_stride = s->experts,
                                       .x_stride = s->hidden,
                                       .tokens = s->tokens,
                                       .slices = plan->slices};
    if (s->out) m.d.scales = moe_get(&m, (size_t)moe_cuda_rows(s) * (size_t)moe_cuda_row_scales(s) * 4);
    m.d.scale_stride = moe_cuda_row_scales(s);
    m.c = (struct moe_combine_params){.rows = m.d.rows,
                                      .position = m.d.position,
                                      .weights = m.d.weights,
                                      .y = moe_get(&m, t * h * 2),
                                      .y_stride = s->hidden,
                                      .tokens = s->tokens,
                                      .slices = slices};
    ok(cuda_fill(dev_, m.d.barrier, 0, 8, &err_));
    return m;
}
static void moe_drop(struct moe_set *m)
{
    for (int i = 0; i < m->n; i++) drop(m->memory[i], m->bytes[i]);
}
/* Random logits, bias and x on the host; x repeats after a while. */
struct moe_input {
    float *logits, *bias;
    uint16_t *x;
};
static struct moe_input moe_input(const struct moe_cuda_shape *s, uint64_t seed)
{
    size_t t = (size_t)s->tokens, e = (size_t)s->experts, n = t * (size_t)s->hidden, some = 1000003;
    struct moe_input in = {malloc(t * e * 4), malloc(e * 4), malloc(n * 2)};
    for (size_t i = 0; i < t * e; i++) in.logits[i] = moe_random_f32(&seed) * 2;
    for (size_t i = 0; i < e; i++) in.bias[i] = moe_random_f32(&seed) * 0.05f;
    for (size_t i = 0; i < n; i++) in.x[i] = i < some ? moe_bf16(moe_random_f32(&seed)) : in.x[i - some];
    return in;
}
static void moe_upload(const struct moe_cuda_shape *s, const struct moe_set *m, const struct moe_input *in)
{
    copy(m->memory[0], in->logits, m->bytes[0]);
    copy(m->memory[1], in->bias, m->bytes[1]);
    copy(m->memory[2], in->x, (size_t)s->tokens * (size_t)s->hidden * 2);
}
static void moe_free(struct moe_input *in)
{
    free(in->logits), free(in->bias), free(in->x);
}

static void moe_check(const struct moe_cuda_shape *s)
{
    struct moe_cuda_dispatch plan;
    struct plan combine;
    int32_t slices;
    char name[100];
    snprintf(name, sizeof name, "moe T=%d E=%d H=%d%s", s->tokens, s->experts, s->hidden, s->out ? " quantised" : "");
    if (!ok(moe_cuda_plan_dispatch(s, &dev_->info, &plan, &err_)) ||
        !ok(moe_cuda_plan_combine(s, &dev_->info, &combine, &slices, &err_)))
        return;
    struct moe_set m = moe_make(s, &plan, slices);
    struct moe_input in = moe_input(s, (uint64_t)s->tokens);
    moe_upload(s, &m, &in);
    int before = failed_;
    for (int twice = 0; twice < 2; twice++) /* the counters must be as they were */
        for (int i = 0; i < plan.launches; i++) run(&plan.launch[i], &m.d, sizeof m.d);
    run(&combine, &m.c, sizeof m.c);
    void *host[13];
    for (int i = 3; i < m.n && failed_ == before; i++) {
        host[i] = malloc(m.bytes[i]);
        copy(host[i], m.memory[i], m.bytes[i]);
    }
    if (failed_ == before) {
        int32_t *ids = host[3], *position = host[5];
        int wrong[4] = {moe_check_route(s, in.logits, s->experts, in.bias, ids, host[4]),
                        moe_check_places(s, ids, host[6], host[7], position),
                        s->out ? moe_check_quantised(s, in.x, s->hidden, position, host[8], host[11] /* behind the barrier */) : moe_check_rows(s, in.x, s->hidden, position, host[8]),
                        s->out ? 0 : moe_check_combine(s, host[8], position, host[4], NULL, s->hidden, host[11])};
        if (wrong[0] + wrong[1] + wrong[2] + wrong[3])
            printf("%s: %d ids or weights, %d places, %d rows, %d sums are wrong\n", name, wrong[0], wrong[1],
                   wrong[2], wrong[3]);
        say(name, wrong[0] + wrong[1] + wrong[2] + wrong[3] == 0);
        for (int i = 3; i < m.n; i++) free(host[i]);
    }
    moe_drop(&m);
    moe_free(&in);
}

static void moe_bench(const struct moe_cuda_shape *s, double target)
{
    static struct program_launch l[MAX_LAUNCHES];
    static uint32_t grids[MAX_LAUNCHES][3];
    static struct moe_set m[16];
    struct moe_cuda_dispatch plan;
    struct plan combine;
    int32_t slices;
    char shape[100];
    if (rows_ && rows_ != s->tokens) return;
    if (!ok(moe_cuda_plan_dispatch(s, &dev_->info, &plan, &err_)) ||
        !ok(moe_cuda_plan_combine(s, &dev_->info, &combine, &slices, &err_)))
        return;
    int sets = plan.bytes < 1e8 ? 4 : 2, each = plan.launches, n = 0;
    struct moe_input in = moe_input(s, 7);
    for (int i = 0; i < sets; i++) {
        m[i] = moe_make(s, &plan, slices);
        moe_upload(s, &m[i], &in);
    }
    moe_free(&in);
    snprintf(shape, sizeof shape, "T=%d %d experts top-%d hidden %d%s%s", s->tokens, s->experts, s->top_k,
             s->hidden, s->out == ACT_OUT_E4M3_128 ? " to e4m3 1x128" : s->out ? " to mxfp8" : "", plan.form == MOE_CUDA_FEW ? " by clusters" : "");
    int copies = plan.bytes < 1e8 ? 4 : 1;
    for (int i = 0; i < sets * copies; i++)
        for (int j = 0; j < each; j++, n++)
            launch_of(&plan.launch[j], &m[i % sets].d, sizeof m[i].d, &l[n], grids[n]);
    double us = measure(l, (const uint32_t(*)[3])grids, n, each);
    bool together = plan.form == MOE_CUDA_BARRIER;
    row("moe dispatch", shape, us, plan.bytes, COPY_LIMIT, chained(plan.predicted_us, each, together), 0);
    if (s->out) { /* combine reads what the experts' products wrote, in bf16: nothing new to measure */
        for (int i = 0; i < sets; i++) moe_drop(&m[i]);
        return;
    }
    if (plan.form == MOE_CUDA_TWO) {
        n = 0;
        for (int i = 0; i < sets * copies; i++, n++)
            launch_of(&plan.launch[0], &m[i % sets].d, sizeof m[i].d, &l[n], grids[n]);
        us = measure(l, (const uint32_t(*)[3])grids, n, 1);
        row("  moe route", shape, us, plan.launch[0].bytes, COPY_LIMIT, chained(plan.launch[0].predicted_us, 1, false), 0);
    }
    n = 0;
    /* moe_route ran alone: places are ranks again, so dispatch once more before combine is measured alone. */
    for (int i = 0; i < sets; i++)
        for (int j = 0; j < each; j++) run(&plan.launch[j], &m[i].d, sizeof m[i].d);
    for (int i = 0; i < sets * copies; i++, n++)
        launch_of(&combine, &m[i % sets].c, sizeof m[i].c, &l[n], grids[n]);
    us = measure(l, (const uint32_t(*)[3])grids, n, 1);
    row("moe combine", shape, us, combine.bytes, COPY_LIMIT, chained(combine.predicted_us, 1, false), 0);
    n = 0;
    for (int i = 0; i < sets * copies; i++) {
        for (int j = 0; j < each; j++, n++)
            launch_of(&plan.launch[j], &m[i % sets].d, sizeof m[i].d, &l[n], grids[n]);
        launch_of(&combine, &m[i % sets].c, sizeof m[i].c, &l[n], grids[n]);
        n++;
    }
    us = measure(l, (const uint32_t(*)[3])grids, n, each + 1);
    row("moe pair", shape, us, plan.bytes + combine.bytes, COPY_LIMIT,
        chained(plan.predicted_us, each, together) + chained(combine.predicted_us, 1, false),
        target > 0 ? target : (plan.bytes + combine.bytes) / COPY_LIMIT / 0.8);
    for (int i = 0; i < sets; i++) moe_drop(&m[i]);
}

static struct moe_cuda_shape qwen(int tokens)
{
    return (struct moe_cuda_shape){
        .tokens = tokens, .experts = 128, .top_k = 8, .hidden = 2048, .pad = 16, .normalize = true, .few = few_, .cluster = cluster_};
}
static struct moe_cuda_shape deepseek(int tokens)
{
    return (struct moe_cuda_shape){.tokens = tokens,
                                   .experts = 256,
                                   .top_k = 8,
                                   .hidden = 7168,
                                   .pad = 16,
                                   .score = OP_MOE_SIGMOID,
                                   .normalize = true,
                                   .bias = true,
                                   .scale = 2.5f,
                                   .groups = 8,
                                   .top_groups = 4,
                                   .few = few_,
                                   .cluster = cluster_};
}

/* ---- sampling
 * -------------------------------------------------------------------------------------------------------------
 */

enum { SAMPLE_PARTS = 11, HISTORY = 1000, EDITS = 6, MASK_WORDS = (VOCABULARY + 31) / 32 };
struct sample_set {
    struct sample_params p;
    size_t bytes[SAMPLE_PARTS];
    void *memory[SAMPLE_PARTS];
};

/* What rows with edits, penalties and masks read: a history a row, a mask of which every other token is left, a few biases. */
struct sample_changes {
    struct sample_edit edits[EDITS];
    uint32_t mask[MASK_WORDS];
    int32_t *history, *length, *prompt; /* [rows, HISTORY], [rows], [rows] */
};
static void sample_change(struct sample_row *r, int64_t slot)
{
    r->slot = (int32_t)slot, r->mask_row = 0, r->edits_count = EDITS;
    r->repetition = 1.1f, r->presence = 0.2f, r->frequency = 0.1f;
}
static struct sample_changes sample_changes(int64_t rows)
{
    struct sample_changes c = {.history = malloc((size_t)rows * HISTORY * 4), .length = malloc((size_t)rows * 4), .prompt = malloc((size_t)rows * 4)};
    uint64_t seed = 4;
    for (int i = 0; i < EDITS; i++) c.edits[i] = (struct sample_edit){i * 20011, i == 2 ? -INFINITY : (float)i - 2};
    for (int i = 0; i < MASK_WORDS; i++) c.mask[i] = (uint32_t)moe_random(&seed);
    for (int64_t i = 0; i < rows * HISTORY; i++) c.history[i] = (int32_t)(moe_random(&seed) % (i % 3 ? VOCABULARY : 50));
    for (int64_t i = 0; i < rows; i++) c.length[i] = (int32_t)(HISTORY - i % 7), c.prompt[i] = 400;
    return c;
}
static void sample_changes_free(struct sample_changes *c) { free(c->history), free(c->length), free(c->prompt); }
static struct sample_set sample_make(const struct sample_shape *s, int32_t blocks)
{
    struct sample_set m;
    size_t n = (size_t)s->rows;
    int64_t work = sample_cuda_work(s);
    size_t bytes[SAMPLE_PARTS] = {n * (size_t)s->vocabulary * (s->bf16 ? 2 : 4),
                                  n * sizeof(struct sample_row),
                                  n * sizeof(struct sample_output),
                                  n * (size_t)work * 4,
                                  n * 4,
                                  n * 4,
                                  EDITS * sizeof(struct sample_edit),
                                  MASK_WORDS * 4,
                                  n * HISTORY * 4,
                                  n * 4,
                                  n * 4};
    memcpy(m.bytes, bytes, sizeof bytes);
    for (int i = 0; i < SAMPLE_PARTS; i++) m.memory[i] = get(bytes[i]);
    m.p = (struct sample_params){.logits = m.memory[0],
                                 .rows = m.memory[1],
                                 .output = m.memory[2],
                                 .work = m.memory[3],
                                 .counters = m.memory[4],
                                 .feed = m.memory[5],
                                 .logits_stride = s->vocabulary,
                                 .work_stride = work,
                                 .vocabulary = s->vocabulary,
                                 .blocks = blocks};
    ok(cuda_fill(dev_, m.p.counters, 0, bytes[4], &err_));
    if (!s->modify) return m;
    struct sample_changes c = sample_changes(s->rows);
    const void *const from[] = {c.edits, c.mask, c.history, c.length, c.prompt};
    for (int i = 0; i < 5; i++) copy(m.memory[6 + i], from[i], bytes[6 + i]);
    sample_changes_free(&c);
    m.p.edits = m.memory[6], m.p.mask = m.memory[7], m.p.history = m.memory[8], m.p.history_length = m.memory[9], m.p.prompt_length = m.memory[10];
    m.p.mask_stride = MASK_WORDS, m.p.history_stride = HISTORY, m.p.slots = (int32_t)s->rows, m.p.edits_max = EDITS, m.p.masks = 1;
    return m;
}
static void sample_drop(struct sample_set *m)
{
    for (int i = 0; i < SAMPLE_PARTS; i++) drop(m->memory[i], m->bytes[i]);
}
/* Like a model's: normal, and a few dozen tokens that stand out. flat: nothing does. */
static void sample_logits(bool bf16, bool flat, int64_t n, uint64_t seed, void *out, float *values)
{
    for (int64_t i = 0; i < n; i++) {
        float x = moe_random_f32(&seed) * (flat ? 1.0f : 2.0f);
        if (!flat && moe_random(&seed) % 4096 == 0) x += 8 + moe_random_f32(&seed) * 3;
        uint16_t h = moe_bf16(x);
        if (bf16)
            ((uint16_t *)out)[i] = h, x = moe_f32(h);
        else
            ((float *)out)[i] = x;
        if (values) values[i] = x;
    }
}
static const struct {
    const char *name;
    struct sample_row row;
    bool flat;
} kinds[] = {
    {"greedy", SAMPLE_ROW_GREEDY, false},
    {"temperature",
     {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .repetition = 1}, false},
    {"top-k 50",
     {SAMPLE_ALONE, .temperature = 0.8f, .top_p = 1, .top_k = 50, .repetition = 1}, false},
    {"top-p 0.9",
     {SAMPLE_ALONE, .temperature = 1, .top_p = 0.9f, .repetition = 1}, false},
    {"top-k 50 p 0.9 min-p 0.02 logprobs 20",
     {.temperature = 1, .top_p = 0.9f, .top_k = 50, .min_p = 0.02f, .repetition = 1, .given = -1, .top_n = 20, .slot = -1, .mask_row = -1, .feed = -1}, false},
    {"top-k 1000",
     {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .top_k = 1000, .repetition = 1}, false},
    {"min-p 0.1",
     {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .min_p = 0.1f, .repetition = 1}, false},
    {"top-p 0.95 flat",
     {SAMPLE_ALONE, .temperature = 1, .top_p = 0.95f, .repetition = 1}, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* modify: with edits, penalties and a mask. many: planned for many rows, so that a block has several groups of a row's tiles. */
static void sample_check_all(bool bf16, bool modify, bool many)
{
    enum { ROWS = 3 * KINDS };
    struct sample_shape s = {.rows = ROWS, .vocabulary = VOCABULARY, .bf16 = bf16, .modify = modify, .threads = threads_};
    struct plan plan;
    int32_t blocks;
    if (many) s.rows = 1000;
    if (!ok(sample_cuda_plan(&s, &dev_->info, &plan, &blocks, &err_))) return;
    s.rows = plan.rows = ROWS;
    struct sample_set m = sample_make(&s, blocks);
    struct sample_changes changes = sample_changes(ROWS);
    char *logits = malloc(m.bytes[0]);
    float *values = malloc((size_t)ROWS * VOCABULARY * 4);
    struct sample_row rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
        sample_logits(bf16, kinds[r % KINDS].flat, VOCABULARY, (uint64_t)r,
                      logits + (size_t)r * VOCABULARY * (bf16 ? 2 : 4), values + (size_t)r * VOCABULARY);
        rows[r] = kinds[r % KINDS].row;
        rows[r].seed = (uint64_t)r * 12345, rows[r].step = (uint64_t)r, rows[r].feed = r;
        if (modify) sample_change(&rows[r], r);
    }
    copy(m.p.logits, logits, m.bytes[0]);
    copy(m.memory[1], rows, sizeof rows);
    struct sample_output out[2][ROWS];
    for (int i = 0; i < 2; i++) {
        run(&plan, &m.p, sizeof m.p);
        copy(out[i], m.memory[2], sizeof out[i]);
    }
    for (int r = 0; r < ROWS; r++) {
        struct sample_host h = {.logits = values + (size_t)r * VOCABULARY, .vocabulary = VOCABULARY};
        if (modify)
            h.edits = changes.edits, h.edits_max = EDITS, h.mask = changes.mask, h.history = changes.history + (size_t)r * HISTORY, h.length = changes.length[r], h.prompt = changes.prompt[r];
        char name[100];
        snprintf(name, sizeof name, "sample %s, %s%s: token %d", bf16 ? "bf16" : "f32", kinds[r % KINDS].name, modify ? ", changed" : "", out[0][r].token);
        say(name, sample_check(&h, &rows[r], &out[0][r]) == 0 && out[1][r].token == out[0][r].token);
    }
    free(logits), free(values);
    sample_changes_free(&changes);
    sample_drop(&m);
}

static void sample_bench(int64_t rows, bool bf16, int kind, bool modify, bool cold, double target)
{
    static struct program_launch l[MAX_LAUNCHES];
    static uint32_t grids[MAX_LAUNCHES][3];
    static struct sample_set m[128];
    const struct sample_row *k = &kinds[kind].row;
    enum sample_draw draw = k->temperature < 1e-5f                 ? SAMPLE_DRAW_GREEDY
                            : k->top_k > 0 || k->min_p > 0         ? SAMPLE_DRAW_SOME
                            : k->top_p < 1                         ? SAMPLE_DRAW_SHARE
                                                                   : SAMPLE_DRAW_TEMPERATURE;
    struct sample_shape s = {.rows = rows, .vocabulary = VOCABULARY, .bf16 = bf16, .modify = modify, .threads = threads_, .draw = draw};
    struct plan plan;
    int32_t blocks;
    if ((rows_ && rows_ != rows) || !ok(sample_cuda_plan(&s, &dev_->info, &plan, &blocks, &err_))) return;
    int sets = 4, n;
    if (cold)
        for (sets = 2; sets < 128 && sets * plan.bytes < 2.5e8; sets++) {
        }
    for (int i = 0; i < sets; i++) m[i] = sample_make(&s, blocks);
    char *logits = malloc(m[0].bytes[0]);
    struct sample_row *r = calloc((size_t)rows, sizeof *r);
    sample_logits(bf16, kinds[kind].flat, rows * VOCABULARY, 99, logits, NULL);
    for (int64_t i = 0; i < rows; i++) r[i] = kinds[kind].row, r[i].seed = (uint64_t)i;
    for (int64_t i = 0; modify && i < rows; i++) sample_change(&r[i], i);
    /* The changed logits are written, and the mask read, beside what the plan of unchanged rows counts. */
    if (modify) plan.bytes += (double)rows * (4.0 * VOCABULARY + VOCABULARY / 8.0 + 4.0 * HISTORY);
    for (int i = 0; i < sets; i++) {
        copy(m[i].p.logits, logits, m[i].bytes[0]);
        copy(m[i].memory[1], r, m[i].bytes[1]);
    }
    for (n = 0; n < (sets < 16 ? 16 : sets); n++)
        launch_of(&plan, &m[n % sets].p, sizeof m[0].p, &l[n], grids[n]);
    double us = measure(l, (const uint32_t(*)[3])grids, n, 1);
    char shape[100];
    snprintf(shape, sizeof shape, "T=%lld %s %s%s%s", (long long)rows, bf16 ? "bf16" : "f32", kinds[kind].name, modify ? " edits penalties mask" : "",
             cold ? "" : " (in L2)");
    row("sample 152k", shape, us, plan.bytes, READ_LIMIT, chained(plan.predicted_us, 1, false),
        target > 0   ? target
        : target < 0 ? plan.bytes / READ_LIMIT / 0.7
                     : 0);
    for (int i = 0; i < sets; i++) sample_drop(&m[i]);
    free(logits), free(r);
}

/* ---- grid barrier
 * ------------------------------------------------------------------------------------------------------------
 */

static void barrier_bench(uint32_t blocks)
{
    enum { LOW = 8, HIGH = 108 };
    double us[2] = {0};
    char shape[60];
    void *words = get(8 * blocks), *counter = get(4);
    struct grid_barrier_params params = {words, counter};
    for (int i = 0; i < 2; i++) {
        struct jit_constant c[] = {JIT_INT("THREADS", 256), JIT_INT("ROUNDS", i ? HIGH : LOW)};
        const struct jit_kernel *k;
        struct program_launch l = {.name = "grid_barrier",
                                   .layer = -1,
                                   .params = &params,
                                   .params_bytes = sizeof params,
                                   .block = {256, 1, 1},
                                   .cooperative = true};
        uint32_t grid[1][3] = {{blocks, 1, 1}}, *host = calloc(2, 4 * blocks);
        ok(cuda_fill(dev_, counter, 0, 4, &err_));
        ok(cuda_fill(dev_, words, 0, 8 * blocks, &err_));
        if (!ok(jit_request(jit_, "grid_barrier", dev_->info.arch, c, 2, &k, &err_)) ||
            !ok(jit_compile_all(jit_, &err_)) || !ok(jit_function(k, dev_, NULL, &l.kernel, &err_)) ||
            !ok(cuda_launch(dev_, &l, grid[0], &err_)))
            return;
        copy(host, words, 8 * blocks);
        int wrong = 0; /* an even number of rounds: the last sums are in the first half */
        for (uint32_t b = 0; b < blocks; b++) wrong += host[b] != (uint32_t)(i ? HIGH : LOW);
        say("grid barrier", wrong == 0);
        us[i] = measure(&l, (const uint32_t(*)[3])grid, 1, 1);
        free(host);
    }
    snprintf(shape, sizeof shape, "%u blocks of 256", blocks);
    row("grid barrier", shape, (us[1] - us[0]) / (HIGH - LOW), 0, 1, 1.1, 1.1);
    drop(words, 8 * blocks), drop(counter, 4);
}

/* ---- all
 * ----------------------------------------------------------------------------------------------------------------------
 */

/* Asks for a kernel; into the table what it takes to compile by itself with a compiler that has started: the best of three in one
 * process (sampling: of two). */
static void compile_alone(const struct plan *plan, const struct device_info *d)
{
    const struct jit_kernel *k, *tried[3];
    const int tries = !csv_ ? 0 : strcmp(plan->kernel, "sample") ? 3 : 2;
    double best = 0;
    for (int try = 0; try < tries; try++) {
        struct plan again = *plan;
        plan_int(&again, "TRY", try);
        if (!ok(plan_request(&again, alone_, d->arch, &tried[try], &err_))) return;
    }
    if (tries && !ok(jit_compile_all(alone_, &err_))) return;
    for (int try = 0; try < tries; try++) {
        struct jit_info info = jit_info(tried[try]);
        if (info.origin == JIT_COMPILED && (best == 0 || info.compile_ms < best)) best = info.compile_ms;
    }
    if (best > 0) fprintf(csv_, "compile %s,alone,%.0f,,,,,,,,\n", plan->kernel, best * 1e3);
    ok(plan_request(plan, jit_, d->arch, &k, &err_));
}

static void request_all(const struct device_info *d)
{
    struct plan plan;
    int32_t n;
    for (int i = 0; i < 8; i++) {
        int tokens = (int[]){1, 128, 300, 8192}[i % 4];
        struct moe_cuda_shape s = i < 4 ? qwen(tokens) : deepseek(tokens);
        struct moe_cuda_dispatch m;
        if (!ok(moe_cuda_plan_dispatch(&s, d, &m, &err_)) ||
            !ok(moe_cuda_plan_combine(&s, d, &plan, &n, &err_)))
            return;
        for (int j = 0; j < m.launches; j++) compile_alone(&m.launch[j], d);
        compile_alone(&plan, d);
    }
    for (int i = 0; i < 4; i++) {
        struct sample_shape s = {.rows = 1, .vocabulary = VOCABULARY, .bf16 = i % 2, .modify = i / 2, .threads = threads_};
        if (ok(sample_cuda_plan(&s, d, &plan, &n, &err_))) compile_alone(&plan, d);
    }
    ok(jit_compile_all(jit_, &err_));
    struct strbuf table = {0};
    jit_print_kernels(jit_, &table);
    printf("%s", table.p ? table.p : "");
    strbuf_free(&table);
}

int main(int argc, char **argv)
{
    const char *only = "", *arch = NULL, *sources = NULL, *driver = NULL; /* tests/simt's driver: checks without a GPU, with --rows of no bench */
    bool check = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            csv_ = fopen(argv[++i], "w");
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--compile") && i + 1 < argc)
            arch = argv[++i];
        else if (!strcmp(argv[i], "--sources") && i + 1 < argc)
            sources = argv[++i];
        else if (!strcmp(argv[i], "--driver") && i + 1 < argc)
            driver = argv[++i];
        else if (!strcmp(argv[i], "--few") && i + 1 < argc)
            few_ = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--cluster") && i + 1 < argc)
            cluster_ = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc)
            rows_ = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads_ = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--no-check"))
            check = false;
        else
            return printf("gpu_moe_sample [--csv FILE] [--no-check] [--only moe|sample|barrier] [--few N] [--cluster N] [--threads N] [--rows N] "
                          "[--sources DIR] [--driver LIBRARY] [--compile ARCH]\n"),
                   2;
    }
    if (!ok(jit_open(&(struct jit_options){.threads = arch ? 2 : 0, .override_dir = sources, .nvrtc_path = driver}, &jit_, &err_))) return 1;
    if (!ok(jit_open(&(struct jit_options){.threads = 1, .override_dir = sources, .nvrtc_path = driver}, &alone_, &err_))) return 1;
    if (arch) {
        struct device_info d = {.kind = DEVICE_CUDA,
                                .units = 132,
                                .bandwidth = 4.8e12,
                                .l2_bytes = 60 << 20,
                                .max_threads_per_unit = 2048,
                                .cooperative = true};
        snprintf(d.arch, sizeof d.arch, "%s", arch);
        request_all(&d);
        return failed_ != 0;
    }
    if (!ok(device_open(&(struct device_options){.kind = DEVICE_CUDA, .driver = driver}, &dev_, &err_))) return 1;
    bool moe = !*only || !strcmp(only, "moe"), sample = !*only || !strcmp(only, "sample"),
         barrier = !*only || !strcmp(only, "barrier");
    if (csv_) setvbuf(csv_, NULL, _IOLBF, 1 << 14); /* a run cut short leaves the rows it had */
    if (csv_) fprintf(csv_, "op,shape,us,bytes,ops,TB/s,%% of limit,clone us,us/clone,predicted us,plan\n");
    request_all(&dev_->info);
    if (check && moe)
        for (int i = 0; i < 5; i++) {
            struct moe_cuda_shape a = qwen((int[]){1, 16, 128, 300, 2049}[i]),
                                  b = deepseek((int[]){1, 16, 128, 256, 515}[i]);
            moe_check(&a);
            moe_check(&b);
            a.out = i % 2 ? ACT_OUT_MXFP8 : ACT_OUT_E4M3_128, b.out = ACT_OUT_E4M3_128;
            moe_check(&a);
            moe_check(&b);
        }
    for (int i = 0; check && sample && i < 4; i++) sample_check_all(i % 2, i >= 2, i == 3);
    printf("%d checks passed, %d failed\n", passed_, failed_);
    fflush(stdout);
    if (barrier)
        for (uint32_t blocks = 32; blocks <= 264; blocks += 100) barrier_bench(blocks < 232 ? blocks : 264);
    for (int i = 0; moe && i < 6; i++) {
        struct moe_cuda_shape s = qwen((int[]){1, 16, 128, 256, 1024, 8192}[i]);
        moe_bench(&s, (double[]){5, 6, 12, 0, 0, 0}[i]);
    }
    for (int i = 0; moe && i < 6; i++) {
        struct moe_cuda_shape s = deepseek((int[]){1, 16, 128, 256, 1024, 8192}[i]);
        moe_bench(&s, (double[]){5, 6, 16, 0, 0, 0}[i]);
        s.out = ACT_OUT_E4M3_128;
        moe_bench(&s, 0);
    }
    for (int bf16 = 0; sample && bf16 < 2; bf16++)
        for (int k = 0; k < KINDS; k++) {
            sample_bench(1, bf16, k, false, false, 12);
            if (k == 0 || k == 3) sample_bench(1, bf16, k, false, true, 12);
            sample_bench(16, bf16, k, false, true, 0);
            sample_bench(256, bf16, k, false, true, -1);
            for (int64_t rows = 1; rows <= 256 && (k == 0 || k == 3); rows *= 16) sample_bench(rows, bf16, k, true, true, 0);
        }
    fflush(stdout);
    if (csv_) fclose(csv_);
    jit_close(alone_);
    jit_close(jit_);
    device_close(dev_);
    printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ || !passed_;
}
