// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Attention of tiles of query rows over pages or, for encoders, over the step's own rows: any ragged batch. Online softmax
 * (Milakov & Gimelshein 2018) over tiles held in registers (Dao 2023, FlashAttention-2); products by mma.sync.
 *
 * A block takes M packed rows of one sequence and key-value head (attention.cuh) and walks over the tokens they see, N at a
 * time; a warp has 16 of the rows. Keys and values of the next tile arrive by cp.async while this one is computed.
 *
 *     shared memory: Q[M], then two stages of K[N], V[N]; rows of HD elements and 16 bytes, so that ldmatrix meets no bank twice
 *
 * Heads of any even size: in shared memory they are HDP elements, whole 16s, and what is behind HD is zero, so that it adds nothing to
 * scores and comes out as columns that nobody stores. Copies take CE elements at once, the most that heads side by side are aligned to.
 *
 * CASCADE: rows are those of many sequences, one each, that share what the first of them reads (params/cascade.h); all of them see all of it, and
 * results are left for attention_split to join with what each sequence has for itself.
 *
 * Constants: those of attention.cuh; M N; CE: elements of a copy (8, 4, 2); FROM_ROWS: sequences of fewer rows are left to another
 * kernel; CASCADE 0/1. */
#include "kernels/cuda/attention.cuh"
#include "kernels/params/cascade.h"

#define THREADS (M * 2)
#define HDP ((HD + 15) / 16 * 16)
#define ROW_BYTES (HDP * 2 + 16)
#define CHUNKS (HDP / CE)
#define STAGE_BYTES (N * ROW_BYTES)
#define Q_IN_REGISTERS (HDP <= 128)
STATIC_ASSERT(M % 16 == 0 && N % 16 == 0 && HEADS % KV_HEADS == 0, "shapes of the matrix instructions");
STATIC_ASSERT(HD % CE == 0 && (OWN || HD % 16 == 0), "whole copies; pages hold whole 16s");

/* CE elements into shared memory, zeros where there are none. Narrow copies are many: unrolled whole, their addresses spill. */
#if CE == 8
#define UNROLL_COPIES UNROLL
#else
#define UNROLL_COPIES UNROLL_N(4)
#endif
#if CE == 8
#define tile_copy(to, from, there) cp_async16_zfill(to, from, (there) ? 16 : 0)
#elif CE == 4
#define tile_copy(to, from, there) cp_async8_zfill(to, from, (there) ? 8 : 0)
#else
#define tile_copy(to, from, there) cp_async4_zfill(to, from, (there) ? 4 : 0)
#endif

struct tile {
    uint32_t seq, kv_head;
    int32_t row0, rows, length; /* the sequence's first row, its rows, its tokens */
    uint32_t first;             /* packed row of the tile's first */
    const int32_t *members;     /* CASCADE: sequences (and rows) of a group; `rows` counts them, the tile's tokens end at `length` */
    int32_t from, entry;        /* CASCADE: its first token, the first member's place */
};

/* The row of x and y of packed row f. */
DEVICE int64_t tile_row(const struct tile *t, uint32_t f)
{
    return CASCADE ? t->members[f / GROUP] : t->row0 + (int64_t)(f / GROUP);
}

/* Tokens t0 .. t0 + N - 1 of K and V into shared memory; zeros from `end` on and where a page is freed. */
DEVICE void tile_load(const struct attention_tile_params *p, const struct tile *t, int32_t t0, int32_t end, unsigned char *to)
{
    const int32_t *table = (const int32_t *)p->page_table + (int64_t)t->seq * p->table_stride;
    UNROLL_COPIES for (uint32_t i = 0; i < (N * CHUNKS + THREADS - 1) / THREADS; i++)
    {
        uint32_t c = thread_x() + i * THREADS, row = c / CHUNKS, col = c % CHUNKS;
        if (N * CHUNKS % THREADS && c >= N * CHUNKS) continue;
        int32_t token = t0 + (int32_t)row;
        bool there = token < end && (HDP == HD || col * CE < HD);
        const char *k = (const char *)p->q, *v = k;
        if (PAGES) {
            int32_t page = attention_page(table, token, end);
            there = page >= 0;
            if (there) {
                k = (const char *)p->pool + page * p->page_bytes + p->layer_offset +
                    KV_ROWS_TOKEN(t->kv_head, token % PAGE_TOKENS, PAGE_TOKENS, HD, KV_ELEM) + col * CE * KV_ELEM;
                v = k + KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, KV_ELEM);
            }
        } else if (there) {
            k = (const char *)((const element *)p->k + (t->row0 + token) * p->k_stride + t->kv_head * HD + col * CE);
            v = (const char *)((const element *)p->v + (t->row0 + token) * p->v_stride + t->kv_head * HD + col * CE);
        }
        unsigned char *dst = to + row * ROW_BYTES + col * (CE * 2);
        if (PAGES && KV_ELEM == 1) {
            u32x2 a = {{0, 0}}, b = {{0, 0}};
            if (there) a = ld8(k), b = ld8(v);
            st16(dst, attention_widen(a));
            st16(dst + STAGE_BYTES, attention_widen(b));
        } else {
            tile_copy(dst, k, there);
            tile_copy(dst + STAGE_BYTES, v, there);
        }
    }
}

