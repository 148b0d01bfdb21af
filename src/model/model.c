/* Loading: every slot of every layer is bound to a tensor of the file, then packed for the device, then its pages go back. */
#define _GNU_SOURCE
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"
#include "model/fp8.h"
#include "model/packed.h"
#include "model/upload.h"
#include "ops/dummy.h"
#include "ops/embed.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_cuda.h"
#include "model/loader.h"
#include "model/slots.h"
#include "weights/gguf.h"

enum rose_status loader_no_memory(struct loader *l) { return status_set(l->err, ROSE_NO_MEMORY, "out of memory while loading the model"); }

void loader_notice(struct loader *l, const char *format, ...)
{
    char *notice = l->m->notice;
    size_t size = sizeof l->m->notice, n = strlen(notice);
    if (n) n += (size_t)snprintf(notice + n, size - n, "; ");
    if (n >= size) return;
    va_list args;
    va_start(args, format);
    vsnprintf(notice + n, size - n, format, args);
    va_end(args);
}

/* Float matrices of layers become the wished type where its blocks fit; tables and heads stay as they are. */
static bool converts(const struct loader *l, const struct tensor *t)
{
    bool is_float = t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16;
    if (!l->wish.weights || !l->in_layer || l->dummy || !is_float || t->dtype == l->wish.weights) return false;
    return tensor_cols(t) % dtype_info(l->wish.weights)->block == 0;
}

enum rose_status loader_add(struct loader *l, struct tensor source, struct op_weight *target, const struct weights *weights, const struct weights_tensor *release)
{
    if (l->count == l->capacity) {
        size_t cap = l->capacity ? l->capacity * 2 : 256;
        struct loader_item *more = realloc(l->items, cap * sizeof *more);
        if (!more) return loader_no_memory(l);
        l->items = more;
        l->capacity = cap;
    }
    l->items[l->count++] = (struct loader_item){.source = source, .target = target, .weights = weights, .release = release, .convert = converts(l, &source),
                                                .expand = source.dtype == DTYPE_F8_E4M3 && !l->in_layer};
    l->m->parameters += tensor_count(&source);
    return ROSE_OK;
}

/* Rows [begin, begin + rows) of a matrix. */
struct tensor loader_rows(const struct tensor *t, int64_t begin, int64_t rows)
{
    struct tensor v = {.dtype = t->dtype, .ndim = 2, .shape = {rows, tensor_cols(t)}, .scales = t->scales, .scales_row = t->scales_row + begin};
    if (t->data) v.data = (const char *)t->data + (size_t)begin * dtype_row_bytes(t->dtype, (size_t)v.shape[1]);
    return v;
}

/* Norms, biases and factors become float32 in the arena. */
enum rose_status loader_vector(struct loader *l, const struct tensor *t, const float **out)
{
    size_t n = (size_t)tensor_count(t);
    float *v = ARENA_ARRAY(&l->m->arena, float, n);
    if (!v) return loader_no_memory(l);
    if (t->data) dtype_decode(t->dtype, t->data, v, n);
    l->m->parameters += (int64_t)n;
    *out = v;
    return ROSE_OK;
}

/* Where a slot's parts go when the file holds them fused. */
static enum rose_status split(struct loader *l, struct model_layer *layer, enum slot slot, const struct tensor *t, const struct weights_tensor *file)
{
    const struct model_config *c = &l->m->config;
    int64_t q = arch_dim(c, DIM_Q), kv = arch_dim(c, DIM_KV);
    if (slot == SLOT_QKV) {
        ROSE_TRY(loader_add(l, loader_rows(t, 0, q), &layer->weight[SLOT_Q], l->m->weights, NULL));
        ROSE_TRY(loader_add(l, loader_rows(t, q, kv), &layer->weight[SLOT_K], l->m->weights, NULL));
        return loader_add(l, loader_rows(t, q + kv, kv), &layer->weight[SLOT_V], l->m->weights, file);
    }
    if (slot == SLOT_GATE_UP) {
        bool up_first = l->arch->up_first;
        ROSE_TRY(loader_add(l, loader_rows(t, 0, c->intermediate), &layer->weight[up_first ? SLOT_UP : SLOT_GATE], l->m->weights, NULL));
        return loader_add(l, loader_rows(t, c->intermediate, c->intermediate), &layer->weight[up_first ? SLOT_GATE : SLOT_UP], l->m->weights, file);
    }
    if (slot == SLOT_RELATIVE) {
        l->relative = *t;
        l->m->parameters += tensor_count(t);
        return ROSE_OK;
    }
    ROSE_TRY(loader_add(l, *t, &layer->weight[slot], l->m->weights, file));
    bool looked_up = slot == SLOT_POSITIONS || slot == SLOT_TYPES || (slot == SLOT_EMBED && !(c->tied && c->head.task == MODEL_GENERATE));
    l->items[l->count - 1].table = looked_up && op_table_bytes(l->m->device, t) > 0;
    return ROSE_OK;
}

