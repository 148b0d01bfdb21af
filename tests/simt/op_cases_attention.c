/* Attention over pages and over a step's own rows, against float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/attention_tile.h"
#include "kernels/params/cascade.h"
#include "kernels/params/kv_layout.h"
#include "op_cases_internal.h"
#include "ops/attention_cuda.h"

enum { MOST_SEQS = 48, LAYERS = 3, LAYER = 1 };

struct attention_case {
    const char *name;
    struct attention_shape s;
    int seqs[MOST_SEQS]
            [3]; /* rows, and tokens before them; {0, 0} ends; rows -1: an inert sequence of one row; with cascade its group,
                  * which shares all whole pages that its shortest sequence has behind it, 0: none */
};
#define HEADS(q, kv, d) .heads = {q, kv, d, d}
#define SPLIT .max_seqs = 48 /* marks the cases of attention_split */
#define E4M3 .kv_bytes = 1
#define LONG .tile = 1 /* and of attention_wgmma */
#define AT(...)                     \
    {                               \
        .scale = 0.11f, __VA_ARGS__ \
    }
static const struct attention_case cases[] = {
    {"attention 4/2 of 64, ragged", AT(HEADS(4, 2, 64)), {{37, 0}, {1, 70}, {5, 131}, {-1, 0}, {2, 0}}},
    {"attention 7/1 of 128, chunk behind a prefix", AT(HEADS(7, 1, 128)), {{21, 100}, {3, 1}}},
    {"attention 8/2 of 64, window 50", AT(HEADS(8, 2, 64), .window = 50), {{40, 90}, {1, 200}, {9, 3}}},
    {"attention 4/4 of 80, cap", AT(HEADS(4, 4, 80), .softcap = 2.5f), {{33, 7}, {1, 64}}},
    {"attention 8/1 of 64, sinks, window 33",
     AT(HEADS(8, 1, 64), .sinks = true, .window = 33),
     {{35, 60}, {1, 95}, {-1, 0}}},
    {"attention 4/2 of 96, alibi", AT(HEADS(4, 2, 96), .alibi = true), {{20, 40}, {1, 30}}},
    {"attention 2/1 of 192", AT(HEADS(2, 1, 192)), {{37, 20}, {1, 50}}},
    {"attention 2/1 of 256, cap, window 40",
     AT(HEADS(2, 1, 256), .softcap = 30, .window = 40),
     {{35, 30}, {1, 66}}},
    {"attention 3/1 of 16", AT(HEADS(3, 1, 16)), {{9, 0}, {1, 40}, {1, 0}}},
    {"attention 2/2 of 32, pages of 16", AT(HEADS(2, 2, 32), .page_tokens = 16), {{9, 80}, {1, 40}}},
    {"attention 4/4 of 64, bidirectional", AT(HEADS(4, 4, 64), .own = true), {{70, 0}, {1, 0}, {33, 0}}},
    {"attention 4/2 of 32, bidirectional, window 20, alibi",
     AT(HEADS(4, 2, 32), .own = true, .window = 20, .alibi = true),
     {{75, 0}, {2, 0}}},
    {"attention 4/2 of 32, own rows, causal, window 30",
     AT(HEADS(4, 2, 32), .own = true, .causal = true, .window = 30),
     {{50, 0}, {70, 0}}},
    {"attention 2/2 of 64, own rows, relative bias",
     AT(HEADS(2, 2, 64), .own = true, .relative = true, .relative_reach = 1200),
     {{67, 0}, {3, 0}}},
    {"attention 4/4 of 12, bidirectional, window 18", AT(HEADS(4, 4, 12), .own = true, .window = 18), {{70, 0}, {1, 0}, {19, 0}}},
    {"attention 6/2 of 26, own rows, causal, relative bias",
     AT(HEADS(6, 2, 26), .own = true, .causal = true, .relative = true, .relative_reach = 1190), /* as long as any file of gpu_ops */
     {{45, 0}, {2, 0}, {66, 0}}},
    {"attention 3/3 of 40, bidirectional, cap, alibi", AT(HEADS(3, 3, 40), .own = true, .softcap = 3, .alibi = true), {{66, 0}, {5, 0}}},
    {"attention 2/1 of 202, bidirectional", AT(HEADS(2, 1, 202), .own = true), {{37, 0}, {40, 0}}},
    {"attention prefill 4/1 of 128", AT(LONG, HEADS(4, 1, 128), .blocks = 2), {{37, 300}, {-1, 0}, {80, 0}}},
    {"attention prefill 2/2 of 64, window 70, cap, sinks",
     AT(LONG, HEADS(2, 2, 64), .blocks = 3, .window = 70, .softcap = 4, .sinks = true),
     {{200, 80}, {3, 400}}},
    {"attention prefill 3/1 of 256, alibi",
     AT(LONG, HEADS(3, 1, 256), .blocks = 2, .alibi = true),
     {{50, 100}, {1, 20}}},
    {"attention prefill 2/2 of 64, whole tiles, one place for queries",
     AT(LONG, HEADS(2, 2, 64), .blocks = 2, .stages = 3),
     {{130, 126}, {-1, 0}, {70, 400}, {200, 0}}},
    {"attention prefill 2/1 of 128, own rows",
     AT(LONG, HEADS(2, 1, 128), .blocks = 2, .own = true),
     {{70, 0}, {150, 0}}},
    {"attention prefill 4/2 of 80, window 70, cap, sinks", /* two pieces, the second of 16 elements */
     AT(LONG, HEADS(4, 2, 80), .blocks = 3, .window = 70, .softcap = 4, .sinks = true),
     {{70, 80}, {-1, 0}, {3, 400}, {100, 0}}},
    {"attention prefill 3/1 of 96, chunks behind prefixes", AT(LONG, HEADS(3, 1, 96), .blocks = 2), {{37, 300}, {1, 20}, {130, 126}}},
    {"attention prefill 4/1 of 192, window 130", AT(LONG, HEADS(4, 1, 192), .blocks = 2, .window = 130), {{37, 250}, {-1, 0}, {60, 0}}},
    {"attention prefill 7/1 of 192, alibi, e4m3 pages", /* tiles of 64 tokens, not of 96 */
     AT(LONG, E4M3, HEADS(7, 1, 192), .blocks = 2, .alibi = true),
     {{50, 100}, {1, 20}, {-1, 0}, {20, 0}}},
    {"attention prefill f16 2/1 of 80, e4m3 pages, window 150", AT(LONG, E4M3, HEADS(2, 1, 80), .blocks = 2, .window = 150, .f16 = true), {{70, 230}, {80, 0}}},
    {"attention prefill 4/2 of 64, own rows, causal, relative bias",
     AT(LONG, HEADS(4, 2, 64), .blocks = 3, .own = true, .causal = true, .relative = true, .relative_reach = 1200),
     {{67, 0}, {3, 0}, {150, 0}}},
    {"attention prefill 2/2 of 96, own rows, relative bias, window 90",
     AT(LONG, HEADS(2, 2, 96), .blocks = 2, .own = true, .relative = true, .relative_reach = 1200, .window = 90),
     {{70, 0}, {190, 0}}},
    {"attention decode 8/2 of 64, skewed",
     AT(SPLIT, HEADS(8, 2, 64), .blocks = 7, .least = 1),
     {{1, 0}, {1, 300}, {-1, 0}, {1, 63}, {1, 64}, {1, 31}, {1, 700}, {-1, 0}}},
    {"attention decode 4/1 of 128, one sequence",
     AT(SPLIT, HEADS(4, 1, 128), .blocks = 6, .least = 2),
     {{1, 517}}},
    {"attention decode 7/1 of 128, several rows",
     AT(SPLIT, HEADS(7, 1, 128), .blocks = 3),
     {{5, 131}, {1, 9}, {8, 250}}},
    {"attention decode 8/1 of 64, window, sinks, cap",
     AT(SPLIT, HEADS(8, 1, 64), .blocks = 5, .least = 1, .window = 150, .sinks = true, .softcap = 3),
     {{1, 400}, {2, 90}, {1, 149}}},
    {"attention decode 2/2 of 80, alibi, whole",
     AT(SPLIT, HEADS(2, 2, 80), .blocks = 3, .least = 1, .alibi = true, .deterministic = true),
     {{1, 200}, {1, 90}, {3, 1}}},
    {"attention decode 2/1 of 256, pages of 16",
     AT(SPLIT, HEADS(2, 1, 256), .blocks = 4, .least = 1, .page_tokens = 16),
     {{1, 120}, {1, 30}}},
    {"attention decode 4/2 of 192, pages of 128",
     AT(SPLIT, HEADS(4, 2, 192), .blocks = 4, .page_tokens = 128),
     {{1, 120}, {2, 230}}},
    {"attention decode 3/1 of 16", AT(SPLIT, HEADS(3, 1, 16), .blocks = 2), {{1, 70}, {1, 0}}},
#define EIGHT(n) {1, n}, {1, n + 31}, {1, 0}, {1, 3 * n}, {-1, 0}, {1, n / 2}, {2, n}, {1, 64}
    /* More sequences than a warp has lanes: equal shares, and units that fit the grid. */
    {"attention decode 2/1 of 16, 40 sequences", AT(SPLIT, HEADS(2, 1, 16), .blocks = 7), {EIGHT(40), EIGHT(90), EIGHT(10), EIGHT(130), EIGHT(65)}},
    {"attention decode 2/1 of 16, 40 sequences, many blocks", AT(SPLIT, HEADS(2, 1, 16), .blocks = 60), {EIGHT(40), EIGHT(90), EIGHT(10), EIGHT(130), EIGHT(65)}},
    {"attention decode 8/2 of 128, e4m3 pages",
     AT(SPLIT, E4M3, HEADS(8, 2, 128), .blocks = 3),
     {{1, 260}, {1, 70}, {2, 129}}},
    {"attention decode 3/1 of 80, e4m3 pages",
     AT(SPLIT, E4M3, HEADS(3, 1, 80), .blocks = 2, .window = 90),
     {{1, 260}, {1, 70}}},
    {"attention decode 2/1 of 256, e4m3 pages",
     AT(SPLIT, E4M3, HEADS(2, 1, 256), .blocks = 2),
     {{1, 100}, {3, 70}}},
    {"attention prefill 4/1 of 128, e4m3 pages",
     AT(LONG, E4M3, HEADS(4, 1, 128), .blocks = 2),
     {{37, 300}, {80, 0}}},
    {"attention 4/1 of 80, e4m3 pages", AT(E4M3, HEADS(4, 1, 80)), {{37, 60}, {1, 20}}},
    {"attention decode 8/2 of 64, files of at most 640 tokens",
     AT(SPLIT, HEADS(8, 2, 64), .max_tokens = 640, .one_row = true),
     {{1, 639}, {1, 70}, {-1, 0}}},
    {"attention decode 8/2 of 128, eight warps",
     AT(SPLIT, HEADS(8, 2, 128), .blocks = 3, .warps = 8, .one_row = true, .stages = 2),
     {{1, 260}, {1, 70}, {1, 500}}},
    {"attention decode 8/2 of 128, e4m3 pages, eight warps",
     AT(SPLIT, E4M3, HEADS(8, 2, 128), .blocks = 3, .warps = 8, .one_row = true, .stages = 2),
     {{1, 260}, {1, 70}, {1, 500}}},
    {"attention decode 8/2 of 64, up to 3 rows",
     AT(SPLIT, HEADS(8, 2, 64), .blocks = 4, .to_rows = 3),
     {{1, 260}, {9, 70}, {3, 129}, {4, 0}}},
    {"attention 8/2 of 64, from 4 rows",
     AT(HEADS(8, 2, 64), .from_rows = 4),
     {{1, 260}, {9, 70}, {3, 129}, {4, 0}}},
    {"attention prefill 8/2 of 64, from 4 rows",
     AT(LONG, HEADS(8, 2, 64), .from_rows = 4, .blocks = 3),
     {{1, 260}, {9, 70}, {3, 129}, {4, 0}}},
#define QK(norm, rotates) .qk = true, .one_row = true, .qk_norm = norm ? 4 : 0, .qk_rope = rotates, .qk_eps = 1e-5f
    {"attention decode 8/2 of 64, qk inside",
     AT(SPLIT, HEADS(8, 2, 64), QK(false, true), .blocks = 7, .least = 1),
     {{1, 0}, {1, 300}, {-1, 0}, {1, 63}, {1, 64}, {1, 31}, {1, 700}}},
    {"attention decode 4/1 of 128, qk inside with norm",
     AT(SPLIT, HEADS(4, 1, 128), QK(true, true), .blocks = 6, .least = 2, .rope_scale = 1.2f),
     {{1, 517}}},
    {"attention decode 12/1 of 128, qk inside with norm of 1 + w, window, sinks",
     AT(SPLIT, HEADS(12, 1, 128), QK(true, true), .qk_offset = 1, .blocks = 2, .window = 70, .sinks = true),
     {{1, 130}, {1, 1}, {1, 64}}},
    {"attention decode 2/1 of 192, qk inside", AT(SPLIT, HEADS(2, 1, 192), QK(true, true), .blocks = 3, .least = 1, .page_tokens = 16), {{1, 120}, {1, 30}, {1, 15}}},
    {"attention decode 10/1 of 80, qk inside", AT(SPLIT, HEADS(10, 1, 80), QK(true, true), .blocks = 3, .least = 1), {{1, 120}, {1, 31}, {1, 64}}}, /* halves turn crosswise */
    {"attention decode 6/3 of 96, qk inside without rotation", AT(SPLIT, HEADS(6, 3, 96), QK(true, false), .blocks = 4), {{1, 120}, {1, 30}}},
#define CASCADE .cascade = true, .one_row = true, SPLIT
#define TILES .tile = 2 /* the case's plan is that of the shared part; both parts run in both */
    {"attention cascade 8/2 of 64, own part", AT(CASCADE, HEADS(8, 2, 64), .blocks = 3, .least = 1),
     {{1, 300, 1}, {1, 130, 2}, {-1, 0}, {1, 96, 1}, {1, 200, 1}, {1, 500, 2}, {1, 97}, {1, 260, 1}}},
    {"attention cascade 8/2 of 64, shared part", AT(CASCADE, TILES, HEADS(8, 2, 64), .blocks = 3, .least = 1),
     {{1, 300, 1}, {1, 130, 2}, {-1, 0}, {1, 96, 1}, {1, 200, 1}, {1, 500, 2}, {1, 97}, {1, 260, 1}}},
    {"attention cascade 4/1 of 128, cap, sinks, alibi, own part", AT(CASCADE, HEADS(4, 1, 128), .blocks = 4, .softcap = 3, .sinks = true, .alibi = true),
     {{1, 200, 1}, {1, 167, 1}, {1, 160, 1}, {1, 0}}},
    {"attention cascade 4/1 of 128, cap, sinks, alibi, shared part", AT(CASCADE, TILES, HEADS(4, 1, 128), .blocks = 4, .softcap = 3, .sinks = true, .alibi = true),
     {{1, 200, 1}, {1, 167, 1}, {1, 160, 1}, {1, 0}}},
    {"attention cascade 20/1 of 64, more rows than a tile, own part", AT(CASCADE, HEADS(20, 1, 64), .blocks = 3),
     {{1, 70, 1}, {1, 75, 1}, {1, 64, 1}, {1, 90, 1}, {1, 65, 1}, {1, 66, 1}, {1, 67, 1}, {1, 68, 1}, {1, 150}}},
    {"attention cascade 20/1 of 64, more rows than a tile, shared part", AT(CASCADE, TILES, HEADS(20, 1, 64), .blocks = 3),
     {{1, 70, 1}, {1, 75, 1}, {1, 64, 1}, {1, 90, 1}, {1, 65, 1}, {1, 66, 1}, {1, 67, 1}, {1, 68, 1}, {1, 150}}},
    {"attention cascade 4/2 of 128, e4m3 pages, own part", AT(CASCADE, E4M3, HEADS(4, 2, 128), .blocks = 2), {{1, 260, 1}, {1, 133, 1}, {1, 300, 1}}},
    {"attention cascade 4/2 of 128, e4m3 pages, shared part", AT(CASCADE, TILES, E4M3, HEADS(4, 2, 128), .blocks = 2), {{1, 260, 1}, {1, 133, 1}, {1, 300, 1}}},
    {"attention cascade 2/1 of 256, pages of 16, own part", AT(CASCADE, HEADS(2, 1, 256), .blocks = 2, .page_tokens = 16), {{1, 50, 1}, {1, 33, 1}}},
    {"attention cascade 2/1 of 256, pages of 16, shared part", AT(CASCADE, TILES, HEADS(2, 1, 256), .blocks = 2, .page_tokens = 16), {{1, 50, 1}, {1, 33, 1}}},
    {"attention decode 20/1 of 96, plan's grid", AT(SPLIT, HEADS(20, 1, 96)), {{1, 70}, {1, 1000}, {2, 5}}},
    {"attention f16 4/2 of 64, ragged", AT(HEADS(4, 2, 64), .f16 = true), {{37, 0}, {1, 70}, {5, 131}, {-1, 0}, {2, 0}}},
    {"attention f16 4/4 of 64, bidirectional", AT(HEADS(4, 4, 64), .own = true, .f16 = true), {{70, 0}, {1, 0}, {33, 0}}},
    {"attention prefill f16 4/1 of 128", AT(LONG, HEADS(4, 1, 128), .blocks = 2, .f16 = true), {{37, 300}, {-1, 0}, {80, 0}}},
    {"attention prefill f16 4/1 of 128, e4m3 pages", AT(LONG, E4M3, HEADS(4, 1, 128), .blocks = 2, .f16 = true), {{37, 300}, {80, 0}}},
    {"attention decode f16 8/2 of 64, skewed",
     AT(SPLIT, HEADS(8, 2, 64), .blocks = 7, .least = 1, .f16 = true),
     {{1, 0}, {1, 300}, {-1, 0}, {1, 63}, {1, 64}, {1, 31}, {1, 700}, {-1, 0}}},
    {"attention decode f16 8/2 of 128, e4m3 pages", AT(SPLIT, E4M3, HEADS(8, 2, 128), .blocks = 3, .f16 = true), {{1, 260}, {1, 70}, {2, 129}}},
    {"attention decode f16 4/1 of 128, qk inside with norm",
     AT(SPLIT, HEADS(4, 1, 128), QK(true, true), .blocks = 6, .least = 2, .rope_scale = 1.2f, .f16 = true),
     {{1, 517}}},
};

