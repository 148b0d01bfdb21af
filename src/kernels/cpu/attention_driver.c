/* The walk of attention over work items, chunks and tiles; arithmetic is the kernels' (attention.h).
 *
 * An item is one sequence, one tile of its query rows, one KV head, and up to ATTENTION_ROWS of (row, head of
 * the group) pairs: the group's heads share every load of a key. Items go to workers one by one, the long
 * ones first. In bfloat16 an item has many more rows: keys and values of a panel of tokens are packed once
 * for all of them, then ATTENTION_HALF_SUB rows at a time pass over the panel, their sums in the nearest
 * cache. When there are too few for the workers, an item is cut at its chunks; partial results lie in
 * p->partial until all have arrived.
 */
#include "kernels/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/isa.h"

#define LOG2_E 1.44269504f

struct walk {
    const struct attention_kernels *f;
    const struct attention_half_kernels *half; /* NULL: float32 only */
    const struct attention_params *p;
    struct kv_layout layout;
    int32_t seqs, group, part_heads, parts; /* heads of an item, items a group */
    int32_t tile_rows, half_rows;           /* query rows of an item; rows times heads at most in bfloat16 */
    int32_t ld;                             /* value_dim in whole vectors */
    const int32_t *seq_rows, *seq_length, *page_table;
    /* scratch of this worker */
    float *q, *kt, *v, *scores, *acc, *total, *m, *l, *total_m, *total_l, *slopes, *lanes;
    const float **relative; /* [rows]: the bias of the tile's first column */
    int32_t *position, *lo, *hi;
    uint16_t *half_q, *half_k, *half_v, *half_weights;
    int32_t d32; /* head_dim in whole 32s */
};

struct item {
    int32_t seq, kv_head, head0, heads; /* first query head and how many */
    int32_t row0, rows;                 /* query rows of the step */
    int64_t begin, end;                 /* tokens any of the rows sees */
    int32_t chunk;                      /* tokens */
    bool half;
};

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += size_round_up(bytes, 64);
    return here;
}

/* Lay out the scratch; base NULL: only measure. */
static size_t walk_scratch(struct walk *w, char *base)
{
    const struct attention_params *p = w->p;
    size_t at = 0, few = ATTENTION_ROWS, ld = (size_t)w->ld, d = (size_t)p->head_dim;
    size_t rows = w->half ? (size_t)w->half_rows : few;
#define PLACE(field, count)                                   \
    do {                                                      \
        size_t here = carve(&at, (count) * sizeof *w->field); \
        if (base) w->field = (void *)(base + here);           \
    } while (0)
    PLACE(q, few * d);
    PLACE(kt, d * ATTENTION_TILE);
    PLACE(v, ATTENTION_TILE * ld);
    PLACE(scores, few * ATTENTION_TILE);
    PLACE(acc, rows * ld);
    PLACE(total, rows * ld);
    PLACE(m, rows);
    PLACE(lanes, rows * ATTENTION_LANES);
    PLACE(l, rows);
    PLACE(total_m, rows);
    PLACE(total_l, rows);
    PLACE(slopes, rows);
    PLACE(relative, rows);
    PLACE(position, rows);
    PLACE(lo, rows);
    PLACE(hi, rows);
    if (w->half) {
        PLACE(half_q, rows * (size_t)w->d32);
        PLACE(half_k, ATTENTION_PANEL * (size_t)w->d32);
        PLACE(half_v, ATTENTION_PANEL * ld);
        PLACE(half_weights, 2 * ATTENTION_HALF_SUB * ATTENTION_TILE);
    }
#undef PLACE
    return at;
}

/* bfloat16 products, where the cache is no more exact than that by much and the machine has them; float32
 * multiply-adds are faster than AVX512-BF16 on the machines that have AMX too. */
static const struct attention_half_kernels *half_of(const struct attention_params *p)
{
    if (p->deterministic || p->relative || p->cache_dtype == DTYPE_F32) return NULL;
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AMX) return &attention_half_amx;
    if (cpu_isa() == CPU_ISA_AVX512 && !cpu_isa_available(CPU_ISA_AMX) &&
        __builtin_cpu_supports("avx512bf16"))
        return &attention_half_bf16;
#endif
    return NULL;
}

