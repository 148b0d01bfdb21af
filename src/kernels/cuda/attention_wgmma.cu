// arch: sm_90a
/* Attention of long chunks of query rows over pages (prefill) on Hopper: one warpgroup loads, two compute 64 packed rows each by wgmma
 * (Shah et al. 2024, FlashAttention-3): the scores of the next tokens and the values of the last are multiplied while the softmax of
 * those between runs, and the two take turns, so that one's softmax runs under the other's products. Blocks stay and take
 * item after item (attention.cuh), the longest first, from a counter. The chain does not break between items: the first scores of the
 * next are multiplied beside the last values of the one before, whose rows are stored under the products that follow.
 *
 *     shared memory: Q[QS][M], of items in turn, then STAGES of K[N] and V[N]; each as pieces of 64 elements: [PIECES][rows][128 bytes],
 *     16-byte chunks swizzled as wgmma wants them (chunk ^= row % 8)
 *
 * Heads of 80 and 96 fill their second piece with 16 and 32 elements: the scores' product has so many steps fewer, the values' takes so many
 * columns of it; TMA brings zeros for what a row has not, and nobody reads them.
 *
 * Pages of 16-bit elements come by TMA, a box for each page of a tile and piece. What TMA cannot bring - tiles at the end of a file, whose last rows
 * were never written, e4m3 (widened on the way), own rows, and queries - comes by cp.async, row by row; the loading threads see their copies
 * complete and hand them to the matrix unit's proxy. Every warp of the loading warpgroup arrives once for each tile, whoever loads it.
 *
 * Constants: those of attention.cuh; M (128), N, STAGES, QS (1, 2); FROM_ROWS: sequences of fewer rows are left to another kernel. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"

#define THREADS 384
#define CHUNKS (HD / 8)
#define PIECES ((HD + 63) / 64)
#define LANES (HD > 128 ? 32 : HD > 64 ? 16 : 8) /* threads for a row; those behind its chunks load nothing */
#define ROWS_A_TURN (128 / LANES)                /* rows that 128 threads load at once */
#define Q_PIECE (M * 128)
#define KV_PIECE (N * 128)
#define KV_BYTES (PIECES * KV_PIECE)
#define SPAN (PAGE_TOKENS < N ? PAGE_TOKENS : N)
#define BY_TMA (PAGES && KV_ELEM == 2)
/* Pages of e4m3 that a tile loads before it widens the first: each turn costs their latency (docs/facts.md). Of pages of 16 tokens there are too
 * many for the registers. */
#ifndef AHEAD
#define AHEAD (BY_TMA || OWN || SPAN < 32 ? 1 : N / SPAN)
#endif
#define EACH (SPAN / ROWS_A_TURN) /* a thread's rows of a page */
#define TILE_WORDS 8 /* of an item in shared memory */
#define TILES 4      /* items there: Q of one may be overwritten before its rows are stored, not what says where they go */
#define Q_BYTES (PIECES * Q_PIECE)
/* Of the 168 * 384 of the launch: 128 * (72 + 2 * 216) where TMA loads, 128 * (104 + 2 * 200) where results are few or copies many; in between where both are. */
#if BY_TMA && HD != 80 && HD != 96
#define LOADER_REGISTERS 72
#define CONSUMER_REGISTERS 216
#elif HD == 256
#define LOADER_REGISTERS 88
#define CONSUMER_REGISTERS 208
#else
#define LOADER_REGISTERS 104
#define CONSUMER_REGISTERS 200
#endif
STATIC_ASSERT(M == 128 && HD % 16 == 0 && HD >= 64 && HD <= 256 && N % 16 == 0 && N % SPAN == 0, "shapes");
STATIC_ASSERT(PAGE_TOKENS % 16 == 0 && PAGE_TOKENS % SPAN == 0 && SPAN % ROWS_A_TURN == 0, "pages");

/* An item as the loading warpgroup leaves it in shared memory. */
enum { ITEM_HEAD, ITEM_FIRST, ITEM_ROW0, ITEM_ROWS, ITEM_LENGTH, ITEM_FROM, ITEM_BLOCKS };

