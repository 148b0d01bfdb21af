#include "ops/moe_cuda.h"

#include "base/status.h"
#include "ops/act_cuda.h"

enum { ROUTE_THREADS = 512, FEW_SLICES = 8, FEW_CLUSTER = 8 };

static enum rose_status check(const struct moe_cuda_shape *s, struct rose_error *err)
{
    if (s->experts < 1 || s->experts > 1024 || s->top_k < 1 || s->top_k > 32 || s->top_k > s->experts)
        return status_set(err, ROSE_UNSUPPORTED,
                          "moe: %d of %d experts; the CUDA kernels take at most 32 of 1024", s->top_k,
                          s->experts);
    if (s->hidden < 8 || s->hidden % 8)
        return status_set(err, ROSE_UNSUPPORTED,
                          "moe: rows of %d columns; the CUDA kernels take multiples of 8", s->hidden);
    if (s->out != ACT_OUT_BF16 && s->out != ACT_OUT_E4M3_128 && s->out != ACT_OUT_MXFP8)
        return status_set(err, ROSE_UNSUPPORTED, "moe: rows dispatched as output %d; the CUDA kernels write bf16, e4m3 per 1 x 128 and mxfp8", s->out);
    if (s->out && s->hidden % act_cuda_group(s->out))
        return status_set(err, ROSE_UNSUPPORTED, "moe: rows of %d columns are no whole groups of %d", s->hidden, act_cuda_group(s->out));
    if (s->tokens < 1 || s->pad < 0)
        return status_set(err, ROSE_INVALID, "moe: %d tokens, padding %d", s->tokens, s->pad);
    if (s->groups > 1 && (s->groups > 32 || s->experts % s->groups || s->top_groups < 1 ||
                          s->top_groups > s->groups || s->experts / s->groups * s->top_groups < s->top_k))
        return status_set(err, ROSE_UNSUPPORTED,
                          "moe: %d of %d groups (at most 32) of %d experts do not give %d experts",
                          s->top_groups, s->groups, s->experts, s->top_k);
    return ROSE_OK;
}

int64_t moe_cuda_rows(const struct moe_cuda_shape *s)
{
    int64_t picks = (int64_t)s->tokens * s->top_k;
    return picks + ROSE_MIN(picks, (int64_t)s->experts) * (ROSE_MAX(s->pad, 1) - 1);
}

int32_t moe_cuda_row_scales(const struct moe_cuda_shape *s)
{
    return s->out ? s->hidden / act_cuda_group(s->out) : 0;
}

double moe_cuda_row_bytes(const struct moe_cuda_shape *s)
{
    return s->out ? act_cuda_row_bytes(s->out, s->hidden) : 2.0 * s->hidden;
}

static void router_constants(struct plan *p, const struct moe_cuda_shape *s)
{
    bool groups = s->groups > 1 && s->top_groups < s->groups;
    plan_int(p, "EXPERTS", s->experts);
    plan_int(p, "TOP_K", s->top_k);
    plan_int(p, "SCORE", s->score == OP_MOE_SOFTMAX ? 0 : s->score == OP_MOE_SIGMOID ? 1 : 2);
    plan_int(p, "BIAS", s->bias);
    plan_int(p, "GROUPS", groups ? s->groups : 0);
    plan_int(p, "TOP_GROUPS", groups ? s->top_groups : 0);
    plan_int(p, "NORMALIZE", s->normalize);
    plan_f32(p, "SCALE", s->scale != 0 ? s->scale : 1.0f);
    plan_int(p, "PAD", ROSE_MAX(s->pad, 1));
}

/* Threads for a row of `vectors`: whole warps, at most 256, as few idle as possible. */
static int threads_of(int vectors)
{
    int each = (vectors + 255) / 256, threads = (vectors + each - 1) / each;
    return ROSE_MAX(32, (threads + 31) / 32 * 32);
}

/* Experts of a lane that a choice is made of: where groups are whole vectors of lanes those of the groups that are kept. */
static int heads(const struct moe_cuda_shape *s)
{
    bool limited = s->groups > 1 && s->top_groups < s->groups && s->experts / s->groups % 32 == 0;
    return limited ? s->top_groups * (s->experts / s->groups / 32) : (s->experts + 31) / 32;
}
/* Microseconds of a warp's routing, by the experts a lane has and sorts: measured with 4 and 8 of them (H200), top-8. */
static double route_us(const struct moe_cuda_shape *s)
{
    return 0.5 + 0.04 * s->top_k + 0.34 * heads(s) + 0.2 * ((s->experts + 31) / 32 - heads(s));
}
/* What another token adds where warps share their schedulers: a lane's sort grows with the square of its experts. */
static double issue_us(const struct moe_cuda_shape *s)
{
    double each = heads(s) / 4.0;
    return 0.03 * each * each;
}

