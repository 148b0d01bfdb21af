// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Attention of few query rows a sequence over long files of pages (decode): the keys and values of the whole batch are one list
 * that is cut into equal parts, one a block, whatever the lengths (stream-K: Osama et al. 2023; split-KV: Dao et al. 2023, "Flash-Decoding").
 *
 *     item: 16 packed rows of a sequence (attention.cuh) and a key-value head; tile: TILE tokens of an item; unit: `cut` tiles of an item
 *     units lie in the order sequence, 16 rows, head, tokens; block b takes units [b * per, (b + 1) * per)
 *
 * With work for every block cut is 1 and per as large as it must be. With less, cut grows instead and per is 1: a block then never has
 * parts of two items, and pieces have at least LEAST tiles.
 *
 * LOADERS warps of a block load, STAGES tiles ahead: TILE tokens of K and of V, and the query rows where an item begins. The others
 * compute, 16 tokens of every tile at a time each, and put their results together at the end of the block's piece of an item, in the memory of its
 * last stage. A piece that is a whole item becomes rows of y. Otherwise it goes to `partial`, and the last block of the item to
 * come adds the pieces up in the order of the blocks: the result depends on the lengths and the grid, not on the order of execution.
 *
 * Tokens of earlier steps are loaded before the predecessor has ended: it writes only this step's (their pages are read
 * after the wait). So are the step's lengths and page tables, which no kernel writes.
 *
 * CASCADE: of some sequences the first tokens, whole pages, were read by another launch for many at once (params/cascade.h): here the others are
 * read, and what that launch left is added where a row becomes y.
 *
 * QK: queries and the step's own keys and values come as the product left them, one row a sequence (attention_qk.cuh). No page is
 * then a predecessor's.
 *
 * Constants: those of attention.cuh; CASCADE 0/1; QK 0/1 and those of attention_qk.cuh; TILE, WARPS (that compute), LOADERS, ROWS (packed rows that
 * an item has at most: 16, or GROUP where sequences have one row), STAGES, LEAST; WHOLE (no item is cut, so that a row's result depends on
 * nothing but its own tokens; the block of an item's first unit takes it); TO_ROWS: sequences of more rows are left to another
 * kernel (0: none); Q_SHARED: query fragments live in shared memory, a copy a warp. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/params/cascade.h"
#if QK
#include "kernels/cuda/attention_qk.cuh"
#endif

#define CONSUMERS (WARPS * 32)
#define THREADS (CONSUMERS + LOADERS * 32)
#define STEPS (TILE / 16 / WARPS) /* times 16 tokens that a warp takes of a tile */
#define Q_ROW (HD * 2 + 16)
#define Q_CHUNKS (HD / 8)
#define ROW_BYTES (HD * KV_ELEM + 16)
#define CHUNKS (HD * KV_ELEM / 16)
#define ROWS_A_TURN (CHUNKS > 16 ? 1 : CHUNKS > 8 ? 2 : CHUNKS > 4 ? 4 : CHUNKS > 2 ? 8 : 16) /* that 32 lanes load at once */
#define TURNS_A_WARP (SPAN / ROWS_A_TURN / LOADERS)
#define KV_BYTES (TILE * ROW_BYTES)
#define STAGE_BYTES (2 * KV_BYTES + 16 * Q_ROW) /* K, V, Q */
#define SPAN (PAGE_TOKENS < TILE ? PAGE_TOKENS : TILE) /* tokens that lie one behind the other */
#define SCRATCH (HD + 4)                               /* floats a row of a warp's results in shared memory */
STATIC_ASSERT(HD % 16 == 0 && CHUNKS <= 32 && SPAN % (ROWS_A_TURN * LOADERS) == 0 && TILE % (16 * WARPS) == 0 && TILE % SPAN == 0 && PAGE_TOKENS % SPAN == 0, "tiles of whole pages or pages of whole tiles");
STATIC_ASSERT(WARPS * ROWS * SCRATCH * 4 <= STAGE_BYTES, "results fit a stage");
STATIC_ASSERT(!CASCADE || (!QK && WINDOW == 0), "what is shared are the first tokens of all sight");

/* The step, in shared memory. */
struct step {
    uint32_t *units;        /* [seqs + 1]: units before sequence s */
    int32_t *row0, *length; /* [seqs + 1], [seqs] */
    int32_t *shared; /* CASCADE: [seqs] tokens that others read */
    uint32_t seqs, cut, per, all;
};

struct piece {
    uint32_t seq, kv_head, first; /* first: packed row */
    int32_t row0, rows, length;
    int32_t t0;                    /* first token of the piece */
    uint32_t start, units, count;  /* the item's first unit, its units, those of the piece */
    uint32_t tiles;                /* of the piece */
};

/* First token of the tiles of a sequence, and how many there are: at least one, which writes zeros. */
DEVICE uint32_t split_tiles(int32_t rows, int32_t length, int32_t shared, int32_t *from)
{
    int32_t begin, end;
    attention_sight(0, rows, length, &begin, &end);
    begin = CASCADE ? shared : begin / TILE * TILE;
    *from = begin;
    return length > begin ? (uint32_t)(length - begin + TILE - 1) / TILE : 1;
}
DEVICE uint32_t split_items(int32_t rows)
{
    return rows > 0 && (!TO_ROWS || rows <= TO_ROWS) ? ((uint32_t)rows * GROUP + 15) / 16 * KV_HEADS : 0;
}

/* Units of `cut` tiles of the sequences before each; the sum. All threads. */
DEVICE uint32_t split_scan(const struct step *t, uint32_t cut, uint32_t *warp_sums)
{
    uint32_t sum = 0;
    for (uint32_t base = 0; base < t->seqs; base += THREADS) {
        uint32_t s = base + thread_x(), n = 0;
        if (s < t->seqs) {
            int32_t from, rows = t->row0[s + 1] - t->row0[s];
            n = split_items(rows) * ceil_div_u32(split_tiles(rows, t->length[s], CASCADE ? t->shared[s] : 0, &from), cut);
        }
        uint32_t scan = warp_scan_u32(n);
        block_sync(); /* the sums of the round before are read */
        if (lane_id() == WARP - 1) warp_sums[warp_id()] = scan;
        block_sync();
        uint32_t before = sum;
        UNROLL for (uint32_t w = 0; w < THREADS / WARP; w++)
        {
            if (w < warp_id()) before += warp_sums[w];
            sum += warp_sums[w];
        }
        if (s < t->seqs) t->units[s] = before + scan - n;
    }
    if (thread_x() == 0) t->units[t->seqs] = sum;
    block_sync();
    return sum;
}

/* How many units there are when cut: a block a unit while they fit the grid and are no longer than half as long again as equal
 * shares; else equal shares. The cuts in turn: 1, which tells the shares, then longer ones. What is cut has `all` units; true: another cut
 * is to be counted next. */
struct cut {
    uint32_t now, most; /* most: the longest, 0 before it is known */
    bool last;          /* it is only counted again */
};
DEVICE bool split_cut(struct step *t, struct cut *c, uint32_t all)
{
    if (c->last) return false;
    if (c->most == 0) {
        const uint32_t each = ceil_div_u32(all, grid_dim_x());
        t->cut = 1, t->per = each, t->all = all;
        c->most = max_u32(each + each / 2, LEAST), c->now = max_u32(each, LEAST);
        return !WHOLE;
    }
    if (all <= grid_dim_x()) {
        t->cut = c->now, t->per = 1, t->all = all;
        return false;
    }
    c->now += (c->now + 7) / 8;
    if (c->now > c->most) c->now = 1, c->last = true;
    return true;
}

DEVICE void split_step_of(const struct attention_tile_params *p, struct step *t, uint32_t *warp_sums)
{
    const int32_t *rows = (const int32_t *)p->seq_rows, *length = (const int32_t *)p->seq_length;
    const struct cascade_seq *cascade = (const struct cascade_seq *)p->cascade_seqs;
    struct cut c = {1, 0, false};
    if (t->seqs <= WARP) { /* every warp for itself, the first for all to come */
        uint32_t s = lane_id(), items = 0, tiles = 1;
        int32_t row = 0, n = 0, shared = 0, from;
        if (s < t->seqs) {
            row = rows[s], n = length[s];
            int32_t next = rows[s + 1];
            if (CASCADE) shared = cascade[s].tokens;
            items = split_items(next - row), tiles = split_tiles(next - row, n, shared, &from);
        }
        uint32_t all = warp_sum_u32(items * tiles, WARP);
        while (split_cut(t, &c, all) && !c.last) all = warp_sum_u32(items * ceil_div_u32(tiles, c.now), WARP);
        uint32_t mine = items * ceil_div_u32(tiles, t->cut), before = warp_scan_u32(mine) - mine;
        if (warp_id() == 0 && s < t->seqs) {
            t->units[s] = before, t->row0[s] = row, t->length[s] = n;
            if (CASCADE) t->shared[s] = shared;
            if (s + 1 == t->seqs) t->units[s + 1] = before + mine, t->row0[s + 1] = rows[s + 1];
        }
        block_sync();
        return;
    }
    for (uint32_t s = thread_x(); s <= t->seqs; s += THREADS) {
        t->row0[s] = rows[s];
        if (s < t->seqs) t->length[s] = length[s];
        if (CASCADE && s < t->seqs) t->shared[s] = cascade[s].tokens;
    }
    block_sync();
    uint32_t all;
    do all = split_scan(t, c.now, warp_sums); /* the last one leaves the units of the cut that is taken */
    while (split_cut(t, &c, all));
}

/* The piece that begins at unit u of a block's that end at `end`. */
DEVICE void split_piece(const struct step *t, uint32_t u, uint32_t end, struct piece *out)
{
    uint32_t low = 0, high = t->seqs; /* units[low] <= u < units[high] */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (t->units[middle] <= u)
            low = middle;
        else
            high = middle;
    }
    int32_t from;
    out->seq = low;
    out->row0 = t->row0[low];
    out->rows = t->row0[low + 1] - out->row0;
    out->length = t->length[low];
    uint32_t tiles = split_tiles(out->rows, out->length, CASCADE ? t->shared[low] : 0, &from);
    out->units = ceil_div_u32(tiles, t->cut);
    uint32_t in = u - t->units[low], item = in / out->units, unit = in - item * out->units;
    out->start = u - unit;
    out->kv_head = item % KV_HEADS;
    out->first = item / KV_HEADS * 16;
    out->count = min_u32(out->units - unit, end - u);
    out->t0 = from + (int32_t)(unit * t->cut * TILE);
    out->tiles = min_u32((unit + out->count) * t->cut, tiles) - unit * t->cut;
}