DEVICE void tile_load_q(const struct attention_tile_params *p, const struct tile *t, unsigned char *to)
{
    UNROLL_COPIES for (uint32_t i = 0; i < M * CHUNKS / THREADS; i++)
    {
        uint32_t c = thread_x() + i * THREADS, row = c / CHUNKS, col = c % CHUNKS, f = t->first + row;
        bool there = f < (uint32_t)t->rows * GROUP && (HDP == HD || col * CE < HD);
        const element *from = (const element *)p->q;
        if (there) from += tile_row(t, f) * p->q_stride + (t->kv_head * GROUP + f % GROUP) * HD + col * CE;
        tile_copy(to + row * ROW_BYTES + col * (CE * 2), from, there);
    }
}

/* s = q k^T of the warp's 16 rows and the tile's N tokens. */
DEVICE void tile_scores(const unsigned char *qs, const uint32_t q[HDP / 16][4], const unsigned char *ks, float s[N / 8][4])
{
    const uint32_t lane = lane_id();
    const unsigned char *at = ks + (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16;
    UNROLL for (int n = 0; n < N / 8; n++)
        UNROLL for (int e = 0; e < 4; e++) s[n][e] = 0;
    UNROLL for (int k = 0; k < HDP / 16; k++)
    {
        uint32_t a[4];
        if (Q_IN_REGISTERS) {
            UNROLL for (int e = 0; e < 4; e++) a[e] = q[k][e];
        } else {
            ldmatrix_x4(a, qs + (lane / 8 % 2 * 8 + lane % 8) * ROW_BYTES + k * 32 + lane / 16 * 16);
        }
        UNROLL for (int n = 0; n < N / 16; n++)
        {
            uint32_t b[4];
            ldmatrix_x4(b, at + n * 16 * ROW_BYTES + k * 32);
            mma_element(s[2 * n], a, b);
            mma_element(s[2 * n + 1], a, b + 2);
        }
    }
}

/* Scores to weights; the running maximum, sum and result follow. */
DEVICE void tile_softmax(float s[N / 8][4], int32_t t0, const int32_t begin[2], const int32_t end[2], const int32_t at[2],
                         const float slope[2], const float *const bias[2], float m[2], float l[2], float o[HDP / 8][4])
{
    const uint32_t c = lane_id() % 4;
    UNROLL for (int h = 0; h < 2; h++)
    {
        bool whole = t0 >= begin[h] && t0 + N <= end[h];
        float most = NO_SCORE;
        UNROLL for (int n = 0; n < N / 8; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                int32_t token = t0 + n * 8 + (int32_t)(2 * c) + e;
                float v = attention_score(s[n][2 * h + e], slope[h], token - at[h]);
                if (!whole && (token < begin[h] || token >= end[h]))
                    v = NO_SCORE * 2;
                else if (RELATIVE)
                    v = fma_f32(bias[h][token - at[h]], LOG2_E, v);
                s[n][2 * h + e] = v;
                most = max_f32(most, v);
            }
        most = max_f32(m[h], warp_max_f32(most, 4));
        float keep = exp2_approx(m[h] - most), sum = 0;
        m[h] = most;
        UNROLL for (int n = 0; n < N / 8; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                float w = exp2_approx(s[n][2 * h + e] - most);
                s[n][2 * h + e] = w;
                sum += w;
            }
        l[h] = fma_f32(l[h], keep, sum);
        UNROLL for (int d = 0; d < HDP / 8; d++)
        {
            o[d][2 * h] *= keep;
            o[d][2 * h + 1] *= keep;
        }
    }
}

/* o += weights v. */
DEVICE void tile_values(const float s[N / 8][4], const unsigned char *vs, float o[HDP / 8][4])
{
    const uint32_t lane = lane_id();
    const unsigned char *at = vs + lane % 16 * ROW_BYTES + lane / 16 * 16;
    UNROLL for (int n = 0; n < N / 16; n++)
    {
        uint32_t a[4];
        UNROLL for (int e = 0; e < 4; e++)
            a[e] = f32_to_element2(s[2 * n + e / 2][e % 2 * 2], s[2 * n + e / 2][e % 2 * 2 + 1]).bits;
        UNROLL for (int d = 0; d < HDP / 16; d++)
        {
            uint32_t b[4];
            ldmatrix_x4_trans(b, at + n * 16 * ROW_BYTES + d * 32);
            mma_element(o[2 * d], a, b);
            mma_element(o[2 * d + 1], a, b + 2);
        }
    }
}

/* The warp's rows of the result, through its rows of Q's shared memory. */
DEVICE void tile_store(const struct attention_tile_params *p, const struct tile *t, unsigned char *qs, const float m[2],
                       const float l[2], float o[HDP / 8][4])
{
    const uint32_t lane = lane_id(), first = t->first + warp_id() * 16;
    UNROLL for (int h = 0; h < 2; h++)
    {
        float sum = warp_sum_f32(l[h], 4), scale = 1;
        if (SINKS) {
            uint32_t f = first + lane / 4 + 8 * h;
            float sink = ((const float *)p->sinks)[t->kv_head * GROUP + f % GROUP] * LOG2_E, most = max_f32(m[h], sink);
            scale = exp2_approx(m[h] - most);
            sum = fma_f32(sum, scale, exp2_approx(sink - most));
        }
        scale = sum > 0 ? scale * rcp_approx(sum) : 0.0f;
        if (m[h] <= NO_SCORE) scale = 0; /* it saw nothing */
        UNROLL for (int d = 0; d < HDP / 8; d++)
            st4(qs + (lane / 4 + 8 * h) * ROW_BYTES + d * 16 + lane % 4 * 4,
                f32_to_element2(o[d][2 * h] * scale, o[d][2 * h + 1] * scale).bits);
    }
    warp_sync(FULL_WARP);
    UNROLL_COPIES for (uint32_t i = 0; i < 16 * CHUNKS / WARP; i++)
    {
        uint32_t c = lane + i * WARP, row = c / CHUNKS, col = c % CHUNKS, f = first + row;
        if (f >= (uint32_t)t->rows * GROUP || (HDP != HD && col * CE >= HD)) continue;
        element *to = (element *)p->y + (t->row0 + (int64_t)(f / GROUP)) * p->y_stride + (t->kv_head * GROUP + f % GROUP) * HD + col * CE;
        const unsigned char *from = qs + row * ROW_BYTES + col * (CE * 2);
        if (CE == 8) st16(to, ld16(from));
        if (CE == 4) st8(to, ld8(from));
        if (CE == 2) st4(to, ld4(from));
    }
}

#if CASCADE
/* The warp's sums, as they are. Rows of packed rows first + lane / 4 and + 8; a lane has two neighbours of every eight columns. */
DEVICE void tile_leave(const struct attention_tile_params *p, const struct tile *t, const float m[2], const float l[2], float o[HDP / 8][4])
{
    const uint32_t lane = lane_id();
    UNROLL for (int h = 0; h < 2; h++)
    {
        const uint32_t f = t->first + warp_id() * 16 + lane / 4 + 8 * h;
        const float sum = warp_sum_f32(l[h], 4);
        if (f >= (uint32_t)t->rows * GROUP) continue;
        const int64_t at = ((int64_t)t->entry + f / GROUP) * HEADS + t->kv_head * GROUP + f % GROUP;
        float *to = (float *)p->cascade + at * HD + lane % 4 * 2, *sums = (float *)p->cascade + p->cascade_entries * (HEADS * HD) + at * 2;
        UNROLL for (int d = 0; d < HD / 8; d++)
        {
            u32x2 x = {{f32_bits(o[d][2 * h]), f32_bits(o[d][2 * h + 1])}};
            st8(to + d * 8, x);
        }
        u32x2 ml = {{f32_bits(m[h]), f32_bits(sum)}};
        if (lane % 4 == 0) st8(sums, ml);
    }
}

/* Item `target` of all groups: heads of a part, then parts, then tiles of rows; false behind the last. */
DEVICE bool tile_group(const struct attention_tile_params *p, uint32_t target, struct tile *t)
{
    for (const struct cascade_group *g = (const struct cascade_group *)p->groups; g->count > 0; g++) {
        const uint32_t splits = (uint32_t)g->splits, items = ceil_div_u32((uint32_t)g->count * GROUP, M) * splits * KV_HEADS;
        if (target >= items) {
            target -= items;
            continue;
        }
        const uint32_t part = target / KV_HEADS % splits;
        const int32_t each = (int32_t)(ceil_div_u32(ceil_div_u32((uint32_t)g->tokens, N), splits) * N);
        t->members = (const int32_t *)p->members + g->first;
        t->seq = (uint32_t)t->members[0];
        t->kv_head = target % KV_HEADS;
        t->first = target / KV_HEADS / splits * M;
        t->rows = g->count;
        t->row0 = 0;
        t->from = min_i32((int32_t)part * each, g->tokens);
        t->length = min_i32(t->from + each, g->tokens);
        t->entry = g->entry + (int32_t)part * g->count;
        return true;
    }
    return false;
}
#endif

DEVICE void tile_run(const struct attention_tile_params *p, const struct tile *t)
{
    unsigned char *shared = dynamic_shared(), *qs = shared + warp_id() * 16 * ROW_BYTES, *stages = shared + M * ROW_BYTES;
    const uint32_t lane = lane_id(), packed = (uint32_t)t->rows * GROUP;
    int32_t begin[2], end[2], at[2], from, to, other;
    const float *bias[2] = {(const float *)p->relative, (const float *)p->relative};
    float slope[2] = {0, 0}, m[2] = {NO_SCORE, NO_SCORE}, l[2] = {0, 0}, o[HDP / 8][4];
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t f = t->first + warp_id() * 16 + lane / 4 + 8 * h;
        int32_t i = (int32_t)(f / GROUP);
        attention_sight(i, t->rows, t->length, &begin[h], &end[h]);
        at[h] = t->length - t->rows + i;
        if (CASCADE) begin[h] = t->from, end[h] = t->length;
        if (CASCADE && ALIBI && f < packed) at[h] = ((const int32_t *)p->seq_length)[t->members[i]] - 1;
        if (f >= packed) end[h] = 0;
        if (RELATIVE) bias[h] += (t->kv_head * GROUP + f % GROUP) * ATTENTION_RELATIVE_STRIDE(RELATIVE - 1) + RELATIVE - 1;
        if (ALIBI) slope[h] = ((const float *)p->alibi)[t->kv_head * GROUP + f % GROUP] * LOG2_E;
    }
    UNROLL for (int d = 0; d < HDP / 8; d++)
        UNROLL for (int e = 0; e < 4; e++) o[d][e] = 0;
    /* What any row of the tile sees. */
    attention_sight((int32_t)(t->first / GROUP), t->rows, t->length, &from, &other);
    attention_sight((int32_t)((min_u32(t->first + M, packed) - 1) / GROUP), t->rows, t->length, &other, &to);
    if (CASCADE) from = t->from, to = t->length;
    from = from / N * N;
    const bool idle = CASCADE && t->first + warp_id() * 16 >= packed; /* a warp without rows only loads */

    tile_load_q(p, t, shared);
    uint32_t q[HDP / 16][4];
    UNROLL_N(1) for (int32_t t0 = from - N, turn = 0; t0 < to; t0 += N, turn ^= 1)
    {
        unsigned char *stage = stages + turn * 2 * STAGE_BYTES, *next = stages + (turn ^ 1) * 2 * STAGE_BYTES;
        if (t0 + N < to) tile_load(p, t, t0 + N, to, next);
        cp_async_commit();
        if (t0 < from) continue;
        cp_async_wait(1);
        block_sync();
        if (Q_IN_REGISTERS && t0 == from)
            UNROLL for (int k = 0; k < HDP / 16; k++)
                ldmatrix_x4(q[k], qs + (lane / 8 % 2 * 8 + lane % 8) * ROW_BYTES + k * 32 + lane / 16 * 16);
        if (!idle) {
            float s[N / 8][4];
            tile_scores(qs, q, stage, s);
            tile_softmax(s, t0, begin, end, at, slope, bias, m, l, o);
            tile_values(s, stage + STAGE_BYTES, o);
        }
        block_sync();
    }
    cp_async_wait_all();
    block_sync();
#if CASCADE
    tile_leave(p, t, m, l, o);
#else
    tile_store(p, t, qs, m, l, o);
#endif
    block_sync();
}

KERNEL(attention_tile, struct attention_tile_params, p, THREADS, 1)
{
    const int32_t *seq_rows = (const int32_t *)p.seq_rows;
    grid_dependency_wait();
    grid_dependency_launch();
    for (uint32_t item = block_x();; item += grid_dim_x()) {
        struct tile t;
#if CASCADE
        if (!tile_group(&p, item, &t)) break;
#else
        uint32_t tile;
        if (!attention_item(seq_rows, p.seqs, item, M, FROM_ROWS, &t.seq, &t.kv_head, &tile)) break;
        t.row0 = seq_rows[t.seq];
        t.rows = seq_rows[t.seq + 1] - t.row0;
        t.length = PAGES ? ((const int32_t *)p.seq_length)[t.seq] : t.rows;
        t.first = tile * M;
        t.members = NULL;
#endif
        tile_run(&p, &t);
    }
}