struct tile {
    uint32_t kv_head, first; /* first packed row */
    int32_t row0, rows, length, from, to; /* tokens [from, to) are seen by some row; from is a multiple of N */
    uint32_t blocks; /* of N tokens */
    const int32_t *table;
};
#define NO_TILE 0xffffffffu /* in kv_head: the work is done */

/* The item, or false behind the last. */
DEVICE bool wg_tile(const struct attention_tile_params *p, uint32_t item, struct tile *t)
{
    uint32_t seq, head, tile;
    int32_t other;
    const int32_t *seq_rows = (const int32_t *)p->seq_rows;
    t->kv_head = NO_TILE, t->first = t->blocks = 0, t->row0 = t->rows = t->length = t->from = t->to = 0;
    t->table = (const int32_t *)p->page_table;
    if (!attention_item(seq_rows, p->seqs, item, M, FROM_ROWS, &seq, &head, &tile)) return false;
    t->kv_head = head;
    t->row0 = seq_rows[seq];
    t->rows = seq_rows[seq + 1] - t->row0;
    t->length = PAGES ? ((const int32_t *)p->seq_length)[seq] : t->rows;
    t->first = tile * M;
    t->table += (int64_t)seq * p->table_stride;
    attention_sight((int32_t)(t->first / GROUP), t->rows, t->length, &t->from, &other);
    attention_sight((int32_t)((min_u32(t->first + M, (uint32_t)t->rows * GROUP) - 1) / GROUP), t->rows, t->length, &other, &t->to);
    t->from = t->from / N * N;
    t->blocks = t->to > t->from ? (uint32_t)(t->to - t->from + N - 1) / N : 0;
    return true;
}

/* ---- the loading warpgroup ----------------------------------------------------------------------------------------------- */

/* Where the 16 bytes of row `row`, chunk `col` lie in a tile of pieces. */
DEVICE uint32_t wg_place(uint32_t row, uint32_t col, uint32_t piece)
{
    return col / 8 * piece + row * 128 + ((col ^ row) % 8) * 16;
}

struct loader {
    uint32_t thread;
    mbarrier *pending; /* of the youngest load by cp.async */
    int32_t pages[N / SPAN], last_pages[N / SPAN];
};

/* What this warp has loaded is complete. */
DEVICE void wg_hand_over(mbarrier *bar)
{
    fence_proxy_async();
    warp_sync(FULL_WARP);
    if (lane_id() == 0) mbarrier_arrive(bar);
}
/* Closes a load: the one before it is complete then, and handed over. */
DEVICE void wg_loaded(struct loader *l, mbarrier *bar)
{
    cp_async_commit();
    if (l->pending) {
        cp_async_wait(1);
        wg_hand_over(l->pending);
    }
    l->pending = bar;
}
DEVICE void wg_flush(struct loader *l)
{
    if (!l->pending) return;
    cp_async_wait(0);
    wg_hand_over(l->pending);
    l->pending = (mbarrier *)0;
}

DEVICE void wg_load_q(const struct attention_tile_params *p, const struct tile *t, uint32_t thread, unsigned char *to)
{
    if (LANES > CHUNKS && thread % LANES >= CHUNKS) return;
    UNROLL_N(4) for (uint32_t i = 0; i < M / ROWS_A_TURN; i++)
    {
        uint32_t row = thread / LANES + i * ROWS_A_TURN, col = thread % LANES, f = t->first + row;
        bool there = f < (uint32_t)t->rows * GROUP;
        const element *from = (const element *)p->q;
        if (there) from += (t->row0 + (int64_t)(f / GROUP)) * p->q_stride + (t->kv_head * GROUP + f % GROUP) * HD + col * 8;
        cp_async16_zfill(to + wg_place(row, col, Q_PIECE), from, there ? 16 : 0);
    }
}

/* K or V of the N tokens from t0. A page's rows follow one another, so that inside of the file a copy costs hardly more than its
 * own instruction (the computing warps need the issue slots). */
