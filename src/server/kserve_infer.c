/* Inference of KServe v2, whatever brought it: which tensors a model takes, checks, running, outputs. */
#include <stdio.h>

#include "server/kserve.h"
#include "server/texts.h"

enum kserve_kind kserve_kind(const struct model *m)
{
    unsigned t = m->info.tasks;
    if (t & ROSE_CAN_SCORE) return KSERVE_SCORE;
    if (t & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS)) return KSERVE_CLASSIFY;
    return t & ROSE_CAN_GENERATE || !(t & ROSE_CAN_EMBED) ? KSERVE_TEXT : KSERVE_EMBED;
}

int kserve_batch(const struct model *m) { return kserve_kind(m) == KSERVE_TEXT ? 0 : KSERVE_BATCH; }

static int copy(const struct kserve_io *from, int count, struct kserve_io *to, int room)
{
    for (int i = 0; i < count && i < room; i++) to[i] = from[i];
    return ROSE_MIN(count, room);
}

int kserve_inputs(const struct model *m, struct kserve_io *io, int room)
{
#define OPTIONAL(name, type) {name, type, 1, {1, 0}, true}
    static const struct kserve_io text[] = {{"text_input", KSERVE_BYTES, 1, {1, 0}, false}, OPTIONAL("stream", KSERVE_BOOL), OPTIONAL("sampling_parameters", KSERVE_BYTES),
                                            OPTIONAL("exclude_input_in_output", KSERVE_BOOL), OPTIONAL("max_tokens", KSERVE_INT32), OPTIONAL("min_tokens", KSERVE_INT32),
                                            OPTIONAL("temperature", KSERVE_FP32), OPTIONAL("top_k", KSERVE_INT32), OPTIONAL("top_p", KSERVE_FP32), OPTIONAL("min_p", KSERVE_FP32),
                                            OPTIONAL("repetition_penalty", KSERVE_FP32), OPTIONAL("presence_penalty", KSERVE_FP32), OPTIONAL("frequency_penalty", KSERVE_FP32),
                                            OPTIONAL("random_seed", KSERVE_UINT64), {"stop_words", KSERVE_BYTES, 1, {-1, 0}, true}, OPTIONAL("ignore_eos", KSERVE_BOOL),
                                            OPTIONAL("n", KSERVE_INT32), OPTIONAL("return_finish_reason", KSERVE_BOOL), OPTIONAL("return_num_input_tokens", KSERVE_BOOL),
                                            OPTIONAL("return_num_output_tokens", KSERVE_BOOL)};
    static const struct kserve_io embed[] = {{"text", KSERVE_BYTES, 1, {1, 0}, true}, {"input_ids", KSERVE_INT64, 1, {-1, 0}, true}, {"attention_mask", KSERVE_INT64, 1, {-1, 0}, true},
                                             {"token_type_ids", KSERVE_INT64, 1, {-1, 0}, true}}; /* that an exported BERT's clients send: all 0 */
    static const struct kserve_io classify[] = {{"text", KSERVE_BYTES, 1, {1, 0}, false}, OPTIONAL("text_pair", KSERVE_BYTES)};
    static const struct kserve_io score[] = {{"query", KSERVE_BYTES, 1, {1, 0}, false}, {"text", KSERVE_BYTES, 1, {1, 0}, false}};
    switch (kserve_kind(m)) {
    case KSERVE_EMBED: return copy(embed, ROSE_COUNT(embed), io, room);
    case KSERVE_CLASSIFY: return copy(classify, ROSE_COUNT(classify), io, room);
    case KSERVE_SCORE: return copy(score, ROSE_COUNT(score), io, room);
    default: return copy(text, ROSE_COUNT(text), io, room);
    }
}