struct data {
    struct attention_shape s;
    int seqs, stride;
    int32_t rows[MOST_SEQS + 1], length[MOST_SEQS];
    size_t all, kv_all, pool_bytes;
    int64_t page_bytes, layer_bytes;
    uint16_t *q, *k, *v, *y, *pool;
    int32_t *table;
    float *sinks, *slopes, *bias;
    float *q_norm, *k_norm, *inv_freq; /* qk: what goes in; q and the pool hold what is expected of it */
    uint16_t *raw_q, *own;             /* own: the pool that the kernel writes */
    int64_t *slot;
    size_t biases;
};

static int count(const struct attention_case *c, int rows, struct attention_shape *s, int32_t *first,
                 int32_t *length)
{
    int n = 0, all = 0;
    for (; n < MOST_SEQS && c->seqs[n][0]; n++) {
        int r = c->seqs[n][0], inert = r < 0;
        if (inert) r = 1;
        if (first) first[n] = all, length[n] = inert ? 0 : r + c->seqs[n][1];
        all += r;
    }
    if (s->max_seqs) rows = 0; /* grows by nothing */
    if (rows > all) {          /* the last sequence grows */
        if (first) length[n - 1] += rows - all;
        all = rows;
    }
    if (first) first[n] = all;
    s->rows = all, s->seqs = n;
    if (!s->page_tokens) s->page_tokens = 32;
    if (!s->kv_bytes) s->kv_bytes = 2;
    return n;
}