static bool is_norm(enum slot s)
{
    return s == SLOT_EMBED_NORM || s == SLOT_FINAL_NORM || s == SLOT_ATTN_NORM || s == SLOT_Q_NORM || s == SLOT_K_NORM || s == SLOT_POST_ATTN_NORM || s == SLOT_SECOND_NORM || s == SLOT_FFN_NORM || s == SLOT_POST_FFN_NORM;
}

/* A dummy norm multiplies by one. */
static void fill_ones(struct loader *l, float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = 1 - l->m->config.norm_offset;
}

static enum rose_status split_vector(struct loader *l, struct model_layer *layer, enum slot slot, const struct tensor *t)
{
    const struct model_config *c = &l->m->config;
    const float *v = NULL;
    ROSE_TRY(loader_vector(l, t, &v));
    if (slot == SLOT_GATE_UP_BIAS) {
        layer->vector[SLOT_GATE_BIAS] = v;
        layer->vector[SLOT_UP_BIAS] = v + c->intermediate;
        return ROSE_OK;
    }
    if (l->dummy && is_norm(slot)) fill_ones(l, (float *)(uintptr_t)v, tensor_count(t));
    if (slot != SLOT_QKV_BIAS) {
        layer->vector[slot] = v;
        return ROSE_OK;
    }
    layer->vector[SLOT_Q_BIAS] = v;
    layer->vector[SLOT_K_BIAS] = v + arch_dim(c, DIM_Q);
    layer->vector[SLOT_V_BIAS] = v + arch_dim(c, DIM_Q) + arch_dim(c, DIM_KV);
    return ROSE_OK;
}

/* Old BERT files call a norm's weight gamma and its bias beta. */
static void old_norm_name(struct loader *l, char *name, size_t bytes)
{
    struct str s = str_of(name);
    bool weight = str_ends(s, STR(".LayerNorm.weight"));
    if (l->gguf || l->dummy || (!weight && !str_ends(s, STR(".LayerNorm.bias"))) || weights_find(l->m->weights, name)) return;
    char old[256];
    snprintf(old, sizeof old, "%.*s%s", (int)(s.n - (weight ? 6 : 4)), name, weight ? "gamma" : "beta");
    if (weights_find(l->m->weights, old)) snprintf(name, bytes, "%s", old);
}

/* A slot's name in this file: its layer, and the prefix that "model." stands for. */
static void name_slot(struct loader *l, const char *pattern, int index, char *name, size_t bytes)
{
    char rest[256];
    bool backbone = !l->gguf && l->prefix && !strncmp(pattern, "model.", 6);
    snprintf(rest, sizeof rest, backbone ? pattern + 6 : pattern, index);
    snprintf(name, bytes, "%s%s", backbone ? l->prefix : "", rest);
    old_norm_name(l, name, bytes);
}

static bool want(struct loader *l, const char *name, int ndim, const int64_t *shape, int flags, struct tensor *t)
{
    if (ndim > 1 && l->m->config.quant.kind != QUANT_NONE) flags |= BIND_FP8;
    if (!l->dummy) return bind_want(l->bind, name, ndim, shape, flags, t);
    *t = (struct tensor){.dtype = l->m->element == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16, .ndim = ndim};
    for (int i = 0; i < ndim; i++) t->shape[i] = shape[i];
    return !(flags & BIND_OPTIONAL);
}

