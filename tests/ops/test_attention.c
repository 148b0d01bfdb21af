/* op_qk and op_attention against float64 references: ragged batches, every cache dtype, windows, caps, sinks,
 * shuffled pages, poisoned slots; bits must not depend on threads, chunking, batch or page size. */
#include "ops/attention.h"
#include "ops_fixture.h"

enum { MAX_SEQS = 6 };

struct setup {
    int heads, kv_heads, d, e, page_tokens, layers, layer, seqs;
    int rows[MAX_SEQS], length[MAX_SEQS]; /* this step's rows; tokens after it */
    enum dtype dtype;
    int window;
    float softcap, scale;
    bool sinks, alibi, bidirectional, deterministic, equal_keys;
    bool causal;  /* with bidirectional */
    bool half;    /* the same: bfloat16 will do */
    int relative; /* reach, 0: none */
    /* made by setup_make */
    float *k[MAX_SEQS], *v[MAX_SEQS];   /* all tokens, as the cache holds them before rounding */
    float *q[MAX_SEQS];                 /* all tokens */
    float *kc[MAX_SEQS], *vc[MAX_SEQS]; /* as the cache gives them back */
    float *sink, *slope, *bias;
    uint8_t *pool;
    size_t page_bytes;
    int pages, stride;
    int32_t *table;
};

static size_t at3(int i, int n, int j, int m, int x)
{
    return ((size_t)i * (size_t)n + (size_t)j) * (size_t)m + (size_t)x;
}

/* Vectors of n values as a cache of this dtype returns them; Q8_0 with a last group of fewer than 32. */
static float *through_cache(enum dtype dtype, const float *x, size_t vectors, int n)
{
    float *out = malloc((vectors * (size_t)n + 1) * sizeof *out);
    struct rose_error err = {0};
    for (size_t i = 0; i < vectors; i++)
        for (int b = 0; b < n; b += 32) {
            float group[32] = {0};
            uint8_t bytes[128];
            int count = n - b < 32 ? n - b : 32;
            memcpy(group, x + i * (size_t)n + (size_t)b, (size_t)count * sizeof *group);
            CHECK_OK(dtype_encode(dtype, group, bytes, 32, &err), err);
            dtype_decode(dtype, bytes, group, 32);
            memcpy(out + i * (size_t)n + (size_t)b, group, (size_t)count * sizeof *group);
        }
    return out;
}

static void setup_make(struct setup *s)
{
    struct op_heads h = {s->heads, s->kv_heads, s->d, s->e};
    s->page_bytes = op_cache_page_bytes(s->dtype, &h, s->page_tokens, s->layers) + 64;
    s->stride = 0;
    for (int i = 0; i < s->seqs; i++) {
        size_t n = (size_t)s->length[i];
        s->k[i] = fixture_reals(n * (size_t)(s->kv_heads * s->d), 1.5f);
        for (size_t t = 1; s->equal_keys && t < n; t++)
            memcpy(s->k[i] + t * (size_t)(s->kv_heads * s->d), s->k[i],
                   sizeof(float) * (size_t)(s->kv_heads * s->d));
        s->v[i] = fixture_reals(n * (size_t)(s->kv_heads * s->e), 1.0f);
        s->q[i] = fixture_reals(n * (size_t)(s->heads * s->d), 1.5f);
        enum dtype dtype = s->bidirectional ? DTYPE_F32 : s->dtype;
        s->kc[i] = through_cache(dtype, s->k[i], n * (size_t)s->kv_heads, s->d);
        s->vc[i] = through_cache(dtype, s->v[i], n * (size_t)s->kv_heads, s->e);
        int pages = (s->length[i] + s->page_tokens - 1) / s->page_tokens;
        if (pages > s->stride) s->stride = pages;
    }
    s->stride += 1;
    s->pages = s->stride * s->seqs;
    s->pool = malloc(s->page_bytes * (size_t)s->pages);
    memset(s->pool, 0xFF, s->page_bytes * (size_t)s->pages); /* NaN in every float format */
    s->table = malloc(sizeof(int32_t) * (size_t)s->pages);
    for (int i = 0; i < s->pages; i++) s->table[i] = i;
    for (int i = s->pages - 1; i > 0; i--) {
        int j = fixture_int(0, i), t = s->table[i];
        s->table[i] = s->table[j], s->table[j] = t;
    }
    s->sink = fixture_reals((size_t)s->heads, 2.0f);
    s->slope = fixture_reals((size_t)s->heads, 0.1f);
    s->bias = fixture_reals((size_t)s->heads * OP_RELATIVE_STRIDE((size_t)s->relative), 2.0f);
    if (s->scale == 0) s->scale = 1.0f / sqrtf((float)s->d);
}

