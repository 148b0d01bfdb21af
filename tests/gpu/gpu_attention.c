/* Attention on a GPU: checked against float64 at sampled heads and rows, then measured by graph replay.
 *
 *     gpu_attention [--csv FILE] [--only PART] [--variants]      last line "N passed, N failed"
 *     gpu_attention --compile sm_90a                             without a GPU
 *
 * us: a launch in a graph of many over rotating pages, so that L2 is cold; "dependent": each launched while
 * its predecessor still runs, as programs do. limit: bytes at 4.58 TB/s or operations at 830 TFLOP/s (what
 * the best kernels reach on an H200). "least": of prefill the e4m3 pages loaded together, 0: the plan's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "kernels/params/kv_layout.h"
#include "ops/attention_cuda.h"
#include "tensor/dtype.h"

enum { PAGE = 32, PIECE = 64 << 20, MOST_SEQS = 512, SETS = 32, MOST_ROWS = 32768 };

/* Where keys and values come from: pages of bf16 or e4m3, or the step's own rows, where every row sees all of its sequence, without or with biases. */
enum kind { PAGES, E4M3, OWN, RELATIVE };
struct shape {
    const char *name;
    int batch, rows,
        length; /* rows a sequence: 1 decodes; length with these rows; 0: skewed, see lengths() */
    int heads, kv_heads, dim, kind;
};
static const struct shape shapes[] = {
    {"decode Llama 8B, 1 x 128", 1, 1, 128, 32, 8, 128, 0},
    {"decode Llama 8B, 1 x 512", 1, 1, 512, 32, 8, 128, 0},
    {"decode Llama 8B, 1 x 4096", 1, 1, 4096, 32, 8, 128, 0},
    {"decode Llama 8B, 1 x 32768", 1, 1, 32768, 32, 8, 128, 0},
    {"decode Llama 8B, 8 x 512", 8, 1, 512, 32, 8, 128, 0},
    {"decode Llama 8B, 32 x 256", 32, 1, 256, 32, 8, 128, 0},
    {"decode Llama 8B, 256 x 192", 256, 1, 192, 32, 8, 128, 0},
    {"decode Llama 8B, 256 x 1152", 256, 1, 1152, 32, 8, 128, 0},
    {"decode Llama 8B, 64 x 4096", 64, 1, 4096, 32, 8, 128, 0},
    {"decode Llama 8B, 64 skewed", 64, 1, 0, 32, 8, 128, 0},
    {"decode 64/8 of 128, 64 x 4096", 64, 1, 4096, 64, 8, 128, 0},
    {"decode 64/8 of 128, 64 skewed", 64, 1, 0, 64, 8, 128, 0},
    {"decode Qwen3 30B, 1 x 512", 1, 1, 512, 32, 4, 128, 0},
    {"decode Qwen3 30B, 256 x 192", 256, 1, 192, 32, 4, 128, 0},
    {"decode Qwen3 0.6B, 1 x 256", 1, 1, 256, 16, 8, 128, 0},
    {"decode 16/8 of 64, 64 x 2048", 64, 1, 2048, 16, 8, 64, 0},
    {"verify Llama 8B, 8 rows, 8 x 2048", 8, 8, 2048, 32, 8, 128, 0},
    {"prefill Llama 8B, 1 x 128", 1, 128, 128, 32, 8, 128, 0},
    {"prefill Llama 8B, 4 x 1024", 4, 1024, 1024, 32, 8, 128, 0},
    {"prefill Qwen3 30B, 4 x 1024", 4, 1024, 1024, 32, 4, 128, 0},
    {"prefill Qwen3 30B, 1 x 8064", 1, 8064, 8064, 32, 4, 128, 0},
    {"prefill Llama 8B, 8 x 2048", 8, 2048, 2048, 32, 8, 128, 0},
    {"prefill Llama 8B, 2 x 8192", 2, 8192, 8192, 32, 8, 128, 0},
    {"prefill Llama 8B, 1 x 16384", 1, 16384, 16384, 32, 8, 128, 0},
    {"prefill Llama 8B, 512 behind 8192", 1, 512, 8704, 32, 8, 128, 0},
    {"prefill 16/16 of 128, 8 x 2048", 8, 2048, 2048, 16, 16, 128, 0},
    {"prefill 16/16 of 128, 1 x 16384", 1, 16384, 16384, 16, 16, 128, 0},
    {"prefill 32/8 of 64, 8 x 2048", 8, 2048, 2048, 32, 8, 64, 0},
    {"prefill 8/4 of 256, 4 x 2048", 4, 2048, 2048, 8, 4, 256, 0},
    {"decode 32/8 of 80, 64 x 2048", 64, 1, 2048, 32, 8, 80, 0},
    {"decode 32/8 of 96, 64 x 2048", 64, 1, 2048, 32, 8, 96, 0},
    {"decode 16/4 of 192, 64 x 2048", 64, 1, 2048, 16, 4, 192, 0},
    {"prefill 32/8 of 80, 8 x 2048", 8, 2048, 2048, 32, 8, 80, 0},
    {"prefill 32/8 of 80, 1 x 8192", 1, 8192, 8192, 32, 8, 80, 0},
    {"prefill 32/32 of 96, 8 x 2048", 8, 2048, 2048, 32, 32, 96, 0},
    {"prefill 32/8 of 96, 1 x 8192", 1, 8192, 8192, 32, 8, 96, 0},
    {"prefill 16/4 of 192, 8 x 2048", 8, 2048, 2048, 16, 4, 192, 0},
    {"prefill 16/4 of 192, 1 x 8192", 1, 8192, 8192, 16, 4, 192, 0},
    {"prefill own rows, 12/12 of 64, 64 x 512", 64, 512, 512, 12, 12, 64, OWN},
    {"prefill own rows, relative bias, 12/12 of 64, 64 x 512", 64, 512, 512, 12, 12, 64, RELATIVE},
    {"prefill own rows, relative bias, 12/12 of 64, 128 x 128", 128, 128, 128, 12, 12, 64, RELATIVE},
    /* e4m3 pages come last: the pool is filled anew */
    {"decode Llama 8B e4m3, 1 x 512", 1, 1, 512, 32, 8, 128, 1},
    {"decode Llama 8B e4m3, 64 x 4096", 64, 1, 4096, 32, 8, 128, 1},
    {"decode 64/8 of 128 e4m3, 64 x 4096", 64, 1, 4096, 64, 8, 128, 1},
    {"decode 64/8 of 128 e4m3, 64 skewed", 64, 1, 0, 64, 8, 128, 1},
    {"prefill Llama 8B e4m3, 2 x 8192", 2, 8192, 8192, 32, 8, 128, 1},
    {"prefill 32/8 of 64 e4m3, 8 x 2048", 8, 2048, 2048, 32, 8, 64, 1},
    {"prefill 8/4 of 256 e4m3, 4 x 2048", 4, 2048, 2048, 8, 4, 256, 1},
    {"prefill 32/8 of 96 e4m3, 8 x 2048", 8, 2048, 2048, 32, 8, 96, 1},
    {"prefill 16/4 of 192 e4m3, 8 x 2048", 8, 2048, 2048, 16, 4, 192, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct bench {
    struct device *device;
    struct jit *jit;
    const char *only;
    uint16_t *host; /* PIECE bytes of random bf16: the pool is this again and again */
    uint8_t *host8; /* the same of e4m3 */
    bool e4m3;      /* the pool holds those */
    char *pool;
    size_t pool_bytes;
    void *q, *y, *partial, *counters, *relative;
    int32_t *seq_rows, *length, *table; /* device; table: SETS of them */
    FILE *csv;
    int passed, failed;
};
static struct rose_error err_;

static bool ok(enum rose_status s)
{
    if (s != ROSE_OK) printf("%s\n", err_.message);
    return s == ROSE_OK;
}

/* Skewed: most are short, few are long (the mean is about 2000). */
static void lengths(const struct shape *s, int32_t *out)
{
    uint32_t seed = 5;
    for (int i = 0; i < s->batch; i++) {
        seed = seed * 1664525u + 1013904223u;
        double u = (double)(seed >> 8) * 0x1p-24;
        out[i] = s->length ? s->length : (int32_t)(64 * pow(256, u * u));
        if (!s->length && i == s->batch / 2) out[i] = 32768;
    }
}

struct work {
    struct shape s;
    int32_t rows[MOST_SEQS + 1], length[MOST_SEQS], pages, stride, sets;
    int64_t page_bytes;
    int32_t *table; /* [sets][batch][stride] */
    float *bias; /* RELATIVE: [heads][ATTENTION_RELATIVE_STRIDE] */
    double bytes, ops;
    struct attention_tile_params p[SETS];
    struct attention_wgmma_params wgmma[SETS]; /* the same, with the map of the pages */
};

/* Own rows lie at the pool's begin, keys first: the first element of the values. */
static int64_t own_values(const struct work *w) { return (int64_t)w->s.batch * w->s.rows * w->s.kv_heads * w->s.dim; }

static bool make(struct bench *b, struct work *w)
{
    const struct shape *s = &w->s;
    lengths(s, w->length);
    double tokens = 0, pairs = 0;
    w->pages = 0, w->stride = 1;
    for (int i = 0; i < s->batch; i++) {
        int32_t n = (w->length[i] + PAGE - 1) / PAGE;
        w->rows[i] = i * s->rows, w->pages += n, w->stride = n > w->stride ? n : w->stride;
        tokens += w->length[i];
        pairs += (double)s->rows * w->length[i] - (s->kind >= OWN ? 0 : (double)s->rows * (s->rows - 1) / 2);
    }
    w->rows[s->batch] = s->batch * s->rows;
    w->page_bytes = KV_ROWS_LAYER_BYTES(s->kv_heads, PAGE, s->dim, s->dim, s->kind == E4M3 ? 1 : 2);
    double rows = (double)s->batch * s->rows;
    w->bytes = tokens * s->kv_heads * s->dim * (s->kind == E4M3 ? 2 : 4) + rows * s->heads * s->dim * 4;
    w->ops = 4 * pairs * s->heads * s->dim;
    int64_t set = w->pages * w->page_bytes;
    w->sets = (int32_t)(3 * (int64_t)b->device->info.l2_bytes / set + 1);
    if (w->sets < 2) w->sets = 2;
    if (w->sets > SETS) w->sets = SETS;
    if (w->sets * set > (int64_t)b->pool_bytes) w->sets = (int32_t)((int64_t)b->pool_bytes / set);
    if (w->sets < 1) return printf("%s does not fit\n", s->name), false;
    w->table = malloc((size_t)(w->sets * s->batch * w->stride) * 4);
    int32_t next = 0, all = w->sets * w->pages, step = 7919; /* pages of a sequence lie apart */
    while (all % step == 0) step += 2;
    for (int set_at = 0; set_at < w->sets; set_at++)
        for (int i = 0; i < s->batch; i++)
            for (int k = 0; k < w->stride; k++) {
                bool used = k < (w->length[i] + PAGE - 1) / PAGE;
                w->table[(set_at * s->batch + i) * w->stride + k] =
                    used ? (int32_t)((int64_t)next * step % all) : -1;
                next += used;
            }
    size_t table = (size_t)(w->sets * s->batch * w->stride) * 4;
    if (table > (size_t)8 << 20) return printf("%s: page tables of %zu bytes\n", s->name, table), false;
    for (int i = 0; i < w->sets; i++)
        w->p[i] = (struct attention_tile_params){.q = b->q,
                                                 .y = b->y,
                                                 .pool = b->pool,
                                                 .page_table =
                                                     b->table + (size_t)i * (size_t)(s->batch * w->stride),
                                                 .seq_rows = b->seq_rows,
                                                 .seq_length = b->length,
                                                 .partial = b->partial,
                                                 .counters = b->counters,
                                                 .q_stride = s->heads * s->dim,
                                                 .y_stride = s->heads * s->dim,
                                                 .k = b->pool,
                                                 .v = b->pool + own_values(w) * 2,
                                                 .relative = b->relative,
                                                 .k_stride = s->kv_heads * s->dim,
                                                 .v_stride = s->kv_heads * s->dim,
                                                 .page_bytes = w->page_bytes,
                                                 .seqs = (uint32_t)s->batch,
                                                 .table_stride = w->stride};
    size_t biases = (size_t)s->heads * ATTENTION_RELATIVE_STRIDE((size_t)s->rows - 1);
    if (s->kind == RELATIVE) {
        w->bias = malloc(biases * 4);
        for (size_t i = 0; i < biases; i++) w->bias[i] = bf16_to_f32(b->host[i % 999983]);
        if (!ok(device_copy(b->device, b->relative, w->bias, biases * 4, &err_))) return false;
    }
    return ok(device_copy(b->device, b->table, w->table, table, &err_)) &&
           ok(device_copy(b->device, b->seq_rows, w->rows, (size_t)(s->batch + 1) * 4, &err_)) &&
           ok(device_copy(b->device, b->length, w->length, (size_t)s->batch * 4, &err_)) &&
           ok(device_wait(b->device, NULL, &err_));
}

/* Element d of a token's key or value. */
static double kv(const struct bench *b, const struct work *w, int set, int seq, int head, int token,
                 bool value, int d)
{
    const struct shape *s = &w->s;
    int bytes = s->kind == E4M3 ? 1 : 2;
    if (s->kind >= OWN) {
        int64_t own = (value ? own_values(w) : 0) + (((int64_t)seq * s->rows + token) * s->kv_heads + head) * s->dim + d;
        return (double)bf16_to_f32(b->host[own % (PIECE / 2)]);
    }
    int64_t page = w->table[(set * s->batch + seq) * w->stride + token / PAGE];
    int64_t at = page * w->page_bytes + (value ? KV_ROWS_VALUES(s->kv_heads, PAGE, s->dim, bytes) : 0) +
                 KV_ROWS_TOKEN(head, token % PAGE, PAGE, s->dim, bytes) + d * bytes;
    static float table[256];
    if (s->kind == E4M3 && table[1] == 0)
        for (int i = 0; i < 256; i++) {
            uint8_t code = (uint8_t)i;
            dtype_decode(DTYPE_F8_E4M3, &code, &table[i], 1);
        }
    return s->kind == E4M3 ? (double)table[b->host8[at % PIECE]] : (double)bf16_to_f32(b->host[at % PIECE / 2]);
}

/* Heads and rows drawn at random, set 0. */
static double error_of(const struct bench *b, const struct work *w, const uint16_t *y)
{
    const struct shape *s = &w->s;
    double error = 0, norm = 0, *weight = malloc((size_t)32768 * 8), r[256];
    uint32_t seed = 3;
    for (int sample = 0; sample < 16; sample++) {
        seed = seed * 1664525u + 1013904223u;
        int row = sample == 0   ? 0
                  : sample == 1 ? s->batch * s->rows - 1
                                : (int)((seed >> 8) % (uint32_t)(s->batch * s->rows));
        int head = (int)((seed >> 4) % (uint32_t)s->heads), seq = row / s->rows, i = row % s->rows;
        int n = s->kind >= OWN ? s->rows : w->length[seq] - s->rows + i + 1;
        size_t at = ((size_t)row * (size_t)s->heads + (size_t)head) * (size_t)s->dim;
        const uint16_t *q = b->host + at % (PIECE / 2);
        double most = -1e300, sum = 0;
        for (int t = 0; t < n; t++) {
            weight[t] = 0;
            for (int d = 0; d < s->dim; d++)
                weight[t] += (double)bf16_to_f32(q[d]) *
                             kv(b, w, 0, seq, head / (s->heads / s->kv_heads), t, false, d);
            weight[t] *= 0.125;
            if (s->kind == RELATIVE) weight[t] += (double)w->bias[(size_t)head * ATTENTION_RELATIVE_STRIDE((size_t)s->rows - 1) + (size_t)(s->rows - 1 + t - i)];
            most = weight[t] > most ? weight[t] : most;
        }
        memset(r, 0, sizeof r);
        for (int t = 0; t < n; t++) {
            double x = exp(weight[t] - most);
            sum += x;
            for (int d = 0; d < s->dim; d++)
                r[d] += x * kv(b, w, 0, seq, head / (s->heads / s->kv_heads), t, true, d);
        }
        for (int d = 0; d < s->dim; d++) {
            double e = (double)bf16_to_f32(y[at + (size_t)d]) - r[d] / sum;
            error += e * e, norm += r[d] / sum * (r[d] / sum);
        }
    }
    free(weight);
    return sqrt(error / norm);
}

static bool use_maps(struct bench *b, struct work *w, const struct plan *plan)
{
    struct layout_tma box;
    bool maps = attention_cuda_wgmma_box(plan, &box);
    for (int i = 0; i < w->sets; i++) {
        w->wgmma[i].a = w->p[i];
        if (maps && !ok(cuda_tensor_map(b->device, &box, 2, b->pool, &w->wgmma[i].pages, &err_))) return false;
    }
    return true;
}

static double time_us(struct bench *b, const struct work *w, struct program_launch *proto, uint32_t blocks,
                      bool dependent)
{
    enum { NODES = 64 };
    static struct program_launch l[NODES];
    uint32_t grids[NODES][3];
    double expected = 2 + w->bytes / 3e6 + w->ops / 300e6, t[5];
    int nodes = expected > 200 ? w->sets : w->sets * (NODES / w->sets),
        replays = (int)(6000 / (expected * nodes)) + 2;
    for (int i = 0; i < nodes; i++) {
        l[i] = *proto;
        l[i].params = proto->params == w->wgmma ? (const void *)&w->wgmma[i % w->sets] : &w->p[i % w->sets], l[i].dependent = dependent;
        grids[i][0] = blocks, grids[i][1] = grids[i][2] = 1;
    }
    for (int i = 0; i < 5; i++) {
        if (!ok(cuda_bench_graph_us(b->device, l, (const uint32_t(*)[3])grids, nodes, i ? 1 : 3, replays,
                                    &t[i], &err_)))
            return -1;
        for (int k = i; k > 0 && t[k] < t[k - 1]; k--) {
            double x = t[k];
            t[k] = t[k - 1], t[k - 1] = x;
        }
    }
    return t[2];
}

static void measure(struct bench *b, struct work *w, const struct plan *plan, const char *what)
{
    const struct shape *s = &w->s;
    struct program_launch l = {
        .name = plan->kernel, .layer = -1, .params = w->p, .params_bytes = sizeof w->p[0]};
    if (!strcmp(plan->kernel, "attention_wgmma")) {
        if (!use_maps(b, w, plan)) return (void)b->failed++;
        l.params = w->wgmma, l.params_bytes = sizeof w->wgmma[0];
    }
    size_t y_bytes = (size_t)s->batch * (size_t)s->rows * (size_t)s->heads * (size_t)s->dim * 2;
    uint16_t *y = malloc(y_bytes);
    uint32_t blocks = plan_grid(plan, plan->rows);
    double error = NAN, us = -1, dependent = -1;
    if (ok(plan_launch(plan, b->jit, b->device, EXTENT_ROWS, &l, &err_)) &&
        ok(cuda_fill(b->device, b->y, 0xff, y_bytes, &err_)) &&
        ok(cuda_launch(b->device, &l, (uint32_t[3]){blocks, 1, 1}, &err_)) &&
        ok(device_copy(b->device, y, b->y, y_bytes, &err_)) && ok(device_wait(b->device, NULL, &err_))) {
        error = error_of(b, w, y);
        us = time_us(b, w, &l, blocks, false), dependent = time_us(b, w, &l, blocks, true);
    }
    free(y);
    bool good = error < 6e-3 && us > 0;
    b->passed += good, b->failed += !good;
    double limit = w->bytes / 4.58e6 > w->ops / 830e6 ? w->bytes / 4.58e6 : w->ops / 830e6;
    printf("%s%-36s %-28s %9.2f us %9.2f dep %5.2f TB/s %6.1f TFLOP/s %5.1f %% error %.1e\n",
           good ? "" : "FAIL ", s->name, what, us, dependent, w->bytes / us * 1e-6, w->ops / us * 1e-6,
           100 * limit / us, error);
    fflush(stdout);
    if (b->csv)
        fprintf(b->csv, "%s,%s,%.3f,%.3f,%.0f,%.0f,%.3f,%.1f,%.1f,%.2g\n", s->name, what, us, dependent,
                w->bytes, w->ops, w->bytes / us * 1e-6, w->ops / us * 1e-6, 100 * limit / us, error);
}

static const int split_variants[][4] = {/* least, warps, loaders, stages */
                                        {0, 0, 0, 0}, {0, 0, 4, 0}, {0, 0, 1, 0}, {8, 0, 0, 0},
                                        {2, 0, 0, 0}, {0, 8, 0, 0}, {0, 0, 0, 2}};
static const int tile_variants[][3] = {{0, 0, 0}, {0, 3, 0}, {64, 0, 0}, {128, 0, 0}, {0, 0, 1}, {0, 0, 4}}; /* packed rows, 0: wgmma where it can; its stages, e4m3 pages ahead */

/* Plan v of a shape; false behind the last. */
static bool variant(const struct shape *s, const struct device_info *d, int v, struct plan *out,
                    char what[64])
{
    struct attention_shape a = {.rows = s->batch * s->rows,
                                .seqs = s->batch,
                                .heads = {s->heads, s->kv_heads, s->dim, s->dim},
                                .scale = 0.125f,
                                .own = s->kind >= OWN,
                                .relative = s->kind == RELATIVE,
                                .relative_reach = s->rows - 1,
                                .page_tokens = s->kind >= OWN ? 0 : PAGE,
                                .kv_bytes = s->kind >= OWN ? 0 : s->kind == E4M3 ? 1 : 2,
                                .max_seqs = MOST_SEQS};
    if (s->rows <= 8) {
        if (v >= (int)(sizeof split_variants / sizeof *split_variants)) return false;
        a.least = split_variants[v][0], a.warps = split_variants[v][1];
        a.loaders = split_variants[v][2], a.stages = split_variants[v][3];
        a.one_row = s->rows == 1;
        if (a.warps && s->dim != 128) return false;
        if (!ok(attention_cuda_split_plan(&a, d, out, &err_))) return false;
    } else {
        if (v >= (int)(sizeof tile_variants / sizeof *tile_variants)) return false;
        a.tile = tile_variants[v][0], a.stages = tile_variants[v][1], a.ahead = tile_variants[v][2];
        if (a.ahead && s->kind != E4M3) return false;
        if (a.ahead > 1 && s->dim > 128) a.ahead = 2; /* as many as a tile has */
        bool wgmma = !a.tile && attention_cuda_wgmma_takes(&a, d);
        if (a.stages && (!wgmma || s->dim > 128)) a.stages = 0;
        if (!ok(wgmma ? attention_cuda_wgmma_plan(&a, d, out, &err_)
                      : attention_cuda_plan(&a, d, out, &err_)))
            return false;
    }
    snprintf(what, 64, "%s %u st %lld least %lld w %lld+%lld", out->kernel + 10, plan_grid(out, out->rows),
             (long long)(plan_get(out, "STAGES") ? plan_get(out, "STAGES") : plan_get(out, "M")),
             (long long)(s->rows <= 8 ? plan_get(out, "LEAST") : plan_get(out, "AHEAD")), (long long)plan_get(out, "WARPS"),
             (long long)plan_get(out, "LOADERS"));
    return true;
}

static bool open_memory(struct bench *b)
{
    struct device *d = b->device;
    size_t rows = (size_t)MOST_ROWS * 4096 * 2;
    b->pool_bytes = (size_t)6 << 30;
    b->host = malloc(PIECE);
    uint32_t s = 1;
    for (size_t i = 0; i < PIECE / 2; i++) {
        float x = 0;
        for (int k = 0; k < 3; k++) s = s * 1664525u + 1013904223u, x += (float)(int32_t)s * 0x1p-31f;
        b->host[i] = f32_to_bf16(x * 1.2f);
    }
    void **all[] = {(void **)&b->pool,
                    &b->q,
                    &b->y,
                    &b->partial,
                    &b->counters,
                    &b->relative,
                    (void **)&b->seq_rows,
                    (void **)&b->length,
                    (void **)&b->table};
    size_t bytes[] = {b->pool_bytes, rows, rows, 64 << 20, 1 << 16, 1 << 20, 4096, 4096, 8 << 20};
    for (int i = 0; i < 9; i++)
        if (!(*all[i] = device_alloc(d, bytes[i], DEVICE_MEMORY_LOCAL, &err_)))
            return printf("%s\n", err_.message), false;
    for (size_t at = 0; at < b->pool_bytes; at += PIECE)
        if (!ok(device_copy(d, b->pool + at, b->host, PIECE, &err_))) return false;
    for (size_t at = 0; at < rows; at += PIECE)
        if (!ok(device_copy(d, (char *)b->q + at, b->host, rows - at < PIECE ? rows - at : PIECE, &err_)))
            return false;
    return ok(cuda_fill(d, b->counters, 0, 1 << 16, &err_)) && ok(device_wait(d, NULL, &err_));
}

static bool fill_e4m3(struct bench *b)
{
    b->host8 = malloc(PIECE);
    for (size_t i = 0; i < PIECE; i++) {
        float x = bf16_to_f32(b->host[i / 2 ^ i % 2]);
        if (!ok(dtype_encode(DTYPE_F8_E4M3, &x, &b->host8[i], 1, &err_))) return false;
    }
    for (size_t at = 0; at < b->pool_bytes; at += PIECE)
        if (!ok(device_copy(b->device, b->pool + at, b->host8, PIECE, &err_))) return false;
    b->e4m3 = true;
    return ok(device_wait(b->device, NULL, &err_));
}

static bool compile(struct bench *b, const struct device_info *d, bool variants)
{
    for (int i = 0; i < SHAPES; i++)
        for (int v = 0; v < (variants ? 99 : 1); v++) {
            struct plan plan;
            const struct jit_kernel *k;
            char what[64];
            if (b->only && !strstr(shapes[i].name, b->only)) break;
            if (!variant(&shapes[i], d, v, &plan, what)) break;
            if (!ok(plan_request(&plan, b->jit, d->arch, &k, &err_))) return false;
        }
    return ok(jit_compile_all(b->jit, &err_));
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct device_options options = {.kind = DEVICE_CUDA};
    const char *csv = NULL, *arch = NULL;
    bool variants = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--variants"))
            variants = true;
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            csv = argv[++i];
        else if (!strcmp(argv[i], "--compile") && i + 1 < argc)
            arch = argv[++i];
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            b.only = argv[++i];
        else
            return printf("gpu_attention [--variants] [--csv FILE] [--only PART] [--compile ARCH]\n"), 2;
    }
    if (!ok(jit_open(&(struct jit_options){0}, &b.jit, &err_))) return 1;
    if (arch) {
        struct device_info d = {.kind = DEVICE_CUDA,
                                .units = 132,
                                .l2_bytes = 60 << 20,
                                .bandwidth = 4.8e12,
                                .warp = 32,
                                .max_threads_per_unit = 2048,
                                .max_threads_per_block = 1024};
        snprintf(d.arch, sizeof d.arch, "%s", arch);
        bool good = compile(&b, &d, variants);
        struct strbuf table = {0};
        jit_print_kernels(b.jit, &table), printf("%s", table.p ? table.p : "");
        return strbuf_free(&table), jit_close(b.jit), !good;
    }
    if (!ok(device_open(&options, &b.device, &err_)) || !open_memory(&b) ||
        !compile(&b, &b.device->info, variants))
        return 1;
    if (csv && !(b.csv = fopen(csv, "w"))) return printf("cannot write %s\n", csv), 1;
    if (b.csv) fprintf(b.csv, "shape,kernel,us,us dependent,bytes,ops,TB/s,TFLOP/s,%% of limit,error\n");
    for (int i = 0; i < SHAPES; i++) {
        static struct work w;
        memset(&w, 0, sizeof w);
        w.s = shapes[i];
        if (b.only && !strstr(w.s.name, b.only)) continue;
        if ((w.s.kind == E4M3 && !b.e4m3 && !fill_e4m3(&b)) || !make(&b, &w)) {
            b.failed++;
            continue;
        }
        for (int v = 0; v < (variants ? 99 : 1); v++) {
            struct plan plan;
            char what[64];
            if (!variant(&w.s, &b.device->info, v, &plan, what)) break;
            measure(&b, &w, &plan, what);
        }
        free(w.table), free(w.bias);
    }
    if (b.csv) fclose(b.csv);
    jit_close(b.jit);
    device_close(b.device);
    printf("%d passed, %d failed\n", b.passed, b.failed);
    return b.failed != 0;
}