/* With WHOLE: the first unit from u on that begins an item. */
DEVICE uint32_t split_round(const struct step *t, uint32_t u)
{
    struct piece c;
    if (!WHOLE || u >= t->all) return u;
    split_piece(t, u, t->all, &c);
    return c.start < u ? c.start + c.units : u;
}

/* ---- the loading warp ---------------------------------------------------------------------------------------------------- */

/* Tokens of [from, to) of the stage that begins at token t0; ids: lane l has the page of token (t0 / SPAN + l) * SPAN. The copies
 * of a page differ by constants only: a changing address register would make each wait for the last. */
DEVICE void split_load_rows(const struct attention_tile_params *p, const struct piece *c, uint32_t ids, int32_t t0, int32_t from,
                            int32_t to, unsigned char *stage)
{
    const uint32_t lane = lane_id(), row0 = lane / CHUNKS, col = lane % CHUNKS;
    const uint32_t skip = (warp_id() - WARPS) * TURNS_A_WARP * ROWS_A_TURN; /* rows of a page that other loading warps take */
    UNROLL_N(1) for (uint32_t s = 0; s < TILE / SPAN; s++)
    {
        int32_t page = (int32_t)shuffle_u32(FULL_WARP, ids, s, WARP), first = t0 + (int32_t)(s * SPAN);
        const char *k = (const char *)p->pool;
        if (page >= 0)
            k += page * p->page_bytes + p->layer_offset + KV_ROWS_TOKEN(c->kv_head, first % PAGE_TOKENS, PAGE_TOKENS, HD, KV_ELEM) +
                 lane * 16;
        k += skip * CHUNKS * 16;
        const char *v = k + KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, KV_ELEM);
        unsigned char *dst = stage + (s * SPAN + skip + row0) * ROW_BYTES + col * 16;
        if (lane >= ROWS_A_TURN * CHUNKS) continue;
        if (page >= 0 && first >= from && first + SPAN <= to && first + SPAN <= c->length) {
            UNROLL for (uint32_t i = 0; i < TURNS_A_WARP; i++)
            {
                cp_async16(dst + i * ROWS_A_TURN * ROW_BYTES, k + i * ROWS_A_TURN * CHUNKS * 16);
                cp_async16(dst + i * ROWS_A_TURN * ROW_BYTES + KV_BYTES, v + i * ROWS_A_TURN * CHUNKS * 16);
            }
        } else if (first < to && first + SPAN > from) { /* a part of it, and zeros behind the end of the file */
            int32_t base = first + (int32_t)(skip + row0), there = page >= 0 ? c->length - base : 0, low = from - base, high = to - base;
            UNROLL for (int32_t i = 0; i < TURNS_A_WARP; i++)
            {
                uint32_t bytes = i * ROWS_A_TURN < there ? 16 : 0;
                if (i * ROWS_A_TURN < low || i * ROWS_A_TURN >= high) continue;
                cp_async16_zfill(dst + i * ROWS_A_TURN * ROW_BYTES, k + i * ROWS_A_TURN * CHUNKS * 16, bytes);
                cp_async16_zfill(dst + i * ROWS_A_TURN * ROW_BYTES + KV_BYTES, v + i * ROWS_A_TURN * CHUNKS * 16, bytes);
            }
        }
    }
}