static struct walk walk_of(const struct attention_kernels *f, const struct attention_params *p, int32_t seqs)
{
    struct walk w = {.f = f, .p = p, .seqs = seqs, .group = p->heads / p->kv_heads, .half = half_of(p)};
    w.d32 = (p->head_dim + 31) / 32 * 32;
    w.ld = (p->value_dim + 15) / 16 * 16;
    w.part_heads = w.group < ATTENTION_ROWS ? w.group : ATTENTION_ROWS;
    w.parts = (w.group + w.part_heads - 1) / w.part_heads;
    w.half_rows = ATTENTION_HALF_WORK / ROSE_MAX(w.d32, w.ld) / ATTENTION_HALF_SUB * ATTENTION_HALF_SUB;
    w.tile_rows = (w.half ? w.half_rows : ATTENTION_ROWS) / w.part_heads;
    w.seq_rows = p->seq_rows;
    w.seq_length = p->seq_length;
    w.page_table = p->page_table;
    if (!p->bidirectional)
        w.layout = kv_layout_make((enum dtype)p->cache_dtype, p->page_tokens, (size_t)p->page_bytes, p->layer,
                                  p->kv_heads, p->head_dim, p->value_dim);
    return w;
}

size_t attention_scratch(const struct attention_params *p)
{
    struct walk w = walk_of(NULL, p, 0);
    return walk_scratch(&w, NULL);
}

int32_t attention_partial_rows(const struct attention_params *p, int64_t max_length)
{
    int64_t each = (int64_t)p->heads * (max_length / ATTENTION_CHUNK + 2); /* of one query row */
    return (int32_t)ROSE_MIN(ROSE_MAX(2 * each, ROSE_MIN(16 * each, 1 << 14)), 1 << 16);
}

/* Tokens of the sequence that query row i of it (0-based) sees. */
static void row_sees(const struct walk *w, int32_t seq, int32_t i, int64_t *begin, int64_t *end,
                     int64_t *position)
{
    const struct attention_params *p = w->p;
    int32_t n = w->seq_rows[seq + 1] - w->seq_rows[seq];
    if (p->bidirectional) {
        int32_t half = p->window / 2;
        *position = i;
        if (p->causal) {
            *begin = p->window && i >= p->window ? i - p->window + 1 : 0;
            *end = i + 1;
            return;
        }
        *begin = p->window && i > half ? i - half : 0;
        *end = p->window && i + (int64_t)half + 1 < n ? i + (int64_t)half + 1 : n;
        return;
    }
    int64_t at = (int64_t)w->seq_length[seq] - n + i;
    *position = at;
    *begin = p->window && at >= p->window ? at - p->window + 1 : 0;
    *end = at + 1 > 0 ? at + 1 : 0;
}

static int64_t seq_tiles(const struct walk *w, int32_t seq)
{
    int32_t n = w->seq_rows[seq + 1] - w->seq_rows[seq];
    return n <= w->tile_rows ? n > 0 : (n + w->tile_rows - 1) / w->tile_rows;
}

static struct item item_of(const struct walk *w, int32_t seq, int64_t index)
{
    int64_t units = (int64_t)w->p->kv_heads * w->parts, tile = index < units ? 0 : index / units;
    int32_t unit = (int32_t)(index - tile * units), part = w->parts == 1 ? 0 : unit % w->parts;
    int32_t first = (int32_t)tile * w->tile_rows, n = w->seq_rows[seq + 1] - w->seq_rows[seq];
    struct item it = {.seq = seq, .kv_head = w->parts == 1 ? unit : unit / w->parts};
    it.head0 = it.kv_head * w->group + part * w->part_heads;
    it.heads = ROSE_MIN(w->part_heads, w->group - part * w->part_heads);
    it.row0 = w->seq_rows[seq] + first;
    it.rows = ROSE_MIN(w->tile_rows, n - first);
    int64_t position, unused;
    row_sees(w, seq, first, &it.begin, &unused, &position);
    row_sees(w, seq, first + it.rows - 1, &unused, &it.end, &position);
    bool own = w->p->bidirectional, piece = !own && n >= ATTENTION_HALF_ROWS && w->seq_length[seq] > ATTENTION_CHUNK;
    int64_t pairs = (int64_t)n * w->part_heads;
    it.half = w->half && pairs >= (own ? ATTENTION_HALF_OWN_LEAST : piece ? ATTENTION_HALF_PIECE_LEAST : ATTENTION_HALF_LEAST);
    it.chunk = it.half && pairs > ATTENTION_ROWS ? ATTENTION_HALF_CHUNK : ATTENTION_CHUNK;
    return it;
}

static int64_t item_chunks(const struct item *it)
{
    if (it->end <= it->begin) return 1;
    if (it->end <= it->chunk) return 1;
    return (it->end - 1) / it->chunk - it->begin / it->chunk + 1;
}

static void reset(float *m, float *l, float *acc, size_t rows, size_t ld)
{
    for (size_t r = 0; r < rows; r++) {
        m[r] = -INFINITY;
        l[r] = 0;
    }
    memset(acc, 0, rows * ld * sizeof(float));
}

