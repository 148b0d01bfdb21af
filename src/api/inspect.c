/* rose_inspect: what a checkpoint holds and what it will need, as JSON. Headers only: no weight is read. What Rose cannot use is
 * no error here: the list "problems" says it, and the rest of the object is as full as the files allow. */
#include <stdio.h>
#include <stdlib.h>

#include "api/internal.h"
#include "base/json.h"
#include "ops/matmul_cuda.h"
#include "weights/gguf.h"

enum { LONGEST_ARRAY = 32, LONGEST_TEXT = 1 << 16 };

struct inspection {
    struct strbuf *out;
    struct strbuf problems; /* JSON strings, with commas */
    struct weights *weights;
    struct device *device;
    struct arena arena;
    bool runs;
};

static void problem(struct inspection *in, const struct rose_error *err)
{
    if (in->problems.n) strbuf_addc(&in->problems, ',');
    json_add_str(&in->problems, str_of(err->message));
    in->runs = false;
}

static void member(struct strbuf *b, const char *key) { strbuf_printf(b, ",\"%s\":", key); }

static void add_text(struct strbuf *b, const char *key, const char *text)
{
    member(b, key);
    if (text) json_add_str(b, str_of(text));
    else strbuf_adds(b, "null");
}

static void add_int(struct strbuf *b, const char *key, long long n)
{
    member(b, key);
    strbuf_printf(b, "%lld", n);
}

static void add_num(struct strbuf *b, const char *key, double n)
{
    member(b, key);
    json_add_num(b, n);
}

/* --- the file's own words -------------------------------------------------------------------------------------------------------- */

static void gguf_scalar(struct strbuf *b, const struct gguf_value *v, uint64_t i)
{
    int64_t whole;
    double number;
    struct str text;
    enum gguf_type type = v->type == GGUF_ARRAY ? v->item : v->type;
    if (type == GGUF_STRING && v->type != GGUF_ARRAY && gguf_text(v, &text)) {
        if (text.n > LONGEST_TEXT) strbuf_printf(b, "{\"type\":\"string\",\"bytes\":%zu}", text.n);
        else json_add_str(b, text);
    } else if (type == GGUF_BOOL && gguf_int(v, i, &whole)) {
        strbuf_adds(b, whole ? "true" : "false");
    } else if (gguf_int(v, i, &whole)) {
        strbuf_printf(b, "%lld", (long long)whole);
    } else if (gguf_num(v, i, &number)) {
        json_add_num(b, number);
    } else {
        strbuf_adds(b, "null");
    }
}

/* Long arrays (vocabularies) and arrays of strings stand as {"type", "count"}. */
static void gguf_metadata(struct inspection *in)
{
    struct strbuf *b = in->out;
    for (size_t i = 0; i < gguf_count(in->weights); i++) {
        const struct gguf_value *v = gguf_at(in->weights, i);
        if (i) strbuf_addc(b, ',');
        json_add_str(b, v->key);
        strbuf_addc(b, ':');
        if (v->type != GGUF_ARRAY) {
            gguf_scalar(b, v, 0);
        } else if (v->count > LONGEST_ARRAY || v->item == GGUF_STRING || v->item == GGUF_ARRAY) {
            strbuf_printf(b, "{\"type\":\"%s\",\"count\":%llu}", gguf_type_name(v->item), (unsigned long long)v->count);
        } else {
            for (uint64_t k = 0; k < v->count; k++) strbuf_addc(b, k ? ',' : '['), gguf_scalar(b, v, k);
            strbuf_adds(b, v->count ? "]" : "[]");
        }
    }
}

static void add_metadata(struct inspection *in)
{
    member(in->out, "metadata");
    const struct json *config = weights_config(in->weights);
    if (config) {
        json_add_value(in->out, config);
        return;
    }
    strbuf_addc(in->out, '{');
    gguf_metadata(in);
    strbuf_addc(in->out, '}');
}

/* --- tensors ------------------------------------------------------------------------------------------------------------------------ */