/* Lane l: the page of the tokens (t / SPAN + l) * SPAN. */
DEVICE uint32_t split_pages(const struct attention_tile_params *p, const struct piece *c, int32_t t)
{
    const int32_t *table = (const int32_t *)p->page_table + (int64_t)c->seq * p->table_stride;
    return (uint32_t)attention_page(table, t + (int32_t)(lane_id() * SPAN), c->length);
}

DEVICE void split_load_q(const struct attention_tile_params *p, const struct piece *c, unsigned char *to)
{
    UNROLL for (uint32_t i = 0; i < 16 * Q_CHUNKS / 32; i++)
    {
        uint32_t at = lane_id() + i * 32, row = at / Q_CHUNKS, col = at % Q_CHUNKS, f = c->first + row;
        bool there = f < (uint32_t)c->rows * GROUP;
        const element *from = (const element *)p->q;
        if (there) from += (c->row0 + (int64_t)(f / GROUP)) * p->q_stride + (c->kv_head * GROUP + f % GROUP) * HD + col * 8;
        cp_async16_zfill(to + row * Q_ROW + col * 16, from, there ? 16 : 0);
    }
}

/* The first piece's query rows are read by the computing warps themselves: its other tokens need not wait for them. The next
 * piece and the next pages are looked up while the last are being filled. */