static enum rose_status experts(struct loader *l, struct model_layer *layer, int which, const struct slot_row *row, int index)
{
    const struct model_config *c = &l->m->config;
    int64_t n = arch_dim(c, row->out), k = arch_dim(c, row->in);
    char name[256];
    struct tensor t;
    layer->experts[which] = ARENA_ARRAY(&l->m->arena, struct op_weight, (size_t)c->experts);
    if (!layer->experts[which]) return loader_no_memory(l);
    if (l->gguf) {
        snprintf(name, sizeof name, row->gguf, index);
        if (!want(l, name, 3, (int64_t[]){c->experts, n, k}, BIND_ANY, &t)) return ROSE_OK;
        for (int32_t e = 0; e < c->experts; e++)
            ROSE_TRY(loader_add(l, loader_rows(&t, e * n, n), &layer->experts[which][e], l->m->weights, e + 1 == c->experts ? weights_find(l->m->weights, name) : NULL));
        return ROSE_OK;
    }
    for (int32_t e = 0; e < c->experts; e++) {
        snprintf(name, sizeof name, l->prefix && !*l->prefix ? row->hf + 6 : row->hf, index, e);
        if (!want(l, name, 2, (int64_t[]){n, k}, BIND_ANY, &t)) continue;
        ROSE_TRY(fp8_scales(l, name, &t));
        ROSE_TRY(loader_add(l, t, &layer->experts[which][e], l->m->weights, weights_find(l->m->weights, name)));
    }
    return ROSE_OK;
}

/* Experts' kernels read all experts of a matrix in one format, and gate and up both in blocks, both in one kind of FP8 or both in BF16: what is not
 * so becomes BF16. The last slot's items have just been added. */
static enum rose_status experts_alike(struct loader *l, enum slot slot)
{
    size_t experts = (size_t)l->m->config.experts, count = slot == SLOT_EXPERT_UP ? 2 * experts : experts;
    if (l->m->device->info.kind != DEVICE_CUDA || l->count < count) return ROSE_OK;
    struct loader_item *it = l->items + l->count - count;
    bool alike = true;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = &it[i].source, *first = &it[i < experts && slot == SLOT_EXPERT_UP ? 0 : count - experts].source;
        alike &= t->dtype == first->dtype && matmul_cuda_weight_bytes(t, it[i].expand) == matmul_cuda_weight_bytes(first, it[i].expand);
    }
    if (slot == SLOT_EXPERT_UP) {
        const struct tensor *gate = &it[0].source, *up = &it[experts].source;
        bool kept[2] = {matmul_blocks_bytes(gate) && !it[0].expand, matmul_blocks_bytes(up) && !it[experts].expand};
        alike &= kept[0] == kept[1] && (kept[0] || (gate->dtype == up->dtype && matmul_cuda_weight_bytes(gate, it[0].expand) == matmul_cuda_weight_bytes(up, it[experts].expand)));
    }
    for (size_t i = 0; i < count && !alike; i++) it[i].expand = true;
    return ROSE_OK;
}

static enum rose_status bind_slot(struct loader *l, struct model_layer *layer, enum slot slot, int index)
{
    const struct model_config *c = &l->m->config;
    const struct slot_row *row = c->head.task == MODEL_CLASSIFY_TOKENS ? slot_find(l->arch->token_head, slot) : NULL;
    if (!row) row = arch_slot(l->arch, slot);
    const char *pattern = row ? l->gguf ? row->gguf : row->hf : NULL;
    if (!pattern || !arch_needs(c, row, row->per_layer ? index : -1, l->fused_qkv, l->fused_gate_up)) return ROSE_OK;
    if (slot >= SLOT_EXPERT_GATE && slot <= SLOT_EXPERT_DOWN) {
        ROSE_TRY(experts(l, layer, slot - SLOT_EXPERT_GATE, row, index));
        return experts_alike(l, slot);
    }
    char name[256];
    name_slot(l, pattern, index, name, sizeof name);
    int64_t out = arch_dim(c, row->out), in = arch_dim(c, row->in);
    bool optional = row->need == NEED_OPTIONAL || row->need == NEED_HEAD_OUT_OPTIONAL || row->need == NEED_HEAD_DENSE_OPTIONAL;
    int flags = (optional ? BIND_OPTIONAL : BIND_ANY) | (slot == SLOT_RELATIVE ? BIND_PLAIN : BIND_ANY);
    struct tensor t;
    if (row->in == DIM_NONE) {
        if (!want(l, name, 1, &out, flags | BIND_PLAIN, &t)) return ROSE_OK;
        return split_vector(l, layer, slot, &t);
    }
    if (!want(l, name, 2, (int64_t[]){out, in}, flags, &t)) return ROSE_OK;
    ROSE_TRY(fp8_scales(l, name, &t));
    return split(l, layer, slot, &t, weights_find(l->m->weights, name));
}