static void make(struct data *d)
{
    const struct attention_shape *s = &d->s;
    size_t hd = (size_t)s->heads.head_dim, rows = (size_t)d->rows[d->seqs];
    uint32_t seed = 17;
    d->all = rows * (size_t)s->heads.heads * hd, d->kv_all = rows * (size_t)s->heads.kv_heads * hd;
    d->q = malloc(d->all * 2), d->y = malloc(d->all * 2);
    d->k = malloc(d->kv_all * 2), d->v = malloc(d->kv_all * 2);
    op_fill(d->q, d->all, 1.5f, 21);
    op_fill(d->k, d->kv_all, 1, 22), op_fill(d->v, d->kv_all, 1, 23);
    d->sinks = malloc((size_t)s->heads.heads * 4), d->slopes = malloc((size_t)s->heads.heads * 4);
    for (int h = 0; h < s->heads.heads; h++)
        d->sinks[h] = op_normal(&seed) * 2, d->slopes[h] = 0.02f * (float)(h + 1);
    d->biases = s->relative ? (size_t)s->heads.heads * OP_RELATIVE_STRIDE((size_t)s->relative_reach) : 0;
    d->bias = malloc(d->biases * 4 + 4);
    for (size_t i = 0; i < d->biases; i++) d->bias[i] = op_normal(&seed);
    if (s->own) {
        for (int i = 0; i < d->seqs; i++) d->length[i] = d->rows[i + 1] - d->rows[i];
        return;
    }
    int32_t pages = 0, most = 0;
    for (int i = 0; i < d->seqs; i++) {
        int32_t n = (d->length[i] + s->page_tokens - 1) / s->page_tokens;
        pages += n, most = n > most ? n : most;
    }
    d->stride = most + 1;
    d->table = malloc((size_t)(d->seqs * d->stride) * 4);
    d->layer_bytes = KV_ROWS_LAYER_BYTES(s->heads.kv_heads, s->page_tokens, s->heads.head_dim,
                                         s->heads.head_dim, s->kv_bytes);
    d->page_bytes = LAYERS * d->layer_bytes;
    d->pool_bytes = (size_t)(d->page_bytes * (pages + 1));
    d->pool = malloc(d->pool_bytes);
    if (s->kv_bytes == 1)
        for (size_t i = 0; i < d->pool_bytes; i++) {
            float x = op_normal(&seed);
            dtype_encode(DTYPE_F8_E4M3, &x, (char *)d->pool + i, 1, NULL);
        }
    else
        op_fill(d->pool, d->pool_bytes / 2, 1, 24);
    int32_t next = 0;
    for (int i = 0; i < d->seqs; i++)
        for (int b = 0; b < d->stride; b++) {
            int32_t *at = &d->table[i * d->stride + b];
            bool used = b < (d->length[i] + s->page_tokens - 1) / s->page_tokens;
            *at = used ? pages - next++ : -1;
            /* Nobody in the step looks at it any more. */
            int32_t first = d->length[i] - (d->rows[i + 1] - d->rows[i]) - s->window + 1;
            if (used && s->window && (b + 1) * s->page_tokens <= first) *at = -1;
            if (!used || (b + 1) * s->page_tokens <= d->length[i]) continue;
            /* What lies behind the last token was never written: NaN. */
            for (int part = 0; part < 2; part++)
                for (int h = 0; h < s->heads.kv_heads; h++) {
                    int from = d->length[i] % s->page_tokens;
                    char *tail =
                        (char *)d->pool + *at * d->page_bytes + LAYER * d->layer_bytes +
                        (part ? KV_ROWS_VALUES(s->heads.kv_heads, s->page_tokens, hd, s->kv_bytes) : 0) +
                        KV_ROWS_TOKEN(h, from, s->page_tokens, hd, s->kv_bytes);
                    memset(tail, 0xff, (size_t)(s->page_tokens - from) * hd * (size_t)s->kv_bytes);
                }
        }
}