DEVICE void split_load(const struct attention_tile_params *p, const struct step *t, uint32_t begin, uint32_t end,
                       unsigned char *stages, mbarrier *full, mbarrier *empty)
{
    const uint32_t TURNS = 32 / (TILE / SPAN); /* tiles that 32 lanes have pages for */
    uint32_t turn = 0, phase = 0, ids = 0;
    bool waited = false;
    struct piece c, next;
    if (begin < end) {
        split_piece(t, begin, end, &c);
        ids = split_pages(p, &c, c.t0);
    }
    for (uint32_t u = begin; u < end;) {
        int32_t t0 = c.t0, old = c.length - c.rows;
        if (QK) c.length = old, old = 0x7fffffff; /* the own token is put there by others */
        uint32_t more = split_pages(p, &c, t0 + (int32_t)TURNS * TILE), first_ids = 0, left = TURNS;
        if (u + c.count < end) {
            split_piece(t, u + c.count, end, &next);
            first_ids = split_pages(p, &next, next.t0);
        }
        UNROLL_N(1) for (uint32_t j = 0; j < c.tiles; j++, t0 += TILE)
        {
            if (left == 0) {
                ids = more, left = TURNS;
                more = split_pages(p, &c, t0 + (int32_t)TURNS * TILE);
            }
            mbarrier_wait(&empty[turn], phase ^ 1);
            unsigned char *stage = stages + turn * STAGE_BYTES;
            int32_t now = t0;
            if (!waited && t0 + TILE > old) { /* rows that the predecessor writes come after the others, and after it */
                if (old > t0) split_load_rows(p, &c, ids, t0, t0, old, stage), now = old;
                grid_dependency_wait();
                waited = true;
            }
            if (j == 0 && u > begin) {
                if (!waited) grid_dependency_wait();
                waited = true;
                if (warp_id() == WARPS) split_load_q(p, &c, stage + 2 * KV_BYTES);
            }
            split_load_rows(p, &c, ids, t0, now, t0 + TILE, stage);
            cp_async_mbarrier_arrive(&full[turn]);
            ids = shuffle_down_u32(FULL_WARP, ids, TILE / SPAN, WARP);
            left--;
            if (++turn == STAGES) turn = 0, phase ^= 1;
        }
        u += c.count;
        c = next, ids = first_ids;
    }
    cp_async_wait_all();
}

/* ---- the computing warps ------------------------------------------------------------------------------------------------- */

/* With e4m3 pages products are of f16, which holds every e4m3 and, at the sizes queries have, every bf16. A lane then takes four
 * consecutive elements of a row where the instruction wants two pairs: the order of k is free as long as both sides share it,
 * and so is the order of columns. Lane c of four, k step or 16 columns g:
 *
 *     queries, keys    registers 0, 1 and 2, 3 of four: elements 16 g + 4 c .. + 1 and + 2 .. + 3
 *     values           column q of tile 2 g is element 16 g + 2 q, of tile 2 g + 1 the one behind it */
#define E4M3 (KV_ELEM == 1)
DEVICE uint32_t split_f16x2(uint32_t x)
{
    return ACT_F16 ? x : f32_to_f16x2(element2_lo_f32(as_element2(x)), element2_hi_f32(as_element2(x))).bits;
}

/* The fragments of a piece's query rows, from memory. */
DEVICE void split_query(const struct attention_tile_params *p, const struct piece *c, uint32_t q[HD / 16][4])
{
    const uint32_t lane = lane_id();
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t f = c->first + lane / 4 + 8 * h;
        bool there = f < (uint32_t)c->rows * GROUP;
        const element *from = (const element *)p->q;
        if (there)
            from += (c->row0 + (int64_t)(f / GROUP)) * p->q_stride + (c->kv_head * GROUP + f % GROUP) * HD +
                    lane % 4 * (E4M3 ? 4 : 2);
        UNROLL for (int k = 0; k < HD / 16; k++)
        {
            q[k][h] = there ? ld4(from + k * 16) : 0;
            q[k][h + 2] = there ? ld4(from + k * 16 + (E4M3 ? 2 : 8)) : 0;
            if (E4M3) q[k][h] = split_f16x2(q[k][h]), q[k][h + 2] = split_f16x2(q[k][h + 2]);
        }
    }
}
/* Step k of the same, from 16 rows in shared memory. */
DEVICE void split_query_shared(const unsigned char *qs, int k, uint32_t q[4])
{
    const uint32_t lane = lane_id();
    if (E4M3) {
        UNROLL for (int h = 0; h < 2; h++)
        {
            u32x2 x = ld8(qs + (lane / 4 + 8 * h) * Q_ROW + k * 32 + lane % 4 * 8);
            q[h] = split_f16x2(x.v[0]), q[h + 2] = split_f16x2(x.v[1]);
        }
    } else {
        ldmatrix_x4(q, qs + lane % 16 * Q_ROW + k * 32 + lane / 16 * 16);
    }
}

