/* Inference of KServe v2, whatever brought it: which tensors a model takes, checks, running, outputs. */
#include <stdio.h>

#include "server/kserve.h"
#include "server/texts.h"

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

static void shape_text(const int64_t *shape, int rank, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < rank && n < room; i++) n += (size_t)snprintf(out + n, room - n, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (n < room) snprintf(out + n, room - n, "]");
}

/* *rows: how many texts it holds; 0: requests have one. With a config.pbtxt shapes are as strict as Triton's. */
static bool check_shape(const struct model *m, const struct kserve_tensor *t, const struct kserve_io *io, int64_t *rows, struct api_error *e)
{
    char have[160], want[80];
    int64_t dims[4];
    bool batch = kserve_batch(m) > 0;
    int rank = kserve_map_shape(m, io, dims);
    bool ok = t->rank == rank;
    for (int i = 0; ok && i < rank; i++) ok = dims[i] < 0 || dims[i] == t->shape[i];
    /* One text each: the last 1 may be left out. A single value may have a batch of one before it. */
    if (!ok && !m->map && batch && t->rank == 1 && io->dims[0] == 1) ok = true;
    if (!ok && !m->map && !batch && t->rank == 2 && t->shape[0] == 1) ok = io->dims[0] < 0 || t->shape[1] == io->dims[0];
    shape_text(t->shape, t->rank, have, sizeof have);
    shape_text(dims, rank, want, sizeof want);
    if (!ok) return api_error_field(e, io->name, "unexpected shape for input '%s' for model '%s': expected %s, got %s", io->name, m->name, want, have);
    *rows = batch ? t->shape[0] : 0;
    int most = batch ? ROSE_MIN(kserve_batch(m), KSERVE_BATCH) : KSERVE_BATCH;
    bool counts = batch || (m->map && kserve_kind(m) != KSERVE_TEXT);
    if (counts && !batch) *rows = t->rank == 1 && kserve_type_fits(t->type, KSERVE_INT64) ? 1 : t->shape[0]; /* [w]: the tokens of one text */
    if (counts && (*rows < 1 || *rows > most))
        return api_error_field(e, io->name, "inference request batch-size must be from 1 to %d for model '%s', not %lld", most, m->name, (long long)*rows);
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
        if (!kserve_type_fits(t->type, io[k].type))
            return api_error_field(e, io[k].name, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", io[k].name, kserve_type_name(t->type), m->name, kserve_type_name(io[k].type));
        int64_t rows = 0;
        if (!check_shape(m, t, &io[k], &rows, e)) return false;
        if (batch && rows && rows != batch) return api_error_field(e, io[k].name, "input '%s' has a batch of %lld, and another input one of %lld", io[k].name, (long long)rows, (long long)batch);
        batch = rows;
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
        if (w->classification && (!kserve_type_fits(io[k].type, KSERVE_FP32) || !strcmp(io[k].to ? io[k].to : io[k].name, "sparse_values"))) return api_error_field(e, io[k].name, "output '%s' of datatype %s cannot be classified", io[k].name, kserve_type_name(io[k].type));
    }
    return true;
}

/* --- outputs ------------------------------------------------------------------------------------------------------------------------ */