static void setup_free(struct setup *s)
{
    for (int i = 0; i < s->seqs; i++)
        free(s->k[i]), free(s->v[i]), free(s->q[i]), free(s->kc[i]), free(s->vc[i]);
    free(s->sink), free(s->slope), free(s->bias), free(s->pool), free(s->table);
}

/* Step arrays for rows [from[i], to[i]) of each sequence. */
struct step {
    int rows;
    int32_t *positions, *row_seq, seq_rows[MAX_SEQS + 1], seq_length[MAX_SEQS];
    int64_t *slot;
    struct op_step op;
};

static struct step step_make(const struct setup *s, const int *from, const int *to, struct program *p)
{
    struct step t = {0};
    for (int i = 0; i < s->seqs; i++)
        t.seq_rows[i] = t.rows, t.seq_length[i] = to[i], t.rows += to[i] - from[i];
    t.seq_rows[s->seqs] = t.rows;
    t.positions = malloc(sizeof(int32_t) * (size_t)(t.rows + 1));
    t.row_seq = malloc(sizeof(int32_t) * (size_t)(t.rows + 1));
    t.slot = malloc(sizeof(int64_t) * (size_t)(t.rows + 1));
    for (int i = 0, r = 0; i < s->seqs; i++)
        for (int x = from[i]; x < to[i]; x++, r++) {
            t.positions[r] = x;
            t.row_seq[r] = i;
            t.slot[r] =
                (int64_t)s->table[i * s->stride + x / s->page_tokens] * s->page_tokens + x % s->page_tokens;
        }
    (void)p;
    return t;
}

static void step_bind(struct step *t, const struct setup *s, struct program *p)
{
    t->op.positions = program_external(p, "positions", t->positions, 4);
    t->op.row_seq = program_external(p, "row_seq", t->row_seq, 4);
    t->op.seq_rows = program_external(p, "seq_rows", t->seq_rows, 4);
    t->op.seq_length = program_external(p, "seq_length", t->seq_length, 4);
    t->op.groups = 1;
    t->op.page_table[0] = program_external(p, "page_table", s->table, 4);
    t->op.kv_slot[0] = program_external(p, "kv_slot", t->slot, 8);
    t->op.table_stride = s->stride;
    t->op.max_rows = t->rows;
    t->op.max_seqs = s->seqs;
}

static void step_free(struct step *t)
{
    free(t->positions), free(t->row_seq), free(t->slot);
}

static float *rows_of(const struct setup *s, float *const *all, const int *from, const int *to, int width)
{
    int rows = 0;
    for (int i = 0; i < s->seqs; i++) rows += to[i] - from[i];
    float *out = malloc(sizeof(float) * (size_t)(rows * width + 1)), *o = out;
    for (int i = 0; i < s->seqs; i++) {
        size_t n = (size_t)(to[i] - from[i]) * (size_t)width;
        memcpy(o, all[i] + (size_t)from[i] * (size_t)width, n * sizeof(float));
        o += n;
    }
    return out;
}

