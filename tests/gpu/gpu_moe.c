/* Whole mixtures of experts on a GPU, recorded by op_moe_route and op_moe_mlp: checked against float64, then measured by
 * replay of graphs over several layers with weights of their own. Needs NVRTC there.
 *
 *     gpu_moe [--csv FILE] [--no-check] [--quick] [--no-bench] [--tokens N]     last line "N passed, N failed"
 *     gpu_moe --coded [--format PART] [--tokens MOST] ...      experts in FP8 and in GGUF's block formats instead of bf16
 *     gpu_moe --driver libsimt_fast.so [--device N] --no-bench        on the stand-in of tests/simt/driver, small shapes only
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "gpu_program.h"
#include "moe_coded_data.h"
#include "ops/moe_coded_cuda.h"

enum { MAX_LAYERS = 4, MAX_LAUNCHES = 64 };
#define READ_LIMIT 4.58e6    /* bytes a microsecond */
#define MATRIX_LIMIT 780.0e6 /* operations a microsecond */

/* ---- a stack of layers on the device ---- */

struct shape {
    const char *name;
    struct moe_cuda_shape route;
    int32_t ffn, max_tokens;
    enum op_activation act;
    bool bias, deterministic;
    enum dtype types[3]; /* of gate, up and down where they are not bf16 */
    enum moe_coded_scales scales;
};
struct layer {
    void *weight[3], *bias[3], *logits;
    size_t bytes[3];
    struct op_weight *experts[3];
};
struct stack {
    struct shape s;
    int layers;
    struct layer layer[MAX_LAYERS];
    size_t weights; /* elements of one */
    void *x, *y, *ids, *chosen;
    struct program *program;
};

static void stack_weights(struct stack *k, int layers, size_t experts, size_t h, size_t f)
{
    k->layers = layers;
    k->weights = experts * h * f;
    for (int i = 0; i < layers; i++)
        for (int w = 0; w < 3; w++) {
            struct layer *l = &k->layer[i];
            size_t n = w < 2 ? f : h, in = w < 2 ? h : f;
            l->weight[w] = get(l->bytes[w] = k->weights * 2);
            l->bias[w] = get(experts * n * 4);
            l->experts[w] = calloc(experts, sizeof *l->experts[w]);
            for (size_t e = 0; e < experts; e++)
                l->experts[w][e] = (struct op_weight){.dtype = DTYPE_BF16, .n = (int32_t)n, .k = (int32_t)in, .layout = WEIGHT_LAYOUT_CUDA_ROWS,
                                                      .data = (char *)l->weight[w] + e * n * in * 2};
        }
}
static void stack_drop_weights(struct stack *k, size_t experts, size_t h, size_t f)
{
    for (int i = 0; i < k->layers; i++)
        for (int w = 0; w < 3; w++) {
            drop(k->layer[i].weight[w], k->layer[i].bytes[w]), drop(k->layer[i].bias[w], experts * (w < 2 ? f : h) * 4);
            free(k->layer[i].experts[w]);
        }
}

/* Matrix w of a layer's experts becomes that of c. */
static void stack_coded(struct layer *l, int w, const struct moe_coded *c)
{
    size_t stride = moe_coded_stride(c);
    drop(l->weight[w], l->bytes[w]);
    l->weight[w] = get(l->bytes[w] = stride * (size_t)c->experts);
    for (int64_t e = 0; e < c->experts; e++) {
        struct tensor_scales scales;
        struct tensor t = moe_coded_expert(c, e, &scales);
        ok(matmul_cuda_weight_pack(dev_, &t, (char *)l->weight[w] + (size_t)e * stride, &l->experts[w][e], &err_));
    }
}

