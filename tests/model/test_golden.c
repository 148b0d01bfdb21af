/* Every architecture against transformers: prompt logits and a greedy continuation, prefill whole and in
 * chunks, alone and beside another sequence, from safetensors and from GGUF; and every field of a config that
 * is read moves the logits as it does there.
 *
 * Always within 1e-4 of float32: with determinism; in default mode with F32 weights; and in default mode with BF16 weights, whose products may
 * round their activations, each checked by itself (exact_products.h). */
#define _GNU_SOURCE /* mkdtemp */
#include "exact_products.h"
#include "golden_run.h"

#include "ops/isa.h"

static const double tolerance = 1e-4;
static double worst_seen;

/* Do these rows' logits (of positions first…) agree where the case knows them? */
static double compare_rows(const struct golden *g, const struct json *c, const float *logits, int32_t first,
                           int32_t rows)
{
    const struct json *positions = json_get(c, "positions");
    int64_t row = json_int(json_get(c, "row"), 0);
    double worst = 0;
    for (uint32_t i = 0; i < positions->count; i++) {
        int64_t p = json_int(&positions->items[i], -1) - first;
        if (p < 0 || p >= rows) continue;
        worst = fmax(worst, golden_distance(logits + p * g->vocabulary, g->logits + (row + i) * g->vocabulary,
                                            g->vocabulary));
    }
    return worst;
}

static int32_t best_of(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

struct seen {
    const struct golden *g;
    const struct json *c;
    double worst;
};

static void compare_seen(void *arg, const struct run_text *text, const float *logits, int32_t first, int32_t rows)
{
    struct seen *s = arg;
    const struct golden *g = s->g;
    int64_t row = json_int(json_get(s->c, "row"), 0) + json_get(s->c, "positions")->count;
    int32_t computed = first + rows;
    s->worst = fmax(s->worst, compare_rows(g, s->c, logits, first, rows));
    if (first >= text->prompt_n)
        s->worst = fmax(s->worst, golden_distance(logits, g->logits + (row + first - text->prompt_n) * g->vocabulary, g->vocabulary));
    if (computed >= text->prompt_n)
        CHECK_INT(best_of(logits + (size_t)(rows - 1) * (size_t)g->vocabulary, g->vocabulary), text->text[computed - text->prompt_n]);
}

/* One case in chunks (run_case_text). */
static double run_case(struct run *r, const struct golden *g, const struct json *c, int32_t chunk, bool beside)
{
    struct seen s = {.g = g, .c = c};
    run_case_text(r, c, chunk, beside, compare_seen, &s);
    return s.worst;
}

enum mode {
    DETERMINISTIC,
    DEFAULT,
    DEFAULT_EXACT, /* default mode, each product checked by itself and then made exact */
};

static void check_file(const struct golden *g, const char *path, enum mode mode)
{
    struct run r;
    struct rose_error err = {0};
    CHECK_OK(run_open_as(&r, path, DTYPE_F32, mode == DETERMINISTIC, &err), err);
    if (!r.model) return;
    static const struct {
        int32_t chunk;
        bool beside, in[3]; /* which modes */
    } ways[] = {{RUN_ROWS, false, {true, true, true}}, {1, false, {false, true, false}}, {7, false, {true, true, false}}, {16, true, {true, true, false}}, {33, true, {false, true, true}}};
    exact_products_begin();
    if (mode == DEFAULT_EXACT) exact_products(r.program);
    for (uint32_t i = 0; i < g->cases->count; i++)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            if (!ways[k].in[mode]) continue;
            double worst = run_case(&r, g, &g->cases->items[i], ways[k].chunk, ways[k].beside);
            worst_seen = fmax(worst_seen, worst);
            if (!(worst <= tolerance))
                printf("%s: case %u in chunks of %d%s: logits are off by %g\n", path, i, ways[k].chunk,
                       ways[k].beside ? " beside another" : "", worst);
            CHECK(worst <= tolerance);
        }
    if (mode == DEFAULT_EXACT) exact_products_check(g->name);
    run_close(&r);
}

static void check_directory(struct golden *g, enum golden_types types, enum mode mode)
{
    g->types = types;
    golden_write_hf(g);
    check_file(g, g->dir, mode);
}

/* Last row of the last prompt under a patched config; the status of loading. */
static enum rose_status last_row(const struct golden *g, const struct json *patch, float *out,
                                 struct rose_error *err)
{
    struct run r;
    int32_t n, rows[RUN_SEQS] = {0};
    golden_write_config(g, patch);
    ROSE_TRY(run_open_as(&r, g->dir, DTYPE_F32, g->types == GOLDEN_AS_LISTED, err)); /* weights of 8 bits may round activations too */
    int32_t *prompt = golden_ids(json_get(&g->cases->items[g->cases->count - 1], "prompt"), &n);
    run_begin(&r, 0, prompt, n);
    rows[0] = n;
    enum rose_status s = run_step(&r, rows, err);
    memcpy(out, r.logits + (size_t)(n - 1) * (size_t)g->vocabulary, (size_t)g->vocabulary * sizeof *out);
    free(prompt);
    run_close(&r);
    return s;
}

static const float *base_row(const struct golden *g)
{
    const struct json *c = &g->cases->items[g->cases->count - 1];
    return g->logits + (size_t)(json_int(json_get(c, "row"), 0) + json_get(c, "positions")->count - 1) *
                           (size_t)g->vocabulary;
}