DEVICE void wg_load_kv(const struct attention_tile_params *p, const struct tile *t, uint32_t thread, const int32_t pages[N / SPAN],
                       int32_t t0, bool value, unsigned char *to)
{
    const uint32_t row0 = thread / LANES, col = thread % LANES;
    if (LANES > CHUNKS && col >= CHUNKS) return;
    const int64_t stride = PAGES ? HD * KV_ELEM : (value ? p->v_stride : p->k_stride) * 2;
    const char *base = (const char *)p->pool + p->layer_offset + (value ? KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, KV_ELEM) : 0) +
                       KV_ROWS_TOKEN(t->kv_head, t0 % PAGE_TOKENS, PAGE_TOKENS, HD, KV_ELEM);
    if (!PAGES) base = (const char *)((const element *)(value ? p->v : p->k) + t->kv_head * HD) + (t->row0 + t0) * stride;
    base += row0 * stride + col * (PAGES && KV_ELEM == 1 ? 8 : 16);
    bool inside = t0 + N <= t->length; /* what lies between a row's sight and the end of the file is masked */
    UNROLL for (int i = 0; i < N / SPAN && PAGES; i++) inside = inside && pages[i] >= 0;
    UNROLL for (uint32_t s = 0; s < N / SPAN; s += AHEAD)
    {
        const char *from = base + (PAGES ? pages[s] * p->page_bytes : (int64_t)s * SPAN * stride);
        if (PAGES && KV_ELEM == 1) {
            u32x2 x[AHEAD * EACH];
            UNROLL for (uint32_t i = 0; i < AHEAD * EACH; i++)
            {
                bool there = inside || (t0 + (int32_t)(row0 + s * SPAN + i * ROWS_A_TURN) < t->length && pages[AHEAD > 1 ? s + i / EACH : s] >= 0);
                if (AHEAD > 1 && i && i % EACH == 0) from = base + pages[s + i / EACH] * p->page_bytes;
                x[i].v[0] = x[i].v[1] = 0;
                if (there) x[i] = ld8(from + (AHEAD > 1 ? i % EACH : i) * ROWS_A_TURN * stride);
            }
            UNROLL for (uint32_t i = 0; i < AHEAD * EACH; i++)
                st16(to + wg_place(row0 + s * SPAN + i * ROWS_A_TURN, col, KV_PIECE), attention_widen(x[i]));
        } else if (inside && !BY_TMA) {
            UNROLL for (uint32_t i = 0; i < EACH; i++)
                cp_async16(to + wg_place(row0 + s * SPAN + i * ROWS_A_TURN, col, KV_PIECE), from + i * ROWS_A_TURN * stride);
        } else {
            UNROLL_N(1) for (uint32_t i = 0; i < EACH; i++)
            {
                uint32_t row = row0 + s * SPAN + i * ROWS_A_TURN;
                bool there = t0 + (int32_t)row < t->length && pages[s] >= 0;
                cp_async16_zfill(to + wg_place(row, col, KV_PIECE), there ? from + i * ROWS_A_TURN * stride : (const char *)p->q,
                                 there ? 16 : 0);
            }
        }
    }
}

DEVICE void wg_pages(const struct tile *t, int32_t t0, int32_t pages[N / SPAN])
{
    UNROLL for (int i = 0; i < N / SPAN; i++) pages[i] = PAGES ? attention_page(t->table, t0 + i * SPAN, t->length) : 0;
}

