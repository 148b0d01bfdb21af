/* libFuzzer: what says of a model how it pools, projects, prompts, labels and scores. An input is a list of files, each "== NAME" on a line and then its
 * bytes: modules.json, 1_Pooling/config.json, 2_Dense/config.json, config_sentence_transformers.json, sentence_bert_config.json, config.json,
 * sparse_linear.pt. The weights are a tiny file of the classifier's output. What is accepted must be in range. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/config.h"
#include "model/head.h"
#include "model/head_pt.h"
#include "weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"config.json", "modules.json", "1_Pooling/config.json", "2_Dense/config.json", "config_sentence_transformers.json", "sentence_bert_config.json", "sparse_linear.pt"};
static const char config_json[] = "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"],\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                                  "\"intermediate_size\":32,\"max_position_embeddings\":64,\"type_vocab_size\":2,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\"}";
static char dir[64];

static void put(const char *name, const void *p, size_t n)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n) abort();
    close(fd);
}

static void remove_dir(void)
{
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    static const char *const rest[] = {"model.safetensors", "1_Pooling", "2_Dense", ""};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, rest[i]);
        if (i) rmdir(path);
        else unlink(path);
    }
}

static void make_dir(void)
{
    static const char head[] = "{\"classifier.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}  ";
    char path[160], file[sizeof head + 16] = {0};
    snprintf(dir, sizeof dir, "/dev/shm/fuzz_head.XXXXXX");
    if (!mkdtemp(dir)) abort();
    for (int i = 2; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%.*s", dir, (int)(strchr(names[i], '/') - names[i]), names[i]);
        if (mkdir(path, 0700)) abort();
    }
    file[0] = (char)(sizeof head - 1);
    memcpy(file + 8, head, sizeof head - 1);
    put("model.safetensors", file, 8 + sizeof head - 1 + 8);
    atexit(remove_dir);
}

/* The files of an input; config.json is there even when the input has none. */
static void write_files(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *end = p + size;
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    put("config.json", config_json, sizeof config_json - 1);
    while (p < end) {
        const char *line = memchr(p, '\n', (size_t)(end - p)), *next;
        if (!line) return;
        const char *body = line + 1;
        next = memmem(body, (size_t)(end - body), "\n== ", 4);
        const char *stop = next ? next : end;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if ((size_t)(line - p) == strlen(names[i]) + 3 && !memcmp(p, "== ", 3) && !memcmp(p + 3, names[i], strlen(names[i]))) put(names[i], body, (size_t)(stop - body));
        p = next ? next + 1 : end;
    }
}

static void check(const struct model_config *c)
{
    const struct model_head *h = &c->head;
    if (h->dense_count < 0 || h->dense_count > HEAD_MAX_DENSE || h->prompts_count < 0 || h->prompts_count > HEAD_MAX_PROMPTS || h->labels < 0 || h->labels > HEAD_MAX_LABELS) abort();
    for (int32_t i = 0, before = c->hidden; i < h->dense_count; before = h->dense[i++].out)
        if (h->dense[i].in != before || h->dense[i].out < 1 || !h->dense_path[i]) abort();
    for (int32_t i = 0; i < h->prompts_count; i++)
        if (!h->prompt[i] || !h->prompt_text[i]) abort();
    for (int32_t i = 0; i < h->labels && h->label; i++)
        if (!h->label[i]) abort();
    if (h->task == MODEL_EMBED && h->embedding < 1) abort();
    if (h->task == MODEL_YES_NO && (h->yes < 0 || h->yes >= c->vocabulary || h->no >= c->vocabulary)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct model_config c = {0};
    struct rose_error err = {0};
    struct weights *w = NULL;
    if (!*dir) make_dir();
    if (size > 1 << 16) return 0;
    write_files(data, size);
    arena_init(&a, (size_t)64 << 20);
    enum rose_status s = weights_open(dir, &w, &err);
    if (s == ROSE_OK) s = config_read(&a, w, &c, &err);
    for (int task = MODEL_AUTO; s == ROSE_OK && task <= MODEL_AUTO + 1; task++) {
        struct head_wish wish = {.task = task == MODEL_AUTO ? MODEL_AUTO : MODEL_EMBED, .yes = -1, .no = -1};
        s = head_read(&a, w, &wish, &c, &err);
        if (s == ROSE_OK) check(&c);
        else if (!err.message[0]) abort();
        if (s == ROSE_OK && c.head.sparse) {
            float v[33];
            (void)head_pt_read(c.head.sparse_path, 32, v, v + 32, &err);
        }
    }
    weights_close(w);
    arena_free(&a);
    return 0;
}