/* The item's query rows, scaled, side by side: row-major (query row, head); in half_q or in q. */
static void item_queries(const struct walk *w, const struct item *it)
{
    const struct attention_params *p = w->p;
    int32_t d = p->head_dim;
    float *out = w->q;
    uint16_t *half_out = w->half_q;
    float scale = p->softcap != 0 ? p->scale / p->softcap : p->scale * LOG2_E;
    for (int32_t i = 0; i < it->rows; i++) {
        const float *row =
            (const float *)p->q + (int64_t)(it->row0 + i) * p->q_stride + (int64_t)it->head0 * d;
        for (int32_t h = 0; h < it->heads; h++) {
            if (p->alibi) w->slopes[i * it->heads + h] = ((const float *)p->alibi)[it->head0 + h] * LOG2_E;
            if (it->half) {
                w->half->query(row + (int64_t)h * d, scale, d, w->d32, half_out);
                half_out += w->d32;
                continue;
            }
            w->f->scale(row + (int64_t)h * d, scale, d, out);
            out += d;
        }
    }
}

/* The block of 16 tokens that holds `token`, NULL when its page is gone. */
static const uint8_t *block_of(const struct walk *w, const struct item *it, int64_t token)
{
    uint32_t at = (uint32_t)token, index = at / (uint32_t)w->p->page_tokens;
    int32_t page = w->page_table[(int64_t)it->seq * w->p->table_stride + index];
    if (page < 0) return NULL;
    return (const uint8_t *)w->p->pool +
           kv_layout_at(&w->layout, page, it->kv_head, (int32_t)(at - index * (uint32_t)w->p->page_tokens));
}

/* Addresses of the blocks of columns [begin, end); false when one is gone. */
static bool tile_blocks(const struct walk *w, const struct item *it, int64_t t0, int32_t begin, int32_t end,
                        const uint8_t *blocks[ATTENTION_TILE / KV_BLOCK])
{
    if (w->p->page_tokens % ATTENTION_TILE == 0) { /* one page has them all, side by side */
        const uint8_t *first = block_of(w, it, t0);
        for (int32_t b = 0; b < ATTENTION_TILE / KV_BLOCK; b++)
            blocks[b] = first + (first ? (size_t)b * w->layout.block_bytes : 0);
        return first != NULL;
    }
    for (int32_t b = begin / KV_BLOCK; b * KV_BLOCK < end; b++)
        if (!(blocks[b] = block_of(w, it, t0 + b * KV_BLOCK))) return false;
    return true;
}

/* Ask for the first lines of the blocks of the tile at t0: a block is about one page of memory, in which the
 * processor's own prefetcher finds the rest once it has seen a few. */
static void tile_ask(const struct walk *w, const struct item *it, int64_t t0)
{
    enum { LINES = 6 };
    if (w->p->bidirectional) return;
    for (int64_t t = ROSE_MAX(t0, it->begin / KV_BLOCK * KV_BLOCK);
         t < ROSE_MIN(it->end, t0 + ATTENTION_TILE); t += KV_BLOCK) {
        const uint8_t *block = block_of(w, it, t);
        for (int i = 0; block && i < LINES; i++) __builtin_prefetch(block + 64 * i, 0, 2);
    }
}

/* Load columns [begin, end) of the tile that starts at token t0. Blocks of pages that are gone clear their
 * bit. */
static uint32_t tile_load(const struct walk *w, const struct item *it, int64_t t0, int32_t begin, int32_t end)
{
    const struct attention_params *p = w->p;
    uint32_t present = 0;
    for (int32_t b = begin / KV_BLOCK; b * KV_BLOCK < end; b++) {
        int32_t c0 = b * KV_BLOCK, lo = begin > c0 ? begin - c0 : 0, hi = ROSE_MIN(end - c0, KV_BLOCK);
        float *v = w->v + (size_t)c0 * (size_t)w->ld;
        if (p->bidirectional) {
            int64_t row = w->seq_rows[it->seq] + t0 + c0;
            const float *k = (const float *)p->k + row * p->k_stride + (int64_t)it->kv_head * p->head_dim;
            w->f->transpose(k, p->k_stride, hi, p->head_dim, w->kt + c0, ATTENTION_TILE);
            const float *src = (const float *)p->v + row * p->v_stride + (int64_t)it->kv_head * p->value_dim;
            for (int32_t t = lo; t < hi; t++)
                memcpy(v + (size_t)t * (size_t)w->ld, src + t * p->v_stride,
                       (size_t)p->value_dim * sizeof(float));
            present |= 1u << b;
            continue;
        }
        const uint8_t *block = block_of(w, it, t0 + c0);
        if (!block) {
            memset(v, 0, KV_BLOCK * (size_t)w->ld * sizeof(float));
            continue;
        }
        w->f->kv->load_k(w->layout.dtype, block, p->head_dim, w->kt + c0, ATTENTION_TILE);
        w->f->kv->load_v(w->layout.dtype, block + w->layout.value_offset, p->value_dim, lo, hi, v, w->ld);
        present |= 1u << b;
    }
    return present;
}

