#include "model/upload.h"

#include <stdlib.h>
#include <string.h>

#include "ops/dummy.h"

/* --- dummy weights ---------------------------------------------------------------------------------------------------------- */

enum rose_status upload_dummy(struct device *device, const struct upload_piece *pieces, size_t count, struct rose_error *err)
{
    if (device->planning) return ROSE_OK;
    struct program *program = NULL;
    struct extents one = {.n = {[EXTENT_ONE] = 1}};
    ROSE_TRY(program_open(device, &program, err));
    program->eager = true;
    enum rose_status s = ROSE_OK;
    for (size_t i = 0; i < count && s == ROSE_OK; i++) s = op_dummy(program, pieces[i].memory, &pieces[i].source, pieces[i].seed, err);
    if (s == ROSE_OK) s = program_finish(program, NULL, 0, err);
    if (s == ROSE_OK) s = device_submit(device, program, &one, err);
    if (s == ROSE_OK) s = device_wait(device, NULL, err);
    program_close(program);
    return s;
}

/* --- vectors ------------------------------------------------------------------------------------------------------------------ */

struct vectors {
    struct model *model;
    char *host; /* NULL while sizes are counted */
    size_t at;
};

/* One pointer: its n floats are put at the next place, and the pointer is turned to it. */
static void move(struct vectors *v, const float **pointer, int64_t n)
{
    if (!*pointer || n <= 0) return;
    if (v->host) {
        memcpy(v->host + v->at, *pointer, (size_t)n * 4);
        *pointer = (const float *)(const void *)((const char *)v->model->vectors + v->at);
    }
    v->at += size_round_up((size_t)n * 4, 256);
}

/* Parts of fused vectors have slots of their own, which an architecture may not name. */
static int64_t size_of(const struct model_config *c, int s)
{
    const struct slot_row *row = arch_slot(c->arch, (enum slot)s);
    if (row) return arch_dim(c, row->out);
    if (s == SLOT_Q_BIAS) return arch_dim(c, DIM_Q);
    if (s == SLOT_K_BIAS || s == SLOT_V_BIAS) return arch_dim(c, DIM_KV);
    return s == SLOT_GATE_BIAS || s == SLOT_UP_BIAS ? c->intermediate : 0;
}

static void move_slots(struct vectors *v, struct model_layer *layer, int begin, int end)
{
    for (int s = begin; s < end; s++)
        if (layer->vector[s]) move(v, &layer->vector[s], size_of(&v->model->config, s));
}

/* What stands on the rows (head.h), and the relative bias of attention. */
static void move_heads(struct vectors *v)
{
    struct model *m = v->model;
    struct model_head *h = &m->config.head;
    for (int32_t i = 0; i < h->dense_count; i++) move(v, &h->dense[i].bias, h->dense[i].out);
    move(v, &m->sparse_bias, 1);
    move(v, &m->alibi, m->config.heads.heads);
    move(v, &m->relative, (int64_t)m->config.heads.heads * OP_RELATIVE_STRIDE((int64_t)m->config.context));
}

static void move_all(struct vectors *v, struct model_layer *top)
{
    struct model *m = v->model;
    v->at = 0;
    move_slots(v, top, SLOT_FINAL_NORM, SLOT_FINAL_NORM + 1);
    move_slots(v, top, SLOT_EMBED_NORM, SLOT_ATTN_NORM); /* the frequencies' factors between them stay the host's */
    move_heads(v);
    for (int i = 0; i < m->config.layers; i++) move_slots(v, &m->layers[i], SLOT_ATTN_NORM, SLOT_COUNT);
    for (int i = 0; i < m->config.ropes_count; i++) move(v, &m->inv_freq[i], m->config.ropes[i].rotary_dim / 2);
}

enum rose_status upload_vectors(struct model *m, struct model_layer *top, struct rose_error *err)
{
    struct vectors v = {.model = m};
    move_all(&v, top);
    size_t bytes = v.at;
    if (!bytes) return ROSE_OK;
    if (!(m->vectors = device_alloc(m->device, bytes, DEVICE_MEMORY_LOCAL, err))) return ROSE_NO_MEMORY;
    m->vectors_bytes = bytes;
    if (!(v.host = calloc(1, bytes))) return status_set(err, ROSE_NO_MEMORY, "out of memory while loading the model");
    move_all(&v, top);
    enum rose_status s = device_copy(m->device, m->vectors, v.host, bytes, err);
    if (s == ROSE_OK) s = device_wait(m->device, NULL, err);
    free(v.host);
    return s;
}