/* K or V of the N tokens from t0, on its way to `bar`. */
DEVICE void wg_load(const struct attention_wgmma_params *p, struct loader *l, const struct tile *t, const int32_t pages[N / SPAN], int32_t t0,
                    bool value, unsigned char *to, mbarrier *bar)
{
    bool whole = BY_TMA && t0 + N <= t->length;
    UNROLL for (int i = 0; i < N / SPAN && BY_TMA; i++) whole = whole && pages[i] >= 0;
    if (!whole) {
        wg_load_kv(&p->a, t, l->thread, pages, t0, value, to);
        wg_loaded(l, bar);
        if (BY_TMA) wg_flush(l);
        return;
    }
    if (l->thread == 0) {
        /* Rows of HD elements from the pool's begin. */
        const int32_t first = (int32_t)((p->a.layer_offset + (value ? KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, 2) : 0)) / (HD * 2)) +
                              (int32_t)t->kv_head * PAGE_TOKENS + t0 % PAGE_TOKENS;
        mbarrier_arrive_expect(bar, KV_BYTES);
        UNROLL for (int s = 0; s < N / SPAN; s++)
        {
            const int32_t row = pages[s] * (int32_t)(p->a.page_bytes / (HD * 2)) + first;
            UNROLL for (int piece = 0; piece < PIECES; piece++)
                tma_load_2d(to + piece * KV_PIECE + s * (SPAN * 128), &p->pages, piece * 64, row, bar, l2_evict_normal());
        }
    } else if (lane_id() == 0)
        mbarrier_arrive(bar);
    wg_flush(l); /* queries that were asked for before */
}

struct bars {
    mbarrier *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty; /* q: one of each place of Q; k, v: one a stage */
    uint32_t *tile; /* shared memory, [TILES][TILE_WORDS]: items in turn, as their Q */
    uint32_t *item; /* shared memory, [2]: the number of the block's next item, of every other in turn */
};

/* Items are taken from a counter: where sequences differ no fixed share is fair. */
DEVICE uint32_t wg_take(const struct attention_tile_params *p)
{
    return grid_dim_x() + atom_add_u32(relaxed, gpu, (uint32_t *)p->counters, 1);
}
DEVICE void wg_took_last(const struct attention_tile_params *p)
{
    uint32_t *counters = (uint32_t *)p->counters;
    if (atom_add_u32(acq_rel, gpu, counters + 1, 1) != grid_dim_x() - 1) return;
    st_u32(relaxed, gpu, counters, 0); /* all blocks have asked for the last time */
    st_u32(relaxed, gpu, counters + 1, 0);
}

DEVICE void wg_produce(const struct attention_wgmma_params *params, const struct bars *b, unsigned char *qs, unsigned char *stages)
{
    const struct attention_tile_params *p = &params->a;
    struct loader l;
    uint32_t turn = 0, phase = 0, v_turn = 0, v_phase = 0;
    l.thread = thread_x() % 128;
    l.pending = (mbarrier *)0;
    for (uint32_t round = 0;; round++) {
        const uint32_t at = round % QS;
        struct tile t;
        if (round) barrier_sync(1, 128);
        bool more = wg_tile(p, round ? b->item[round % 2] : block_x(), &t);
        uint32_t next = 0, *tile = b->tile + round % TILES * TILE_WORDS;
        if (l.thread == 0 && more) next = wg_take(p);
        mbarrier_wait(&b->q_empty[at], (round / QS + 1) % 2);
        if (l.thread == 0) {
            tile[ITEM_HEAD] = t.kv_head, tile[ITEM_FIRST] = t.first, tile[ITEM_ROW0] = (uint32_t)t.row0, tile[ITEM_ROWS] = (uint32_t)t.rows;
            tile[ITEM_LENGTH] = (uint32_t)t.length, tile[ITEM_FROM] = (uint32_t)t.from, tile[ITEM_BLOCKS] = t.blocks;
        }
        if (more) wg_pages(&t, t.from, l.pages), wg_load_q(p, &t, l.thread, qs + at * Q_BYTES);
        wg_loaded(&l, &b->q_full[at]);
        if (l.thread == 0) b->item[(round + 1) % 2] = next;
        if (!more || !t.blocks) {
            wg_flush(&l);
            if (!more) break;
            continue;
        }
        /* K of block j, then V of the block before */
        UNROLL_N(1) for (uint32_t j = 0; j <= t.blocks; j++)
        {
            int32_t t0 = t.from + (int32_t)(j * N);
            if (j < t.blocks) {
                mbarrier_wait(&b->k_empty[turn], phase ^ 1);
                wg_load(params, &l, &t, l.pages, t0, false, stages + turn * 2 * KV_BYTES, &b->k_full[turn]);
                if (++turn == STAGES) turn = 0, phase ^= 1;
            }
            if (j > 0) {
                mbarrier_wait(&b->v_empty[v_turn], v_phase ^ 1);
                wg_load(params, &l, &t, l.last_pages, t0 - N, true, stages + v_turn * 2 * KV_BYTES + KV_BYTES, &b->v_full[v_turn]);
                if (++v_turn == STAGES) v_turn = 0, v_phase ^= 1;
            }
            UNROLL for (int i = 0; i < N / SPAN; i++) l.last_pages[i] = l.pages[i];
            wg_pages(&t, t0 + N, l.pages);
        }
        wg_flush(&l);
    }
    if (l.thread == 0) wg_took_last(p);
}