/* Which columns of the tile at t0 each row sees, and all of them together; false: none. */
static bool tile_range(const struct walk *w, const struct item *it, int64_t t0, int32_t *begin, int32_t *end)
{
    int64_t first_end, last_begin, unused, rows = (int64_t)it->rows * it->heads;
    int32_t first = it->row0 - w->seq_rows[it->seq];
    row_sees(w, it->seq, first, &unused, &first_end, &unused);
    row_sees(w, it->seq, first + it->rows - 1, &last_begin, &unused, &unused);
    *begin = ATTENTION_TILE, *end = 0;
    if (t0 >= last_begin && t0 + ATTENTION_TILE <= first_end && !w->p->alibi && !w->p->relative) { /* all rows see all of it */
        for (int64_t r = 0; r < rows; r++) w->lo[r] = 0, w->hi[r] = ATTENTION_TILE;
        *begin = 0, *end = ATTENTION_TILE;
        return true;
    }
    for (int32_t i = 0; i < it->rows; i++) {
        int64_t lo, hi, at;
        row_sees(w, it->seq, it->row0 - w->seq_rows[it->seq] + i, &lo, &hi, &at);
        int32_t a = (int32_t)ROSE_MAX(lo - t0, 0),
                b = (int32_t)ROSE_MAX(ROSE_MIN(hi - t0, ATTENTION_TILE), 0);
        for (int32_t h = 0; h < it->heads; h++) {
            int32_t r = i * it->heads + h;
            w->lo[r] = a, w->hi[r] = b, w->position[r] = (int32_t)(at - t0);
            if (w->p->relative) /* column 0 lies t0 - at from the query */
                w->relative[r] = (const float *)w->p->relative + (int64_t)(it->head0 + h) * (2 * w->p->relative_reach + 1 + 64) +
                                 w->p->relative_reach + (t0 - at);
        }
        if (a < b) *begin = ROSE_MIN(*begin, a), *end = ROSE_MAX(*end, b);
    }
    return *begin < *end;
}

/* Scores of blocks [b0, b1) whose page is gone. */
static void tile_hide(const struct walk *w, int32_t rows, int32_t b0, int32_t b1, uint32_t present)
{
    for (int32_t b = b0; b < b1; b++) {
        if (present >> b & 1) continue;
        for (int32_t r = 0; r < rows; r++)
            for (int32_t c = 0; c < KV_BLOCK; c++)
                w->scores[r * ATTENTION_TILE + b * KV_BLOCK + c] = -INFINITY;
    }
}

/* A panel: packed tokens [begin, end) from the whole tile of token `base` on. */
struct panel {
    int64_t base, begin, end;
    uint64_t present[ATTENTION_PANEL / ATTENTION_TILE]; /* columns of blocks whose page is there */
    bool whole;                                         /* all are */
};

/* Values of tokens outside, and of pages that are gone, become zero; keys there do not matter. */
static void panel_load(const struct walk *w, const struct item *it, int64_t begin, int64_t end,
                       struct panel *n)
{
    const struct attention_params *p = w->p;
    *n = (struct panel){begin / ATTENTION_TILE * ATTENTION_TILE, begin, end, {0}, true};
    int32_t columns = (int32_t)size_round_up((size_t)(end - n->base), ATTENTION_TILE);
    for (int32_t c0 = 0; c0 < columns; c0 += KV_BLOCK) {
        int64_t t = n->base + c0;
        uint16_t *v = w->half_v + (size_t)c0 * (size_t)w->ld;
        bool wanted = t + KV_BLOCK > begin && t < end;
        if (wanted && p->bidirectional) {
            int64_t row = w->seq_rows[it->seq] + t;
            int32_t lo = (int32_t)ROSE_MAX(begin - t, 0), hi = (int32_t)ROSE_MIN(end - t, KV_BLOCK);
            w->half->own_k((const float *)p->k + row * p->k_stride + (int64_t)it->kv_head * p->head_dim, p->k_stride, hi, p->head_dim, w->d32,
                           w->half_k + (size_t)c0 * (size_t)w->d32);
            w->half->own_v((const float *)p->v + row * p->v_stride + (int64_t)it->kv_head * p->value_dim, p->v_stride, p->value_dim, lo, hi, v, w->ld);
            n->present[c0 / ATTENTION_TILE] |= (uint64_t)0xFFFF << c0 % ATTENTION_TILE;
            continue;
        }
        const uint8_t *block = wanted ? block_of(w, it, t) : NULL;
        if (!block) {
            if (wanted) n->whole = false;
            memset(v, 0, KV_BLOCK * (size_t)w->ld * sizeof *v);
            continue;
        }
        w->half->load_k(w->layout.dtype, block, p->head_dim, w->d32, w->half_k + (size_t)c0 * (size_t)w->d32);
        w->half->load_v(w->layout.dtype, block + w->layout.value_offset, p->value_dim,
                        (int32_t)ROSE_MAX(begin - t, 0), (int32_t)ROSE_MIN(end - t, KV_BLOCK), v, w->ld);
        n->present[c0 / ATTENTION_TILE] |= (uint64_t)0xFFFF << c0 % ATTENTION_TILE;
    }
}