/* Slots of the model use the same shelves as a layer's while binding. */
static enum rose_status bind_all(struct loader *l, struct model_layer *top)
{
    struct model *m = l->m;
    for (int s = 0; s < SLOT_ATTN_NORM; s++) ROSE_TRY(bind_slot(l, top, (enum slot)s, 0));
    l->in_layer = true;
    for (int i = 0; i < m->config.layers; i++)
        for (int s = SLOT_ATTN_NORM; s < SLOT_COUNT; s++) ROSE_TRY(bind_slot(l, &m->layers[i], (enum slot)s, i));
    if (l->dummy) return ROSE_OK;
    fp8_ignore(l);
    if (l->arch->ignore) {
        char pattern[160];
        snprintf(pattern, sizeof pattern, "*%s*", l->arch->ignore);
        bind_ignore(l->bind, pattern);
    }
    static const char *const unused[] = {"lm_head.*", "cls.*", "*pooler.*", "*position_ids", "*rotary_emb.inv_freq", "vocab_*", "classifier.*", "score.*", "head.*",
                                         "decoder.*", "output.weight"};
    for (size_t i = 0; m->config.own_rows && i < ROSE_COUNT(unused); i++) bind_ignore(l->bind, unused[i]); /* heads of other tasks */
    if (m->config.tied) bind_ignore(l->bind, l->gguf ? "output.weight" : "lm_head.weight"); /* a second copy of the table */
    struct bind *b = l->bind;
    l->bind = NULL;
    return bind_finish(b, NULL, l->err);
}

/* One sentence about the types that are not kept as they are: all but the block formats that kernels read. */
static void note_conversions(struct loader *l)
{
    struct strbuf b = {.limit = sizeof l->m->notice - 1};
    enum dtype seen[16];
    int n = 0;
    for (size_t i = 0; i < l->count; i++) {
        enum dtype t = l->items[i].source.dtype;
        int k = 0;
        while (k < n && seen[k] != t) k++;
        if (t == l->items[i].target->dtype || k < n || n == (int)ROSE_COUNT(seen)) continue;
        seen[n++] = t;
        strbuf_printf(&b, "%s%s%s", n > 1 ? ", " : "weights in ", dtype_info(t)->name, matmul_cuda_weight_bytes(&l->items[i].source, false) < matmul_cuda_weight_bytes(&l->items[i].source, true) ? " (tables, unlike experts)" : "");
    }
    if (n && b.p) loader_notice(l, "%.200s become %s in device memory", b.p, dtype_info(l->m->element)->name);
    strbuf_free(&b);
}

static enum rose_status pack_cuda(struct loader *l)
{
    struct model *m = l->m;
    struct upload_piece *pieces = calloc(l->count + 1, sizeof *pieces);
    if (!pieces) return loader_no_memory(l);
    enum rose_status s = ROSE_OK;
    size_t at = 0;
    for (size_t i = 0; i < l->count && s == ROSE_OK; i++) {
        struct loader_item *it = &l->items[i];
        pieces[i] = (struct upload_piece){it->source, it->target, (char *)m->memory + at, l->seed + i, it->weights, it->release};
        s = matmul_cuda_weight_as(&it->source, it->expand, m->element, pieces[i].memory, it->target, l->err);
        at += it->bytes;
    }
    double began = clock_seconds();
    if (s == ROSE_OK && l->dummy) s = upload_dummy(m->device, pieces, l->count, l->err);
    m->upload_seconds = clock_seconds() - began; /* of a dummy; model_loaded sets another's */
    if (s == ROSE_OK && !l->dummy) s = upload_begin(m->device, pieces, l->count, l->progress, l->user, &m->upload, l->err);
    free(pieces);
    if (s == ROSE_OK && !l->dummy) note_conversions(l);
    return s;
}