/* Everything that depends on the tokens: buffers and the program. */
static bool stack_record(struct stack *k, const struct shape *s, bool draft)
{
    k->s = *s;
    size_t t = (size_t)s->route.tokens, max = s->max_tokens ? (size_t)s->max_tokens : t, h = (size_t)s->route.hidden, e = (size_t)s->route.experts,
           picks = max * (size_t)s->route.top_k;
    k->x = get(max * h * 2), k->y = get(max * h * 2), k->ids = get(picks * 4), k->chosen = get(picks * 4);
    for (int i = 0; i < k->layers; i++) k->layer[i].logits = get(max * e * 4);
    if (!ok(program_open(dev_, &k->program, &err_))) return false;
    struct program *p = k->program;
    p->draft = draft;
    p->expect.n[EXTENT_ROWS] = s->route.tokens;
    struct op_value x = {program_external(p, "x", k->x, max * h * 2), DTYPE_BF16, EXTENT_ROWS, (int32_t)h, (int32_t)h, 0}, y = x;
    y.buffer = program_external(p, "y", k->y, max * h * 2);
    program_buffer_id ids = program_external(p, "ids", k->ids, picks * 4), chosen = program_external(p, "weights", k->chosen, picks * 4);
    for (int i = 0; i < k->layers; i++) {
        const struct layer *l = &k->layer[i];
        struct op_moe_route route = {.layer = i, .experts = s->route.experts, .top_k = s->route.top_k, .score = s->route.score, .normalize = s->route.normalize,
                                     .scale = s->route.scale, .ids = ids, .weights = chosen, .deterministic = s->deterministic,
                                     .logits = {program_external(p, "logits", l->logits, max * e * 4), DTYPE_F32, EXTENT_ROWS, (int32_t)e, (int32_t)e, 0}};
        struct op_moe_mlp mlp = {.layer = i, .experts = s->route.experts, .top_k = s->route.top_k, .gate = l->experts[0], .up = l->experts[1], .down = l->experts[2],
                                 .gate_bias = s->bias ? l->bias[0] : NULL, .up_bias = s->bias ? l->bias[1] : NULL, .down_bias = s->bias ? l->bias[2] : NULL,
                                 .activation = s->act, .route = &route, .ids = ids, .weights = chosen, .x = x, .y = y, .accumulate = s->route.accumulate, .alpha = s->route.alpha,
                                 .deterministic = s->deterministic};
        if (!ok(op_moe_mlp(p, &mlp, &err_))) return false;
    }
    return draft || ok(program_finish(p, NULL, 0, &err_));
}
static bool stack_open(struct stack *k, const struct shape *s)
{
    return stack_record(k, s, false);
}
static void stack_close(struct stack *k)
{
    const struct shape *s = &k->s;
    size_t max = (size_t)(s->max_tokens ? s->max_tokens : s->route.tokens), h = (size_t)s->route.hidden, picks = max * (size_t)s->route.top_k;
    program_close(k->program);
    drop(k->x, max * h * 2), drop(k->y, max * h * 2), drop(k->ids, picks * 4), drop(k->chosen, picks * 4);
    for (int i = 0; i < k->layers; i++) drop(k->layer[i].logits, max * (size_t)s->route.experts * 4);
}

/* ---- checks ---- */