static bool prepare(struct kserve_call *c, struct kserve_tensor *t, const struct kserve_wanted *w, struct api_error *e)
{
    struct arena *a = &c->http->arena;
    int labels_count;
    const char *const *labels = kserve_map_labels(c->model, t->name, &labels_count);
    int type = w && w->type >= 0 ? w->type : c->request.type;
    if (!kserve_map_output(c->model, t, &type, e)) return false;
    bool ok = w && w->classification ? kserve_classify(t, w->classification, labels, labels_count, a) : kserve_convert(t, type, a);
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

/* What is computed of a text, one after the other where more than one output is wanted. */
enum pass { PASS_MAIN = 1, PASS_ROWS = 2, PASS_LOGITS = 4, PASS_SPARSE = 8 };

static unsigned passes_of(const struct kserve_request *q)
{
    unsigned passes = 0;
    for (int i = 0; i < q->wanted_count; i++) {
        struct str name = q->wanted[i].name;
        passes |= str_starts(name, STR("sparse_")) ? PASS_SPARSE : str_is(name, "token_embeddings") ? PASS_ROWS : str_is(name, "logits") ? PASS_LOGITS : PASS_MAIN;
    }
    return passes ? passes : PASS_MAIN;
}

/* The request's own wishes are those of its main output. */
static void set_pass(enum pass pass, struct rose_request *r)
{
    if (pass == PASS_SPARSE) r->sparse = true;
    if (pass == PASS_LOGITS) r->activation = ROSE_OFF;
    if (pass != PASS_ROWS) return;
    r->pooling = ROSE_POOL_NONE;
    r->normalize = ROSE_OFF;
    r->dimensions = 0;
}

static enum pass next_pass(const struct kserve_call *c) { return (enum pass)(c->passes & (0 - c->passes)); }

static bool too_large(struct api_error *e) { return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the answer is too large: send fewer texts"); }

static void made(struct kserve_call *c, struct str name, enum kserve_type type, int rank, const int64_t *shape, const void *data)
{
    struct kserve_tensor *t = &c->made[c->made_count++];
    *t = (struct kserve_tensor){.name = name, .type = type, .rank = rank, .elements = 1, .data.p = data};
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->elements *= (size_t)shape[i];
    }
    t->data.n = t->elements * kserve_type_bytes(type);
}

/* The texts' token weights as two rectangles. */
static bool take_sparse(struct kserve_call *c, const struct texts *t, struct api_error *e)
{
    struct arena *a = &c->http->arena;
    size_t width = 0, n = (size_t)t->count;
    for (int i = 0; i < t->count; i++) width = ROSE_MAX(width, (size_t)t->results[i].cols);
    int32_t *ids = ARENA_ARRAY(a, int32_t, n * width + 1);
    float *values = ARENA_ARRAY(a, float, n * width + 1);
    if (!ids || !values) return too_large(e);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++) {
            const struct text_result *r = &t->results[i];
            bool there = r->ids && k < (size_t)r->cols;
            ids[i * width + k] = there ? r->ids[k] : -1;
            values[i * width + k] = there ? r->values[k] : 0;
        }
    const int64_t shape[] = {t->count, (int64_t)width};
    made(c, STR("sparse_indices"), KSERVE_INT32, 2, shape, ids);
    made(c, STR("sparse_values"), KSERVE_FP32, 2, shape, values);
    return true;
}

/* A row a token: [n,w,cols], w the longest text's or that of the ids that came, where masked ones have zeros. */
static bool take_rows(struct kserve_call *c, const struct texts *t, struct str name, struct api_error *e)
{
    const struct kserve_tensor *ids = input(&c->request, "input_ids"), *mask = input(&c->request, "attention_mask");
    size_t n = (size_t)t->count, width = ids ? (size_t)ids->shape[1] : 0, cols = (size_t)t->results[0].cols, elements;
    for (size_t i = 0; !ids && i < n; i++) width = ROSE_MAX(width, (size_t)t->results[i].rows);
    if (!size_mul(n * width, cols, &elements) || elements > KSERVE_ELEMENTS) return too_large(e);
    float *to = ARENA_ARRAY(&c->http->arena, float, elements + 1);
    if (!to) return too_large(e);
    for (size_t i = 0; i < n; i++) {
        const struct text_result *r = &t->results[i];
        size_t row = 0;
        for (size_t w = 0; w < width && row < (size_t)r->rows && (size_t)r->cols == cols; w++) {
            if (mask && kserve_number(mask, i * width + w) == 0) continue;
            memcpy(to + (i * width + w) * cols, r->values + row++ * cols, cols * sizeof *to);
        }
    }
    made(c, name, KSERVE_FP32, 3, (const int64_t[]){(int64_t)n, (int64_t)width, (int64_t)cols}, to);
    return true;
}