/* One step: write the rows' keys and values, attend. y[rows, heads * e]. */
static void run_step(struct setup *s, int threads, const int *from, const int *to, float *y)
{
    struct device *d = fixture_device(threads);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    struct step t = step_make(s, from, to, p);
    step_bind(&t, s, p);
    float *q = rows_of(s, s->q, from, to, s->heads * s->d),
          *k = rows_of(s, s->k, from, to, s->kv_heads * s->d);
    float *v = rows_of(s, s->v, from, to, s->kv_heads * s->e);
    struct op_heads h = {s->heads, s->kv_heads, s->d, s->e};
    struct op_cache cache = {s->pool, s->page_bytes, s->dtype, s->page_tokens};
    struct op_qk qk = {
        .heads = h, .write = !s->bidirectional, .group_layer = s->layer, .group_layers = s->layers};
    qk.k = fixture_value(p, "k", k, t.rows, s->kv_heads * s->d, s->kv_heads * s->d, 0);
    qk.v = fixture_value(p, "v", v, t.rows, s->kv_heads * s->e, s->kv_heads * s->e, 0);
    if (!s->bidirectional) CHECK_OK(op_qk(p, &t.op, &cache, &qk, &err), err);
    struct op_attention a = {.heads = h,
                             .scale = s->scale,
                             .softcap = s->softcap,
                             .window = s->window,
                             .sinks = s->sinks ? s->sink : NULL,
                             .alibi_slopes = s->alibi ? s->slope : NULL,
                             .bidirectional = s->bidirectional,
                             .causal = s->causal,
                             .relative = s->relative ? s->bias : NULL,
                             .relative_reach = s->relative,
                             .deterministic = s->deterministic,
                             .half = s->half,
                             .k = qk.k,
                             .v = qk.v,
                             .group_layer = s->layer,
                             .group_layers = s->layers};
    a.q = fixture_value(p, "q", q, t.rows, s->heads * s->d, s->heads * s->d, 0);
    a.y = fixture_value(p, "y", y, t.rows, s->heads * s->e, s->heads * s->e, 0);
    CHECK_OK(op_attention(p, &t.op, &cache, &a, &err), err);
    fixture_run(p, t.rows, s->seqs, 0);
    device_close(d);
    step_free(&t);
    free(q), free(k), free(v);
}

/* float64, one query row; token order. */
static void reference_row(const struct setup *s, int seq, int at, int n, int head, double *out)
{
    int kv = head / (s->heads / s->kv_heads), lo = 0, hi = s->bidirectional && !s->causal ? n : at + 1;
    if (s->window && s->bidirectional && !s->causal)
        lo = at - s->window / 2, hi = at + s->window / 2 + 1;
    else if (s->window)
        lo = at - s->window + 1;
    if (lo < 0) lo = 0;
    if (hi > n) hi = n;
    double *score = malloc(sizeof(double) * (size_t)n), top = s->sinks ? s->sink[head] : -INFINITY, sum = 0;
    for (int j = lo; j < hi; j++) {
        double dot = 0;
        for (int x = 0; x < s->d; x++)
            dot += (double)s->q[seq][at3(at, s->heads, head, s->d, x)] *
                   (double)s->kc[seq][at3(j, s->kv_heads, kv, s->d, x)];
        dot *= s->scale;
        if (s->softcap != 0) dot = s->softcap * tanh(dot / s->softcap);
        if (s->relative) dot += (double)s->bias[(size_t)head * OP_RELATIVE_STRIDE((size_t)s->relative) + (size_t)(s->relative + j - at)];
        if (s->alibi) dot -= (double)s->slope[head] * abs(at - j);
        score[j] = dot;
        if (dot > top) top = dot;
    }
    for (int x = 0; x < s->e; x++) out[x] = 0;
    for (int j = lo; j < hi; j++) {
        double w = exp(score[j] - top);
        sum += w;
        for (int x = 0; x < s->e; x++) out[x] += w * (double)s->vc[seq][at3(j, s->kv_heads, kv, s->e, x)];
    }
    if (s->sinks) sum += exp(s->sink[head] - top);
    for (int x = 0; x < s->e; x++) out[x] /= sum;
    free(score);
}

static double worst_error(const struct setup *s, const float *y)
{
    double worst = 0, *want = malloc(sizeof(double) * (size_t)s->e);
    for (int i = 0, r = 0; i < s->seqs; i++)
        for (int x = 0; x < s->rows[i]; x++, r++)
            for (int h = 0; h < s->heads; h++) {
                reference_row(s, i, s->length[i] - s->rows[i] + x, s->length[i], h, want);
                for (int c = 0; c < s->e; c++) {
                    double e = fabs((double)y[at3(r, s->heads, h, s->e, c)] - want[c]);
                    if (!(e <= worst)) worst = e;
                }
            }
    free(want);
    return worst;
}

static int total_rows(const struct setup *s)
{
    int n = 0;
    for (int i = 0; i < s->seqs; i++) n += s->rows[i];
    return n;
}

/* Earlier tokens in one step, then the step under test. */
static float *run_whole(struct setup *s, int threads)
{
    int zero[MAX_SEQS] = {0}, mid[MAX_SEQS];
    float *y = malloc(sizeof(float) * (size_t)(total_rows(s) * s->heads * s->e + 1));
    int before = 0;
    for (int i = 0; i < s->seqs; i++) mid[i] = s->length[i] - s->rows[i], before += mid[i];
    if (before && !s->bidirectional) {
        float *unused = malloc(sizeof(float) * (size_t)(before * s->heads * s->e));
        run_step(s, threads, zero, mid, unused);
        free(unused);
    }
    run_step(s, threads, mid, s->length, y);
    return y;
}