enum rose_status model_loaded(struct model *m, struct rose_error *err)
{
    struct upload *upload = m->upload;
    m->upload = NULL;
    if (!upload) return ROSE_OK;
    return upload_end(upload, false, &m->upload_seconds, err);
}

static enum rose_status pack_item(struct loader *l, const struct loader_item *it, const struct tensor *source, void *place)
{
    return (it->table ? op_table_pack : op_weight_pack)(l->m->device, source, place, it->target, l->err);
}

/* A dummy's values where the CPU wants them: made on the host, packed like any other. */
static enum rose_status pack_dummy(struct loader *l, struct loader_item *it, uint64_t seed, void *place)
{
    uint16_t *rows = malloc((size_t)tensor_count(&it->source) * 2);
    if (!rows) return loader_no_memory(l);
    struct tensor t = it->source;
    op_dummy_rows(&t, seed, rows);
    t.data = rows;
    enum rose_status s = pack_item(l, it, &t, place);
    free(rows);
    return s;
}

/* Another type first: a matrix at a time through float32. */
static enum rose_status pack_converted(struct loader *l, struct loader_item *it, void *place)
{
    struct tensor from = it->source, to = from;
    size_t rows = (size_t)tensor_rows(&from), cols = (size_t)tensor_cols(&from), from_row = dtype_row_bytes(from.dtype, cols), to_row = dtype_row_bytes(l->wish.weights, cols);
    float *row = malloc(cols * sizeof *row);
    char *memory = malloc(rows * to_row);
    enum rose_status s = row && memory ? ROSE_OK : loader_no_memory(l);
    to.dtype = l->wish.weights;
    to.data = memory;
    for (size_t i = 0; s == ROSE_OK && i < rows; i++) {
        dtype_decode(from.dtype, (const char *)from.data + i * from_row, row, cols);
        s = dtype_encode(to.dtype, row, memory + i * to_row, cols, l->err);
    }
    if (s == ROSE_OK) s = op_weight_pack(l->m->device, &to, place, it->target, l->err);
    free(row);
    free(memory);
    return s;
}

/* Weights that an earlier start has packed: mapped, every matrix compared by a sample. */
static bool map_packed(struct loader *l, size_t total)
{
    struct model *m = l->m;
    const char *dir = m->device->packed_dir, *path = weights_path(m->weights);
    if (!dir || l->dummy || m->device->info.kind != DEVICE_CPU) return false;
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].weights != m->weights || !l->items[i].bytes) { /* parts of other files are not in the key */
            loader_notice(l, "weights are packed at every start: a part of them has a file of its own");
            return false;
        }
    uint64_t layout = 0;
    for (size_t i = 0; i < l->count; i++) layout = hash_mix(layout, (uint64_t)l->items[i].bytes << 1 | l->items[i].table);
    if (!packed_key(m->weights, total, layout, &m->packed_key)) {
        strbuf_free(&m->packed_key);
        return false;
    }
    /* What the key's samples touched, up to 2 MB each, goes before as much again is mapped: SmolLM2 in BF16 had 59 MB more at its peak. */
    for (size_t i = 0; i < l->count; i++)
        if (l->items[i].release) weights_release(l->items[i].weights, l->items[i].release);
    bool damaged;
    const char *map = packed_map(dir, path, strbuf_str(&m->packed_key), total, &damaged);
    if (damaged) loader_notice(l, "packed weights of an earlier start in %.160s/packed were damaged and are packed anew", dir);
    if (!map) return false;
    bool same = true;
    for (size_t i = 0, at = 0; i < l->count && same; at += l->items[i++].bytes) {
        struct loader_item *it = &l->items[i];
        same = (it->table ? op_table_adopt : op_weight_adopt)(m->device, &it->source, map + at, (size_t)hash_mix(i, (uint64_t)time(NULL)), it->target);
        if (same && it->release) weights_release(it->weights, it->release); /* the samples' pages */
    }
    if (same) {
        m->packed = map;
        loader_notice(l, "weights are mapped as an earlier start packed them (%.160s/packed)", dir);
    } else {
        packed_unmap(map, strbuf_str(&m->packed_key), total);
    }
    return same;
}