static void check(const struct shape *s, enum moe_skew skew)
{
    struct stack k = {0};
    struct moe_mlp_data d = moe_mlp_make(&s->route, s->ffn, skew, (uint64_t)s->route.tokens + 3);
    size_t t = (size_t)s->route.tokens, h = (size_t)s->route.hidden, f = (size_t)s->ffn, e = (size_t)s->route.experts, picks = t * (size_t)s->route.top_k;
    struct moe_mlp_shape m = {.tokens = s->route.tokens, .experts = s->route.experts, .top_k = s->route.top_k, .hidden = s->route.hidden, .ffn = s->ffn, .deterministic = s->deterministic};
    if (s->types[0] == DTYPE_F8_E4M3) m.up_format = m.down_format = 1 + MOE_FP8;
    d.quantised = moe_fp8_fits(&m, &dev_->info);
    stack_weights(&k, 1, e, h, f);
    for (int w = 0; w < 3; w++) {
        if (s->types[w]) {
            struct moe_coded c = moe_coded_make(s->types[w], s->scales, (int64_t)e, (int64_t)(w < 2 ? f : h), (int64_t)(w < 2 ? h : f), (uint64_t)w + 17);
            moe_coded_values(&c, d.weight[w]);
            stack_coded(&k.layer[0], w, &c);
            moe_coded_drop(&c);
        } else {
            copy(k.layer[0].weight[w], d.weight[w], k.weights * 2);
        }
        copy(k.layer[0].bias[w], d.bias[w], e * (w < 2 ? f : h) * 4);
    }
    if (stack_open(&k, s)) {
        struct extents extents = {{0}};
        struct moe_mlp_error error = {0, 0};
        int32_t *ids = malloc(picks * 4);
        float *weights = malloc(picks * 4);
        uint16_t *y = malloc(t * h * 2);
        bool good = true;
        extents.n[EXTENT_ONE] = 1, extents.n[EXTENT_ROWS] = s->route.tokens;
        copy(k.x, d.x, t * h * 2), copy(k.layer[0].logits, d.logits, t * e * 4);
        for (int twice = 0; twice < 3 && good; twice++) { /* launch by launch, then as a graph, and again */
            copy(k.y, d.y, t * h * 2);
            good = ok(device_submit(dev_, k.program, &extents, &err_)) && ok(device_wait(dev_, NULL, &err_));
            if (!good) break;
            copy(ids, k.ids, picks * 4), copy(weights, k.chosen, picks * 4), copy(y, k.y, t * h * 2);
            error = moe_mlp_check(&d, s->act, s->bias, s->bias, ids, weights, y, s->route.hidden, twice == 1 ? 10 : 3);
            int wrong = moe_check_route(&s->route, d.logits, s->route.experts, NULL, ids, weights);
            /* Rounding to e4m3 is not continuous: an inner value near a border falls to either side, which moves a result by 2^-4 of a term. */
            good = error.worst <= (d.quantised ? 3 : 1) && error.rms < (d.quantised ? 0.01 : 0.006) && wrong == 0;
            if (!good) printf("%d choices wrong, ", wrong);
        }
        printf("%s %s T=%d of %d, skew %d: worst %.3f of what is allowed, rms %.5f\n", good ? "ok  " : "FAIL", s->name, s->route.tokens, s->max_tokens, (int)skew,
               error.worst, error.rms);
        if (good)
            passed_++;
        else
            failed_++;
        free(ids), free(weights), free(y);
        stack_close(&k);
    }
    stack_drop_weights(&k, e, h, f);
    moe_mlp_drop(&d);
}

/* ---- timings ---- */

static void row(const char *what, const struct shape *s, double us, double bytes, double ops, double predicted)
{
    double limit = bytes / READ_LIMIT > ops / MATRIX_LIMIT ? bytes / READ_LIMIT : ops / MATRIX_LIMIT;
    printf("%-12s %-9s T=%-5d %9.2f us %9.1f MB %5.2f TB/s %6.1f TFLOP/s  limit %8.2f us %5.1f%%", what, s->name, s->route.tokens, us, bytes * 1e-6,
           bytes / us * 1e-6, ops / us * 1e-6, limit, limit / us * 100);
    if (predicted > 0) printf("  predicted %.2f (%+.0f%%)", predicted, (predicted / us - 1) * 100);
    printf("\n");
    if (csv_)
        fprintf(csv_, "%s,%s T=%d,%.3f,%.0f,%.0f,%.3f,%.1f,%.2f\n", what, s->name, s->route.tokens, us, bytes, ops, bytes / us * 1e-6, limit / us * 100, predicted);
}

static double coded_bytes(enum dtype t, double elements) { return elements * dtype_info(t)->bytes / dtype_info(t)->block; }

/* Bytes and operations of a layer's launch, with the experts that were really touched. */
static void cost_of(const struct shape *s, const char *name, double touched, double *bytes, double *ops)
{
    double t = s->route.tokens, picks = t * s->route.top_k, h = s->route.hidden, f = s->ffn;
    double up = touched * 2 * (s->types[0] ? coded_bytes(s->types[0], h * f) : 2 * h * f), down = touched * (s->types[2] ? coded_bytes(s->types[2], h * f) : 2 * h * f);
    *bytes = *ops = 0;
    if (!strcmp(name, "moe_gate_up")) *bytes = up + 2 * (t * h + picks * f), *ops = 4 * picks * h * f;
    if (!strcmp(name, "moe_down")) *bytes = down + 2 * (picks * f + picks * h), *ops = 2 * picks * h * f;
    if (!strcmp(name, "moe_combine")) *bytes = 2 * h * (picks + 2 * t);
}