static void complain(const struct golden *g, const struct json *patch, const char *what, double by)
{
    struct strbuf b = {0};
    json_add_value(&b, patch);
    fprintf(stderr, "%s: %s %s (%g)\n", g->name, b.p, what, by);
    test_failures_++;
    strbuf_free(&b);
}

static void check_flips(const struct golden *g)
{
    float *row = malloc((size_t)g->vocabulary * sizeof *row);
    struct rose_error err = {0};
    for (uint32_t i = 0; g->flips && i < g->flips->count; i++) {
        const struct json *patch = json_get(&g->flips->items[i], "patch");
        int64_t want = json_int(json_get(&g->flips->items[i], "row"), -1);
        err.message[0] = '\0';
        enum rose_status s = last_row(g, patch, row, &err);
        if (want < 0) {
            if (s == ROSE_OK || strlen(err.message) < 20)
                complain(g, patch, "must be refused in a sentence", s);
            continue;
        }
        CHECK_OK(s, err);
        if (s != ROSE_OK) {
            complain(g, patch, "must load", s);
            continue;
        }
        double off = golden_distance(row, g->logits + want * g->vocabulary, g->vocabulary),
               moved = golden_distance(row, base_row(g), g->vocabulary);
        if (!(off <= tolerance)) complain(g, patch, "gives other logits than transformers", off);
        if (!(moved > 100 * tolerance)) complain(g, patch, "changes nothing", moved);
    }
    for (uint32_t i = 0; g->same && i < g->same->count; i++) {
        enum rose_status s = last_row(g, &g->same->items[i], row, &err);
        CHECK_OK(s, err);
        double off = s == ROSE_OK ? golden_distance(row, base_row(g), g->vocabulary) : 0;
        if (!(off <= tolerance)) complain(g, &g->same->items[i], "must change nothing", off);
    }
    free(row);
}

static void check_model(const char *name)
{
    struct golden g;
    golden_open(&g, name);
    worst_seen = 0;
    bool bytes = false; /* tensors of 8 bits have scales beside them and stay as they are */
    for (uint32_t i = 0; i < g.tensors->count; i++) bytes = bytes || str_is(json_str(&g.tensors->items[i].items[1], ""), "F8_E4M3");
    check_directory(&g, GOLDEN_AS_LISTED, DETERMINISTIC);
    check_directory(&g, bytes ? GOLDEN_AS_LISTED : GOLDEN_BF16, DEFAULT_EXACT);
    if (!bytes) check_directory(&g, GOLDEN_F32, DEFAULT);
    check_flips(&g);
    if (g.gguf) {
        CHECK(golden_write_gguf(&g)); /* the file is the one the gguf package wrote */
        check_file(&g, g.file, DETERMINISTIC);
        check_file(&g, g.file, DEFAULT_EXACT);
    }
    if (test_verbose_) printf("%s: logits within %.2g\n", name, worst_seen);
    golden_close(&g);
}

/* Every instruction set that this machine has. */
TEST(instruction_sets)
{
    static const char *const sets[] = {"portable", "avx2", "avx512", "amx"}, *const names[] = {
                                                                                 "llama3", "gemma2",
                                                                                 "qwen2_moe",
                                                                                 "phi3_longrope", "qwen3_fp8"};
    struct rose_error err;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct golden g;
        golden_open(&g, names[k]);
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
            if (op_isa_select(sets[i], &err) == ROSE_OK) {
                check_directory(&g, GOLDEN_AS_LISTED, DETERMINISTIC);
                check_directory(&g, GOLDEN_AS_LISTED, DEFAULT_EXACT);
            }
        golden_close(&g);
    }
    CHECK_OK(op_isa_select("auto", &err), err);
}

#define MODEL(name)         \
    TEST(name)              \
    {                       \
        check_model(#name); \
    }
MODEL(llama)
MODEL(llama3)
MODEL(llama_linear)
MODEL(llama_dynamic)
MODEL(llama_yarn)
MODEL(mistral)
MODEL(ministral)
MODEL(mixtral)
MODEL(qwen2)
MODEL(qwen2_moe)
MODEL(qwen2_moe_mixed)
MODEL(qwen3)
MODEL(qwen3_moe)
MODEL(gemma2)
MODEL(gemma3)
MODEL(phi3)
MODEL(phi3_longrope)
MODEL(olmo2)
MODEL(granite)
MODEL(smollm3)
MODEL(llama_heads80)
MODEL(phi3_heads96)
MODEL(qwen3_heads192)
MODEL(qwen3_fp8)
MODEL(qwen3_moe_fp8)
MODEL(qwen3_moe_fp8_channel)
MODEL(qwen3_moe_fp8_block)
MODEL(llama_fp8)
MODEL(llama_fp8_block)
MODEL(llama_fp8_channel)

TEST_MAIN(CASE(instruction_sets), CASE(llama), CASE(llama3), CASE(llama_linear), CASE(llama_dynamic),
          CASE(llama_yarn), CASE(mistral), CASE(ministral), CASE(mixtral), CASE(qwen2), CASE(qwen2_moe),
          CASE(qwen2_moe_mixed), CASE(qwen3), CASE(qwen3_moe), CASE(gemma2), CASE(gemma3), CASE(phi3),
          CASE(phi3_longrope), CASE(olmo2), CASE(granite), CASE(smollm3), CASE(llama_heads80), CASE(phi3_heads96), CASE(qwen3_heads192), CASE(qwen3_fp8), CASE(qwen3_moe_fp8), CASE(qwen3_moe_fp8_channel), CASE(qwen3_moe_fp8_block), CASE(llama_fp8), CASE(llama_fp8_block), CASE(llama_fp8_channel))