DEVICE void split_keep(unsigned char *q_copy, int k, const uint32_t q[4])
{
    u32x4 x = {{q[0], q[1], q[2], q[3]}};
    st16(q_copy + ((uint32_t)k * 32 + lane_id()) * 16, x);
}

/* s = q k^T, 16 tokens whose keys begin at ks. */
DEVICE void split_scores(const unsigned char *ks, const uint32_t q[HD / 16][4], const unsigned char *q_copy, float s[2][4])
{
    const uint32_t lane = lane_id();
    const unsigned char *at = E4M3 ? ks + lane / 4 * ROW_BYTES + lane % 4 * 4
                                   : ks + (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16;
    /* Two chains of products for each result: a step waits for the length of the longest. */
    float part[2][2][4];
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int e = 0; e < 4; e++) part[0][n][e] = part[1][n][e] = 0;
    UNROLL for (int k = 0; k < HD / 16; k++)
    {
        uint32_t b[4];
        u32x4 a;
        if (Q_SHARED)
            a = ld16(q_copy + (k * 32 + lane) * 16);
        else
            UNROLL for (int e = 0; e < 4; e++) a.v[e] = q[k][e];
        if (E4M3) {
            UNROLL for (int n = 0; n < 2; n++)
            {
                uint32_t x = ld4(at + n * 8 * ROW_BYTES + k * 16);
                b[2 * n] = e4m3x2_to_f16x2((uint16_t)x).bits, b[2 * n + 1] = e4m3x2_to_f16x2((uint16_t)(x >> 16)).bits;
                mma_f16(part[k % 2][n], a.v, b + 2 * n);
            }
        } else {
            ldmatrix_x4(b, at + k * 32);
            mma_element(part[k % 2][0], a.v, b);
            mma_element(part[k % 2][1], a.v, b + 2);
        }
    }
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int e = 0; e < 4; e++) s[n][e] = part[0][n][e] + part[1][n][e];
}

/* o += weights v, 16 tokens whose values begin at vs. */
DEVICE void split_values(const unsigned char *vs, const float s[2][4], float o[HD / 8][4])
{
    const uint32_t lane = lane_id();
    const unsigned char *at = vs + lane % 16 * ROW_BYTES + lane / 16 * 16;
    uint32_t a[4];
    UNROLL for (int e = 0; e < 4; e++)
    {
        float lo = s[e / 2][e % 2 * 2], hi = s[e / 2][e % 2 * 2 + 1];
        a[e] = E4M3 ? f32_to_f16x2(lo, hi).bits : f32_to_element2(lo, hi).bits;
    }
    if (E4M3) {
        /* Transposed as 16-bit units: a lane gets two elements of two tokens, and the pairs of tokens are put together. */
        UNROLL for (int g = 0; g < HD / 16; g += 2)
        {
            uint32_t x[4];
            if (g + 1 < HD / 16)
                ldmatrix_x4_trans(x, at + g * 16);
            else
                ldmatrix_x2_trans(x, at + g * 16);
            UNROLL for (int i = 0; i < 2 && g + i < HD / 16; i++)
            {
                uint32_t lo = byte_permute(x[2 * i], 0, 0x3120), hi = byte_permute(x[2 * i + 1], 0, 0x3120);
                uint32_t even[2] = {e4m3x2_to_f16x2((uint16_t)lo).bits, e4m3x2_to_f16x2((uint16_t)hi).bits};
                uint32_t odd[2] = {e4m3x2_to_f16x2((uint16_t)(lo >> 16)).bits, e4m3x2_to_f16x2((uint16_t)(hi >> 16)).bits};
                mma_f16(o[2 * (g + i)], a, even);
                mma_f16(o[2 * (g + i) + 1], a, odd);
            }
        }
    } else {
        UNROLL for (int d = 0; d < HD / 16; d++)
        {
            uint32_t b[4];
            ldmatrix_x4_trans(b, at + d * 32);
            mma_element(o[2 * d], a, b);
            mma_element(o[2 * d + 1], a, b + 2);
        }
    }
}