/* A head normalised and turned, in float64, rounded once. */
static void qk_head(const struct attention_shape *s, const uint16_t *in, const float *weight, const float *inv_freq, int position, uint16_t *out)
{
    int hd = s->heads.head_dim, half = hd / 2;
    double x[256], squares = 0, scale = s->rope_scale != 0 ? (double)s->rope_scale : 1;
    for (int i = 0; i < hd; i++) x[i] = (double)op_value(in[i]), squares += x[i] * x[i];
    for (int i = 0; s->qk_norm && i < hd; i++) x[i] *= ((double)s->qk_offset + (double)weight[i]) / sqrt(squares / hd + (double)s->qk_eps);
    for (int i = 0; s->qk_rope && i < half; i++) {
        double angle = (double)((float)position * inv_freq[i]), c = cos(angle) * scale, n = sin(angle) * scale, a = x[i], b = x[half + i];
        x[i] = a * c - b * n, x[half + i] = b * c + a * n;
    }
    for (int i = 0; i < hd; i++) out[i] = op_bits((float)x[i]);
}

static size_t own_at(const struct data *d, int seq, int head, bool value)
{
    const struct attention_shape *s = &d->s;
    return (size_t)(d->slot[seq] / s->page_tokens * d->page_bytes + LAYER * d->layer_bytes +
                    (value ? KV_ROWS_VALUES(s->heads.kv_heads, s->page_tokens, s->heads.head_dim, 2) : 0) +
                    KV_ROWS_TOKEN(head, d->slot[seq] % s->page_tokens, s->page_tokens, s->heads.head_dim, 2)) / 2;
}