/* Largest error seen: [0] in float32, [1] where bfloat16 products were allowed, [2] over own rows, whose keys and values they round. */
static double worst_seen[3];

/* No bfloat16 may be there. */
static bool is_exact(const struct setup *s)
{
    return s->deterministic || (s->bidirectional ? !s->half || s->relative : s->dtype == DTYPE_F32);
}

/* Q8_0's own rounding may fall on the other side of a half: one step of a quant. */
static double tolerance_of(const struct setup *s)
{
    return (is_exact(s) ? 2e-6 : s->bidirectional ? 8e-3 : 4e-3) + (s->dtype == DTYPE_Q8_0 ? 9e-3 : 0);
}

static void check_one(struct setup s, const char *what)
{
    uint64_t seed = fixture_state;
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        float *first = NULL;
        for (int t = 0; t < 4; t++) {
            fixture_state = seed;
            struct setup run = s;
            setup_make(&run);
            float *y = run_whole(&run, fixture_threads[t]);
            if (!t) {
                double e = worst_error(&run, y);
                double *seen = &worst_seen[is_exact(&s) ? 0 : s.bidirectional ? 2 : 1];
                if (e > *seen && s.dtype != DTYPE_Q8_0) *seen = e;
                if (!(e <= tolerance_of(&s)))
                    test_failures_++, fprintf(stderr, "%s on %s: error %g\n", what, fixture_isas[isa], e);
                first = y;
            } else {
                if (memcmp(first, y, sizeof(float) * (size_t)(total_rows(&s) * s.heads * s.e)))
                    test_failures_++, fprintf(stderr, "%s on %s: %d threads change bits\n", what,
                                              fixture_isas[isa], fixture_threads[t]);
                free(y);
            }
            setup_free(&run);
        }
        free(first);
    }
    cpu_isa_select("auto", NULL);
}

static void check_setup(struct setup s, const char *what)
{
    s.deterministic = true;
    check_one(s, what);
    s.deterministic = false;
    if (s.dtype != DTYPE_F32) check_one(s, what);
    s.half = s.bidirectional;
    if (s.half) check_one(s, what);
}

static const struct setup ragged = {.heads = 6,
                                    .kv_heads = 2,
                                    .d = 64,
                                    .e = 64,
                                    .page_tokens = 32,
                                    .layers = 3,
                                    .layer = 1,
                                    .seqs = 5,
                                    .rows = {1, 70, 1, 3, 17},
                                    .length = {1, 70, 333, 65, 200},
                                    .dtype = DTYPE_F32};

TEST(ragged_batch)
{
    check_setup(ragged, "ragged");
}

TEST(windows_caps_sinks)
{
    struct setup s = ragged;
    s.window = 50;
    check_setup(s, "window");
    s.softcap = 3.0f;
    check_setup(s, "window and cap");
    s.sinks = true;
    check_setup(s, "window, cap, sinks");
    s.window = 1;
    check_setup(s, "window of one");
    s.window = 0, s.softcap = 0, s.alibi = true;
    check_setup(s, "sinks and alibi");
}

/* Scores of tens of millions: the same for every key, so that rounding cannot choose one. */
TEST(huge_scores)
{
    struct setup s = ragged;
    s.equal_keys = true, s.scale = 3e6f;
    for (int i = 0; i < 3; i++) {
        s.dtype = (enum dtype[]){DTYPE_F32, DTYPE_F16, DTYPE_BF16}[i];
        check_setup(s, "huge scores");
    }
}

TEST(cache_dtypes)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};
    static const int dims[] = {64, 80, 96, 128, 6};
    for (size_t i = 0; i < ROSE_COUNT(types); i++)
        for (size_t j = 0; j < ROSE_COUNT(dims); j++) {
            struct setup s = ragged;
            s.dtype = types[i];
            s.d = dims[j];
            s.e = j == 1 ? 34 : dims[j];
            s.page_tokens = 16 << (j % 3);
            s.seqs = 3;
            s.rows[1] = 20, s.length[1] = 40;
            char what[64];
            snprintf(what, sizeof what, "%s of %d", dtype_info(s.dtype)->name, s.d);
            check_setup(s, what);
        }
}