static void bench(struct stack *k, const struct shape *s)
{
    static struct program_launch launches[MAX_LAUNCHES];
    static uint32_t grids[MAX_LAUNCHES][3];
    if (!stack_open(k, s)) return;
    size_t t = (size_t)s->route.tokens, h = (size_t)s->route.hidden, e = (size_t)s->route.experts, picks = t * (size_t)s->route.top_k;
    struct extents extents = {{0}};
    extents.n[EXTENT_ONE] = 1, extents.n[EXTENT_ROWS] = s->route.tokens;
    float *logits = malloc(t * e * 4);
    uint16_t *x = malloc(t * h * 2);
    uint64_t r = 11;
    moe_mlp_fill(x, t * h, 1, &r);
    copy(k->x, x, t * h * 2), copy(k->y, x, t * h * 2);
    for (int i = 0; i < k->layers; i++) {
        for (size_t j = 0; j < t * e; j++) logits[j] = moe_random_f32(&r);
        copy(k->layer[i].logits, logits, t * e * 4);
    }
    free(logits), free(x);
    double us, all_bytes = 0, all_ops = 0, touched = 0, bytes, ops, best = 1e30, predicted = 0;
    ok(device_submit(dev_, k->program, &extents, &err_)), ok(device_wait(dev_, NULL, &err_));
    int32_t *ids = malloc(picks * 4);
    bool *seen = calloc(e, 1);
    copy(ids, k->ids, picks * 4); /* the last layer's stand for all */
    for (size_t i = 0; i < picks; i++)
        if (ids[i] >= 0 && !seen[ids[i]]) seen[ids[i]] = true, touched++;
    free(ids), free(seen);
    int each = k->program->count / k->layers;
    for (int i = 0; i < each; i++) {
        const struct program_launch *l = &k->program->entries[i].launch;
        int n = 0;
        for (int j = 0; j < k->layers; j++, n++) {
            launches[n] = k->program->entries[j * each + i].launch;
            cuda_grid(&launches[n], &extents, grids[n]);
            if (launches[n].rows_param) memcpy((char *)(uintptr_t)launches[n].params + launches[n].rows_param - 1, &s->route.tokens, 4);
        }
        cost_of(s, l->name, touched, &bytes, &ops);
        all_bytes += strcmp(l->name, "moe_combine") ? bytes : 0, all_ops += ops;
        best = 1e30;
        for (int twice = 0; twice < 2; twice++)
            if (ok(cuda_bench_graph_us(dev_, launches, (const uint32_t(*)[3])grids, n, 2, t > 1000 ? 3 : 20, &us, &err_))) best = us < best ? us : best;
        row(l->name, s, best, bytes, ops, 0);
    }
    best = 1e30;
    for (int twice = 0; twice < 3; twice++)
        if (ok(cuda_bench_program_us(dev_, k->program, &extents, 2, t > 1000 ? 3 : 20, &us, &err_))) best = us < best ? us : best;
    row("whole layer", s, best / k->layers, all_bytes, all_ops, predicted);
    stack_close(k);
}

/* ---- experts in the formats of their files ---- */

static const struct {
    const char *name;
    enum dtype types[3];
    enum moe_coded_scales scales;
} formats[] = {
    {"fp8 128x128", {DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F8_E4M3}, MOE_CODED_BLOCKS},
    {"Q4_K_M", {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K}, 0},
    {"Q8_0", {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0}, 0},
    {"Q4_0", {DTYPE_Q4_0, DTYPE_Q4_0, DTYPE_Q4_0}, 0},
    {"fp8 channels", {DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F8_E4M3}, MOE_CODED_CHANNELS},
    {"MXFP4", {DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_MXFP4}, 0},
    {"Q5_K", {DTYPE_Q5_K, DTYPE_Q5_K, DTYPE_Q5_K}, 0},
    {"Q4_1", {DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q4_1}, 0},
    {"Q4_K, Q5_K", {DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q4_K}, 0},
};

static struct shape coded_shape(int format, struct shape s)
{
    s.name = formats[format].name, s.scales = formats[format].scales;
    memcpy(s.types, formats[format].types, sizeof s.types);
    return s;
}