/* What to do about weights that have no room, after what was said of them. */
static enum rose_status no_room(struct loader *l, size_t need, const char *why)
{
    const char *path = weights_path(l->m->weights);
    return status_at(l->err, ROSE_NO_MEMORY, path, -1, "%s: the weights need %.1f GB and %s; use a smaller %s, or a machine with more memory", path, (double)need / 1e9, why,
                     l->dummy ? "config" : "quantisation");
}

/* The host's memory is promised before it is there: what it cannot hold is refused, not killed half way. Dummies are made a matrix at a time beside it. */
static enum rose_status check_free(struct loader *l, size_t total)
{
    struct device *d = l->m->device;
    size_t largest = 0, left = device_memory_free(d);
    char why[240];
    if (d->info.kind != DEVICE_CPU) return ROSE_OK;
    for (size_t i = 0; l->dummy && i < l->count; i++) largest = ROSE_MAX(largest, (size_t)tensor_count(&l->items[i].source) * 2);
    if (total + largest <= left) return ROSE_OK;
    snprintf(why, sizeof why, "%.1f of the %.1f GB of %s are free; end what takes them", (double)left / 1e9, (double)d->info.memory_total / 1e9, d->info.name);
    return no_room(l, total + largest, why);
}

/* Memory for all weights. The system refuses it where the process may not have so much. */
static enum rose_status take_memory(struct loader *l, size_t total)
{
    struct model *m = l->m;
    ROSE_TRY(check_free(l, total));
    if (!total || (m->memory = device_alloc(m->device, total, DEVICE_MEMORY_LOCAL, l->err))) return ROSE_OK;
    return m->device->info.kind == DEVICE_CPU ? no_room(l, total, "the system refused them, as a limit of this process (ulimit -v) makes it do; raise that") : ROSE_NO_MEMORY;
}

/* For the next start, beside the work of this one. */
static void keep_packed(struct loader *l, size_t total)
{
    struct model *m = l->m;
    const char *why;
    m->store = packed_store_begin(m->device->packed_dir, weights_path(m->weights), strbuf_str(&m->packed_key), m->memory, total, m->device->packed_limit, &why);
    if (!m->store) loader_notice(l, "packed weights are not kept for the next start: %s", why);
}

static enum rose_status pack_all(struct loader *l)
{
    struct model *m = l->m;
    size_t total = 0, done = 0, work = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct tensor source = l->items[i].source;
        bool cuda = m->device->info.kind == DEVICE_CUDA;
        if (l->items[i].convert && !cuda) source.dtype = l->wish.weights;
        l->items[i].bytes = size_round_up(cuda ? matmul_cuda_weight_bytes(&source, l->items[i].expand) : l->items[i].table ? op_table_bytes(m->device, &source) : op_weight_bytes(m->device, &source), 256);
        total += l->items[i].bytes;
        work += l->items[i].bytes;
    }
    if (total > m->device->info.memory_total) {
        char why[160];
        snprintf(why, sizeof why, "%s has %.1f GB", m->device->info.name, (double)m->device->info.memory_total / 1e9);
        return no_room(l, total, why);
    }
    m->memory_bytes = total;
    if (l->wish.weights && m->device->packed_dir && m->device->info.kind == DEVICE_CPU && !l->dummy) loader_notice(l, "weights are packed at every start: --weights converts them");
    if (!l->wish.weights && map_packed(l, total)) return ROSE_OK;
    ROSE_TRY(take_memory(l, total));
    if (m->device->info.kind == DEVICE_CUDA) return pack_cuda(l);
    for (size_t i = 0; i < l->count; i++) {
        struct loader_item *it = &l->items[i];
        void *place = it->bytes ? (char *)m->memory + done : NULL;
        if (l->dummy) ROSE_TRY(pack_dummy(l, it, l->seed + i, place));
        else if (it->convert) ROSE_TRY(pack_converted(l, it, place));
        else ROSE_TRY(pack_item(l, it, &it->source, place));
        if (it->bytes && it->release) weights_release(it->weights, it->release);
        done += it->bytes;
        if (l->progress) l->progress(l->user, done, work);
    }
    if (m->packed_key.n) keep_packed(l, total);
    return ROSE_OK;
}