/* Rows [r0, r0 + rows) of the item over the panel. */
static void panel_rows(const struct walk *w, const struct item *it, int32_t r0, int32_t rows,
                       const struct panel *n)
{
    int32_t first = it->row0 - w->seq_rows[it->seq], i = r0 / it->heads, head = r0 % it->heads;
    int64_t lo, hi, position, top_lo = 0, low_hi = 0;
    for (int32_t r = 0; r < rows; i++, head = 0) {
        row_sees(w, it->seq, first + i, &lo, &hi, &position);
        lo = ROSE_MAX(lo, n->begin), hi = ROSE_MIN(hi, n->end);
        if (r == 0) low_hi = hi;
        top_lo = lo;
        for (; head < it->heads && r < rows; head++, r++) {
            w->lo[r] = (int32_t)(lo - n->base);
            w->hi[r] = (int32_t)(hi - n->base);
            w->position[r] = (int32_t)(position - n->base);
        }
    }
    struct attention_pass pass = {.q = w->half_q + (size_t)r0 * (size_t)w->d32,
                                  .k = w->half_k,
                                  .v = w->half_v,
                                  .scores = w->scores,
                                  .weights = w->half_weights,
                                  .acc = w->acc + (size_t)r0 * (size_t)w->ld,
                                  .maximum = w->m + r0,
                                  .sum = w->lanes + (size_t)r0 * ATTENTION_LANES,
                                  .lo = w->lo,
                                  .hi = w->hi,
                                  .position = w->position,
                                  .slopes = w->p->alibi ? w->slopes + r0 : NULL,
                                  .present = n->present,
                                  .softcap = w->p->softcap * LOG2_E,
                                  .rows = rows,
                                  .d32 = w->d32,
                                  .ld = w->ld};
    if (w->lo[0] >= w->hi[rows - 1]) return; /* limits grow from row to row */
    pass.tile0 = w->lo[0] / ATTENTION_TILE;
    pass.tile1 = (w->hi[rows - 1] + ATTENTION_TILE - 1) / ATTENTION_TILE;
    if (n->whole && !pass.slopes && pass.softcap == 0 && low_hi > n->base) {
        pass.plain0 = (int32_t)((top_lo - n->base + ATTENTION_TILE - 1) / ATTENTION_TILE);
        pass.plain1 = (int32_t)((low_hi - n->base) / ATTENTION_TILE);
    }
    w->half->pass(&pass);
}

/* Tokens [begin, end) for all rows of the item. */
static void panels_run(const struct walk *w, const struct item *it, int64_t begin, int64_t end)
{
    int32_t rows = it->rows * it->heads;
    struct panel panel;
    w->half->begin();
    for (; begin < end; begin = panel.end) {
        panel_load(w, it, begin, ROSE_MIN(end, begin / ATTENTION_PANEL * ATTENTION_PANEL + ATTENTION_PANEL),
                   &panel);
        for (int32_t r = 0; r < rows; r += ATTENTION_HALF_SUB)
            panel_rows(w, it, r, ROSE_MIN(ATTENTION_HALF_SUB, rows - r), &panel);
    }
    w->half->end();
}