static void add_tensors(struct inspection *in)
{
    struct strbuf *b = in->out;
    struct weights_summary summary;
    weights_summary(in->weights, &summary);
    add_int(b, "files", summary.files);
    add_int(b, "parameters", (long long)summary.parameters);
    add_int(b, "bytes", (long long)summary.bytes);
    member(b, "types");
    strbuf_addc(b, '[');
    for (int i = 0; i < summary.types; i++) {
        const struct weights_type *t = &summary.type[i];
        strbuf_printf(b, "%s{\"type\":\"%s\",\"tensors\":%llu,\"parameters\":%llu,\"bytes\":%llu}", i ? "," : "", t->type, (unsigned long long)t->tensors,
                      (unsigned long long)t->parameters, (unsigned long long)t->bytes);
    }
    strbuf_addc(b, ']');
    member(b, "tensors");
    strbuf_addc(b, '[');
    for (size_t i = 0; i < weights_count(in->weights); i++) {
        const struct weights_tensor *t = weights_tensor(in->weights, i);
        strbuf_adds(b, i ? ",{\"name\":" : "{\"name\":");
        json_add_str(b, t->name);
        strbuf_printf(b, ",\"type\":\"%s\",\"shape\":[", t->type);
        for (int d = 0; d < t->ndim; d++) strbuf_printf(b, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        strbuf_printf(b, "],\"bytes\":%llu,\"offset\":%llu,\"part\":%d}", (unsigned long long)t->bytes, (unsigned long long)t->offset, t->part);
    }
    strbuf_addc(b, ']');
}

/* Types that Rose recognises and cannot compute with: each is named once, with a tensor. */
static void check_types(struct inspection *in)
{
    struct weights_summary summary;
    weights_summary(in->weights, &summary);
    for (int i = 0; i < summary.types; i++) {
        const struct weights_tensor *first = NULL;
        size_t count = 0;
        for (size_t k = 0; k < weights_count(in->weights); k++) {
            const struct weights_tensor *t = weights_tensor(in->weights, k);
            if (strcmp(t->type, summary.type[i].type) || (t->tensor.dtype != DTYPE_NONE && dtype_info(t->tensor.dtype)->decodes)) continue;
            if (!count++) first = t;
        }
        struct rose_error err;
        if (!first) continue;
        status_set(&err, ROSE_UNSUPPORTED, "%s is of type %s, which Rose does not compute with (%zu tensors)", first->name.p, first->type, count);
        problem(in, &err);
    }
}

/* --- config and memory --------------------------------------------------------------------------------------------------------------- */

static const char *activation_name(enum op_activation a)
{
    switch (a) {
    case OP_ACT_NONE: return "none";
    case OP_ACT_SILU: return "silu";
    case OP_ACT_GELU_TANH: return "gelu_tanh";
    case OP_ACT_GELU_ERF: return "gelu";
    case OP_ACT_RELU: return "relu";
    case OP_ACT_RELU2: return "relu2";
    }
    return "none";
}

static void add_config(struct inspection *in, const struct model_config *c)
{
    static const char *const norms[] = {"pre", "post", "sandwich"}, *const scalings[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    struct strbuf *b = in->out;
    int windows = 0, moe = 0;
    for (int32_t i = 0; i < c->layers; i++) windows += c->layer[i].window > 0, moe += c->layer[i].moe;
    strbuf_printf(b, "{\"layers\":%d,\"hidden\":%d,\"vocabulary\":%d,\"context\":%d,\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"intermediate\":%d", c->layers,
                  c->hidden, c->vocabulary, c->context, c->heads.heads, c->heads.kv_heads, c->heads.head_dim, c->intermediate);
    add_text(b, "activation", activation_name(c->activation));
    add_text(b, "norms", norms[c->norms]);
    add_num(b, "norm_eps", (double)c->norm_eps);
    strbuf_printf(b, ",\"tied\":%s,\"qk_norm\":%s,\"qkv_bias\":%s", c->tied ? "true" : "false", c->qk_norm ? "true" : "false", c->qkv_bias ? "true" : "false");
    add_int(b, "sliding_layers", windows);
    add_int(b, "moe_layers", moe);
    add_int(b, "experts", c->experts);
    add_int(b, "experts_used", c->experts_used);
    member(b, "rope");
    strbuf_addc(b, '[');
    for (int32_t i = 0; i < c->ropes_count; i++) {
        strbuf_printf(b, "%s{\"scaling\":\"%s\",\"rotary_dim\":%d", i ? "," : "", scalings[c->ropes[i].scaling], c->ropes[i].rotary_dim);
        add_num(b, "theta", c->ropes[i].theta);
        add_num(b, "factor", c->ropes[i].factor);
        strbuf_addc(b, '}');
    }
    strbuf_printf(b, "],\"bos\":%d,\"eos\":[", c->bos);
    for (int32_t i = 0; i < c->eos_count; i++) strbuf_printf(b, "%s%d", i ? "," : "", c->eos[i]);
    strbuf_adds(b, "]}");
}

/* What the weights will take: packed copies, and file pages for those used in place. */
static size_t resident_bytes(const struct inspection *in)
{
    size_t total = 0;
    for (size_t i = 0; i < weights_count(in->weights); i++) {
        const struct weights_tensor *t = weights_tensor(in->weights, i);
        bool matrix = t->tensor.dtype != DTYPE_NONE && t->ndim >= 2, expanded = t->ndim > 2 && in->device->info.kind == DEVICE_CUDA; /* experts */
        size_t packed = !matrix ? 0 : expanded ? matmul_cuda_weight_bytes(&t->tensor, true) : op_weight_bytes(in->device, &t->tensor);
        total += packed ? size_round_up(packed, 256) : t->bytes;
    }
    return total;
}

static void add_memory(struct inspection *in, const struct model_config *c, int context, int sequences, enum dtype kv)
{
    struct engine_options options = {.context = context, .max_sequences = sequences ? sequences : 1, .kv = kv};
    struct engine_plan plan;
    struct rose_error err = {0};
    struct strbuf *b = in->out;
    size_t weights = resident_bytes(in), total = in->device->info.memory_total, free_bytes = in->device->info.memory_free;
    if (engine_plan(c, &in->device->info, weights, &options, &plan, &err) != ROSE_OK) {
        problem(in, &err);
        strbuf_printf(b, "{\"fits\":false,\"weights_bytes\":%zu,\"free_bytes\":%zu,\"total_bytes\":%zu}", weights, free_bytes, total);
        return;
    }
    /* What all sequences need at their full length (the plan's pool is cut to what is free), and how many of them have room at once. */
    size_t pages = ((size_t)plan.context + (size_t)plan.page_tokens - 1) / (size_t)plan.page_tokens * (size_t)c->groups_count;
    size_t one = pages * plan.page_bytes, history = ((size_t)plan.context + 1) * 4, count = (size_t)options.max_sequences, room = 0;
    size_t kv_bytes = one * count, needed = weights + kv_bytes + history * count;
    struct engine_options most = {.context = plan.context, .max_sequences = 4096, .kv = kv};
    struct engine_plan widest;
    if (engine_plan(c, &in->device->info, weights, &most, &widest, &err) == ROSE_OK && free_bytes > weights)
        room = ROSE_MIN((size_t)widest.pages / pages, (free_bytes - weights) / (one + history));
    strbuf_printf(b,
                  "{\"fits\":%s,\"fits_sequences\":%zu,\"context\":%d,\"sequences\":%zu,\"kv\":\"%s\",\"weights_bytes\":%zu,\"kv_bytes\":%zu,\"history_bytes\":%zu,\"needed_bytes\":%zu,"
                  "\"free_bytes\":%zu,\"total_bytes\":%zu,\"pages\":%d,\"page_tokens\":%d,\"page_bytes\":%zu,\"kv_bytes_per_token\":%zu}",
                  count <= room ? "true" : "false", room, plan.context, count, dtype_info(kv)->name, weights, kv_bytes, history * count, needed,
                  free_bytes, total, plan.pages, plan.page_tokens, plan.page_bytes, plan.page_bytes * (size_t)c->groups_count / (size_t)plan.page_tokens);
}

/* Models that embed, classify and score have no cache. */
static void add_memory_pooled(struct inspection *in)
{
    size_t weights = resident_bytes(in), total = in->device->info.memory_total, free_bytes = in->device->info.memory_free;
    strbuf_printf(in->out, "{\"fits\":%s,\"weights_bytes\":%zu,\"needed_bytes\":%zu,\"free_bytes\":%zu,\"total_bytes\":%zu}", weights <= free_bytes ? "true" : "false", weights, weights,
                  free_bytes, total);
}

/* "tokenizer" and "chat_template". */
static void add_text_side(struct inspection *in)
{
    struct text text;
    struct rose_error err = {0};
    struct strbuf *b = in->out;
    enum rose_status s = text_open(in->weights, NULL, &text, &err);
    member(b, "tokenizer");
    if (s != ROSE_OK) {
        problem(in, &err);
        strbuf_adds(b, "null");
    } else {
        const struct tokenizer_facts *f = tokenizer_facts(text.tokenizer);
        strbuf_printf(b, "{\"kind\":\"%s\",\"vocabulary\":%zu,\"bos\":%lld,\"eos\":%lld,\"pad\":%lld,\"unk\":%lld,\"add_bos\":%s,\"add_eos\":%s}", f->kind, f->vocab_size,
                      (long long)f->bos, (long long)f->eos, (long long)f->pad, (long long)f->unk, f->add_bos ? "true" : "false", f->add_eos ? "true" : "false");
    }
    add_text(b, "chat_template", text.chat_template_text);
    text_close(&text);
}

static void inspect(struct inspection *in, const char *path, int context, int sequences, enum dtype kv)
{
    static const char *const formats[] = {[WEIGHTS_HF] = "huggingface", [WEIGHTS_SAFETENSORS] = "safetensors", [WEIGHTS_GGUF] = "gguf"};
    struct model_config config = {0};
    struct rose_error err = {0};
    struct str named = {0};
    struct strbuf *b = in->out;
    strbuf_adds(b, "{\"path\":");
    json_add_str(b, str_of(path));
    add_text(b, "format", formats[weights_kind(in->weights)]);
    if (weights_kind(in->weights) == WEIGHTS_GGUF) gguf_str(in->weights, "general.architecture", &named, NULL);
    else named = json_str(json_get(weights_config(in->weights), "model_type"), "");
    member(b, "architecture");
    if (named.n) json_add_str(b, named);
    else strbuf_adds(b, "null");
    bool known = config_read(&in->arena, in->weights, &config, &err) == ROSE_OK;
    if (!known) problem(in, &err);
    add_text(b, "name", known && config.name[0] ? config.name : NULL);
    check_types(in);
    /* what is missing or misshapen, all in one sentence; types are named already */
    enum rose_status tensors = known ? model_check(in->device, in->weights, &err) : ROSE_OK;
    if (tensors != ROSE_OK && !(tensors == ROSE_UNSUPPORTED && in->problems.n)) problem(in, &err);
    add_tensors(in);
    member(b, "config");
    if (known) add_config(in, &config);
    else strbuf_adds(b, "null");
    add_metadata(in);
    add_text_side(in);
    member(b, "memory");
    const struct head_wish wish = {.task = MODEL_AUTO}; /* any two tokens for yes and no: memory does not depend on them */
    bool pooled = known && tensors == ROSE_OK && head_read(&in->arena, in->weights, &wish, &config, &err) == ROSE_OK && config.own_rows;
    if (pooled) add_memory_pooled(in);
    else if (known) add_memory(in, &config, context, sequences, kv);
    else strbuf_adds(b, "null");
    strbuf_printf(b, ",\"runs\":%s,\"problems\":[%s]}", in->runs ? "true" : "false", in->problems.p ? in->problems.p : "");
}

enum rose_status rose_inspect(const char *model, int context, int sequences, const char *kv, char **json, struct rose_error *err)
{
    struct strbuf out = {0};
    struct inspection in = {.out = &out, .runs = true};
    struct device_options options = {.kind = DEVICE_CPU, .threads = 1};
    const char *path = NULL;
    enum dtype kv_type = DTYPE_F16;
    *json = NULL;
    if (context < 0 || sequences < 0) return status_set(err, ROSE_INVALID, "context and sequences must not be negative");
    ROSE_TRY(kv_dtype(kv, DEVICE_CPU, &kv_type, err));
    arena_init(&in.arena, 0);
    enum rose_status s = hub_resolve(&in.arena, model, &path, err);
    if (s == ROSE_OK) s = weights_open(path, &in.weights, err);
    if (s == ROSE_OK) s = device_open(&options, &in.device, err);
    if (s == ROSE_OK) inspect(&in, path, context, sequences, kv_type);
    device_close(in.device);
    weights_close(in.weights);
    arena_free(&in.arena);
    if (s == ROSE_OK && (out.failed || in.problems.failed)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    strbuf_free(&in.problems);
    if (s == ROSE_OK) *json = out.p;
    else strbuf_free(&out);
    return s;
}