static enum rose_status finish_ropes(struct model *m, const struct model_layer *top, struct rose_error *err)
{
    struct model_config *c = &m->config;
    /* The factors a GGUF file carries belong to the first table. */
    if (top->vector[SLOT_ROPE_FREQS]) c->ropes[0].freq_factors = top->vector[SLOT_ROPE_FREQS];
    if (top->vector[SLOT_ROPE_SHORT]) c->ropes[0].short_factor = top->vector[SLOT_ROPE_SHORT];
    if (top->vector[SLOT_ROPE_LONG]) c->ropes[0].long_factor = top->vector[SLOT_ROPE_LONG];
    for (int32_t i = 0; i < c->ropes_count; i++) {
        if (c->ropes[i].scaling == ROPE_LONGROPE && (!c->ropes[i].short_factor || !c->ropes[i].long_factor))
            return status_set(err, ROSE_FORMAT, "longrope without its short and long factors");
        float *f = ARENA_ARRAY(&m->arena, float, (size_t)c->ropes[i].rotary_dim / 2);
        if (!f) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        rope_inv_freq(&c->ropes[i], c->context, 0, f, &m->rope_scale[i]);
        m->inv_freq[i] = f;
    }
    return ROSE_OK;
}

/* A config that ties the tables beside an output matrix with other values: the matrix is meant, as transformers has it too. */
static void untie(struct model *m)
{
    const struct weights_tensor *embed = weights_find(m->weights, "model.embed_tokens.weight"), *out = weights_find(m->weights, "lm_head.weight");
    if (!m->config.tied || !embed || !out) return;
    m->config.tied = embed->bytes == out->bytes && !strcmp(embed->type, out->type) && !memcmp(embed->tensor.data, out->tensor.data, embed->bytes);
}

/* Experts come one tensor each: a config that speaks of far more than the files hold is refused before millions are looked for. */
static enum rose_status check_experts(struct loader *l)
{
    const struct model_config *c = &l->m->config;
    size_t wanted = 0, there = weights_count(l->m->weights);
    for (int32_t i = 0; i < c->layers; i++) wanted += c->layer[i].moe ? l->gguf ? 3 : (size_t)c->experts * 3 : 0;
    if (wanted / 16 <= there + 4096) return ROSE_OK;
    return status_set(l->err, ROSE_FORMAT, "%s: %d experts in each of %d layers need %zu tensors and the files hold %zu", weights_path(l->m->weights), c->experts,
                      c->layers, wanted, there);
}

/* Files of the bare model (BertModel, Qwen3Model) leave the prefix out; others spell the backbone's name. */
static void find_prefix(struct loader *l)
{
    const struct slot_row *embed = arch_slot(l->arch, SLOT_EMBED);
    char name[256];
    if (l->arch->older && (weights_find(l->m->weights, l->arch->older_tensor) ||
                           (snprintf(name, sizeof name, "%s%s", l->arch->older->prefix, l->arch->older_tensor) > 0 && weights_find(l->m->weights, name))))
        l->arch = l->m->config.arch = l->arch->older, l->m->config.qk_norm = l->arch->qk_norm;
    l->prefix = l->arch->prefix ? l->arch->prefix : "model.";
    snprintf(name, sizeof name, "%s%s", l->prefix, embed->hf + 6);
    if (!weights_find(l->m->weights, name) && weights_find(l->m->weights, embed->hf + 6)) l->prefix = "";
}

/* Converters to GGUF join q, k and v for any architecture when asked to, and older ones kept gate and up apart. */
static void find_fused(struct loader *l)
{
    bool named = l->gguf && !l->dummy;
    l->fused_qkv = named ? weights_find(l->m->weights, "blk.0.attn_qkv.weight") != NULL : l->arch->fused_qkv;
    l->fused_gate_up = l->arch->fused_gate_up && !(named && weights_find(l->m->weights, "blk.0.ffn_gate.weight"));
}