static const char *only_format_ = ""; /* part of a name */

static void coded_checks(bool driver)
{
    static const int tokens[] = {1, 6, 40, 130, 300, 1200};
    for (int f = 0; f < (int)ROSE_COUNT(formats); f++)
        for (int i = 0; i < (int)ROSE_COUNT(tokens) - (driver ? 2 : 0); i++) {
            struct shape s = {.ffn = driver ? 256 : 512, .act = OP_ACT_SILU, .max_tokens = i % 2 ? tokens[i] + 9 : 0, .bias = i % 2, .deterministic = i == 2 && f % 2,
                              .route = {.tokens = tokens[i], .experts = 20, .top_k = 4, .hidden = driver ? 256 : 512, .normalize = true, .accumulate = i % 2, .alpha = 0.5f}};
            s = coded_shape(f, s);
            if (strstr(s.name, only_format_)) check(&s, (enum moe_skew)((f + i) % 3));
        }
}

/* One expert's matrix in all places of all layers. */
static void coded_weights(struct stack *k, const struct shape *s)
{
    size_t h = (size_t)s->route.hidden, f = (size_t)s->ffn, experts = (size_t)s->route.experts;
    for (int w = 0; w < 3; w++) {
        struct moe_coded c = moe_coded_make(s->types[w], s->scales, 1, (int64_t)(w < 2 ? f : h), (int64_t)(w < 2 ? h : f), (uint64_t)w + 5);
        struct tensor_scales scales;
        struct tensor t = moe_coded_expert(&c, 0, &scales);
        size_t stride = moe_coded_stride(&c);
        for (int i = 0; i < k->layers; i++) {
            struct layer *l = &k->layer[i];
            drop(l->weight[w], l->bytes[w]);
            l->weight[w] = get(l->bytes[w] = stride * experts);
            for (size_t e = 0; e < experts; e++) {
                char *place = (char *)l->weight[w] + e * stride;
                if (i + e == 0) ok(matmul_cuda_weight_pack(dev_, &t, place, &l->experts[w][e], &err_));
                else ok(matmul_cuda_weight(&t, false, place, &l->experts[w][e], &err_)), ok(device_copy(dev_, place, k->layer[0].weight[w], stride, &err_));
            }
        }
        ok(device_wait(dev_, NULL, &err_));
        moe_coded_drop(&c);
    }
}

static struct shape qwen(int tokens);
static void coded_benches(int only)
{
    static const int tokens[] = {1, 2, 8, 32, 128, 256, 512, 1024, 2048, 8192};
    struct stack k = {0};
    for (int run = 0; run < 2; run++) {
        if (run == 1) ok(jit_compile_all(jit_, &err_));
        for (int f = 0; f < (int)ROSE_COUNT(formats) - 1; f++) {
            if (!strstr(formats[f].name, only_format_)) continue;
            struct shape s = coded_shape(f, qwen(1));
            stack_weights(&k, run ? MAX_LAYERS : 1, 128, 8, 8); /* places for others */
            coded_weights(&k, &s);
            for (size_t i = 0; i < ROSE_COUNT(tokens); i++) {
                if (only && tokens[i] > only) continue;
                s = coded_shape(f, qwen(tokens[i]));
                if (run == 1) bench(&k, &s);
                else stack_record(&k, &s, true), stack_close(&k);
            }
            stack_drop_weights(&k, 128, 8, 8);
        }
    }
}

static struct shape qwen(int tokens)
{
    return (struct shape){.name = "qwen3-30b", .ffn = 768, .act = OP_ACT_SILU,
                          .route = {.tokens = tokens, .experts = 128, .top_k = 8, .hidden = 2048, .normalize = true, .accumulate = true}};
}