/* 16 tokens from t0, whose rows of K and V begin at ks. */
DEVICE void split_step(const unsigned char *ks, const uint32_t q[HD / 16][4], const unsigned char *q_copy, int32_t t0,
                       const int32_t begin[2], const int32_t end[2], const int32_t at[2], const float slope[2], float m[2],
                       float l[2], float o[HD / 8][4])
{
    const uint32_t lane = lane_id();
    float s[2][4], keep[2];
    split_scores(ks, q, q_copy, s);
    UNROLL for (int h = 0; h < 2; h++)
    {
        float most = NO_SCORE, sum = 0;
        UNROLL for (int n = 0; n < 2; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                int32_t token = t0 + n * 8 + (int32_t)(lane % 4 * 2) + e;
                float v = attention_score(s[n][2 * h + e], slope[h], token - at[h]);
                if (token < begin[h] || token >= end[h]) v = NO_SCORE * 2;
                s[n][2 * h + e] = v;
                most = max_f32(most, v);
            }
        most = max_f32(m[h], warp_max_f32(most, 4));
        keep[h] = exp2_approx(m[h] - most);
        m[h] = most;
        UNROLL for (int n = 0; n < 2; n++)
            UNROLL for (int e = 0; e < 2; e++)
            {
                s[n][2 * h + e] = exp2_approx(s[n][2 * h + e] - most);
                sum += s[n][2 * h + e];
            }
        l[h] = fma_f32(l[h], keep[h], sum);
    }
    if (warp_any(FULL_WARP, keep[0] != 1 || keep[1] != 1)) {
        UNROLL for (int d = 0; d < HD / 8; d++)
            UNROLL for (int e = 0; e < 4; e++) o[d][e] *= keep[e / 2];
    }
    split_values(ks + KV_BYTES, s, o);
}

#if CASCADE
#if HD > 192
#define UNROLL_JOIN UNROLL_N(1) /* wide results leave no registers for parts under way */
#else
#define UNROLL_JOIN UNROLL_N(4)
#endif
/* What the other launch left of four elements of a row comes to its own. */
DEVICE void split_join(const struct attention_tile_params *p, uint32_t seq, uint32_t head, uint32_t d, f32x4 *o, float *m, float *l)
{
    const struct cascade_seq c = ((const struct cascade_seq *)p->cascade_seqs)[seq];
    const float *sums = (const float *)p->cascade + p->cascade_entries * (HEADS * HD);
    if (c.tokens == 0) return;
    UNROLL_JOIN for (int32_t i = 0; i < c.splits; i++)
    {
        const int64_t at = ((int64_t)c.entry + i * c.step) * HEADS + head;
        const u32x2 ml = ld8(sums + at * 2);
        const u32x4 x = ld16((const float *)p->cascade + at * HD + d);
        const float most = max_f32(*m, f32_from_bits(ml.v[0])), keep = exp2_approx(*m - most), w = exp2_approx(f32_from_bits(ml.v[0]) - most);
        *m = most, *l = fma_f32(f32_from_bits(ml.v[1]), w, *l * keep);
        UNROLL for (int k = 0; k < 4; k++) o->v[k] = fma_f32(f32_from_bits(x.v[k]), w, o->v[k] * keep);
    }
}
#endif

/* Four elements of a packed row, and its maximum and sum without the sink, become y. */
DEVICE void split_finish(const struct attention_tile_params *p, const struct piece *c, uint32_t row, uint32_t d, f32x4 o, float m,
                         float l)
{
    uint32_t f = c->first + row;
    float scale = 1;
#if CASCADE
    split_join(p, c->seq, c->kv_head * GROUP + f % GROUP, d, &o, &m, &l);
#endif
    if (SINKS) {
        float sink = ((const float *)p->sinks)[c->kv_head * GROUP + f % GROUP] * LOG2_E, most = max_f32(m, sink);
        scale = exp2_approx(m - most);
        l = fma_f32(l, scale, exp2_approx(sink - most));
    }
    scale = l > 0 && m > NO_SCORE ? scale * rcp_approx(l) : 0.0f;
    u32x2 r = {{f32_to_element2(o.v[0] * scale, o.v[1] * scale).bits, f32_to_element2(o.v[2] * scale, o.v[3] * scale).bits}};
    st8((element *)p->y + (c->row0 + (int64_t)(f / GROUP)) * p->y_stride + (c->kv_head * GROUP + f % GROUP) * HD + d, r);
}

/* The pieces of an item that blocks first .. last left, AHEAD of them under way at once. */
#define AHEAD (HD > 192 ? 2 : WARPS > 4 ? 4 : 8)
DEVICE void split_merge(const struct attention_tile_params *p, const struct piece *c, uint32_t rows, uint32_t first, uint32_t last)
{
    for (uint32_t e = thread_x(); e < rows * (HD / 4); e += CONSUMERS) {
        uint32_t row = e / (HD / 4), d = e % (HD / 4) * 4;
        const float *at = (const float *)p->partial + row * HD + d, *sums = (const float *)p->partial + 16 * HD + 2 * row;
        float m = NO_SCORE, l = 0;
        f32x4 o = {{0, 0, 0, 0}};
        UNROLL_N(1) for (uint32_t b = first; b <= last; b += AHEAD)
        {
            u32x4 x[AHEAD];
            u32x2 ml[AHEAD];
            float most = m;
            UNROLL for (uint32_t i = 0; i < AHEAD; i++)
            {
                size_t piece = (size_t)(2 * (b + i) + (b + i == first)) * ATTENTION_PARTIAL(HD);
                ml[i].v[0] = f32_bits(NO_SCORE), ml[i].v[1] = 0;
                x[i].v[0] = x[i].v[1] = x[i].v[2] = x[i].v[3] = 0;
                if (b + i <= last) ml[i] = ld8(sums + piece), x[i] = ld16(at + piece);
            }
            UNROLL for (uint32_t i = 0; i < AHEAD; i++) most = max_f32(most, f32_from_bits(ml[i].v[0]));
            float keep = exp2_approx(m - most);
            m = most, l *= keep;
            UNROLL for (int k = 0; k < 4; k++) o.v[k] *= keep;
            UNROLL for (uint32_t i = 0; i < AHEAD; i++)
            {
                float w = exp2_approx(f32_from_bits(ml[i].v[0]) - most);
                l = fma_f32(f32_from_bits(ml[i].v[1]), w, l);
                UNROLL for (int k = 0; k < 4; k++) o.v[k] = fma_f32(f32_from_bits(x[i].v[k]), w, o.v[k]);
            }
        }
        split_finish(p, c, row, d, o, m, l);
    }
}