static void tile_run(const struct walk *w, const struct item *it, int64_t t0)
{
    const struct attention_params *p = w->p;
    int32_t rows = it->rows * it->heads, begin, end;
    if (!tile_range(w, it, t0, &begin, &end)) return;
    bool direct = false;
    const uint8_t *blocks[ATTENTION_TILE / KV_BLOCK];
    if (rows <= ATTENTION_DIRECT_ROWS && w->f->direct_scores && !p->bidirectional && p->value_dim % 16 == 0)
        direct = tile_blocks(w, it, t0, begin, end, blocks);
    uint32_t present = direct ? ~0u : tile_load(w, it, t0, begin, end);
    int32_t b0 = begin / KV_BLOCK, b1 = (end + KV_BLOCK - 1) / KV_BLOCK, c0 = b0 * KV_BLOCK;
    struct attention_softmax s = {.scores = w->scores,
                                  .acc = w->acc,
                                  .maximum = w->m,
                                  .sum = w->lanes,
                                  .lo = w->lo,
                                  .hi = w->hi,
                                  .slopes = p->alibi ? w->slopes : NULL,
                                  .relative = p->relative ? w->relative : NULL,
                                  .position = w->position,
                                  .softcap = p->softcap * LOG2_E,
                                  .rows = rows,
                                  .acc_ld = w->ld,
                                  .columns = end};
    if (direct) tile_ask(w, it, t0 + ATTENTION_TILE);
    if (direct)
        w->f->direct_scores(w->layout.dtype, w->q, rows, blocks, b0, b1, p->head_dim, w->scores);
    else
        w->f->product(w->q, p->head_dim, w->kt + c0, ATTENTION_TILE, w->scores + c0, ATTENTION_TILE, rows,
                      p->head_dim, (b1 - b0) * KV_BLOCK, false);
    tile_hide(w, rows, b0, b1, present);
    w->f->softmax(&s);
    if (direct) {
        for (int32_t b = b0; b < b1; b++) blocks[b] += w->layout.value_offset;
        w->f->direct_values(w->layout.dtype, w->scores, rows, blocks, begin, end, p->value_dim, w->acc,
                            w->ld);
        return;
    }
    w->f->product(w->scores + begin, ATTENTION_TILE, w->v + (size_t)begin * (size_t)w->ld, w->ld, w->acc,
                  w->ld, rows, end - begin, w->ld, true);
}

/* Chunk c of the item (absolute) into w->m, l, acc. */
static void chunk_run(const struct walk *w, const struct item *it, int64_t c)
{
    size_t rows = (size_t)(it->rows * it->heads);
    reset(w->m, w->l, w->acc, rows, (size_t)w->ld);
    memset(w->lanes, 0, rows * ATTENTION_LANES * sizeof *w->lanes);
    int64_t begin = ROSE_MAX(it->begin, c * it->chunk), end = ROSE_MIN(it->end, (c + 1) * it->chunk);
    if (it->half)
        panels_run(w, it, begin, end);
    else
        for (int64_t t0 = begin / ATTENTION_TILE * ATTENTION_TILE; t0 < end; t0 += ATTENTION_TILE)
            tile_run(w, it, t0);
    w->f->sums(w->lanes, (int32_t)rows, w->l);
}

/* The rows' results from their maxima m, sums l and weighted values acc. */
static void item_finish(const struct walk *w, const struct item *it, const float *m, const float *l,
                        const float *acc)
{
    const struct attention_params *p = w->p;
    for (int32_t i = 0; i < it->rows; i++)
        for (int32_t h = 0; h < it->heads; h++) {
            int32_t r = i * it->heads + h, head = it->head0 + h;
            float *y = (float *)p->y + (int64_t)(it->row0 + i) * p->y_stride + (int64_t)head * p->value_dim;
            w->f->finish(y, m[r], l[r], acc + (size_t)r * (size_t)w->ld, p->value_dim,
                         p->sinks ? (const float *)p->sinks + head : NULL);
        }
}

static void item_run(const struct walk *w, const struct item *it)
{
    size_t rows = (size_t)(it->rows * it->heads), ld = (size_t)w->ld;
    item_queries(w, it);
    int64_t first = it->begin / it->chunk, chunks = item_chunks(it);
    if (chunks == 1) {
        chunk_run(w, it, first);
        item_finish(w, it, w->m, w->l, w->acc);
        return;
    }
    reset(w->total_m, w->total_l, w->total, rows, ld);
    for (int64_t c = first; c < first + chunks; c++) {
        chunk_run(w, it, c);
        for (size_t r = 0; r < rows; r++)
            w->f->merge(&w->total_m[r], &w->total_l[r], w->total + r * ld, w->m[r], w->l[r], w->acc + r * ld,
                        w->p->value_dim);
    }
    item_finish(w, it, w->total_m, w->total_l, w->total);
}

/* Split: unit u is a chunk of an item; units of items follow each other. Each has a slot of unit_rows rows of
 * partial. */
struct split {
    int64_t units, items;
    int32_t unit_rows;
};