/* Tokens that share the routing of a launch by a cluster; false where the shape or the device has no such form. */
static bool plan_cluster(const struct moe_cuda_shape *s, const struct device_info *d, struct moe_cuda_dispatch *out)
{
    struct plan *p = &out->launch[0];
    bool groups = s->groups > 1 && s->top_groups < s->groups, one = s->tokens == 1;
    int most = one ? 1 : MOE_CUDA_EVERY_TOKENS, cols = (s->experts + 31) / 32 * 32, teams = one ? 1 : ROSE_MAX(1, 512 / cols), pad = ROSE_MAX(s->pad, 1);
    if (plan_arch(d) < 900 || s->tokens > most || cols > 512 || (groups && s->experts != s->groups * 32) || (pad > 1 && pad < most)) return false;
    out->form = MOE_CUDA_FEW;
    out->slices = FEW_SLICES;
    out->launches = 1;
    *p = (struct plan){.kernel = "moe_dispatch_few", .rows = s->tokens, .times = out->slices, .per = 1};
    router_constants(p, s);
    plan_int(p, "HIDDEN", s->hidden);
    plan_int(p, "THREADS", teams * cols);
    plan_int(p, "OUT", s->out);
    plan_int(p, "MAX_TOKENS", most);
    plan_int(p, "CLUSTER", one ? 1 : FEW_CLUSTER);
    p->block = (uint32_t)(teams * cols);
    p->cluster = one ? 0 : FEW_CLUSTER;
    p->bytes = out->bytes;
    /* The logits; a comparison of each key with each, 32 keys at a time; places; the cluster meets. */
    plan_stream(p, d, 3.0 + 0.1 * cols / 128 + (one ? 0 : 2.0));
    return true;
}

static void plan_few(const struct moe_cuda_shape *s, const struct device_info *d,
                     struct moe_cuda_dispatch *out)
{
    struct plan *p = &out->launch[0];
    bool every = s->tokens <= MOE_CUDA_EVERY_TOKENS;
    /* 256 experts, T 16, H200: alone 6.6 us, by two 6.2, by four 6.0; 128 experts the same each way. */
    int own = s->experts > 128 ? 4 : 1, cluster = every && s->tokens > 1 && plan_arch(d) >= 900 ? s->cluster ? s->cluster : own : 1;
    int vectors = s->hidden / 8, threads = every ? 512 / cluster : 256;
    int most = ROSE_MAX(1, every ? vectors / 128 : (vectors + threads - 1) / threads);
    most = (most + cluster - 1) / cluster * cluster;
    if (s->out) most = ROSE_MAX(1, ROSE_MIN(most, s->hidden / act_cuda_group(s->out)));
    out->form = every ? MOE_CUDA_EVERY : MOE_CUDA_BARRIER;
    /* Every block of the barrier form must be resident: at most two an SM, which its registers allow. */
    out->slices = ROSE_MAX(1, ROSE_MIN(most, d->units * (every ? 1 : 2) / s->tokens) / cluster) * cluster;
    out->launches = 1;
    *p = (struct plan){.kernel = "moe_dispatch", .rows = s->tokens, .times = out->slices, .per = 1};
    router_constants(p, s);
    plan_int(p, "HIDDEN", s->hidden);
    plan_int(p, "THREADS", threads);
    plan_int(p, "EVERY", every);
    plan_int(p, "CLUSTER", cluster);
    plan_int(p, "OUT", s->out);
    plan_int(p, "MAX_TOKENS", every ? MOE_CUDA_EVERY_TOKENS : MOE_CUDA_BARRIER_TOKENS);
    p->block = (uint32_t)threads;
    p->cluster = cluster > 1 ? (uint32_t)cluster : 0;
    p->cooperative = !every;
    p->bytes = out->bytes;
    /* A block's rounds over its slice of a row: each waits for the stores of the one before. */
    int rounds = ((vectors + out->slices - 1) / out->slices + threads - 1) / threads;
    double met = every ? issue_us(s) * ((s->tokens + cluster - 1) / cluster - 1) : 1.1 + 0.004 * s->tokens + (rounds - 1) * (s->out ? 1.0 : 0.45);
    plan_stream(p, d, route_us(s) + 0.5 + met);
}