TEST(big_heads_and_groups)
{
    struct setup s = {.heads = 3,
                      .kv_heads = 1,
                      .d = 512,
                      .e = 256,
                      .page_tokens = 64,
                      .layers = 1,
                      .seqs = 2,
                      .rows = {30, 1},
                      .length = {30, 100},
                      .dtype = DTYPE_F32};
    check_setup(s, "head of 512");
    struct setup m = {.heads = 71,
                      .kv_heads = 1,
                      .d = 64,
                      .e = 64,
                      .page_tokens = 64,
                      .layers = 1,
                      .seqs = 2,
                      .rows = {3, 1},
                      .length = {5, 70},
                      .dtype = DTYPE_F32};
    check_setup(m, "71 heads share one");
}

TEST(long_decode_is_split)
{
    struct setup s = {.heads = 4,
                      .kv_heads = 2,
                      .d = 32,
                      .e = 32,
                      .page_tokens = 48,
                      .layers = 1,
                      .seqs = 2,
                      .rows = {1, 2},
                      .length = {1700, 1025},
                      .dtype = DTYPE_F32};
    check_setup(s, "split");
    s.window = 700;
    check_setup(s, "split window");
}

/* A few rows far into a file: bfloat16 from four rows on, cut into chunks where there are few items, beside answers and short files that are not. */
TEST(pieces_of_prompts)
{
    static const int rows[][MAX_SEQS] = {{7}, {16}, {4, 3, 5, 11, 1}, {22, 4}, {4}}, lengths[][MAX_SEQS] = {{1100}, {1025}, {600, 530, 512, 700, 2}, {513, 130}, {1100}};
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        struct setup s = ragged;
        s.dtype = (enum dtype[]){DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0}[i % 3];
        s.page_tokens = i == 1 ? 16 : 64;
        for (s.seqs = 0; s.seqs < MAX_SEQS && rows[i][s.seqs]; s.seqs++) s.rows[s.seqs] = rows[i][s.seqs], s.length[s.seqs] = lengths[i][s.seqs];
        check_setup(s, "pieces of prompts");
        if (i % 4) continue;
        s.window = i ? 0 : 600;
        s.softcap = i ? 5.0f : 0;
        check_setup(s, "pieces of prompts, window or cap");
    }
}

TEST(encoders)
{
    struct setup s = ragged;
    s.bidirectional = true;
    for (int i = 0; i < s.seqs; i++) s.length[i] = s.rows[i];
    check_setup(s, "bidirectional");
    s.window = 20;
    check_setup(s, "local");
    s.alibi = true, s.d = 34, s.e = 34;
    check_setup(s, "local alibi");
    s.alibi = false, s.window = 0, s.relative = 0;
    for (int i = 0; i < s.seqs; i++) s.relative = s.rows[i] > s.relative ? s.rows[i] : s.relative;
    check_setup(s, "relative bias");
    s.relative += 70, s.d = 32, s.e = 32;
    check_setup(s, "relative bias of a longer reach");
    s.relative = 0, s.causal = true;
    check_setup(s, "own rows, causal");
    s.window = 20;
    check_setup(s, "own rows, causal with a window");
    /* lengths around the tiles and blocks of the kernels, heads that share keys or not, sizes that fill no vector */
    static const int lengths[][MAX_SEQS] = {{8, 15, 16, 17, 33}, {1, 7, 63, 64, 65}, {130, 2, 31, 600, 1}};
    for (size_t i = 0; i < 3; i++) {
        struct setup t = ragged;
        t.bidirectional = true;
        t.kv_heads = i == 1 ? 6 : 2, t.d = i == 2 ? 40 : 32, t.e = i == 2 ? 48 : 32, t.softcap = i == 1 ? 3.0f : 0;
        for (int k = 0; k < t.seqs; k++) t.rows[k] = t.length[k] = lengths[i][k];
        check_setup(t, "own rows of many lengths");
    }
}