static struct split split_plan(const struct walk *w)
{
    struct split s = {0, 0, 0};
    for (int32_t seq = 0; seq < w->seqs; seq++) {
        int64_t items = seq_tiles(w, seq) * w->p->kv_heads * w->parts;
        for (int64_t i = 0; i < items; i++) {
            struct item it = item_of(w, seq, i);
            s.units += item_chunks(&it);
            s.unit_rows = ROSE_MAX(s.unit_rows, it.rows * it.heads);
        }
        s.items += items;
    }
    return s;
}

static float *partial_slot(const struct walk *w, const struct split *s, int64_t unit)
{
    return (float *)w->p->partial + unit * s->unit_rows * (w->p->value_dim + 2);
}

/* Find the item that unit u (by_unit) or item u belongs to; *offset: chunk in the item; *unit0: the item's
 * first unit. */
static struct item split_find(const struct walk *w, int64_t u, bool by_unit, int64_t *offset, int64_t *unit0)
{
    int64_t at = 0, unit = 0;
    for (int32_t seq = 0; seq < w->seqs; seq++) {
        int64_t items = seq_tiles(w, seq) * w->p->kv_heads * w->parts;
        for (int64_t i = 0; i < items; i++) {
            struct item it = item_of(w, seq, i);
            int64_t chunks = item_chunks(&it), size = by_unit ? chunks : 1;
            if (u < at + size) {
                *offset = u - at;
                *unit0 = unit;
                return it;
            }
            at += size;
            unit += chunks;
        }
    }
    *offset = *unit0 = 0;
    return (struct item){0};
}

static void split_run(struct walk *w, const struct split *s, struct worker *worker)
{
    size_t begin, end, ld = (size_t)w->ld;
    int32_t e = w->p->value_dim;
    while (worker_next(worker, (size_t)s->units, 1, &begin, &end)) {
        int64_t offset, unit0;
        struct item it = split_find(w, (int64_t)begin, true, &offset, &unit0);
        item_queries(w, &it);
        chunk_run(w, &it, it.begin / it.chunk + offset);
        float *slot = partial_slot(w, s, (int64_t)begin);
        for (int32_t r = 0; r < it.rows * it.heads; r++, slot += e + 2) {
            memcpy(slot, w->acc + (size_t)r * ld, (size_t)e * sizeof(float));
            slot[e] = w->m[r], slot[e + 1] = w->l[r];
        }
    }
    worker_barrier(worker);
    while (worker_next(worker, (size_t)s->items, 1, &begin, &end)) {
        int64_t offset, unit0;
        struct item it = split_find(w, (int64_t)begin, false, &offset, &unit0);
        int32_t rows = it.rows * it.heads;
        reset(w->total_m, w->total_l, w->total, (size_t)rows, ld);
        for (int64_t c = 0; c < item_chunks(&it); c++) {
            const float *slot = partial_slot(w, s, unit0 + c);
            for (int32_t r = 0; r < rows; r++, slot += e + 2)
                w->f->merge(&w->total_m[r], &w->total_l[r], w->total + (size_t)r * ld, slot[e], slot[e + 1],
                            slot, e);
        }
        item_finish(w, &it, w->total_m, w->total_l, w->total);
    }
}

/* A handful of items for every worker balances well enough without a split. */
static bool split_wanted(const struct walk *w, int64_t items, const struct worker *worker, struct split *s)
{
    if (worker->count == 1 || items >= 4 * (int64_t)worker->count) return false;
    *s = split_plan(w);
    return s->units > s->items && s->units * s->unit_rows <= w->p->partial_rows;
}

/* Items of the step. In bfloat16 they get shorter until there are a few for every worker; that changes no
 * bits. */
static int64_t items_of(struct walk *w, const struct worker *worker)
{
    for (;;) {
        int64_t items = 0;
        for (int32_t s = 0; s < w->seqs; s++) items += seq_tiles(w, s) * w->p->kv_heads * w->parts;
        if (!w->half || worker->count == 1 || items >= 6 * (int64_t)worker->count ||
            w->tile_rows * w->part_heads <= 2 * ATTENTION_HALF_SUB)
            return items;
        w->tile_rows = (w->tile_rows + 1) / 2;
    }
}

enum { ATTENTION_OWN_GRAIN = 2 }; /* rows: the products' grain (matmul.c) */

/* Items one by one. Backwards: the last tiles of a prefill see the most tokens. */
struct queue {
    const struct walk *w;
    struct worker *worker;
    int64_t total, base; /* items; items of the sequences before seq (owned: of its own items, how many are taken) */
    int64_t next, end;   /* items taken together and not given out yet */
    int32_t seq;
    bool owned;
};

/* Items over own rows may be tiny (a head of a short text): the heads of a sequence, whose rows share lines, are taken together where enough
 * others are left to even out. */
