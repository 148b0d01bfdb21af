/* QK-norm, rotation and the page write (qk_rows.cu) inside attention_split, of steps in which every sequence has one row.
 *
 * Queries turn where they are held, as fragments of the scores' product: a lane has elements 16 k + 2 c + {0, 1, 8, 9} of a row
 * (c = lane % 4), so those that turn together, HD / 2 = 8 * (HD / 16) apart, lie HD / 16 halves of a register k away in the same lane, and a
 * row's squares in four lanes. The step's own key and value are put into the stage, and into their page, by the warp that computes their 16 tokens; the
 * loading warps leave zeros there. A lane has elements 2 j, 2 j + 1 and those HD / 2 behind, j = lane, lane + 32, ... < HD / 4.
 *
 * What does not depend on the predecessor (angles, weights) is ready before it has ended.
 *
 * Constants: QK_NORM 0/1 (EPS, OFFSET), QK_ROPE 0/1 (whole heads, the half layout), ROPE_SCALE. Positions are length - 1. */
#ifndef ROSE_CUDA_ATTENTION_QK_CUH
#define ROSE_CUDA_ATTENTION_QK_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/common/trig.cuh"

#define QK_HALVES (HD / 16)             /* halves of k steps (8 elements) that turn with those QK_HALVES behind */
#define QK_TURNS ((QK_HALVES + 1) / 2)  /* k steps that have such */
#define QK_OWN ((HD / 4 + 31) / 32)     /* pairs of pairs of the key that a lane has */

struct attention_qk {
    float weight[HD / 16][4], cosine[QK_TURNS][4], sine[QK_TURNS][4];          /* of queries */
    float key_weight[QK_OWN][4], key_cosine[QK_OWN][2], key_sine[QK_OWN][2];   /* of the own key */
    uint32_t key[QK_OWN][2], value[QK_OWN][2];
    char *page; /* where the own key goes; NULL: nowhere */
};

DEVICE void attention_qk_angle(float position, float inv_freq, float *cosine, float *sine)
{
    sincos_approx(position * inv_freq, sine, cosine);
    *cosine *= ROPE_SCALE, *sine *= ROPE_SCALE;
}

/* Weights, which are the same for every sequence. */
DEVICE void attention_qk_weights(const struct attention_tile_params *p, struct attention_qk *s)
{
    const uint32_t c = lane_id() % 4 * 2;
    if (!QK_NORM) return;
    UNROLL for (int k = 0; k < HD / 16; k++)
        UNROLL for (int h = 0; h < 2; h++)
        {
            const u32x2 w = ld8_keep((const float *)p->q_norm + k * 16 + h * 8 + c);
            s->weight[k][2 * h] = OFFSET + f32_from_bits(w.v[0]), s->weight[k][2 * h + 1] = OFFSET + f32_from_bits(w.v[1]);
        }
    UNROLL for (int i = 0; i < QK_OWN; i++)
        UNROLL for (int h = 0; h < 2; h++)
        {
            const uint32_t j = lane_id() + i * 32;
            if (j >= HD / 4) continue;
            const u32x2 w = ld8_keep((const float *)p->k_norm + h * (HD / 2) + j * 2);
            s->key_weight[i][2 * h] = OFFSET + f32_from_bits(w.v[0]), s->key_weight[i][2 * h + 1] = OFFSET + f32_from_bits(w.v[1]);
        }
}

/* Angles of a sequence's row. own: this warp puts its key and value. */
DEVICE void attention_qk_angles(const struct attention_tile_params *p, int32_t position, bool own, struct attention_qk *s)
{
    const uint32_t c = lane_id() % 4 * 2;
    if (!QK_ROPE) return;
    UNROLL for (int k = 0; k < QK_TURNS; k++)
        UNROLL for (int h = 0; h < 2 && 2 * k + h < QK_HALVES; h++)
        {
            const u32x2 f = ld8_keep((const float *)p->inv_freq + k * 16 + h * 8 + c);
            UNROLL for (int e = 0; e < 2; e++)
                attention_qk_angle((float)position, f32_from_bits(f.v[e]), &s->cosine[k][2 * h + e], &s->sine[k][2 * h + e]);
        }
    UNROLL for (int i = 0; i < QK_OWN; i++)
    {
        const uint32_t j = lane_id() + i * 32;
        if (!own || j >= HD / 4) continue;
        const u32x2 f = ld8_keep((const float *)p->inv_freq + j * 2);
        UNROLL for (int e = 0; e < 2; e++)
            attention_qk_angle((float)position, f32_from_bits(f.v[e]), &s->key_cosine[i][e], &s->key_sine[i][e]);
    }
}

DEVICE void attention_qk_turn(float *a, float *b, float c, float s)
{
    const float x = *a, y = *b;
    *a = fma_f32(-y, s, x * c);
    *b = fma_f32(x, s, y * c);
}

