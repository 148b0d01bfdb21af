/* A model in default mode beside float32 references although some of its products round their activations to bfloat16.
 *
 * exact_products() puts itself between a recorded program and its products. Each product runs as it is; then every result is compared with a
 * float64 sum over the activations that this product's arithmetic prescribes: rounded to bfloat16 (to nearest even) where rounding is in force
 * (matmul.h), as they are elsewhere. After that the float64 result over unrounded activations takes its place, so that the rest of the model goes
 * on from float32 and its logits must meet the float32 reference as strictly as anywhere else. So nothing of the default mode is left out: what
 * is not a product is held to the reference, and each product, in its place in the model, to its definition.
 *
 * The bound. Products of bfloat16 numbers are exact in float32 (8 + 8 bits of 24), those of float32 numbers round once; a sum of k terms in any
 * order rounds at most k times, each by at most 2^-24 of a partial sum, none of which is larger than S = sum |x w|:
 *
 *     |v - sum x w| <= (k + 1) 2^-24 S   [Higham, Accuracy and Stability of Numerical Algorithms, 3.1], and 2^-126 a term that vdpbf16ps flushes
 *
 * (k = 64: 4e-6 S, where rounding the activations moves v by about 2^-9 / sqrt(k) S = 2e-4 S). Behind it stands y = alpha act(v + b) (u + c) + y0,
 * whose own arithmetic in float32 (exp and erf by polynomials) is given EPILOGUE = 4e-6 of (1 + |v|) (1 + |u|); |act'| <= 1.13, of relu2 2 |v|. */
#ifndef ROSE_TESTS_MODEL_EXACT_PRODUCTS_H
#define ROSE_TESTS_MODEL_EXACT_PRODUCTS_H

#include "base/worker.h"
#include "device/program.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/moe.h"
#include "test.h"

#define EXACT_EPILOGUE 4e-6

enum { EXACT_SAVED = 1 << 18, EXACT_K = 512, EXACT_ROWS = 512 };

/* What was seen since the last exact_products_begin. */
static struct exact_seen {
    long rounded, unrounded; /* results of products in which rounding is in force, and of others */
    long told;               /* of the former, those whose bound is too small for the unrounded result */
    double worst;            /* largest distance over its bound */
    char where[96];
    float saved[EXACT_SAVED]; /* y before a product that adds to it */
} exact_seen;

static inline void exact_products_begin(void)
{
    exact_seen.rounded = exact_seen.unrounded = exact_seen.told = 0;
    exact_seen.worst = 0;
    exact_seen.where[0] = '\0';
}

static inline float exact_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    u = (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000u; /* activations are finite here */
    memcpy(&x, &u, 4);
    return x;
}

/* Is rounding in force for this product? As matmul.h states it. */
static inline bool exact_rounds(const struct matmul_params *p, int32_t rows)
{
    bool bf16 = p->rough && rows >= MATMUL_ROUGH_ROWS;
#if defined(__x86_64__)
    bf16 = bf16 || (p->amx && matmul_amx_pays(&p->part[0].weight, rows));
#endif
    return bf16 && matmul_is_float(&p->part[0].weight) && p->part[0].weight.format->kernel >= CPU_BF16; /* BF16, E4M3 */
}

/* A sum in float64, over rounded and over unrounded activations, and the bound of the former's float32. */
struct exact_sum {
    double rounded, exact, bound;
};

/* rounded: x as the product sees it. */
static inline struct exact_sum exact_dot(const float *x, const float *rounded, const float *w, int32_t k)
{
    struct exact_sum s = {0};
    double size = 0;
    for (int32_t i = 0; i < k; i++) {
        double t = (double)rounded[i] * (double)w[i];
        s.rounded += t, size += fabs(t);
        s.exact += (double)x[i] * (double)w[i];
    }
    s.bound = (k + 1) * (0x1p-24 * size + 0x1p-126);
    return s;
}

static inline double exact_act(enum matmul_activation a, double v)
{
    switch (a) {
    case MATMUL_SILU: return v / (1 + exp(-v));
    case MATMUL_GELU_TANH: return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case MATMUL_GELU_ERF: return 0.5 * v * (1 + erf(v * 0.7071067811865476));
    case MATMUL_RELU: return fmax(v, 0);
    case MATMUL_RELU2: return v > 0 ? v * v : 0;
    default: return v;
    }
}

/* One result: v and the gate's factor u (NULL: none) against *y, which becomes the unrounded one. */
static inline void exact_result(const struct program_launch *l, const struct matmul_params *p, bool rounds, struct exact_sum v, const struct exact_sum *u,
                                double before, float *y)
{
    enum matmul_activation a = p->activation;
    double act = exact_act(a, v.rounded), slope = a == MATMUL_LINEAR ? 1 : a == MATMUL_RELU2 ? 2 * fabs(v.rounded) : 1.13;
    double want = act * (u ? u->rounded : 1), exact = exact_act(a, v.exact) * (u ? u->exact : 1);
    double bound = slope * v.bound * (u ? fabs(u->rounded) : 1) + (u ? fabs(act) * u->bound : 0);
    bound += EXACT_EPILOGUE * (1 + fabs(v.rounded)) * (u ? 1 + fabs(u->rounded) : 1);
    want = want * (double)p->alpha + before, exact = exact * (double)p->alpha + before;
    bound = bound * fabs((double)p->alpha) + 0x1p-23 * fabs(before);
    double off = fabs((double)*y - want);
    exact_seen.rounded += rounds, exact_seen.unrounded += !rounds;
    exact_seen.told += rounds && fabs((double)*y - exact) > bound;
    if (!(off <= exact_seen.worst * bound)) {
        exact_seen.worst = isnan(off) ? INFINITY : off / bound;
        snprintf(exact_seen.where, sizeof exact_seen.where, "%s of layer %d%s: %.9g, expected %.9g", l->name, l->layer, rounds ? ", rounded" : "", (double)*y, want);
    }
    *y = (float)exact;
}