/* The same rows whole, in chunks with other sequences around them, with another page size: equal bits. */
TEST(chunks_do_not_change_bits)
{
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        for (int i = 0; i < 4; i++) {
            struct setup s = {.heads = 6,
                              .kv_heads = 2,
                              .d = 64,
                              .e = 64,
                              .page_tokens = 64,
                              .layers = 1,
                              .seqs = 1,
                              .rows = {700},
                              .length = {700},
                              .dtype = (enum dtype[]){DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0}[i],
                              .deterministic = true};
            fixture_state = 77;
            setup_make(&s);
            float *whole = run_whole(&s, 1);
            setup_free(&s);
            s.page_tokens = 16;
            fixture_state = 77;
            setup_make(&s);
            int width = s.heads * s.e;
            float *part = malloc(sizeof(float) * (size_t)(700 * width));
            static const int cuts[] = {0, 1, 2, 70, 128, 133, 600, 699, 700};
            for (int c = 0; c + 1 < (int)ROSE_COUNT(cuts); c++)
                run_step(&s, 1 + c % 3, &cuts[c], &cuts[c + 1], part + (size_t)cuts[c] * (size_t)width);
            CHECK(!memcmp(whole, part, sizeof(float) * (size_t)(700 * width)));
            setup_free(&s);
            free(whole), free(part);
        }
    }
    cpu_isa_select("auto", NULL);
}

/* Pages behind the window are gone: -1 in the table. */
TEST(freed_pages_behind_the_window)
{
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        struct setup s = {.heads = 4,
                          .kv_heads = 2,
                          .d = 64,
                          .e = 64,
                          .page_tokens = 16,
                          .layers = 1,
                          .seqs = 1,
                          .rows = {3},
                          .length = {203},
                          .dtype = DTYPE_F32,
                          .window = 40};
        setup_make(&s);
        int zero[1] = {0}, mid[1] = {200};
        float *unused = malloc(sizeof(float) * 200 * 4 * 64), y[3 * 4 * 64];
        run_step(&s, 1, zero, mid, unused);
        free(unused);
        for (int i = 0; i < (200 - 40 + 1) / 16; i++) s.table[i] = -1;
        run_step(&s, 2, mid, s.length, y);
        CHECK_NEAR(worst_error(&s, y), 0, 5e-6);
        setup_free(&s);
    }
    cpu_isa_select("auto", NULL);
}

TEST(wrong_calls_are_sentences)
{
    struct device *d = fixture_device(1);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    static float x[64 * 8];
    static int32_t i32[8];
    char pool[4096];
    struct op_step step = {.groups = 1, .table_stride = 1, .max_rows = 1, .max_seqs = 1};
    step.seq_rows = step.seq_length = step.page_table[0] = step.positions =
        program_external(p, "i", i32, sizeof i32);
    step.kv_slot[0] = step.seq_rows;
    struct op_cache cache = {pool, 4096, DTYPE_F16, 16};
    struct op_attention a = {.heads = {2, 1, 32, 32}, .scale = 1, .group_layers = 1};
    a.q = a.y = fixture_value(p, "x", x, 1, 64, 64, 0);
    CHECK_INT(op_attention(p, &step, &cache, &a, &err), ROSE_OK);
    struct op_attention b = a;
    b.heads.kv_heads = 3;
    CHECK_INT(op_attention(p, &step, &cache, &b, &err), ROSE_INVALID);
    b = a, b.heads.head_dim = 33;
    CHECK_INT(op_attention(p, &step, &cache, &b, &err), ROSE_UNSUPPORTED);
    b = a, b.scale = NAN;
    CHECK_INT(op_attention(p, &step, &cache, &b, &err), ROSE_INVALID);
    b = a, b.group_layers = 3;
    CHECK_INT(op_attention(p, &step, &cache, &b, &err), ROSE_INVALID);
    struct op_cache other = cache;
    other.page_tokens = 24;
    CHECK_INT(op_attention(p, &step, &other, &a, &err), ROSE_UNSUPPORTED);
    other = cache, other.dtype = DTYPE_Q4_0;
    CHECK_INT(op_attention(p, &step, &other, &a, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "q8_0") != NULL);
    program_close(p);
    device_close(d);
}

TEST(errors_seen)
{
    printf("largest error: float32 %.2g, bfloat16 %.2g, over own rows %.2g\n", worst_seen[0], worst_seen[1], worst_seen[2]);
    CHECK(worst_seen[0] < 2e-6 && worst_seen[1] < 4e-3 && worst_seen[2] < 8e-3);
}

TEST_MAIN(CASE(ragged_batch), CASE(windows_caps_sinks), CASE(huge_scores), CASE(cache_dtypes),
          CASE(big_heads_and_groups), CASE(long_decode_is_split), CASE(pieces_of_prompts), CASE(encoders),
          CASE(chunks_do_not_change_bits), CASE(freed_pages_behind_the_window),
          CASE(wrong_calls_are_sentences), CASE(errors_seen))