/* The end of a piece. `stage` is memory that all computing warps have read and nobody fills; per: units a block. */
DEVICE void split_end(const struct attention_tile_params *p, const struct piece *c, uint32_t per, float *stage, float *sums,
                      uint32_t *flag, const float m[2], const float l[2], float o[HD / 8][4])
{
    const uint32_t lane = lane_id(), rows = min_u32((uint32_t)c->rows * GROUP - c->first, ROWS);
    barrier_sync(1, CONSUMERS);
    UNROLL for (int h = 0; h < 2; h++)
    {
        float sum = warp_sum_f32(l[h], 4);
        uint32_t row = lane / 4 + 8 * h;
        if (row >= rows) continue;
        float *to = stage + (warp_id() * ROWS + row) * SCRATCH + lane % 4 * (E4M3 ? 4 : 2);
        UNROLL for (int d = 0; d < HD / 8; d += 2)
        {
            u32x2 x = {{f32_bits(o[d][2 * h]), f32_bits(o[d][2 * h + 1])}}, y = {{f32_bits(o[d + 1][2 * h]), f32_bits(o[d + 1][2 * h + 1])}};
            u32x4 four = {{x.v[0], y.v[0], x.v[1], y.v[1]}};
            if (E4M3)
                st16(to + d * 8, four);
            else
                st8(to + d * 8, x), st8(to + d * 8 + 8, y);
        }
        if (lane % 4 == 0) sums[(warp_id() * 16 + row) * 2] = m[h], sums[(warp_id() * 16 + row) * 2 + 1] = sum;
    }
    barrier_sync(1, CONSUMERS);
    const uint32_t first = c->start / per, last = (c->start + c->units - 1) / per;
    const bool whole = WHOLE || c->count == c->units;
    float *partial = (float *)p->partial + (size_t)(2 * block_x() + (block_x() == first)) * ATTENTION_PARTIAL(HD);
    for (uint32_t e = thread_x(); e < rows * (HD / 4); e += CONSUMERS) {
        uint32_t row = e / (HD / 4), d = e % (HD / 4) * 4;
        float most = NO_SCORE, sum = 0;
        f32x4 r = {{0, 0, 0, 0}};
        UNROLL for (int w = 0; w < WARPS; w++) most = max_f32(most, sums[(w * 16 + row) * 2]);
        UNROLL for (int w = 0; w < WARPS; w++)
        {
            float scale = exp2_approx(sums[(w * 16 + row) * 2] - most);
            u32x4 x = ld16(stage + (w * ROWS + row) * SCRATCH + d);
            sum = fma_f32(scale, sums[(w * 16 + row) * 2 + 1], sum);
            UNROLL for (int i = 0; i < 4; i++) r.v[i] = fma_f32(scale, f32_from_bits(x.v[i]), r.v[i]);
        }
        if (whole) {
            split_finish(p, c, row, d, r, most, sum);
        } else {
            u32x4 x = {{f32_bits(r.v[0]), f32_bits(r.v[1]), f32_bits(r.v[2]), f32_bits(r.v[3])}};
            u32x2 ml = {{f32_bits(most), f32_bits(sum)}};
            st16(partial + row * HD + d, x);
            if (d == 0) st8(partial + 16 * HD + 2 * row, ml);
        }
    }
    if (whole) return;
    barrier_sync(1, CONSUMERS);
    if (thread_x() == 0) {
        uint32_t *counter = (uint32_t *)p->counters + first;
        *flag = atom_add_u32(acq_rel, gpu, counter, 1) == last - first;
        if (*flag) st_u32(relaxed, gpu, counter, 0);
    }
    barrier_sync(1, CONSUMERS);
    if (*flag) split_merge(p, c, rows, first, last);
}