int kserve_outputs(const struct model *m, struct kserve_io *io, int room)
{
    static const struct kserve_io text[] = {{"text_output", KSERVE_BYTES, 1, {-1, 0}, false}, {"finish_reason", KSERVE_BYTES, 1, {-1, 0}, false},
                                            {"num_input_tokens", KSERVE_UINT32, 1, {1, 0}, false}, {"num_output_tokens", KSERVE_UINT32, 1, {1, 0}, false}};
    const struct kserve_io embed[] = {{"embedding", KSERVE_FP32, 1, {m->info.embedding_size, 0}, false},
                                      /* models with a lexical head; a text's tokens, padded with -1 and 0 to the longest of the batch */
                                      {"sparse_indices", KSERVE_INT32, 1, {-1, 0}, false}, {"sparse_values", KSERVE_FP32, 1, {-1, 0}, false}};
    const struct kserve_io classify = {"probabilities", KSERVE_FP32, 1, {m->info.labels_count, 0}, false};
    const struct kserve_io tokens = {"probabilities", KSERVE_FP32, 2, {-1, m->info.labels_count}, false};
    const struct kserve_io score = {"score", KSERVE_FP32, 1, {1, 0}, false};
    switch (kserve_kind(m)) {
    case KSERVE_EMBED: return copy(embed, m->info.tasks & ROSE_CAN_SPARSE ? 3 : 1, io, room);
    case KSERVE_CLASSIFY: return copy(m->info.tasks & ROSE_CAN_CLASSIFY ? &classify : &tokens, 1, io, room);
    case KSERVE_SCORE: return copy(&score, 1, io, room);
    default: return copy(text, ROSE_COUNT(text), io, room);
    }
}

struct model *kserve_find(struct server *s, struct str name, struct str version, struct api_error *e)
{
    int64_t v = 0;
    if (version.n && (!str_to_i64(version, &v) || v < 1 || v > INT32_MAX))
        return api_error_set(e, 400, "invalid_request_error", NULL, NULL, "failed to get model version from specified version string '%.*s'", (int)ROSE_MIN(version.n, 40), version.p), NULL;
    struct model *m = models_lookup(&s->models, name, (int)v);
    if (!m || (m->state == MODEL_UNAVAILABLE && !m->reason[0]))
        return api_error_set(e, 404, "not_found_error", "model_not_found", NULL, "request for unknown model: '%.*s'%s%.*s is not found", (int)ROSE_MIN(name.n, 200), name.p, v ? " version " : "",
                             (int)ROSE_MIN(version.n, 40), version.p), NULL;
    if (m->state != MODEL_READY)
        return api_error_set(e, m->state == MODEL_UNAVAILABLE ? 404 : 503, "server_error", NULL, NULL, "model '%s' version %d is not ready: %s%s%s", m->name, m->version, model_state_name(m->state),
                             m->state == MODEL_UNAVAILABLE && m->reason[0] ? ", " : "", m->state == MODEL_UNAVAILABLE ? m->reason : ""), NULL;
    return m;
}

/* --- checks ------------------------------------------------------------------------------------------------------------------------- */

static const struct kserve_tensor *input(const struct kserve_request *q, const char *name)
{
    for (int i = 0; i < q->inputs_count; i++)
        if (str_is(q->inputs[i].name, name)) return &q->inputs[i];
    return NULL;
}

/* Numbers may come in any width of their kind. */
static bool type_fits(enum kserve_type have, enum kserve_type want)
{
    bool have_int = have >= KSERVE_UINT8 && have <= KSERVE_INT64, want_int = want >= KSERVE_UINT8 && want <= KSERVE_INT64;
    bool have_float = have >= KSERVE_FP16 && have <= KSERVE_FP64, want_float = want >= KSERVE_FP16 && want <= KSERVE_FP64;
    return have == want || (have_int && want_int) || (have_float && want_float);
}

static void shape_text(const int64_t *shape, int rank, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < rank && n < room; i++) n += (size_t)snprintf(out + n, room - n, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (n < room) snprintf(out + n, room - n, "]");
}

static bool check_shape(const struct model *m, const struct kserve_tensor *t, const struct kserve_io *io, struct api_error *e)
{
    char have[160], want[80];
    int batch = kserve_batch(m) ? 1 : 0;
    int64_t expected[3] = {-1, io->dims[0], io->dims[1]};
    const int64_t *dims = batch ? expected : io->dims;
    int rank = io->rank + batch;
    bool ok = t->rank == rank;
    for (int i = 0; ok && i < rank; i++) ok = dims[i] < 0 || dims[i] == t->shape[i];
    /* One text each: the last 1 may be left out. A single value may have a batch of one before it. */
    if (!ok && batch && t->rank == 1 && io->dims[0] == 1) ok = true;
    if (!ok && !batch && t->rank == 2 && t->shape[0] == 1) ok = io->dims[0] < 0 || t->shape[1] == io->dims[0];
    shape_text(t->shape, t->rank, have, sizeof have);
    shape_text(dims, rank, want, sizeof want);
    if (!ok) return api_error_field(e, io->name, "unexpected shape for input '%s' for model '%s': expected %s, got %s", io->name, m->name, want, have);
    if (batch && (t->shape[0] < 1 || t->shape[0] > KSERVE_BATCH))
        return api_error_field(e, io->name, "inference request batch-size must be from 1 to %d for model '%s', not %lld", KSERVE_BATCH, m->name, (long long)t->shape[0]);
    return true;
}

