/* config.json to model_config, and GGUF metadata (an input that begins with GGUF) likewise. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/config.h"
#include "weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What stands on the rows, and what an accepted one promises. */
static enum rose_status head_of(struct arena *a, struct weights *w, struct model_config *c, struct rose_error *err)
{
    const struct model_head *h = &c->head;
    enum rose_status s = head_read(a, w, &(struct head_wish){.yes = -1, .no = -1}, c, err);
    if (s != ROSE_OK) return s;
    if (h->dense_count < 0 || h->dense_count > HEAD_MAX_DENSE || h->labels < 0 || h->labels > HEAD_MAX_LABELS) abort();
    for (int32_t i = 0, before = c->hidden; i < h->dense_count; before = h->dense[i++].out)
        if (h->dense[i].in != before || h->dense[i].out < 1 || !h->dense_name[i]) abort();
    for (int32_t i = 0; i < h->labels && h->label; i++)
        if (!h->label[i]) abort();
    if (h->task == MODEL_EMBED && h->embedding < 1) abort();
    if (h->task == MODEL_YES_NO && !h->answers && (h->yes < 0 || h->yes >= c->vocabulary)) abort();
    return ROSE_OK;
}

static enum rose_status from_gguf(struct arena *a, const uint8_t *data, size_t size, struct model_config *c,
                                  struct rose_error *err)
{
    static int fd = -1;
    char path[64];
    struct weights *w = NULL;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum rose_status s = weights_open(path, &w, err);
    if (s == ROSE_OK) s = config_read(a, w, c, err);
    if (s == ROSE_OK) s = head_of(a, w, c, err);
    weights_close(w);
    return s;
}

/* What an accepted config promises to the forward. */
static void check(const struct model_config *c)
{
    if (c->layers < 1 || c->hidden < 1 || c->vocabulary < 1 || c->context < 1 || !c->layer ||
        c->heads.kv_heads < 1 || c->heads.heads % c->heads.kv_heads)
        abort();
    if (c->heads.head_dim < 2 || c->heads.head_dim > 512 || c->groups_count < 1 ||
        c->groups_count > OP_MAX_GROUPS || c->group_layers < 1)
        abort();
    for (int32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        if (l->window < 0 || l->rope >= c->ropes_count || l->group < 0 || l->group >= c->groups_count ||
            l->group_layer >= c->group_layers)
            abort();
    }
    for (int32_t i = 0; i < c->ropes_count; i++) {
        float table[256], scale;
        if (c->ropes[i].rotary_dim < 2 || c->ropes[i].rotary_dim > 512) abort();
        if (c->ropes[i].scaling == ROPE_LONGROPE && !c->ropes[i].long_factor)
            continue; /* GGUF: tensors, bound later */
        for (int32_t length = 0; length < 1 << 20; length = length * 4 + 1)
            rope_inv_freq(&c->ropes[i], c->context, length, table, &scale);
    }
    for (int32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] < 0 || c->eos[i] >= c->vocabulary) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct model_config c = {0};
    struct rose_error err = {0};
    const struct json *j;
    arena_init(&a, 256 << 20);
    enum rose_status s;
    if (size > 4 && !memcmp(data, "GGUF", 4)) {
        s = from_gguf(&a, data, size, &c, &err);
    } else {
        s = json_parse(&a, "config.json", (struct str){(const char *)data, size}, &j, &err);
        if (s == ROSE_OK) s = config_from_json(&a, "config.json", j, &c, &err);
    }
    if (s == ROSE_OK)
        check(&c);
    else if (!err.message[0])
        abort();
    arena_free(&a);
    return 0;
}