/* One row a text: [n,cols]. */
static bool take_block(struct kserve_call *c, const struct texts *t, struct str name, struct api_error *e)
{
    const struct text_result *r = &t->results[0];
    const float *values = t->count == 1 ? r->values : t->block;
    for (int i = 0; t->count > 1 && i < t->count; i++)
        if (!t->block || t->results[i].cols != r->cols || t->results[i].values != t->block + (size_t)i * (size_t)r->cols) values = NULL;
    if (!values || r->rows > 1) return api_error_field(e, NULL, "the answers have different numbers of rows: send one text a request");
    made(c, name, KSERVE_FP32, 2, (const int64_t[]){t->count, r->cols}, values);
    return true;
}

/* Results of a pass that others follow: they go with their texts. */
static bool keep_made(struct kserve_call *c, int from, struct api_error *e)
{
    for (int i = from; i < c->made_count; i++) {
        struct str *d = &c->made[i].data;
        char *copy = arena_alloc(&c->http->arena, d->n + 1);
        if (!copy) return too_large(e);
        if (d->n) memcpy(copy, d->p, d->n);
        d->p = copy;
    }
    return true;
}

/* The same texts once more, for the next output. */
static bool start_pass(struct kserve_call *c, struct texts *t, const struct rose_request *as_asked, struct api_error *e)
{
    struct texts *more = texts_new(c->http, &c->s->models, c->model, t->rose.task, t->inputs, t->count);
    if (!more) return too_large(e);
    uint64_t group = more->rose.group;
    more->rose = *as_asked;
    more->rose.group = group;
    set_pass(next_pass(c), &more->rose);
    more->field = t->field;
    more->handler = t->handler;
    more->user = c;
    t->http = NULL; /* it is the second one's now */
    texts_start(more);
    return true;
}

static void texts_done(struct texts *t)
{
    struct kserve_call *c = t->user;
    struct kserve_io io[KSERVE_TENSORS];
    struct api_error e = {0};
    enum pass pass = next_pass(c);
    int before = c->made_count, rank = 1;
    struct str name = STR("token_embeddings");
    if (pass == PASS_LOGITS) name = STR("logits");
    if (pass == PASS_MAIN) {
        int n = kserve_io_outputs(c->model, false, io, KSERVE_TENSORS);
        name = n ? str_of(io[0].name) : name;
    }
    if (kserve_kind(c->model) == KSERVE_CLASSIFY && !(c->model->info.tasks & ROSE_CAN_CLASSIFY)) rank = 2;
    bool ok = pass == PASS_SPARSE ? take_sparse(c, t, &e) : pass == PASS_ROWS || rank == 2 ? take_rows(c, t, name, &e) : take_block(c, t, name, &e);
    c->passes &= ~(unsigned)pass;
    if (ok && c->passes) {
        if (keep_made(c, before, &e) && start_pass(c, t, &c->as_asked, &e)) return;
        ok = false;
    }
    if (ok) kserve_deliver(c, c->made, c->made_count, true);
    else c->transport->fail(c, &e);
}

static void texts_failed(struct texts *t, const struct api_error *e)
{
    struct kserve_call *c = t->user;
    c->transport->fail(c, e);
}