/* q and the pool become what is expected; what the device gets of them goes to raw_q and `pool`, whose own tokens are NaN. */
static uint16_t *make_qk(struct data *d)
{
    const struct attention_shape *s = &d->s;
    size_t hd = (size_t)s->heads.head_dim, row = (size_t)s->heads.heads * hd;
    uint32_t seed = 31;
    d->q_norm = malloc(hd * 4), d->k_norm = malloc(hd * 4), d->inv_freq = malloc(hd * 2), d->slot = malloc((size_t)d->seqs * 8);
    d->raw_q = malloc(d->all * 2), d->own = malloc(d->pool_bytes);
    uint16_t *pool = malloc(d->pool_bytes);
    for (size_t i = 0; i < hd; i++) d->q_norm[i] = 1 - s->qk_offset + 0.2f * op_normal(&seed), d->k_norm[i] = 1 - s->qk_offset + 0.2f * op_normal(&seed);
    for (size_t i = 0; i < hd / 2; i++) d->inv_freq[i] = powf(10000, -2 * (float)i / (float)hd);
    memcpy(d->raw_q, d->q, d->all * 2);
    memset(d->own, 0x55, d->pool_bytes);
    for (int i = 0; i < d->seqs; i++) {
        int at = d->length[i] - 1;
        d->slot[i] = at < 0 ? -1 : (int64_t)d->table[i * d->stride + at / s->page_tokens] * s->page_tokens + at % s->page_tokens;
        for (int h = 0; h < s->heads.heads; h++)
            qk_head(s, d->raw_q + (size_t)i * row + (size_t)h * hd, d->q_norm, d->inv_freq, at, d->q + (size_t)i * row + (size_t)h * hd);
        for (int h = 0; at >= 0 && h < s->heads.kv_heads; h++) {
            size_t from = ((size_t)i * (size_t)s->heads.kv_heads + (size_t)h) * hd;
            qk_head(s, d->k + from, d->k_norm, d->inv_freq, at, d->pool + own_at(d, i, h, false));
            memcpy(d->pool + own_at(d, i, h, true), d->v + from, hd * 2);
        }
    }
    memcpy(pool, d->pool, d->pool_bytes);
    for (int i = 0; i < d->seqs; i++)
        for (int h = 0; d->slot[i] >= 0 && h < 2 * s->heads.kv_heads; h++) memset(pool + own_at(d, i, h / 2, h % 2), 0xff, hd * 2);
    return pool;
}