/* ---- the computing warpgroups -------------------------------------------------------------------------------------------- */

/* s = q k^T; issued only. */
DEVICE void wg_scores(float *s, const unsigned char *q, const unsigned char *k)
{
    uint64_t dq = wgmma_desc(q, 16, 1024, 128), dk = wgmma_desc(k, 16, 1024, 128);
    UNROLL for (int i = 0; i < HD / 16; i++)
        wgmma_element_ss(N, s, dq + (i / 4 * Q_PIECE + i % 4 * 32) / 16, dk + (i / 4 * KV_PIECE + i % 4 * 32) / 16, i > 0);
}
/* o += weights v; issued only. */
DEVICE void wg_values(float *o, const uint32_t w[N / 16][4], const unsigned char *v)
{
    uint64_t dv = wgmma_desc(v, KV_PIECE, 1024, 128);
    UNROLL for (int i = 0; i < N / 16; i++) wgmma_element_rs_t(HD, o, w[i], dv + i * 128, 1, 1);
}

struct rows {
    int32_t begin[2], end[2], at[2]; /* of the thread's two rows */
    int32_t bias[2];                 /* RELATIVE: where token 0 would lie in the table */
    float slope[2], m[2], l[2], keep[2];
    int32_t all_begin, all_end; /* tokens that every row of the warpgroup sees */
};

/* Scores of the tokens from t0 to weights, in place; keep: what earlier sums and results are to be multiplied by. relative: the table of
 * biases, NULL without. */
DEVICE void wg_softmax(float s[N / 2], int32_t t0, const float *relative, struct rows *r)
{
    const bool plain = !(CAP > 0) && !ALIBI && !RELATIVE; /* the scale then goes into the exponent's multiply-add */
    const float c = plain ? SCALE * LOG2_E : 1.0f;
    if (!plain || t0 < r->all_begin || t0 + N > r->all_end) {
        const uint32_t col = lane_id() % 4 * 2;
        const float *const bias[2] = {relative + r->bias[0] + t0 + col, relative + r->bias[1] + t0 + col};
        UNROLL for (int i = 0; i < N / 2; i++)
        {
            int h = i / 2 % 2;
            int32_t token = t0 + i / 4 * 8 + (int32_t)col + i % 2;
            bool seen = token >= r->begin[h] && token < r->end[h];
            if (!plain) s[i] = attention_score(s[i], r->slope[h], token - r->at[h]);
            if (RELATIVE && seen) s[i] = fma_f32(bias[h][i / 4 * 8 + i % 2], LOG2_E, s[i]);
            if (!seen) s[i] = -INF_F32;
        }
    }
    UNROLL for (int h = 0; h < 2; h++)
    {
        float most = s[2 * h], more = s[2 * h + 1], sum = 0, sum2 = 0;
        UNROLL for (int i = 1; i < N / 8; i++)
        {
            most = max_f32(most, s[4 * i + 2 * h]);
            more = max_f32(more, s[4 * i + 2 * h + 1]);
        }
        most = max_f32(r->m[h], warp_max_f32(max_f32(most, more), 4) * c);
        r->keep[h] = exp2_approx(r->m[h] - most);
        r->m[h] = most;
        UNROLL for (int i = 0; i < N / 8; i++)
        {
            s[4 * i + 2 * h] = exp2_approx(fma_f32(s[4 * i + 2 * h], c, -most));
            s[4 * i + 2 * h + 1] = exp2_approx(fma_f32(s[4 * i + 2 * h + 1], c, -most));
            sum += s[4 * i + 2 * h];
            sum2 += s[4 * i + 2 * h + 1];
        }
        r->l[h] = fma_f32(r->l[h], r->keep[h], sum + sum2);
    }
}