static inline void exact_check(const struct program_launch *l, const struct matmul_params *p, int32_t rows)
{
    bool rounds = exact_rounds(p, rows);
    const float *saved = exact_seen.saved;
    static float w[2][EXACT_K], rounded[EXACT_ROWS][EXACT_K];
    int32_t k = p->part[0].weight.k;
    if (k > EXACT_K || rows > EXACT_ROWS) printf("raise EXACT_K or EXACT_ROWS\n"), exit(1);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = 0; i < k; i++) {
            float x = p->x[(size_t)r * (size_t)p->x_stride + i];
            rounded[r][i] = rounds ? exact_bf16(x) : x;
        }
    for (int i = 0; i < (p->gated ? 1 : p->parts); i++) {
        const struct matmul_part *a = &p->part[i], *up = p->gated ? &p->part[1] : NULL;
        for (int32_t n = 0; n < a->weight.n; n++) {
            cpu_weight_row(&a->weight, n, w[0]);
            if (up) cpu_weight_row(&up->weight, n, w[1]);
            for (int32_t r = 0; r < rows; r++) {
                const float *x = p->x + (size_t)r * (size_t)p->x_stride;
                struct exact_sum v = exact_dot(x, rounded[r], w[0], k), u;
                if (up) u = exact_dot(x, rounded[r], w[1], k);
                double bias = a->bias ? (double)a->bias[n] : 0, more = up && up->bias ? (double)up->bias[n] : 0;
                v.rounded += bias, v.exact += bias, v.bound += 0x1p-24 * fabs(v.rounded);
                if (up) u.rounded += more, u.exact += more, u.bound += 0x1p-24 * fabs(u.rounded);
                exact_result(l, p, rounds, v, up ? &u : NULL, p->accumulate ? (double)saved[r * a->weight.n + n] : 0,
                             a->y + (size_t)r * (size_t)a->y_stride + n);
            }
        }
        saved += rows * a->weight.n;
    }
}

/* What is added to, before it is. */
static inline void exact_save(const struct matmul_params *p, int32_t rows)
{
    size_t at = 0;
    for (int i = 0; i < (p->gated ? 1 : p->parts); i++)
        for (int32_t r = 0; r < rows; r++, at += (size_t)p->part[i].weight.n) {
            if (at + (size_t)p->part[i].weight.n > EXACT_SAVED) printf("raise EXACT_SAVED\n"), exit(1);
            memcpy(exact_seen.saved + at, p->part[i].y + (size_t)r * (size_t)p->part[i].y_stride, (size_t)p->part[i].weight.n * sizeof(float));
        }
}

/* In a launch's place; params are the launch itself. */
static inline void exact_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct program_launch *l = params;
    const struct matmul_params *p = l->params;
    int32_t rows = ROSE_MIN(extents->n[p->rows_extent], p->max_rows);
    if (w->index == 0 && p->accumulate) exact_save(p, rows);
    worker_barrier(w);
    l->cpu(p, extents, w);
    worker_barrier(w);
    if (w->index == 0) exact_check(l, p, rows);
}

/* Experts round only on AMX, where tests/ops/test_moe.c has their bound; here they take float32. */
static inline void exact_run_experts(const void *params, const struct extents *extents, struct worker *w)
{
    struct moe_mlp_params p = *(const struct moe_mlp_params *)((const struct program_launch *)params)->params;
    p.amx = false;
    moe_mlp_run(&p, extents, w);
}

static inline void exact_products(struct program *program)
{
    struct program_launch *all = arena_alloc(&program->arena, (size_t)program->count * sizeof *all);
    for (int i = 0; i < program->count; i++) {
        struct program_launch *l = &program->entries[i].launch;
        program_cpu_fn *instead = l->cpu == matmul_run ? exact_run : l->cpu == moe_mlp_run ? exact_run_experts : NULL;
        if (!instead) continue;
        all[i] = *l;
        l->params = &all[i];
        l->cpu = instead;
    }
}

/* Every product within its bound; and where something rounded, the bound told it from float32. */
static inline void exact_products_check(const char *model)
{
    CHECK(exact_seen.rounded + exact_seen.unrounded > 0);
    if (test_verbose_) printf("%s: %ld rounded results, %ld of them told from float32, %ld others, worst %.2g of its bound\n", model, exact_seen.rounded, exact_seen.told, exact_seen.unrounded, exact_seen.worst);
    if (!(exact_seen.worst <= 1)) fprintf(stderr, "%s: %g times its bound: %s\n", model, exact_seen.worst, exact_seen.where);
    CHECK(exact_seen.worst <= 1);
    CHECK(exact_seen.told >= 0.75 * exact_seen.rounded);
}

#endif
