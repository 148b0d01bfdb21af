/* Golden models through the public interface: several requests at once, prompts in chunks, log-probabilities
 * and text as transformers has them. */
#define _GNU_SOURCE /* mkdtemp */
#include "model/golden.h"
#include "rose.h"

enum { MAX_REQUESTS = 8, TOP = 5 };

struct answer {
    const struct json *c;
    int32_t *prompt, *text, prompt_n, text_n, generated;
    bool prompt_seen, ended;
    uint64_t id;
};

/* A tokenizer of as many tokens as the model has; the requests are token ids already. */
static void write_tokenizer(const struct golden *g)
{
    struct strbuf b = {0};
    char path[256];
    strbuf_adds(&b, "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
                    "\"decoder\":null,"
                    "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int32_t i = 0; i < g->vocabulary; i++) strbuf_printf(&b, "%s\"w%d\":%d", i ? "," : "", i, i);
    strbuf_adds(&b, "}}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", g->dir);
    golden_write(path, &b);
    strbuf_free(&b);
}

static double logprob(const struct golden *g, const float *row, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < g->vocabulary; i++) most = fmax(most, row[i]);
    for (int32_t i = 0; i < g->vocabulary; i++) sum += exp(row[i] - most);
    return row[id] - most - log(sum);
}

/* The row of logits behind token `at` of prompt and text; NULL when it was not kept. */
static const float *row_after(const struct golden *g, const struct answer *a, int32_t at)
{
    const struct json *positions = json_get(a->c, "positions");
    int64_t row = json_int(json_get(a->c, "row"), 0);
    if (at >= a->prompt_n) return g->logits + (row + positions->count + at - a->prompt_n) * g->vocabulary;
    for (uint32_t i = 0; i < positions->count; i++)
        if (json_int(&positions->items[i], -1) == at) return g->logits + (row + i) * g->vocabulary;
    return NULL;
}

static void check_prompt(const struct golden *g, const struct answer *a, const struct rose_event *e)
{
    CHECK_INT(e->prompt_count, a->prompt_n);
    CHECK(isnan(e->prompt_logprobs[0]));
    for (int32_t i = 1; i < e->prompt_count && i < a->prompt_n; i++) {
        const float *row = row_after(g, a, i - 1);
        CHECK_INT(e->prompt_tokens[i], a->prompt[i]);
        if (row) CHECK_NEAR(e->prompt_logprobs[i], logprob(g, row, a->prompt[i]), 1e-4);
    }
}

static void check_token(const struct golden *g, struct answer *a, const struct rose_event *e)
{
    const float *row = row_after(g, a, a->prompt_n + a->generated - 1);
    if (a->generated >= a->text_n)
        CHECK(false);
    else
        CHECK_INT(e->token, a->text[a->generated]);
    CHECK_NEAR(e->logprob, logprob(g, row, e->token), 1e-4);
    CHECK_INT(e->top_count, TOP);
    for (int i = 0; i < e->top_count; i++) {
        CHECK_NEAR(e->top[i].logprob, logprob(g, row, e->top[i].id), 1e-4);
        if (i) CHECK(e->top[i].logprob <= e->top[i - 1].logprob);
    }
    a->generated++;
}

static void submit(struct rose_engine *engine, struct answer *a, int index)
{
    struct rose_error err;
    struct rose_request r;
    rose_request_init(&r);
    r.kind = ROSE_REQUEST_TOKENS;
    r.tokens = a->prompt;
    r.tokens_count = (size_t)a->prompt_n;
    r.max_tokens = a->text_n;
    r.logprobs = TOP;
    r.prompt_logprobs =
        index % 2 ? -1 : 2; /* with them, every row of the prompt is sampled and no prefix is shared */
    r.sampling.ignore_eos = true;
    r.user = (uint64_t)index;
    CHECK_OK(rose_submit(engine, &r, &a->id, &err), err);
}

static void serve(struct rose_engine *engine, const struct golden *g)
{
    struct answer answers[MAX_REQUESTS] = {0};
    int n = 0, open;
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < g->cases->count && n < MAX_REQUESTS; i++, n++) {
            struct answer *a = &answers[n];
            a->c = &g->cases->items[i];
            a->prompt = golden_ids(json_get(a->c, "prompt"), &a->prompt_n);
            a->text = golden_ids(json_get(a->c, "text"), &a->text_n);
            submit(engine, a, n);
        }
    for (open = n; open > 0 && !test_failures_;) {
        struct rose_event events[16];
        size_t got = rose_events(engine, events, 16, 20000);
        CHECK(got > 0);
        for (size_t k = 0; k < got; k++) {
            const struct rose_event *e = &events[k];
            struct answer *a = &answers[e->user];
            if (e->kind == ROSE_EVENT_PROMPT) {
                a->prompt_seen = true;
                if (e->user % 2 == 0) check_prompt(g, a, e);
            } else if (e->kind == ROSE_EVENT_TOKEN) {
                check_token(g, a, e);
            } else if (e->kind == ROSE_EVENT_FINAL) {
                CHECK_INT(e->finish, ROSE_FINISH_LENGTH);
                CHECK_INT(e->completion_tokens, a->text_n);
                CHECK_INT(a->generated, a->text_n);
                CHECK(a->prompt_seen && !a->ended);
                a->ended = true;
                open--;
            }
        }
    }
    for (int i = 0; i < n; i++) free(answers[i].prompt), free(answers[i].text);
}

/* The reference is float32: default mode with F32 weights, determinism with those of the list (BF16 among them, whose products may round otherwise:
 * tests/model/exact_products.h). */
static void check_as(const char *name, bool deterministic)
{
    struct golden g;
    struct rose_error err = {0};
    struct rose_device *device = NULL;
    struct rose_engine *engine = NULL;
    golden_open(&g, name);
    g.types = deterministic ? GOLDEN_AS_LISTED : GOLDEN_F32;
    golden_write_hf(&g);
    write_tokenizer(&g);
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 2, .no_pin = true},
                              &device, &err),
             err);
    struct rose_engine_options o = {
        .model = g.dir, .context = 128, .max_sequences = 4, .step_tokens = 24, .kv = "f32", .deterministic = deterministic};
    if (device) CHECK_OK(rose_engine_open(device, &o, &engine, &err), err);
    if (engine) {
        struct rose_model_info info;
        rose_engine_info(engine, &info);
        CHECK_STR(info.kv_type, "f32");
        CHECK_INT(info.vocabulary, g.vocabulary);
        serve(engine, &g);
        serve(engine, &g); /* now prefixes are cached */
    }
    rose_engine_close(engine);
    rose_device_close(device);
    golden_close(&g);
}

static void check_model(const char *name)
{
    check_as(name, false);
    check_as(name, true);
}

#define MODEL(name)         \
    TEST(name)              \
    {                       \
        check_model(#name); \
    }
MODEL(llama3)
MODEL(llama_dynamic)
MODEL(phi3_longrope)
MODEL(mistral)
MODEL(gemma3)
MODEL(qwen2_moe)

TEST_MAIN(CASE(llama3), CASE(llama_dynamic), CASE(phi3_longrope), CASE(mistral), CASE(gemma3),
          CASE(qwen2_moe))