static bool check(const struct model *m, const struct kserve_request *q, struct api_error *e)
{
    struct kserve_io io[KSERVE_TENSORS];
    int count = kserve_inputs(m, io, KSERVE_TENSORS);
    int64_t batch = 0;
    for (int i = 0; i < q->inputs_count; i++) {
        const struct kserve_tensor *t = &q->inputs[i];
        int k = 0, n = (int)ROSE_MIN(t->name.n, 64);
        while (k < count && !str_is(t->name, io[k].name)) k++;
        if (k == count) return api_error_field(e, NULL, "unexpected inference input '%.*s' for model '%s'", n, t->name.p, m->name);
        for (int j = 0; j < i; j++)
            if (str_eq(q->inputs[j].name, t->name)) return api_error_field(e, NULL, "input '%.*s' is there twice", n, t->name.p);
        if (!type_fits(t->type, io[k].type))
            return api_error_field(e, io[k].name, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", io[k].name, kserve_type_name(t->type), m->name, kserve_type_name(io[k].type));
        if (!check_shape(m, t, &io[k], e)) return false;
        if (!kserve_batch(m)) continue;
        if (batch && t->shape[0] != batch) return api_error_field(e, io[k].name, "input '%s' has a batch of %lld, and another input one of %lld", io[k].name, (long long)t->shape[0], (long long)batch);
        batch = t->shape[0];
    }
    for (int k = 0; k < count; k++)
        if (!io[k].optional && !input(q, io[k].name)) return api_error_field(e, io[k].name, "expected input '%s' for model '%s', and it is not there", io[k].name, m->name);
    count = kserve_outputs(m, io, KSERVE_TENSORS);
    for (int i = 0; i < q->wanted_count; i++) {
        const struct kserve_wanted *w = &q->wanted[i];
        int k = 0, n = (int)ROSE_MIN(w->name.n, 64);
        while (k < count && !str_is(w->name, io[k].name)) k++;
        if (k == count) return api_error_field(e, NULL, "unexpected inference output '%.*s' for model '%s'", n, w->name.p, m->name);
        for (int j = 0; j < i; j++)
            if (str_eq(q->wanted[j].name, w->name)) return api_error_field(e, NULL, "output '%.*s' is asked for twice", n, w->name.p);
        if (w->classification && (io[k].type != KSERVE_FP32 || str_is(w->name, "sparse_values"))) return api_error_field(e, io[k].name, "output '%s' of datatype %s cannot be classified", io[k].name, kserve_type_name(io[k].type));
    }
    return true;
}

/* --- outputs ------------------------------------------------------------------------------------------------------------------------ */

static bool prepare(struct kserve_call *c, struct kserve_tensor *t, const struct kserve_wanted *w, struct api_error *e)
{
    struct arena *a = &c->http->arena;
    const struct rose_model_info *i = &c->model->info;
    int type = w && w->type >= 0 ? w->type : c->request.type;
    bool ok = w && w->classification ? kserve_classify(t, w->classification, i->labels, i->labels_count, a) : kserve_convert(t, type, a);
    if (!ok) return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    if (!w || !w->region.n) return true;
    if (t->data.n > w->bytes)
        return api_error_field(e, NULL, "shared memory size specified with the request for output '%.*s' (%zu bytes) should be at least %zu bytes to hold the results", STR_ARG(t->name), w->bytes,
                               t->data.n);
    return regions_write(&c->s->regions, w->region, w->offset, t->data.p, t->data.n, e);
}

void kserve_deliver(struct kserve_call *c, struct kserve_tensor *outputs, int count, bool final)
{
    const struct kserve_request *q = &c->request;
    struct kserve_tensor chosen[KSERVE_TENSORS];
    const struct kserve_wanted *wanted[KSERVE_TENSORS] = {0};
    struct api_error e = {0};
    int n = 0;
    for (int i = 0; i < (q->wanted_count ? q->wanted_count : count); i++) {
        const struct kserve_wanted *w = q->wanted_count ? &q->wanted[i] : NULL;
        int k = w ? 0 : i;
        while (w && k < count && !str_eq(outputs[k].name, w->name)) k++;
        if (k == count) continue;
        chosen[n] = outputs[k];
        wanted[n] = w;
        if (!prepare(c, &chosen[n], w, &e)) {
            c->transport->fail(c, &e);
            return;
        }
        n++;
    }
    c->transport->answer(c, &(struct kserve_answer){chosen, wanted, n, final, false});
}

/* --- texts -------------------------------------------------------------------------------------------------------------------------- */

static bool wants(const struct kserve_request *q, const char *prefix)
{
    for (int i = 0; i < q->wanted_count; i++)
        if (str_starts(q->wanted[i].name, str_of(prefix))) return true;
    return false;
}

/* The texts' token weights as two rectangles; behind the embeddings, where these are wanted too. */
static void sparse_done(struct texts *t)
{
    struct kserve_call *c = t->user;
    struct arena *a = &c->http->arena;
    struct api_error e;
    size_t width = 0, n = (size_t)t->count;
    for (int i = 0; i < t->count; i++) width = ROSE_MAX(width, (size_t)t->results[i].cols);
    int32_t *ids = ARENA_ARRAY(a, int32_t, n * width + 1);
    float *values = ARENA_ARRAY(a, float, n * width + 1);
    if (!ids || !values) {
        api_error_set(&e, 413, "invalid_request_error", "too_large", NULL, "the answer is too large: send fewer texts");
        c->transport->fail(c, &e);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++) {
            const struct text_result *r = &t->results[i];
            bool there = r->ids && k < (size_t)r->cols;
            ids[i * width + k] = there ? r->ids[k] : -1;
            values[i * width + k] = there ? r->values[k] : 0;
        }
    struct kserve_tensor out[3];
    int count = 0;
    if (c->dense) out[count++] = *c->dense;
    out[count++] = (struct kserve_tensor){STR("sparse_indices"), KSERVE_INT32, 2, {t->count, (int64_t)width}, n * width, {(const char *)ids, n * width * 4}};
    out[count++] = (struct kserve_tensor){STR("sparse_values"), KSERVE_FP32, 2, {t->count, (int64_t)width}, n * width, {(const char *)values, n * width * 4}};
    kserve_deliver(c, out, count, true);
}

/* The same texts once more, for their token weights. */
static void then_sparse(struct texts *t, const struct kserve_tensor *dense)
{
    struct kserve_call *c = t->user;
    struct arena *a = &c->http->arena;
    struct api_error e;
    struct kserve_tensor *kept = ARENA_NEW(a, struct kserve_tensor);
    char *data = kept ? arena_strndup(a, dense->data.p, dense->data.n) : NULL; /* the results go with t */
    struct texts *more = data ? texts_new(c->http, &c->s->models, c->model, ROSE_TASK_EMBED, t->inputs, t->count) : NULL;
    if (!more) {
        api_error_set(&e, 413, "invalid_request_error", "too_large", NULL, "the answer is too large: send fewer texts");
        c->transport->fail(c, &e);
        return;
    }
    *kept = *dense;
    kept->data.p = data;
    c->dense = kept;
    uint64_t group = more->rose.group;
    more->rose = t->rose;
    more->rose.group = group;
    more->rose.sparse = true;
    more->field = t->field;
    more->handler = t->handler;
    more->user = c;
    t->http = NULL; /* it is the second one's now */
    texts_start(more);
}

static void texts_done(struct texts *t)
{
    struct kserve_call *c = t->user;
    struct kserve_io io[1];
    struct api_error e;
    if (t->rose.sparse) {
        sparse_done(t);
        return;
    }
    kserve_outputs(c->model, io, 1);
    const struct text_result *r = &t->results[0];
    struct kserve_tensor out = {.name = str_of(io[0].name), .type = KSERVE_FP32, .rank = 2, .shape = {t->count, r->cols}, .elements = (size_t)t->count * (size_t)r->cols};
    const float *values = t->block;
    if (t->count == 1) {
        values = r->values;
        if (io[0].rank == 2) out = (struct kserve_tensor){out.name, KSERVE_FP32, 3, {1, r->rows, r->cols}, (size_t)r->rows * (size_t)r->cols, {0}};
    }
    for (int i = 0; t->count > 1 && i < t->count; i++)
        if (!t->block || t->results[i].cols != r->cols || t->results[i].values != t->block + (size_t)i * (size_t)r->cols) values = NULL;
    if (!values || (t->count == 1 && r->rows > 1 && io[0].rank == 1)) {
        api_error_field(&e, NULL, "the answers have different numbers of rows: send one text a request");
        c->transport->fail(c, &e);
        return;
    }
    out.data = (struct str){(const char *)values, out.elements * 4};
    if (wants(&c->request, "sparse_")) then_sparse(t, &out);
    else kserve_deliver(c, &out, 1, true);
}

static void texts_failed(struct texts *t, const struct api_error *e)
{
    struct kserve_call *c = t->user;
    c->transport->fail(c, e);
}

/* Parameters of the request that say how. */
static bool read_how(const struct kserve_request *q, struct arena *a, struct rose_request *r, struct api_error *e)
{
    static const char *const known[] = {"priority", "timeout", "binary_data_output", "triton_enable_empty_final_response", "sequence_id", "sequence_start", "sequence_end", "output_datatype"};
    r->priority = q->priority;
    r->deadline_ms = q->timeout_us ? q->timeout_us / 1000 + 1 : 0;
    for (uint32_t i = 0; q->parameters && i < q->parameters->count; i++) {
        struct str key = json_member(q->parameters, i)->key;
        const struct json *v = &json_member(q->parameters, i)->value;
        size_t k = 0;
        while (k < ROSE_COUNT(known) && !str_is(key, known[k])) k++;
        if (k < ROSE_COUNT(known)) continue;
        bool is_bool = v->type == JSON_TRUE || v->type == JSON_FALSE;
        enum rose_switch on = v->type == JSON_TRUE ? ROSE_ON : ROSE_OFF;
        if (str_is(key, "normalize") && is_bool) r->normalize = on;
        else if (str_is(key, "activation") && is_bool) r->activation = on;
        else if (str_is(key, "dimensions") && json_int(v, 0) > 0 && json_int(v, 0) <= INT32_MAX) r->dimensions = (int)json_int(v, 0);
        else if (str_is(key, "truncate") && is_bool) r->truncate = v->type == JSON_TRUE ? ROSE_TRUNCATE_RIGHT : ROSE_TRUNCATE_NONE;
        else if (str_is(key, "truncate") && str_is(json_str(v, ""), "left")) r->truncate = ROSE_TRUNCATE_LEFT;
        else if (str_is(key, "truncate") && str_is(json_str(v, ""), "right")) r->truncate = ROSE_TRUNCATE_RIGHT;
        else if (v->type == JSON_STRING && (str_is(key, "prompt_name") || str_is(key, "instruction"))) {
            const char *name = str_is(key, "prompt_name") ? "prompt_name" : "instruction", **to = *name == 'p' ? &r->prompt_name : &r->instruction;
            if (!(*to = fields_terminated(a, name, v->string, e))) return false;
        } else return api_error_field(e, NULL, "parameter %.*s is unknown or has a wrong value; known are normalize, activation, dimensions, truncate, prompt_name, instruction", (int)ROSE_MIN(key.n, 64), key.p);
    }
    return true;
}

static bool texts_of(const struct kserve_tensor *t, struct text_input *in, bool pair)
{
    struct str rest = t->data;
    for (size_t i = 0; i < t->elements; i++) {
        struct str s = kserve_next_bytes(&rest);
        if (pair) in[i].pair = s;
        else in[i].text = s;
    }
    return true;
}

static bool beside_ids(const struct kserve_tensor *ids, const struct kserve_tensor *t, const char *name, struct api_error *e)
{
    return !t || (t->rank == ids->rank && t->elements == ids->elements) || api_error_field(e, name, "%s must have the shape of input_ids", name);
}

static bool ids_of(const struct kserve_tensor *ids, const struct kserve_tensor *mask, const struct kserve_tensor *types, struct arena *a, struct text_input *in, struct api_error *e)
{
    size_t rows = (size_t)ids->shape[0], width = rows ? ids->elements / rows : 0;
    int32_t *to = ARENA_ARRAY(a, int32_t, ids->elements + 1);
    if (!to) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's tensors are too large");
    if (!beside_ids(ids, mask, "attention_mask", e) || !beside_ids(ids, types, "token_type_ids", e)) return false;
    for (size_t r = 0; r < rows; r++) {
        int32_t *row = to + r * width;
        size_t n = 0;
        for (size_t i = 0; i < width; i++) {
            double id = kserve_number(ids, r * width + i);
            if (mask && kserve_number(mask, r * width + i) == 0) continue;
            if (types && kserve_number(types, r * width + i) != 0) return api_error_field(e, "token_type_ids", "token_type_ids: a text's are all 0");
            if (!(id >= 0 && id <= INT32_MAX)) return api_error_field(e, "input_ids", "input_ids: %.0f is no token id", id);
            row[n++] = (int32_t)id;
        }
        in[r].tokens = row;
        in[r].tokens_count = n;
    }
    return true;
}

static bool start_texts(struct kserve_call *c, struct api_error *e)
{
    static const struct texts_handler handler = {texts_done, texts_failed};
    struct arena *a = &c->http->arena;
    const struct kserve_request *q = &c->request;
    enum kserve_kind kind = kserve_kind(c->model);
    const struct kserve_tensor *text = input(q, "text"), *ids = input(q, "input_ids"), *mask = input(q, "attention_mask"), *types = input(q, "token_type_ids"), *pair = input(q, "text_pair"), *query = input(q, "query");
    if (kind == KSERVE_EMBED && (text != NULL) == (ids != NULL)) return api_error_field(e, "text", "expected input 'text' or 'input_ids' for model '%s'", c->model->name);
    if ((mask || types) && !ids) return api_error_field(e, mask ? "attention_mask" : "token_type_ids", "%s goes with input_ids", mask ? "attention_mask" : "token_type_ids");
    size_t count = (size_t)(ids ? ids : text)->shape[0];
    struct text_input *in = ARENA_ARRAY(a, struct text_input, count);
    if (!in) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's tensors are too large");
    if (ids && !ids_of(ids, mask, types, a, in, e)) return false;
    if (query) texts_of(query, in, false);
    if (text) texts_of(text, in, query != NULL);
    if (pair) texts_of(pair, in, true);
    struct texts *t = texts_new(c->http, &c->s->models, c->model, kind == KSERVE_EMBED ? ROSE_TASK_EMBED : kind == KSERVE_SCORE ? ROSE_TASK_SCORE : ROSE_TASK_CLASSIFY, in, (int)count);
    if (!t) return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    if (!read_how(q, a, &t->rose, e)) return false;
    t->rose.sparse = wants(q, "sparse_") && !wants(q, "embedding");
    t->field = ids ? "input_ids" : "text";
    t->handler = &handler;
    t->user = c;
    texts_start(t);
    return true;
}

/* Outputs must have their place before anything is computed. */
static bool check_regions(const struct kserve_call *c, struct api_error *e)
{
    for (int i = 0; i < c->request.wanted_count; i++) {
        const struct kserve_wanted *w = &c->request.wanted[i];
        const struct region *r = w->region.n ? regions_find(&c->s->regions, w->region) : NULL;
        if (w->region.n && !r) return api_error_field(e, NULL, "unable to find shared memory region '%.*s'", (int)ROSE_MIN(w->region.n, 100), w->region.p);
        if (r && (w->offset > r->bytes || w->bytes > r->bytes - w->offset))
            return api_error_field(e, NULL, "invalid offset + byte size for shared memory region '%s': %zu bytes from %zu, and it has %zu", r->name, w->bytes, w->offset, r->bytes);
    }
    return true;
}

void kserve_infer(struct kserve_call *c, struct str model, struct str version)
{
    struct api_error e = {0};
    if (!(c->model = kserve_find(c->s, model, version, &e)) || !check(c->model, &c->request, &e) || !check_regions(c, &e)) c->transport->fail(c, &e);
    else if (c->s->draining && !api_error_set(&e, 503, "server_error", "shutting_down", NULL, "the server is shutting down and takes no new requests")) c->transport->fail(c, &e);
    else if (kserve_kind(c->model) == KSERVE_TEXT) kserve_text_infer(c);
    else if (!start_texts(c, &e)) c->transport->fail(c, &e);
}