/* Parameters of the request that say how. */
static bool read_how(const struct kserve_call *c, struct arena *a, struct rose_request *r, struct api_error *e)
{
    static const char *const known[] = {"priority", "timeout", "binary_data_output", "triton_enable_empty_final_response", "sequence_id", "sequence_start", "sequence_end", "output_datatype"};
    const struct kserve_request *q = &c->request;
    r->priority = kserve_map_priority(c->model, q->priority);
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

/* Masked tokens are left out, so that those that stay must have the places that a model of padded rows gives them: one run, and behind padding only where
 * distances alone count, or where padding is not counted. */
static bool one_run(const struct kserve_tensor *mask, size_t at, size_t width, bool counted, struct api_error *e)
{
    size_t begin = 0, end;
    while (begin < width && kserve_number(mask, at + begin) == 0) begin++;
    for (end = begin; end < width && kserve_number(mask, at + end) != 0;) end++;
    for (size_t i = end; i < width; i++)
        if (kserve_number(mask, at + i) != 0) return api_error_field(e, "attention_mask", "attention_mask: a row's 1s must stand together; text %zu has a 0 between two", at / width);
    if (!counted || !begin || begin == width) return true;
    return api_error_field(e, "attention_mask", "attention_mask: text %zu begins with 0s, and this model counts positions from a row's begin: put padding behind the text", at / width);
}

/* Rows of ids without what is masked. typed: segments are the model's own affair, else a text's are all 0. */
static bool ids_of(const struct kserve_tensor *ids, const struct kserve_tensor *mask, const struct kserve_tensor *types, bool typed, bool counted, struct arena *a, struct text_input *in, struct api_error *e)
{
    size_t rows = (size_t)ids->shape[0], width = rows ? ids->elements / rows : 0;
    int32_t *to = ARENA_ARRAY(a, int32_t, ids->elements + 1), *to_types = ARENA_ARRAY(a, int32_t, types && typed ? ids->elements + 1 : 1);
    if (!to || !to_types) return kserve_too_large(e);
    if (!beside_ids(ids, mask, "attention_mask", e) || !beside_ids(ids, types, "token_type_ids", e)) return false;
    for (size_t r = 0; r < rows; r++) {
        int32_t *row = to + r * width;
        size_t n = 0;
        if (mask && !one_run(mask, r * width, width, counted, e)) return false;
        for (size_t i = 0; i < width; i++) {
            double id = kserve_number(ids, r * width + i), type = types ? kserve_number(types, r * width + i) : 0;
            if (mask && kserve_number(mask, r * width + i) == 0) continue;
            if (!typed && type != 0) return api_error_field(e, "token_type_ids", "token_type_ids: a text's are all 0");
            if (!(id >= 0 && id <= INT32_MAX)) return api_error_field(e, "input_ids", "input_ids: %.0f is no token id", id);
            if (!(type >= 0 && type <= INT32_MAX)) return api_error_field(e, "token_type_ids", "token_type_ids: %.0f is no type", type);
            if (types && typed) to_types[r * width + n] = (int32_t)type;
            row[n++] = (int32_t)id;
        }
        in[r].tokens = row;
        in[r].tokens_count = n;
        if (types && typed) in[r].types = to_types + r * width;
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
    if ((text != NULL) == (ids != NULL)) return api_error_field(e, "text", "expected input 'text' or 'input_ids' for model '%s'", c->model->name);
    if ((mask || types) && !ids) return api_error_field(e, mask ? "attention_mask" : "token_type_ids", "%s goes with input_ids", mask ? "attention_mask" : "token_type_ids");
    if ((pair || query) && !text) return api_error_field(e, "text", "expected input 'text' for model '%s'", c->model->name);
    if (kind == KSERVE_SCORE && text && !query) return api_error_field(e, "query", "expected input 'query' for model '%s'", c->model->name);
    size_t count = (size_t)(ids ? ids : text)->shape[0];
    struct text_input *in = ARENA_ARRAY(a, struct text_input, count);
    if (!in) return kserve_too_large(e);
    if (ids && !ids_of(ids, mask, types, kind != KSERVE_EMBED, c->model->info.counted_positions, a, in, e)) return false;
    if (query) texts_of(query, in, false);
    if (text) texts_of(text, in, query != NULL);
    if (pair) texts_of(pair, in, true);
    struct texts *t = texts_new(c->http, &c->s->models, c->model, kind == KSERVE_EMBED ? ROSE_TASK_EMBED : kind == KSERVE_SCORE ? ROSE_TASK_SCORE : ROSE_TASK_CLASSIFY, in, (int)count);
    if (!t) return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    if (!read_how(c, a, &t->rose, e)) return false;
    c->passes = passes_of(q);
    c->as_asked = t->rose;
    set_pass(next_pass(c), &t->rose);
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
    if (!(c->model = kserve_find(c->s, model, version, &e)) || !check(c->model, &c->request, &e) || !check_regions(c, &e) || !kserve_map_request(c, &e)) c->transport->fail(c, &e);
    else if (c->s->draining && !api_error_set(&e, 503, "server_error", "shutting_down", NULL, "the server is shutting down and takes no new requests")) c->transport->fail(c, &e);
    else if (kserve_kind(c->model) == KSERVE_TEXT) kserve_text_infer(c);
    else if (!start_texts(c, &e)) c->transport->fail(c, &e);
}
