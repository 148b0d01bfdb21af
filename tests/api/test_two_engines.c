/* Several engines on one device answer at the same time, each as if it were alone, while others are opened and closed beside them. */
#define _GNU_SOURCE /* mkdtemp */
#include <pthread.h>

#include "model/golden.h"
#include "rose.h"

enum { ROUNDS = 6 };

struct side {
    struct golden g;
    struct rose_engine *engine;
    int wrong, ended;
};

/* A tokenizer of as many tokens as the model has; the requests are token ids already. */
static void write_tokenizer(const struct golden *g)
{
    struct strbuf b = {0};
    char path[256];
    strbuf_adds(&b, "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int32_t i = 0; i < g->vocabulary; i++) strbuf_printf(&b, "%s\"w%d\":%d", i ? "," : "", i, i);
    strbuf_adds(&b, "}}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", g->dir);
    golden_write(path, &b);
    strbuf_free(&b);
}

static struct rose_engine_options options_of(const struct golden *g)
{
    return (struct rose_engine_options){.model = g->dir, .context = 128, .max_sequences = 4, .step_tokens = 24, .kv = "f32", .deterministic = true, .memory_share = 0.25, .no_prefix_cache = true};
}

/* Greedy answers to the golden prompts, against the text that transformers gave. */
static void *answer(void *arg)
{
    struct side *s = arg;
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < s->g.cases->count; i++) {
            struct rose_request r;
            struct rose_error err;
            struct rose_event events[8];
            int32_t prompt_n, text_n, at = 0, *prompt = golden_ids(json_get(&s->g.cases->items[i], "prompt"), &prompt_n), *text = golden_ids(json_get(&s->g.cases->items[i], "text"), &text_n);
            uint64_t id;
            rose_request_init(&r);
            r.kind = ROSE_REQUEST_TOKENS;
            r.tokens = prompt;
            r.tokens_count = (size_t)prompt_n;
            r.max_tokens = text_n;
            r.sampling.ignore_eos = true;
            bool over = rose_submit(s->engine, &r, &id, &err) != ROSE_OK;
            s->wrong += over;
            while (!over) {
                size_t n = rose_events(s->engine, events, 8, 60000);
                over = n == 0;
                s->wrong += n == 0;
                for (size_t k = 0; k < n; k++) {
                    if (events[k].kind == ROSE_EVENT_TOKEN) s->wrong += at >= text_n || events[k].token != text[at], at++;
                    if (events[k].kind == ROSE_EVENT_FINAL) over = true, s->ended++;
                }
            }
            s->wrong += at != text_n;
            free(prompt);
            free(text);
        }
    return NULL;
}

TEST(each_as_if_alone)
{
    static const char *const names[] = {"llama3", "mistral"};
    struct side sides[2] = {0};
    struct rose_device *device = NULL;
    struct rose_error err = {0};
    pthread_t threads[2];
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 2, .no_pin = true, .no_packed_cache = true}, &device, &err), err);
    for (int i = 0; i < 2; i++) {
        golden_open(&sides[i].g, names[i]);
        golden_write_hf(&sides[i].g);
        write_tokenizer(&sides[i].g);
        struct rose_engine_options o = options_of(&sides[i].g);
        CHECK_OK(rose_engine_open(device, &o, &sides[i].engine, &err), err);
    }
    for (int i = 0; i < 2; i++) CHECK(sides[i].engine && !pthread_create(&threads[i], NULL, answer, &sides[i]));
    for (int i = 0; i < 4; i++) { /* loading packs weights with the same workers */
        struct rose_engine *third = NULL;
        struct rose_engine_options o = options_of(&sides[0].g);
        CHECK_OK(rose_engine_open(device, &o, &third, &err), err);
        rose_engine_close(third);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(sides[i].wrong, 0);
        CHECK_INT(sides[i].ended, ROUNDS * (int)sides[i].g.cases->count);
        rose_engine_close(sides[i].engine);
        golden_close(&sides[i].g);
    }
    rose_device_close(device);
}

/* What one engine takes, another one's plan leaves alone. */
TEST(memory_is_shared)
{
    struct golden g;
    struct rose_device *device = NULL;
    struct rose_engine *engines[3] = {0};
    struct rose_error err = {0};
    size_t bytes[3];
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 1, .no_pin = true, .no_packed_cache = true}, &device, &err), err);
    golden_open(&g, "llama3");
    golden_write_hf(&g);
    write_tokenizer(&g);
    for (int i = 0; i < 3; i++) {
        struct rose_engine_options o = options_of(&g);
        struct rose_model_info info = {0};
        o.memory_share = i == 0 ? 0.5 : i == 1 ? 1e-4 : 0;
        o.context = 0;
        o.max_sequences = 2;
        CHECK_OK(rose_engine_open(device, &o, &engines[i], &err), err);
        if (engines[i]) rose_engine_info(engines[i], &info);
        bytes[i] = info.kv_bytes;
    }
    CHECK(bytes[0] > 0 && bytes[1] > 0 && bytes[1] <= bytes[0] && bytes[2] == bytes[0]); /* a small model's full contexts, unless its part is smaller */
    for (int i = 0; i < 3; i++) rose_engine_close(engines[i]);
    rose_device_close(device);
    golden_close(&g);
}

TEST_MAIN(CASE(each_as_if_alone), CASE(memory_is_shared))