static enum rose_status load(struct loader *l)
{
    struct model *m = l->m;
    ROSE_TRY(config_read(&m->arena, m->weights, &m->config, l->err));
    ROSE_TRY(head_read(&m->arena, m->weights, &l->wish, &m->config, l->err));
    l->arch = m->config.arch;
    l->gguf = weights_kind(m->weights) == WEIGHTS_GGUF;
    m->rough = l->wish.weights != 0;
    ROSE_TRY(element_choose(l));
    if (!l->gguf && !l->dummy) find_prefix(l);
    find_fused(l);
    if (!l->gguf && !l->dummy && m->config.head.task != MODEL_EMBED) untie(m);
    if (!l->dummy) ROSE_TRY(check_experts(l));
    m->layers = ARENA_ARRAY(&m->arena, struct model_layer, (size_t)m->config.layers);
    struct model_layer *top = ARENA_NEW(&m->arena, struct model_layer);
    if (!m->layers || !top) return loader_no_memory(l);
    if (!l->dummy) ROSE_TRY(bind_open(m->weights, &l->bind, l->err));
    m->top = top;
    ROSE_TRY(head_load(l));
    ROSE_TRY(bind_all(l, top));
    if (l->check) return ROSE_OK;
    ROSE_TRY(finish_ropes(m, top, l->err));
    ROSE_TRY(pack_all(l));
    ROSE_TRY(head_load_relative(l));
    ROSE_TRY(head_load_alibi(l));
    if (m->device->info.kind == DEVICE_CUDA) ROSE_TRY(upload_vectors(m, top, l->err));
    m->embed = top->weight[SLOT_EMBED];
    m->output = m->config.tied ? m->embed : top->weight[SLOT_OUTPUT];
    m->final_norm = top->vector[SLOT_FINAL_NORM];
    return ROSE_OK;
}

static enum rose_status open_model(struct device *device, struct loader *l, struct weights *weights, struct model **out)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        weights_close(weights);
        return status_set(l->err, ROSE_NO_MEMORY, "out of memory");
    }
    m->device = device;
    m->weights = weights;
    m->dummy = l->dummy;
    l->m = m;
    enum rose_status s = load(l);
    if (l->bind) bind_finish(l->bind, NULL, NULL);
    free(l->items);
    if (s == ROSE_OK && !l->wish.early) s = model_loaded(m, l->err);
    if (s != ROSE_OK) {
        model_close(m);
        return s;
    }
    *out = m;
    return ROSE_OK;
}

enum rose_status model_open(struct device *device, struct weights *weights, model_progress_fn *progress, void *user, struct model **out, struct rose_error *err)
{
    return open_model(device, &(struct loader){.err = err, .progress = progress, .user = user, .wish = {.yes = -1, .no = -1}}, weights, out);
}

enum rose_status model_open_as(struct device *device, struct weights *weights, const struct head_wish *wish, model_progress_fn *progress, void *user, struct model **out,
                               struct rose_error *err)
{
    return open_model(device, &(struct loader){.err = err, .progress = progress, .user = user, .wish = *wish}, weights, out);
}

enum rose_status model_open_dummy(struct device *device, struct weights *config, uint64_t seed, enum dtype type, struct model **out, struct rose_error *err)
{
    return open_model(device, &(struct loader){.err = err, .dummy = true, .seed = seed, .wish = {.task = MODEL_AUTO, .yes = 0, .no = 1, .weights = type}}, config, out); /* any two tokens say yes and no */
}

enum rose_status model_check(struct device *device, struct weights *weights, struct rose_error *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    struct loader l = {.m = m, .err = err, .check = true, .wish = {.yes = -1, .no = -1}};
    m->device = device;
    m->weights = weights;
    enum rose_status s = load(&l);
    if (l.bind) bind_finish(l.bind, NULL, NULL);
    free(l.items);
    m->weights = NULL;
    model_close(m);
    return s;
}

void model_close(struct model *m)
{
    if (!m) return;
    upload_end(m->upload, true, NULL, NULL);
    head_close(m);
    packed_store_end(m->store);
    packed_unmap(m->packed, strbuf_str(&m->packed_key), m->memory_bytes);
    strbuf_free(&m->packed_key);
    device_free(m->device, m->memory, m->memory_bytes, DEVICE_MEMORY_LOCAL);
    device_free(m->device, m->vectors, m->vectors_bytes, DEVICE_MEMORY_LOCAL);
    weights_close(m->weights);
    arena_free(&m->arena);
    free(m);
}