int main(int argc, char **argv)
{
    bool checks = true, benches = true, quick = false, coded = false;
    int only = 0;
    struct device_options device = {.kind = DEVICE_CUDA};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            csv_ = fopen(argv[++i], "w");
        else if (!strcmp(argv[i], "--tokens") && i + 1 < argc)
            only = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--driver") && i + 1 < argc)
            device.driver = argv[++i];
        else if (!strcmp(argv[i], "--device") && i + 1 < argc)
            device.index = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--quick")) /* fewer checks */
            quick = true;
        else if (!strcmp(argv[i], "--coded"))
            coded = true;
        else if (!strcmp(argv[i], "--format") && i + 1 < argc)
            only_format_ = argv[++i];
        else if (!strcmp(argv[i], "--no-check"))
            checks = false;
        else if (!strcmp(argv[i], "--no-bench"))
            benches = false;
        else
            return printf("gpu_moe [--coded [--format PART]] [--csv FILE] [--no-check] [--quick] [--no-bench] [--tokens N] [--driver PATH [--device N]]\n"), 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!ok(jit_open(&(struct jit_options){.nvrtc_path = device.driver}, &jit_, &err_)) || !ok(device_open(&device, &dev_, &err_))) return 1;
    dev_->jit = jit_;
    if (csv_) fprintf(csv_, "op,shape,us,bytes,ops,TB/s,%% of limit,predicted us\n");
    if (coded && checks) coded_checks(device.driver);
    if (coded && benches) coded_benches(only);
    if (coded) checks = benches = false;
    for (int i = 0; checks && i < 12; i++) {
        int tokens = (int[]){1, 2, 5, 8, 16, 17, 33, 64, 128, 300, 900, 3000}[i];
        struct shape s = {.name = "small", .ffn = 328, .act = OP_ACT_SILU, .max_tokens = i % 3 ? 0 : tokens + 7, .bias = i % 2,
                          .route = {.tokens = tokens, .experts = 60, .top_k = 4, .hidden = 520, .normalize = i % 2, .accumulate = i % 3, .alpha = 0.5f,
                                    .score = (enum op_moe_score)(i % 3)}};
        if (device.driver) s.ffn = 72, s.route.hidden = 136, s.route.experts = 20;
        if ((device.driver && tokens > 300) || (quick && i % 3 == 2)) continue;
        for (int skew = 0; skew < 3; skew++)
            if (!quick || skew == i % 3) check(&s, (enum moe_skew)skew);
        s.name = "tiles", s.deterministic = true;
        if (tokens <= 64) check(&s, (enum moe_skew)(i % 3));
    }
    for (int i = 0; checks && !device.driver && i < 8; i++) {
        if (quick && i != 0 && i != 2 && i != 6) continue;
        struct shape s = qwen((int[]){1, 3, 16, 48, 128, 256, 640, 2500}[i]);
        s.route.experts = 32; /* the reference has to be made on the host */
        check(&s, (enum moe_skew)(i % 3));
    }
    fflush(stdout);
    if (benches) {
        struct stack k = {0};
        struct shape s = qwen(1);
        size_t block = 32 << 20; /* random elements, repeated */
        uint16_t *random = malloc(block * 2);
        uint64_t r = 5;
        moe_mlp_fill(random, block, 0.05f, &r);
        stack_weights(&k, MAX_LAYERS, 128, 2048, 768);
        for (int i = 0; i < MAX_LAYERS; i++)
            for (int w = 0; w < 3; w++)
                for (size_t at = 0; at < k.weights; at += block)
                    copy((char *)k.layer[i].weight[w] + at * 2, random, ROSE_MIN(block, k.weights - at) * 2);
        free(random);
        static const int tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192};
        for (int run = 0; run < 2; run++) { /* all kernels are compiled together first */
            if (run == 1) ok(jit_compile_all(jit_, &err_));
            for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
                for (int tiles = 0; tiles < (tokens[i] <= 16 ? 2 : 1); tiles++) {
                    s = qwen(tokens[i]);
                    if (only && only != tokens[i]) continue;
                    if (tiles) s.name = "tiles", s.deterministic = true;
                    if (run == 1) {
                        bench(&k, &s);
                    } else {
                        stack_record(&k, &s, true);
                        stack_close(&k);
                    }
                }
        }
        stack_drop_weights(&k, 128, 2048, 768);
    }
    struct strbuf table = {0};
    jit_print_kernels(jit_, &table);
    printf("%s", table.p ? table.p : "");
    strbuf_free(&table);
    if (csv_) fclose(csv_);
    device_close(dev_);
    jit_close(jit_);
    printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ || !passed_;
}