static size_t queue_grain(const struct queue *q)
{
    int64_t units = (int64_t)q->w->p->kv_heads * q->w->parts, each = q->total / (8 * (int64_t)q->worker->count);
    return q->w->p->bidirectional && each > 1 ? (size_t)ROSE_MIN(units, each) : 1;
}

/* A batch of decode rows of like lengths: seven eighths of the items of its own rows (as the products before and behind share them) are a
 * worker's at once, so that queries, results and the newest keys stay in its core's cache; the rest goes to who comes first. */
static bool owned_wanted(const struct walk *w, int64_t total, const struct worker *worker)
{
    int64_t units = (int64_t)w->p->kv_heads * w->parts, sum = 0, most = 0;
    if (worker->count == 1 || w->seqs < 4 * worker->count || total != w->seqs * units || w->p->bidirectional) return false;
    if (w->seq_rows[w->seqs] != w->seqs) return false; /* not one row each */
    for (int32_t s = 0; s < w->seqs; s++) {
        sum += w->seq_length[s];
        most = ROSE_MAX(most, w->seq_length[s]);
    }
    return most * w->seqs <= 2 * sum;
}

static void owned_range(const struct walk *w, const struct worker *worker, int index, int64_t *begin, int64_t *fixed, int64_t *end)
{
    size_t from, to;
    struct worker of = *worker;
    of.index = index;
    worker_range(&of, (size_t)w->seqs, ATTENTION_OWN_GRAIN, &from, &to);
    int64_t units = (int64_t)w->p->kv_heads * w->parts;
    *begin = (int64_t)from * units, *end = (int64_t)to * units;
    *fixed = *end - (*end - *begin) / 8;
}

static bool owned_take(struct queue *q, struct item *it)
{
    int64_t units = (int64_t)q->w->p->kv_heads * q->w->parts, begin, fixed, end, u = -1;
    size_t at, unused, count = (size_t)q->worker->count, rest = ((size_t)q->total / count + (size_t)units * ATTENTION_OWN_GRAIN) / 8 + 1;
    owned_range(q->w, q->worker, q->worker->index, &begin, &fixed, &end);
    if (begin + q->base < fixed) u = begin + q->base++;
    while (u < 0 && worker_next(q->worker, rest * count, 1, &at, &unused)) {
        owned_range(q->w, q->worker, (int)(at % count), &begin, &fixed, &end);
        if (fixed + (int64_t)(at / count) < end) u = fixed + (int64_t)(at / count);
    }
    if (u >= 0) *it = item_of(q->w, (int32_t)(u / units), u % units);
    return u >= 0;
}

static bool queue_take(struct queue *q, struct item *it)
{
    size_t begin, end;
    if (q->owned) return owned_take(q, it);
    if (q->next == q->end) {
        if (!worker_next(q->worker, (size_t)q->total, queue_grain(q), &begin, &end)) return false;
        q->next = (int64_t)begin, q->end = (int64_t)end;
    }
    int64_t u = q->total - 1 - q->next++;
    while (u < q->base) q->base -= seq_tiles(q->w, --q->seq) * q->w->p->kv_heads * q->w->parts;
    *it = item_of(q->w, q->seq, u - q->base);
    return true;
}

void attention_driver_run(const struct attention_kernels *kernels, const struct attention_params *p,
                          const struct extents *extents, struct worker *worker)
{
    struct walk w = walk_of(kernels, p, extents->n[EXTENT_SEQS]);
    walk_scratch(&w, worker->scratch);
    int64_t total = items_of(&w, worker);
    struct split split;
    if (split_wanted(&w, total, worker, &split)) {
        split_run(&w, &split, worker);
        return;
    }
    bool owned = owned_wanted(&w, total, worker);
    struct queue queue = {.w = &w, .worker = worker, .total = total, .base = owned ? 0 : total, .seq = w.seqs, .owned = owned};
    struct item it, next;
    for (bool more = queue_take(&queue, &it); more; it = next) {
        bool ahead = it.rows * it.heads <= ATTENTION_DIRECT_ROWS;
        if (ahead) { /* short: while it runs the next one's memory comes nearer */
            more = queue_take(&queue, &next);
            if (more && !next.half) tile_ask(&w, &next, next.begin / ATTENTION_TILE * ATTENTION_TILE);
        }
        item_run(&w, &it);
        if (!ahead) more = queue_take(&queue, &next);
    }
}

attention_kernel *attention_cpu(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AVX512) return attention_avx512;
    if (cpu_isa() >= CPU_ISA_AVX2) return attention_avx2;
#endif
    return attention_portable;
}
