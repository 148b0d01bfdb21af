/* Random weights from a config.json alone: refused where the memory that is free cannot hold them, before anything is made. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "model/model.h"
#include "test.h"
#include "weights/weights.h"

static char dir[64];

/* more: further members, each with a comma before it. */
static void write_config_of(const char *architecture, int hidden, const char *more)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "{\"model_type\":\"llama\",\"architectures\":[\"%s\"],\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
               "\"num_key_value_heads\":2,\"vocab_size\":64,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"%s}",
            architecture, hidden, 2 * hidden, more);
    fclose(f);
}

static void write_config(int hidden) { write_config_of("LlamaForCausalLM", hidden, ""); }

static enum rose_status open_with(struct device *d, struct rose_error *err)
{
    struct weights *w;
    struct model *m = NULL;
    ROSE_TRY(weights_open_config(dir, &w, err));
    enum rose_status s = model_open_dummy(d, w, 1, DTYPE_NONE, &m, err);
    model_close(m);
    return s;
}

TEST(what_is_not_free_is_not_made)
{
    struct device_options options = {.kind = DEVICE_CPU, .threads = 1};
    struct device *d = NULL;
    struct rose_error err = {0};
    strcpy(dir, "/tmp/rose-dummy-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(device_open(&options, &d, &err), err);
    write_config(128); /* a layer of 10 x 128 x 128 and a table of 64 x 128 bfloat16 values: 344 kB */
    CHECK_OK(open_with(d, &err), err);
    d->info.memory_free = 300000;
    CHECK_INT(open_with(d, &err), ROSE_NO_MEMORY);
    CHECK(strstr(err.message, "are free"));
    d->info.memory_free = 344064 + 3 * 256 * 128 * 2; /* the largest matrix beside it, with room for padding */
    CHECK_OK(open_with(d, &err), err);
    device_close(d);
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

/* What a head looks like where there are no weights: labels as the config counts them, two rows of no token for an answer. */
TEST(heads_of_a_config_alone)
{
    static const struct { const char *architecture, *more; enum model_task task; int labels; } cases[] = {
        {"LlamaForSequenceClassification", "", MODEL_CLASSIFY, 2},
        {"LlamaForSequenceClassification", ",\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}", MODEL_CLASSIFY, 3},
        {"LlamaForTokenClassification", ",\"num_labels\":5", MODEL_CLASSIFY_TOKENS, 5},
        {"LlamaForCausalLM", ",\"_name_or_path\":\"Qwen3-Reranker-tiny\"", MODEL_YES_NO, 1}};
    struct device *d = NULL;
    struct rose_error err = {0};
    char path[128];
    strcpy(dir, "/tmp/rose-dummy-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = 1}, &d, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights *w;
        struct model *m = NULL;
        write_config_of(cases[i].architecture, 64, cases[i].more);
        CHECK_OK(weights_open_config(dir, &w, &err), err);
        CHECK_OK(model_open_dummy(d, w, 1, DTYPE_NONE, &m, &err), err);
        if (!m) continue;
        CHECK_INT(m->config.head.task, cases[i].task);
        CHECK_INT(m->config.head.labels, cases[i].labels);
        if (cases[i].task == MODEL_YES_NO) CHECK(m->answer[0].data && m->answer[1].data && m->answer[1].n == 1 && m->answer[1].k == 64);
        model_close(m);
    }
    device_close(d);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

TEST_MAIN(CASE(what_is_not_free_is_not_made), CASE(heads_of_a_config_alone))
