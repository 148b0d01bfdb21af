/* The online softmax of a tile (Milakov & Gimelshein 2018), one row after the other.
 *
 * The running maximum only follows when a score exceeds it by more than SLACK: until then weights stay below
 * 2^SLACK, which float32 and bfloat16 hold as exactly as smaller ones, and nothing needs to be scaled. Rows
 * rarely take that branch, so the processor works on several rows at once. Whether it is taken depends on the
 * row's own scores only. */

/* Soft cap, alibi and the row's own limits on the scores of vector j. */
VEC_INLINE vf VEC_NAME(attention_score)(const struct attention_softmax *s, int32_t r, int j, vf x)
{
    vf column = viota() + vset1((float)(j * VL));
    if (s->softcap != 0) x = vtanh(x) * vset1(s->softcap);
    if (s->relative) x = vfma(vload(s->relative[r] + j * VL), vset1(1.44269504f), x);
    if (s->slopes) x = x - vset1(s->slopes[r]) * vabs(column - vset1((float)s->position[r]));
    vm seen = vand(vlt(vset1((float)s->lo[r] - 0.5f), column), vlt(column, vset1((float)s->hi[r] - 0.5f)));
    return vsel(seen, x, vset1(-INFINITY));
}

/* Scores up to `top` left the slack: the maximum follows, what was added up so far is scaled. */
static __attribute__((noinline)) void VEC_NAME(attention_follow)(const struct attention_softmax *s, int32_t r,
                                                                 float top)
{
    if (s->maximum[r] > -INFINITY) { /* else nothing has been added up yet */
        float *sum = s->sum + r * ATTENTION_LANES, *acc = s->acc + (int64_t)r * s->acc_ld;
        vf alpha = vexp2(vset1(s->maximum[r]) - vset1(top));
        for (int j = 0; j < ATTENTION_LANES; j += VL) vstore(sum + j, vload(sum + j) * alpha);
        for (int32_t j = 0; j < s->acc_ld; j += VL) vstore(acc + j, vload(acc + j) * alpha);
    }
    s->maximum[r] = top;
}