/* The pages that were written: the own tokens, and nothing else. */
static int check_own(const struct data *d, const char *name)
{
    int wrong = 0;
    size_t hd = (size_t)d->s.heads.head_dim;
    for (int i = 0; i < d->seqs; i++)
        for (int h = 0; d->slot[i] >= 0 && h < 2 * d->s.heads.kv_heads; h++)
            for (size_t at = own_at(d, i, h / 2, h % 2), e = at; e < at + hd; e++) {
                double want = (double)op_value(d->pool[e]);
                wrong += op_check(name, e, d->own[e], want, fabs(want) * op_half_unit() + 1e-5);
                d->own[e] = 0x5555;
            }
    for (size_t e = 0; e < d->pool_bytes / 2; e++) wrong += d->own[e] != 0x5555;
    return wrong;
}

static double element(const struct data *d, const void *v, int i)
{
    float x;
    if (d->s.own || d->s.kv_bytes == 2) return (double)op_value(((const uint16_t *)v)[i]);
    dtype_decode(DTYPE_F8_E4M3, (const char *)v + i, &x, 1);
    return (double)x;
}

static const void *vector(const struct data *d, int seq, int head, int token, bool value)
{
    const struct attention_shape *s = &d->s;
    size_t hd = (size_t)s->heads.head_dim;
    if (s->own)
        return (value ? d->v : d->k) +
               ((size_t)(d->rows[seq] + token) * (size_t)s->heads.kv_heads + (size_t)head) * hd;
    int64_t page = d->table[seq * d->stride + token / s->page_tokens];
    if (page < 0) return NULL;
    return (const char *)d->pool + page * d->page_bytes + LAYER * d->layer_bytes +
           (value ? KV_ROWS_VALUES(s->heads.kv_heads, s->page_tokens, hd, s->kv_bytes) : 0) +
           KV_ROWS_TOKEN(head, token % s->page_tokens, s->page_tokens, hd, s->kv_bytes);
}

/* One head of one row: the result, and the sum of the weights times |v| that bounds what rounding weights to
 * 16 bits does. */
static bool reference(const struct data *d, int seq, int row, int head, double *y, double *sum_abs)
{
    const struct attention_shape *s = &d->s;
    int n = d->rows[seq + 1] - d->rows[seq], length = d->length[seq], hd = s->heads.head_dim;
    int kv = head / (s->heads.heads / s->heads.kv_heads), at = length - n + row, lo = 0, hi = at + 1;
    if (s->own && !s->causal) hi = length;
    if (s->window && s->own && !s->causal)
        lo = at - s->window / 2, hi = at + s->window / 2 + 1;
    else if (s->window)
        lo = at - s->window + 1;
    lo = lo < 0 ? 0 : lo, hi = hi > length ? length : hi;
    const uint16_t *q =
        d->q + ((size_t)(d->rows[seq] + row) * (size_t)s->heads.heads + (size_t)head) * (size_t)hd;
    double *w = malloc(((size_t)length + 1) * 8), most = s->sinks ? (double)d->sinks[head] : -1e300, sum = 0;
    for (int t = lo; t < hi; t++) {
        const void *k = vector(d, seq, kv, t, false);
        if (!k) return free(w), false;
        double dot = 0;
        for (int i = 0; i < hd; i++) dot += (double)op_value(q[i]) * element(d, k, i);
        dot *= (double)s->scale;
        if (s->softcap > 0) dot = (double)s->softcap * tanh(dot / (double)s->softcap);
        if (s->relative)
            dot += (double)d->bias[(size_t)head * OP_RELATIVE_STRIDE((size_t)s->relative_reach) +
                                   (size_t)(s->relative_reach + t - at)];
        if (s->alibi) dot -= (double)d->slopes[head] * abs(t - at);
        w[t] = dot;
        most = dot > most ? dot : most;
    }
    for (int t = lo; t < hi; t++) sum += w[t] = exp(w[t] - most);
    if (s->sinks) sum += exp((double)d->sinks[head] - most);
    for (int i = 0; i < hd; i++) y[i] = sum_abs[i] = 0;
    for (int t = lo; t < hi; t++) {
        const void *v = vector(d, seq, kv, t, true);
        for (int i = 0; i < hd; i++) {
            double x = w[t] / sum * element(d, v, i);
            y[i] += x, sum_abs[i] += fabs(x);
        }
    }
    free(w);
    return true;
}