static void plan_many(const struct moe_cuda_shape *s, const struct device_info *d,
                      struct moe_cuda_dispatch *out)
{
    struct plan *route = &out->launch[0], *copy = &out->launch[1];
    /* A warp's tokens follow each other; more blocks make the last one's scan longer. */
    int per_warp = s->tokens <= 1024 ? 1 : s->tokens <= 4096 ? 2 : 4;
    out->form = MOE_CUDA_TWO;
    out->block_tokens = ROUTE_THREADS / 32 * per_warp;
    out->slices = 1;
    out->launches = 2;
    *route = (struct plan){.kernel = "moe_route", .rows = s->tokens, .times = 1, .per = out->block_tokens};
    router_constants(route, s);
    plan_int(route, "THREADS", ROUTE_THREADS);
    plan_int(route, "PER_WARP", per_warp);
    route->block = ROUTE_THREADS;
    double blocks = plan_grid(route, s->tokens),
           segments = ROSE_MAX(1, ROUTE_THREADS / ((s->experts + 31) / 32 * 32));
    route->bytes = (double)s->tokens * (4.0 * s->experts + 12.0 * s->top_k) + 12.0 * blocks * s->experts;
    /* The last block's scan: two passes, eight loads of 0.35 us each at a time. */
    plan_stream(route, d, per_warp * route_us(s) + 2 * 0.35 * blocks / segments / 8 + 1.0);
    *copy = (struct plan){.kernel = "moe_copy", .rows = s->tokens, .times = 1, .per = 1};
    int threads = threads_of(s->hidden / 8);
    plan_int(copy, "EXPERTS", s->experts);
    plan_int(copy, "TOP_K", s->top_k);
    plan_int(copy, "HIDDEN", s->hidden);
    plan_int(copy, "THREADS", threads);
    plan_int(copy, "OUT", s->out);
    plan_int(copy, "BLOCK_TOKENS", out->block_tokens);
    copy->block = (uint32_t)threads;
    copy->bytes = (double)s->tokens * (2.0 * s->hidden + s->top_k * (moe_cuda_row_bytes(s) + 16.0));
    plan_stream(copy, d, 1.0);
}

enum rose_status moe_cuda_plan_dispatch(const struct moe_cuda_shape *s, const struct device_info *d,
                                        struct moe_cuda_dispatch *out, struct rose_error *err)
{
    ROSE_TRY(check(s, err));
    *out = (struct moe_cuda_dispatch){0};
    out->bytes = (double)s->tokens * (4.0 * s->experts + 2.0 * s->hidden + s->top_k * (moe_cuda_row_bytes(s) + 12.0)) +
                 8.0 * s->experts;
    /* One token of many experts that need no sum over all of them: measured. Clusters cost a launch 2 us: measured too. */
    bool wanted = s->few > 0 || (s->few == 0 && s->tokens == 1 && s->experts > 128 && s->score != OP_MOE_SOFTMAX);
    bool cluster = wanted && plan_cluster(s, d, out);
    bool few = s->tokens <= MOE_CUDA_BARRIER_TOKENS && s->tokens <= 2 * d->units &&
               (s->tokens <= MOE_CUDA_EVERY_TOKENS || d->cooperative) && s->top_k <= 16;
    if (!cluster && few) plan_few(s, d, out);
    if (!cluster && !few) plan_many(s, d, out);
    for (int i = 0; i < out->launches; i++) {
        out->predicted_us += out->launch[i].predicted_us;
        out->limit_us += out->launch[i].limit_us;
    }
    return ROSE_OK;
}

enum rose_status moe_cuda_plan_combine(const struct moe_cuda_shape *s, const struct device_info *d,
                                       struct plan *out, int32_t *slices, struct rose_error *err)
{
    ROSE_TRY(check(s, err));
    int vectors = s->hidden / 8, threads = threads_of(vectors);
    /* Few tokens: blocks of 128 over slices of the row, until every SM has two. */
    if ((int64_t)s->tokens * ((vectors + 127) / 128) <= 4 * (int64_t)d->units)
        threads = ROSE_MIN(threads, 128);
    *slices = threads == 128 ? (vectors + 127) / 128 : 1;
    *out = (struct plan){.kernel = "moe_combine", .rows = s->tokens, .times = *slices, .per = 1};
    plan_int(out, "TOP_K", s->top_k);
    plan_int(out, "HIDDEN", s->hidden);
    plan_int(out, "THREADS", threads);
    plan_int(out, "ACCUMULATE", s->accumulate);
    plan_f32(out, "ALPHA", s->alpha != 0 ? s->alpha : 1.0f);
    plan_element(out, s->f16);
    out->block = (uint32_t)threads;
    out->bytes = (double)s->tokens * (2.0 * s->hidden * (1 + s->top_k + s->accumulate) + 8.0 * s->top_k);
    out->ops = 2.0 * s->tokens * s->hidden * s->top_k;
    out->values = true;
    plan_stream(out, d, 0.6); /* the places are loaded before the rows */
    return ROSE_OK;
}