DEVICE void wg_weights(const float s[N / 2], uint32_t w[N / 16][4])
{
    UNROLL for (int i = 0; i < N / 16; i++)
        UNROLL for (int e = 0; e < 4; e++) w[i][e] = f32_to_element2(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]).bits;
}

DEVICE void wg_rows(const struct attention_tile_params *p, const uint32_t *item, uint32_t group, struct rows *r)
{
    const uint32_t first = item[ITEM_FIRST] + group * 64, packed = item[ITEM_ROWS] * GROUP;
    const int32_t rows = (int32_t)item[ITEM_ROWS], length = (int32_t)item[ITEM_LENGTH];
    int32_t other;
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t f = first + warp_id() % 4 * 16 + lane_id() / 4 + 8 * h;
        int32_t i = (int32_t)(f / GROUP);
        attention_sight(i, rows, length, &r->begin[h], &r->end[h]);
        if (f >= packed) r->end[h] = 0;
        r->at[h] = length - rows + i;
        r->m[h] = NO_SCORE, r->l[h] = 0, r->slope[h] = 0;
        r->bias[h] = 0;
        if (RELATIVE) r->bias[h] = (int32_t)((item[ITEM_HEAD] * GROUP + f % GROUP) * ATTENTION_RELATIVE_STRIDE(RELATIVE - 1)) + RELATIVE - 1 - r->at[h];
        if (ALIBI) r->slope[h] = ((const float *)p->alibi)[item[ITEM_HEAD] * GROUP + f % GROUP] * LOG2_E;
    }
    attention_sight((int32_t)(first / GROUP), rows, length, &other, &r->all_end);
    attention_sight((int32_t)((first + 63) / GROUP), rows, length, &r->all_begin, &other);
    if (first + 64 > packed) r->all_end = 0;
}

/* What is left of an item when its last scores are weights. */
struct ending {
    float m[2], l[2]; /* m: with SINKS */
};

/* Where packed row f of an item has its results; NULL beyond the item. */
DEVICE element *wg_row(const struct attention_tile_params *p, const uint32_t *item, uint32_t f)
{
    if (f >= item[ITEM_ROWS] * GROUP) return (element *)0;
    return (element *)p->y + ((int64_t)item[ITEM_ROW0] + (int64_t)(f / GROUP)) * p->y_stride + (item[ITEM_HEAD] * GROUP + f % GROUP) * HD;
}

/* Two blocks of 8 columns at a time: neighbouring lanes exchange, so that the even one has four columns of the first block and the odd one of the
 * second, and four lanes a sector of 32 bytes. */