static int check(const struct data *d, const char *name)
{
    int wrong = 0, hd = d->s.heads.head_dim;
    double y[256], sum_abs[256], error = 0, norm = 0;
    for (int seq = 0; seq < d->seqs; seq++)
        for (int row = 0; row < d->rows[seq + 1] - d->rows[seq]; row++)
            for (int head = 0; head < d->s.heads.heads; head++) {
                size_t at =
                    ((size_t)(d->rows[seq] + row) * (size_t)d->s.heads.heads + (size_t)head) * (size_t)hd;
                int n = d->rows[seq + 1] - d->rows[seq];
                if (n < d->s.from_rows || (d->s.to_rows && n > d->s.to_rows)) { /* another launch's */
                    for (int i = 0; i < hd; i++) wrong += d->y[at + (size_t)i] != 0xffff;
                    continue;
                }
                if (!reference(d, seq, row, head, y, sum_abs))
                    return fprintf(stderr, "%s: the case sees a freed page\n", name), 1;
                for (int i = 0; i < hd; i++) {
                    double got = (double)op_value(d->y[at + (size_t)i]);
                    wrong += op_check(name, at + (size_t)i, d->y[at + (size_t)i], y[i],
                                           sum_abs[i] * op_half_unit() + 2e-5);
                    error += (got - y[i]) * (got - y[i]), norm += y[i] * y[i];
                }
            }
    if (!(sqrt(error) <= op_half_unit() * 1.03 * sqrt(norm)))
        wrong++, fprintf(stderr, "%s: relative error %.2g\n", name, sqrt(error / norm));
    return wrong;
}

const char *op_cases_attention_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}

/* Whole pages that a group's sequences have behind them. */
static int group_pages(const struct data *d, const struct attention_case *c, int group)
{
    int pages = INT32_MAX;
    for (int i = 0; i < d->seqs; i++)
        if (c->seqs[i][2] == group && (d->length[i] - 1) / d->s.page_tokens < pages) pages = (d->length[i] - 1) / d->s.page_tokens;
    return pages;
}

/* The arrays of a step that shares, as the engine makes them; the first pages of a group's sequences become those of its first. */
enum { GROUPS = 3 };
struct shared {
    struct cascade_group groups[GROUPS + 1];
    struct cascade_seq seqs[MOST_SEQS];
    int32_t members[MOST_SEQS], entries;
};
static void share(struct data *d, const struct attention_case *c, struct shared *to)
{
    int32_t at = 0;
    int n = 0;
    memset(to, 0, sizeof *to);
    for (int group = 1; group <= GROUPS; group++) {
        struct cascade_group *g = &to->groups[n];
        *g = (struct cascade_group){.first = at, .splits = c->s.blocks, .entry = to->entries};
        for (int i = 0; i < d->seqs; i++)
            if (c->seqs[i][2] == group) to->members[at++] = i, g->count++;
        if (!g->count) continue;
        g->tokens = group_pages(d, c, group) * d->s.page_tokens;
        for (int i = 0; i < g->count; i++) {
            int32_t seq = to->members[g->first + i];
            memmove(d->table + seq * d->stride, d->table + to->members[g->first] * d->stride, (size_t)(g->tokens / d->s.page_tokens) * 4);
            to->seqs[seq] = (struct cascade_seq){g->tokens, to->entries + i, g->count, g->splits};
        }
        to->entries += g->count * g->splits, n++;
    }
    to->groups[n].count = 0;
}

