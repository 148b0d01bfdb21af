/* Attention tiles in bfloat16 by AMX, float32 accumulators in tiles. */
#if defined(__AVX512BF16__)
#include "kernels/cpu/amx.h"
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_half_body.h"

/* The tile unit works on its own once it has its instructions, so they are mixed into the softmax: while the
 * weights of tile j are computed, the values of tile j - 1 are added up and the scores of tile j + 1 made, in
 * steps of up to four products.
 *
 * Tile registers 0 1 / 2 3: results, two blocks of 16 rows by two of 16 columns; 4 5: left side; 6 7: right.
 */
struct steps {
    const struct attention_pass *p;
    int32_t values, scores; /* tiles in work; -1: none */
    int32_t column, depth;  /* where the next step is */
};

/* Scores of 32 columns (two token blocks), 32 dims a step. True: was the last. */
AMX_INLINE bool step_scores(struct steps *s)
{
    const struct attention_pass *p = s->p;
    bool two = p->rows > 16;
    int64_t d32 = p->d32, block = d32 * KV_BLOCK;
    const uint16_t *q = p->q + s->depth,
                   *k = p->k + (4 * s->scores + 2 * s->column) * block + s->depth * KV_BLOCK;
    if (s->depth == 0) {
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
    }
    amx_load(4, q, d32 * 2);
    amx_load(6, k, 64);
    amx_dot_bf16(0, 4, 6);
    amx_load(7, k + block, 64);
    amx_dot_bf16(1, 4, 7);
    if (two) {
        amx_load(5, q + 16 * d32, d32 * 2);
        amx_dot_bf16(2, 5, 6);
        amx_dot_bf16(3, 5, 7);
    }
    s->depth += 32;
    if (s->depth < p->d32) return false;
    float *c = p->scores + (s->scores & 1) * ATTENTION_HALF_SUB * ATTENTION_TILE + s->column * 32;
    amx_store(0, c, ATTENTION_TILE * 4);
    amx_store(1, c + 16, ATTENTION_TILE * 4);
    if (two) {
        amx_store(2, c + 16 * ATTENTION_TILE, ATTENTION_TILE * 4);
        amx_store(3, c + 16 * ATTENTION_TILE + 16, ATTENTION_TILE * 4);
    }
    s->depth = 0;
    return ++s->column == ATTENTION_TILE / 32;
}

/* Results of 32 columns (dims of the values), 32 tokens a step. */
AMX_INLINE bool step_values(struct steps *s)
{
    const struct attention_pass *p = s->p;
    int32_t x = s->column * 32;
    bool two = p->rows > 16, pair = x + 16 < p->ld;
    long ld = (long)p->ld * 4;
    float *c = p->acc + x, *c1 = c + 16 * (int64_t)p->ld;
    const uint16_t *w = p->weights + (s->values & 1) * ATTENTION_HALF_SUB * ATTENTION_TILE + s->depth;
    const uint16_t *v = p->v + ((int64_t)s->values * ATTENTION_TILE + s->depth) * p->ld + 2 * x;
    if (s->depth == 0) {
        amx_load(0, c, ld);
        if (pair) amx_load(1, c + 16, ld);
        if (two) amx_load(2, c1, ld);
        if (two && pair) amx_load(3, c1 + 16, ld);
    }
    amx_load(4, w, ATTENTION_TILE * 2);
    amx_load(6, v, ld);
    amx_dot_bf16(0, 4, 6);
    if (pair) {
        amx_load(7, v + 32, ld);
        amx_dot_bf16(1, 4, 7);
    }
    if (two) {
        amx_load(5, w + 16 * ATTENTION_TILE, ATTENTION_TILE * 2);
        amx_dot_bf16(2, 5, 6);
        if (pair) amx_dot_bf16(3, 5, 7);
    }
    s->depth += 32;
    if (s->depth < ATTENTION_TILE) return false;
    amx_store(0, c, ld);
    if (pair) amx_store(1, c + 16, ld);
    if (two) amx_store(2, c1, ld);
    if (two && pair) amx_store(3, c1 + 16, ld);
    s->depth = 0;
    return ++s->column * 32 >= p->ld;
}

/* The next n steps: values first. */
AMX_INLINE void steps_run(struct steps *s, int32_t n)
{
    for (; n > 0; n--) {
        if (s->values >= 0) {
            if (step_values(s)) s->values = -1, s->column = 0;
        } else if (s->scores >= 0) {
            if (step_scores(s)) s->scores = -1, s->column = 0;
        }
    }
}

static void amx_pass(const struct attention_pass *p)
{
    enum { GROUP = 4 }; /* rows between steps */
    const int32_t score_steps = p->d32 / 32 * (ATTENTION_TILE / 32);
    const int32_t value_steps = (p->ld + 31) / 32 * (ATTENTION_TILE / 32);
    const int32_t buffer = ATTENTION_HALF_SUB * ATTENTION_TILE;
    struct half_growth growth;
    half_growth_begin(&growth, p);
    struct steps s = {.p = p, .values = -1, .scores = p->tile0};
    steps_run(&s, score_steps);
    for (int32_t j = p->tile0; j < p->tile1; j++) {
        s.values = j > p->tile0 ? j - 1 : -1;
        s.scores = j + 1 < p->tile1 ? j + 1 : -1;
        int32_t steps = (s.values >= 0 ? value_steps : 0) + (s.scores >= 0 ? score_steps : 0), done = 0;
        for (int32_t r = 0; r < p->rows; r += GROUP) {
            int32_t end = r + GROUP < p->rows ? r + GROUP : p->rows, due = steps * end / p->rows;
            half_softmax(p, j, r, end, p->scores + (j & 1) * buffer, p->weights + (j & 1) * buffer, &growth);
            steps_run(&s, due - done);
            done = due;
        }
        half_rescale(p, &growth);
    }
    s.values = p->tile1 - 1;
    steps_run(&s, value_steps);
}

static void half_begin(void)
{
    amx_begin();
}
static void half_end(void)
{
    amx_end();
}

const struct attention_half_kernels attention_half_amx = {half_query, half_load_k, half_load_v, half_own_k, half_own_v, amx_pass, half_begin, half_end};
#else
typedef int attention_amx_unused; /* other architectures */
#endif
