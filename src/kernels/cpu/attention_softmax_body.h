/* The online softmax of a tile (Milakov & Gimelshein 2018), one row after the other.
 *
 * The running maximum only follows when a score exceeds it by more than SLACK: until then weights stay below
 * 2^SLACK, which float32 and bfloat16 hold as exactly as smaller ones, and nothing needs to be scaled. Rows
 * rarely take that branch, so the processor works on several rows at once. Whether it is taken depends on the
 * row's own scores only. */

#define ATTENTION_SLACK 8.0f

/* Soft cap, alibi and the row's own limits on the scores of vector j. */
VEC_INLINE vf VEC_NAME(attention_score)(const struct attention_softmax *s, int32_t r, int j, vf x)
{
    vf column = viota() + vset1((float)(j * VL));
    if (s->softcap != 0) x = vtanh(x) * vset1(s->softcap);
    if (s->slopes) x = x - vset1(s->slopes[r]) * vabs(column - vset1((float)s->position[r]));
    vm seen = vand(vlt(vset1((float)s->lo[r] - 0.5f), column), vlt(column, vset1((float)s->hi[r] - 0.5f)));
    return vsel(seen, x, vset1(-INFINITY));
}

/* A score left the slack: the maximum follows, what was added up so far is scaled. */
static __attribute__((noinline)) void VEC_NAME(attention_follow)(const struct attention_softmax *s, int32_t r,
                                                                 float top)
{
    float *sum = s->sum + r * ATTENTION_LANES, *acc = s->acc + (int64_t)r * s->acc_ld;
    vf alpha = vexp2(vset1(s->maximum[r]) - vset1(top)); /* 0 before the first key */
    for (int j = 0; j < ATTENTION_LANES; j += VL) vstore(sum + j, vload(sum + j) * alpha);
    for (int32_t j = 0; j < s->acc_ld; j += VL) vstore(acc + j, vload(acc + j) * alpha);
    s->maximum[r] = top;
}

/* weights: bfloat16 [rows, ATTENTION_TILE], or NULL: in place of the scores. */
VEC_INLINE void VEC_NAME(attention_softmax_into)(const struct attention_softmax *s, uint16_t *weights)
{
    enum { N = ATTENTION_TILE / VL };
    bool plain = s->softcap == 0 && !s->slopes;
    for (int32_t r = 0; r < s->rows; r++) {
        float *row = s->scores + r * ATTENTION_TILE, *sum = s->sum + r * ATTENTION_LANES;
        vf x[N], limit = vset1(s->maximum[r] + ATTENTION_SLACK), high;
        VEC_UNROLL
        for (int j = 0; j < N; j++) x[j] = vload(row + j * VL);
        if (!(plain && s->lo[r] == 0 && s->hi[r] == ATTENTION_TILE)) VEC_UNROLL
        for (int j = 0; j < N; j++) x[j] = VEC_NAME(attention_score)(s, r, j, x[j]);
        high = x[0];
        VEC_UNROLL
        for (int j = 1; j < N; j++) high = vmax(x[j], high);
        if (vbits(vlt(limit, high))) VEC_NAME(attention_follow)(s, r, vhmax(high));
        /* no key seen yet: any finite number serves, every weight is 2^-inf */
        vf m = vset1(s->maximum[r] > -1e30f ? s->maximum[r] : -1e30f), total = vload(sum);
        VEC_UNROLL
        for (int j = 0; j < N; j++) {
            x[j] = vexp2_of(x[j] - m, weights != NULL);
            total = total + x[j];
#if defined(ATTENTION_HALF_BODY)
            half_row(weights + r * ATTENTION_TILE + j * VL, x[j]);
#else
            vstore(row + j * VL, x[j]);
#endif
        }
        vstore(sum, total);
    }
}