DEVICE void wg_store(const struct attention_tile_params *p, const uint32_t *item, uint32_t group, const struct ending *e, const float *o)
{
    const uint32_t c = lane_id() % 4, odd = c % 2;
    UNROLL for (int h = 0; h < 2; h++)
    {
        const uint32_t f = item[ITEM_FIRST] + group * 64 + warp_id() % 4 * 16 + lane_id() / 4 + 8 * h;
        float sum = warp_sum_f32(e->l[h], 4), scale = 1;
        if (SINKS) {
            float sink = ((const float *)p->sinks)[item[ITEM_HEAD] * GROUP + f % GROUP] * LOG2_E, most = max_f32(e->m[h], sink);
            scale = exp2_approx(e->m[h] - most);
            sum = fma_f32(sum, scale, exp2_approx(sink - most));
        }
        scale = sum > 0 ? scale * rcp_approx(sum) : 0.0f; /* who has seen nothing has l = 0 */
        element *to = wg_row(p, item, f);
        UNROLL for (int d = 0; d < HD / 8; d += 2)
        {
            uint32_t word[2];
            UNROLL for (int i = 0; i < 2; i++) word[i] = f32_to_element2(o[4 * (d + i) + 2 * h] * scale, o[4 * (d + i) + 2 * h + 1] * scale).bits;
            const uint32_t other = shuffle_xor_u32(FULL_WARP, odd ? word[0] : word[1], 1, WARP), mine = odd ? word[1] : word[0];
            const u32x2 out = {{odd ? other : mine, odd ? mine : other}};
            if (to) st8(to + (d + odd) * 8 + (c - odd) * 2, out);
        }
    }
}

/* Rows that see nothing. */
DEVICE void wg_store_zeros(const struct attention_tile_params *p, const uint32_t *item, uint32_t group)
{
    const u32x2 zero = {{0, 0}};
    UNROLL for (int h = 0; h < 2; h++)
    {
        element *to = wg_row(p, item, item[ITEM_FIRST] + group * 64 + warp_id() % 4 * 16 + lane_id() / 4 + 8 * h);
        UNROLL_N(1) for (int d = lane_id() % 4 * 4; d < HD && to; d += 16) st8(to + d, zero);
    }
}

/* The warp has read what the barrier guards. */
DEVICE void wg_release(mbarrier *bar)
{
    warp_sync(FULL_WARP);
    if (lane_id() == 0) mbarrier_arrive(bar);
}

/* Waits for item `*round` or the first behind it of which there is something to see; NULL behind the last. */
DEVICE const uint32_t *wg_begin(const struct attention_tile_params *p, const struct bars *b, uint32_t *round, uint32_t group)
{
    for (;; ++*round) {
        const uint32_t *item = b->tile + *round % TILES * TILE_WORDS;
        mbarrier_wait(&b->q_full[*round % QS], *round / QS % 2);
        if (item[ITEM_HEAD] == NO_TILE) return (const uint32_t *)0;
        if (item[ITEM_BLOCKS]) return item;
        wg_store_zeros(p, item, group);
        wg_release(&b->q_empty[*round % QS]);
    }
}

/* Stages in turn. */
struct ring {
    uint32_t turn, phase;
};
DEVICE void wg_advance(struct ring *r)
{
    if (++r->turn == STAGES) r->turn = 0, r->phase ^= 1;
}