DEVICE void split_compute(const struct attention_tile_params *p, const struct step *t, uint32_t begin, uint32_t end,
                          unsigned char *stages, mbarrier *full, mbarrier *empty, float *sums, uint32_t *flag)
{
    const uint32_t lane = lane_id();
    unsigned char *q_copy = stages + STAGES * STAGE_BYTES + warp_id() * (HD * 32);
    uint32_t turn = 0, phase = 0;
    for (uint32_t u = begin; u < end;) {
        struct piece c;
        split_piece(t, u, end, &c);
        uint32_t q[HD / 16][4];
        int32_t see[2], sight_end[2], at[2], t0 = c.t0 + (int32_t)(warp_id() * 16);
        float slope[2] = {0, 0}, m[2] = {NO_SCORE, NO_SCORE}, l[2] = {0, 0}, o[HD / 8][4];
        UNROLL for (int h = 0; h < 2; h++)
        {
            uint32_t f = c.first + lane / 4 + 8 * h;
            int32_t i = (int32_t)(f / GROUP);
            attention_sight(i, c.rows, c.length, &see[h], &sight_end[h]);
            at[h] = c.length - c.rows + i;
            if (f >= (uint32_t)c.rows * GROUP) sight_end[h] = 0;
            if (ALIBI) slope[h] = ((const float *)p->alibi)[c.kv_head * GROUP + f % GROUP] * LOG2_E;
        }
        UNROLL for (int d = 0; d < HD / 8; d++)
            UNROLL for (int e = 0; e < 4; e++) o[d][e] = 0;
#if QK
        const int32_t own = c.length - 1 - c.t0; /* the step's own token, of the piece's, and whether this warp has it */
        const bool has_own = c.length > 0 && own < (int32_t)(c.tiles * TILE) && (uint32_t)own / 16 % WARPS == warp_id();
        struct attention_qk qk;
        qk.page = NULL;
        attention_qk_weights(p, &qk);
        attention_qk_angles(p, c.length - 1, has_own, &qk);
#endif
        if (u == begin) {
            grid_dependency_wait();
            split_query(p, &c, q);
        } else {
            mbarrier_wait(&full[turn], phase);
            UNROLL for (int k = 0; k < HD / 16; k++) split_query_shared(stages + turn * STAGE_BYTES + 2 * KV_BYTES, k, q[k]);
        }
#if QK
        if (has_own) attention_qk_ask(p, c.row0, c.kv_head, &qk);
        attention_qk_query(&qk, q);
#endif
        UNROLL for (int k = 0; k < HD / 16 && Q_SHARED; k++) split_keep(q_copy, k, q[k]);
        UNROLL_N(1) for (uint32_t j = 0; j < c.tiles; j++, t0 += TILE)
        {
            unsigned char *stage = stages + turn * STAGE_BYTES;
            mbarrier_wait(&full[turn], phase);
#if QK
            if (has_own && (uint32_t)own / TILE == j) attention_qk_put(&qk, stage + (uint32_t)own % TILE * ROW_BYTES, KV_BYTES);
#endif
            UNROLL_N(1) for (uint32_t i = 0; i < STEPS; i++)
                split_step(stage + (i * WARPS + warp_id()) * 16 * ROW_BYTES, q, q_copy, t0 + (int32_t)(i * WARPS * 16), see, sight_end, at,
                           slope, m, l, o);
            if (j + 1 == c.tiles) split_end(p, &c, t->per, (float *)stage, sums, flag, m, l, o);
            warp_sync(FULL_WARP);
            if (lane == 0) mbarrier_arrive(&empty[turn]);
            if (++turn == STAGES) turn = 0, phase ^= 1;
        }
        u += c.count;
    }
}

KERNEL(attention_split, struct attention_tile_params, p, THREADS, 1)
{
    SHARED(mbarrier, full, STAGES);
    SHARED(mbarrier, empty, STAGES);
    SHARED(float, sums, WARPS * 32);
    SHARED(uint32_t, warp_sums, THREADS / WARP);
    SHARED(uint32_t, flag, 1);
    unsigned char *stages = dynamic_shared();
    struct step t;
    t.seqs = p.seqs, t.cut = 1, t.per = t.all = 0;
    t.units = (uint32_t *)(stages + STAGES * STAGE_BYTES + (Q_SHARED ? WARPS * HD * 32 : 0));
    t.row0 = (int32_t *)(t.units + p.seqs + 1);
    t.length = t.row0 + p.seqs + 1;
    t.shared = CASCADE ? t.length + p.seqs : NULL;
    if (thread_x() == 0) {
        UNROLL for (int i = 0; i < STAGES; i++) mbarrier_init(&full[i], LOADERS * 32), mbarrier_init(&empty[i], WARPS);
    }
    grid_dependency_launch();
    split_step_of(&p, &t, warp_sums);
    uint32_t begin = split_round(&t, min_u32(block_x() * t.per, t.all)), end = split_round(&t, min_u32((block_x() + 1) * t.per, t.all));
    if (warp_id() >= WARPS)
        split_load(&p, &t, begin, end, stages, full, empty);
    else
        split_compute(&p, &t, begin, end, stages, full, empty, sums, flag);
}