/* The launch that reads what is shared. */
static int run_shared(const struct op_io *io, const struct attention_case *c, const struct data *d, const struct shared *with, struct attention_tile_params *p)
{
    struct plan plan;
    struct rose_error err = {0};
    if (attention_cuda_plan(&d->s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", c->name, err.message), 1;
    p->cascade_entries = with->entries;
    p->groups = io->buffer(io->context, "groups", sizeof with->groups, with->groups, true);
    p->members = io->buffer(io->context, "members", sizeof with->members, with->members, true);
    p->cascade_seqs = io->buffer(io->context, "cascade_seqs", sizeof with->seqs, with->seqs, true);
    p->cascade = io->buffer(io->context, "cascade", (size_t)with->entries * (size_t)d->s.heads.heads * ((size_t)d->s.heads.head_dim + 2) * 4, NULL, false);
    return !io->run(io->context, &plan, p, sizeof *p);
}

static enum rose_status plan_of(const struct attention_shape *s, const struct device_info *device,
                                struct plan *out, struct rose_error *err)
{
    if (s->tile == 1) { /* where there is no wgmma the kernel of all others is tried once more */
        struct attention_shape other = *s;
        other.tile = 0;
        return attention_cuda_wgmma_takes(s, device) ? attention_cuda_wgmma_plan(s, device, out, err)
                                                     : attention_cuda_plan(&other, device, out, err);
    }
    if (s->tile == 2) return attention_cuda_plan(s, device, out, err);
    return s->max_seqs ? attention_cuda_split_plan(s, device, out, err)
                       : attention_cuda_plan(s, device, out, err);
}

bool op_cases_attention_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct attention_shape s = cases[i].s;
    count(&cases[i], rows, &s, NULL, NULL);
    return plan_of(&s, device, out, NULL) == ROSE_OK;
}

int op_cases_attention_run(int i, const struct op_io *io)
{
    const struct attention_case *c = &cases[i];
    struct data d = {.s = c->s};
    op_f16 = c->s.f16;
    struct rose_error err = {0};
    struct plan plan;
    d.seqs = count(c, io->rows, &d.s, d.rows, d.length);
    d.s.tile = d.s.cascade ? 0 : d.s.tile;
    if (plan_of(&d.s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", c->name, err.message), 1;
    make(&d);
    struct shared shared;
    if (d.s.cascade) share(&d, c, &shared);
    uint16_t *pool = d.s.qk ? make_qk(&d) : NULL;
    size_t heads = (size_t)d.s.heads.heads, kv_row = (size_t)d.s.heads.kv_heads * (size_t)d.s.heads.head_dim;
    _Alignas(64) struct attention_wgmma_params with = {.a = {.seqs = 0}};
    struct layout_tma box;
    struct attention_tile_params p = {.q_stride = (int64_t)heads * d.s.heads.head_dim,
                                      .y_stride = (int64_t)heads * d.s.heads.head_dim,
                                      .k_stride = (int64_t)kv_row,
                                      .v_stride = (int64_t)kv_row,
                                      .page_bytes = d.page_bytes,
                                      .layer_offset = LAYER * d.layer_bytes,
                                      .seqs = (uint32_t)d.seqs,
                                      .table_stride = d.stride};
    p.q = io->buffer(io->context, "q", d.all * 2, pool ? d.raw_q : d.q, false);
    p.y = io->buffer(io->context, "y", d.all * 2, NULL, false);
    p.seq_rows = io->buffer(io->context, "seq_rows", (size_t)(d.seqs + 1) * 4, d.rows, true);
    if (d.s.sinks) p.sinks = io->buffer(io->context, "sinks", heads * 4, d.sinks, true);
    if (d.s.alibi) p.alibi = io->buffer(io->context, "alibi", heads * 4, d.slopes, true);
    if (d.s.relative) p.relative = io->buffer(io->context, "relative", d.biases * 4, d.bias, true);
    if (d.s.own || d.s.qk) {
        p.k = io->buffer(io->context, "k", d.kv_all * 2, d.k, false);
        p.v = io->buffer(io->context, "v", d.kv_all * 2, d.v, false);
    }
    if (d.s.qk) {
        size_t hd = (size_t)d.s.heads.head_dim;
        p.q_norm = io->buffer(io->context, "q_norm", hd * 4, d.q_norm, true), p.k_norm = io->buffer(io->context, "k_norm", hd * 4, d.k_norm, true);
        p.inv_freq = io->buffer(io->context, "inv_freq", hd * 2, d.inv_freq, true);
        p.kv_slot = io->buffer(io->context, "kv_slot", (size_t)d.seqs * 8, d.slot, false);
        p.pages = io->buffer(io->context, "pages", d.pool_bytes, d.own, false);
    }
    if (!d.s.own) {
        p.seq_length = io->buffer(io->context, "seq_length", (size_t)d.seqs * 4, d.length, true);
        p.page_table = io->buffer(io->context, "page_table", (size_t)(d.seqs * d.stride) * 4, d.table, true);
        p.pool = io->buffer(io->context, "pool", d.pool_bytes, pool ? pool : d.pool, true); /* old tokens are read early */
    }
    if (d.s.max_seqs) {
        uint32_t *zeros = calloc((size_t)plan.times, 4);
        p.partial = io->buffer(io->context, "partial", attention_cuda_partial_bytes(&plan), NULL, false);
        p.counters = io->buffer(io->context, "counters", (size_t)plan.times * 4, zeros, false);
        free(zeros);
    } else if (!strcmp(plan.kernel, "attention_wgmma"))
        p.counters = io->buffer(io->context, "counters", 8, (const uint32_t[2]){0}, false);
    bool wgmma = !strcmp(plan.kernel, "attention_wgmma");
    with.a = p;
    if (wgmma && attention_cuda_wgmma_box(&plan, &box)) io->map(io->context, &with.pages, p.pool, &box);
    int wrong = d.s.cascade ? run_shared(io, c, &d, &shared, &p) : 0;
    if (!wrong) wrong = wgmma ? !io->run(io->context, &plan, &with, sizeof with) : !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, d.y, p.y, d.all * 2);
    if (pool) io->read(io->context, d.own, p.pages, d.pool_bytes);
    if (!wrong) wrong = check(&d, c->name) + (pool ? check_own(&d, c->name) : 0);
    io->reset(io->context);
    free(d.q), free(d.k), free(d.v), free(d.y), free(d.pool), free(d.table), free(d.sinks), free(d.slopes),
        free(d.bias), free(pool), free(d.q_norm), free(d.k_norm), free(d.inv_freq), free(d.raw_q), free(d.own), free(d.slot);
    return wrong;
}