DEVICE void wg_consume(const struct attention_tile_params *p, const struct bars *b, unsigned char *qs, unsigned char *stages,
                       float *order)
{
    const uint32_t group = warp_id() / 4 - 1;
    const unsigned char *q = qs + group * 64 * 128;
    struct ring k = {0, 0}, v = {0, 0};
    struct rows r;
    struct ending e;
    float s[N / 2], o[HD / 2];
    uint32_t w[N / 16][4], round = 0, left; /* left: blocks of the item whose scores have not been asked for */
    const uint32_t *item = wg_begin(p, b, &round, group), *ended = item;
    if (!item) return;
    if (group == 1) barrier_arrive(2, 256);
    mbarrier_wait(&b->k_full[k.turn], k.phase);
    wgmma_fence();
    wg_scores(s, q + round % QS * Q_BYTES, stages + k.turn * 2 * KV_BYTES);
    wgmma_commit();
    wgmma_wait(0);
    wgmma_pin(s, N / 2);
    wg_release(&b->k_empty[k.turn]);
    wg_advance(&k);
    wg_rows(p, item, group, &r);
    int32_t t0 = (int32_t)item[ITEM_FROM];
    left = item[ITEM_BLOCKS] - 1;
    wg_softmax(s, t0, (const float *)p->relative, &r);
    wg_weights(s, w);
    UNROLL for (int i = 0; i < HD / 2; i++) o[i] = 0;
    /* Weights of a block are there, o is the sum before it. */
    UNROLL_N(1) for (;;)
    {
        const bool ends = left == 0;
        if (ends) {
            UNROLL for (int h = 0; h < 2; h++) e.m[h] = r.m[h], e.l[h] = r.l[h];
            wg_release(&b->q_empty[round % QS]);
            ended = item, round++;
            item = wg_begin(p, b, &round, group);
            if (!item) break;
        }
        mbarrier_wait(&b->k_full[k.turn], k.phase);
        barrier_sync(2 + group, 256);
        wgmma_fence();
        wg_scores(s, q + round % QS * Q_BYTES, stages + k.turn * 2 * KV_BYTES);
        wgmma_commit();
        mbarrier_wait(&b->v_full[v.turn], v.phase);
        wg_values(o, w, stages + v.turn * 2 * KV_BYTES + KV_BYTES);
        wgmma_commit();
        barrier_arrive(3 - group, 256);
        wgmma_wait(1);
        wgmma_pin(s, N / 2);
        wg_release(&b->k_empty[k.turn]);
        wg_advance(&k);
        t0 += N;
        if (ends) {
            wg_rows(p, item, group, &r);
            t0 = (int32_t)item[ITEM_FROM], left = item[ITEM_BLOCKS];
        }
        left--;
        wg_softmax(s, t0, (const float *)p->relative, &r);
        wgmma_keep_order(order, r.l[0] + r.l[1]); /* the softmax's last result */
        wgmma_wait(0);
        wgmma_pin(o, HD / 2);
        wg_release(&b->v_empty[v.turn]);
        wg_advance(&v);
        wg_weights(s, w);
        if (ends) {
            wg_store(p, ended, group, &e, o);
            UNROLL for (int i = 0; i < HD / 2; i++) o[i] = 0;
        } else {
            UNROLL for (int i = 0; i < HD / 2; i++) o[i] *= r.keep[i / 2 % 2];
        }
    }
    mbarrier_wait(&b->v_full[v.turn], v.phase);
    wgmma_fence();
    wg_values(o, w, stages + v.turn * 2 * KV_BYTES + KV_BYTES);
    wgmma_commit();
    wgmma_wait(0);
    wgmma_pin(o, HD / 2);
    wg_store(p, ended, group, &e, o);
    if (group == 0) barrier_sync(2, 256); /* takes what the other arrived for last */
}

KERNEL(attention_wgmma, struct attention_wgmma_params, p, THREADS, 1)
{
    SHARED(mbarrier, bar, 2 * QS + 4 * STAGES);
    SHARED(float, order, THREADS);
    SHARED(uint32_t, tile, TILES * TILE_WORDS);
    SHARED(uint32_t, item, 2);
    struct bars b;
    unsigned char *qs = dynamic_shared(), *stages = qs + QS * Q_BYTES;
    b.q_full = bar, b.q_empty = bar + QS, b.k_full = bar + 2 * QS, b.k_empty = b.k_full + STAGES;
    b.tile = tile, b.item = item;
    b.v_full = b.k_empty + STAGES, b.v_empty = b.v_full + STAGES;
    if (thread_x() == 0) {
        for (int i = 0; i < QS; i++) mbarrier_init(&b.q_full[i], 4), mbarrier_init(&b.q_empty[i], 8);
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(&b.k_full[i], 4), mbarrier_init(&b.v_full[i], 4);
            mbarrier_init(&b.k_empty[i], 8), mbarrier_init(&b.v_empty[i], 8);
        }
        fence_mbarrier_init();
        if (BY_TMA) tma_prefetch_map(&p.pages);
    }
    grid_dependency_launch();
    block_sync();
    grid_dependency_wait();
    if (warp_id() < 4) {
        registers_shrink(LOADER_REGISTERS);
        wg_produce(&p, &b, qs, stages);
    } else {
        registers_grow(CONSUMER_REGISTERS);
        wg_consume(&p.a, &b, qs, stages, order + thread_x());
    }
}
