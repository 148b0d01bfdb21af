/* The online softmax of a tile (Milakov & Gimelshein 2018), in three passes so that rows do not wait for each other: mask and
 * maxima of all rows; the new running maxima and what they cost; weights and sums.
 *
 * The running maximum only follows when a score exceeds it by more than SLACK: until then weights stay below 2^SLACK, which
 * float32 and bfloat16 hold as exactly as smaller ones, and the accumulators need not be scaled. What it is depends on the
 * row's own scores only. */

#define ATTENTION_SLACK 8.0f

/* Pass 1: scores of the row as the softmax sees them; returns their maximum. */
VEC_INLINE float VEC_NAME(attention_row_maximum)(const struct attention_softmax *s, int32_t r)
{
    enum { N = ATTENTION_TILE / VL };
    float *row = s->scores + r * ATTENTION_TILE;
    vf top = vset1(-INFINITY);
    if (s->softcap == 0 && !s->slopes && s->lo[r] == 0 && s->hi[r] == ATTENTION_TILE) {
        VEC_UNROLL
        for (int j = 0; j < N; j++) top = vmax(vload(row + j * VL), top);
        return vhmax(top);
    }
    vf lo = vset1((float)s->lo[r] - 0.5f), hi = vset1((float)s->hi[r] - 0.5f);
    for (int j = 0; j < N; j++) {
        vf x = vload(row + j * VL), column = viota() + vset1((float)(j * VL));
        if (s->softcap != 0) x = vtanh(x) * vset1(s->softcap);
        if (s->slopes) x = x - vset1(s->slopes[r]) * vabs(column - vset1((float)s->position[r]));
        x = vsel(vand(vlt(lo, column), vlt(column, hi)), x, vset1(-INFINITY));
        vstore(row + j * VL, x);
        top = vmax(x, top);
    }
    return vhmax(top);
}

/* weights: bfloat16 [rows, ATTENTION_TILE], or NULL: in place of the scores. */
VEC_INLINE void VEC_NAME(attention_softmax_into)(const struct attention_softmax *s, uint16_t *weights)
{
    enum { N = ATTENTION_TILE / VL };
    float top[ATTENTION_HALF_ROWS + VL], alpha[ATTENTION_HALF_ROWS + VL];
    for (int32_t r = 0; r < s->rows; r++) top[r] = VEC_NAME(attention_row_maximum)(s, r);
    for (int32_t r = 0; r < s->rows; r += VL) {
        int left = s->rows - r < VL ? s->rows - r : VL;
        vf m = vload_n(s->maximum + r, left), t = vload_n(top + r, left);
        vf next = vsel(vlt(m + vset1(ATTENTION_SLACK), t), t, m);
        /* no key seen yet: any finite number serves, every weight is 2^-inf */
        vf used = vmax(next, vset1(-1e30f));
        vstore(alpha + r, vexp2(m - used)); /* 0 before the first key */
        vstore(top + r, used);
        vstore_n(s->maximum + r, next, left);
    }
    for (int32_t r = 0; r < s->rows; r++) {
        float *row = s->scores + r * ATTENTION_TILE;
        vf m = vset1(top[r]), sum = vset1(0);
        VEC_UNROLL
        for (int j = 0; j < N; j++) {
            vf x = vexp2_of(vload(row + j * VL) - m, weights != NULL);
            sum = sum + x;
#if defined(ATTENTION_HALF_BODY)
            half_row(weights + r * ATTENTION_TILE + j * VL, x);
#else
            vstore(row + j * VL, x);
#endif
        }
        float total = vsum(sum);
        if (alpha[r] == 1.0f) {
            s->sum[r] += total;
            continue;
        }
        s->sum[r] = s->sum[r] * alpha[r] + total;
        float *acc = s->acc + (int64_t)r * s->acc_ld;
        for (int32_t j = 0; j < s->acc_ld; j += VL) vstore(acc + j, vload(acc + j) * vset1(alpha[r]));
    }
}