/* The fragments of a piece's query rows. */
DEVICE void attention_qk_query(const struct attention_qk *s, uint32_t q[HD / 16][4])
{
    UNROLL for (int h = 0; h < (GROUP > 8 ? 2 : 1); h++)
    {
        float f[HD / 16][4], sum = 0;
        UNROLL for (int k = 0; k < HD / 16; k++)
            UNROLL for (int e = 0; e < 4; e++)
            {
                const element2 x = as_element2(q[k][h + e / 2 * 2]);
                f[k][e] = e % 2 ? element2_hi_f32(x) : element2_lo_f32(x);
                sum = fma_f32(f[k][e], f[k][e], sum);
            }
        if (QK_NORM) {
            const float scale = rsqrt_approx(fma_f32(warp_sum_f32(sum, 4), 1.0f / HD, EPS));
            UNROLL for (int k = 0; k < HD / 16; k++)
                UNROLL for (int e = 0; e < 4; e++) f[k][e] = f[k][e] * scale * s->weight[k][e];
        }
        UNROLL for (int k = 0; QK_ROPE && k < QK_TURNS; k++)
            UNROLL for (int e = 0; e < 4 && 2 * k + e / 2 < QK_HALVES; e++)
            {
                const int with = 2 * k + e / 2 + QK_HALVES;
                attention_qk_turn(&f[k][e], &f[with / 2][with % 2 * 2 + e % 2], s->cosine[k][e], s->sine[k][e]);
            }
        UNROLL for (int k = 0; k < HD / 16; k++)
            UNROLL for (int e = 0; e < 2; e++) q[k][h + 2 * e] = f32_to_element2(f[k][2 * e], f[k][2 * e + 1]).bits;
    }
}

/* Asks for the own key and value of row `row`, and for their slot. After the wait. */
DEVICE void attention_qk_ask(const struct attention_tile_params *p, int32_t row, uint32_t kv_head, struct attention_qk *s)
{
    const element *k = (const element *)p->k + row * p->k_stride + kv_head * HD, *v = (const element *)p->v + row * p->v_stride + kv_head * HD;
    UNROLL for (int i = 0; i < QK_OWN; i++)
        UNROLL for (int h = 0; h < 2; h++)
        {
            const uint32_t j = lane_id() + i * 32;
            s->key[i][h] = s->value[i][h] = 0;
            if (j < HD / 4) s->key[i][h] = ld4(k + h * (HD / 2) + j * 2), s->value[i][h] = ld4(v + h * (HD / 2) + j * 2);
        }
    const int64_t slot = ((const int64_t *)p->kv_slot)[row];
    s->page = NULL;
    if (slot >= 0)
        s->page = (char *)p->pages + slot / PAGE_TOKENS * p->page_bytes + p->layer_offset + KV_ROWS_TOKEN(kv_head, slot % PAGE_TOKENS, PAGE_TOKENS, HD, 2);
}

/* Puts them at `to` in a stage, its value value_bytes behind, and into their page. The whole warp; a warp_sync follows here. */
DEVICE void attention_qk_put(const struct attention_qk *s, unsigned char *to, uint32_t value_bytes)
{
    float f[QK_OWN][4], sum = 0;
    UNROLL for (int i = 0; i < QK_OWN; i++)
        UNROLL for (int e = 0; e < 4; e++)
        {
            const element2 x = as_element2(s->key[i][e / 2]);
            f[i][e] = e % 2 ? element2_hi_f32(x) : element2_lo_f32(x);
            sum = fma_f32(f[i][e], f[i][e], sum);
        }
    const float scale = QK_NORM ? rsqrt_approx(fma_f32(warp_sum_f32(sum, WARP), 1.0f / HD, EPS)) : 1.0f;
    UNROLL for (int i = 0; i < QK_OWN; i++)
    {
        const uint32_t j = lane_id() + i * 32;
        if (j >= HD / 4) continue;
        UNROLL for (int e = 0; QK_NORM && e < 4; e++) f[i][e] = f[i][e] * scale * s->key_weight[i][e];
        UNROLL for (int e = 0; QK_ROPE && e < 2; e++) attention_qk_turn(&f[i][e], &f[i][2 + e], s->key_cosine[i][e], s->key_sine[i][e]);
        UNROLL for (int h = 0; h < 2; h++)
        {
            const uint32_t at = (h * (HD / 2) + j * 2) * 2, key = f32_to_element2(f[i][2 * h], f[i][2 * h + 1]).bits;
            st4(to + at, key), st4(to + value_bytes + at, s->value[i][h]);
            if (s->page) st4(s->page + at, key), st4(s->page + KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, 2) + at, s->value[i][h]);
        }
    }
    warp_sync(FULL_WARP);
}

#endif
