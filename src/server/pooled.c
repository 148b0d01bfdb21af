#include "server/pooled.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool no_memory(struct api_error *e) { return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory"); }

static double characters_of(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return (double)n;
}

static void add_number(struct httpd_request *http, const char *name, double value)
{
    char *text = arena_alloc(&http->arena, 24);
    if (!text) return;
    snprintf(text, 24, "%.0f", ROSE_MAX(value, 0.0));
    httpd_add_header(http, name, text);
}

/* TEI's routes, and OpenAI's that it has too: what it counts, and what has its headers. */
static bool as_tei(enum pooled_route route) { return pooled_is_tei(route) || route == POOLED_EMBEDDINGS; }

/* As TEI says what a request took: Unicode characters, tokens, and milliseconds. */
static void add_times(const struct pooled_call *c, const struct texts *t)
{
    struct httpd_request *http = c->http;
    struct te_metrics *m = &c->s->te;
    double characters = 0, total = 1000 * (httpd_now() - http->began_s), queue = 1000 * t->queued_s, tokenising = 1000 * t->taken_s;
    for (int i = 0; i < t->count; i++) characters += characters_of(t->inputs[i].text) + characters_of(t->inputs[i].pair);
    queue = ROSE_MIN(queue, total - tokenising); /* of many texts one waits while others are tokenised */
    struct rose_device *device = t->models->options->rose_device;
    struct rose_memory *none = NULL; /* a device that is no GPU says so before it looks at the handle */
    bool gpu = device && rose_memory_open(device, NULL, 0, 0, 0, &none, NULL) != ROSE_UNSUPPORTED;
    httpd_add_header(http, "x-compute-type", gpu ? "gpu+optimized" : "cpu+optimized");
    add_number(http, "x-compute-characters", characters);
    add_number(http, "x-compute-tokens", t->tokens);
    add_number(http, "x-compute-time", floor(total));
    add_number(http, "x-total-time", floor(total));
    add_number(http, "x-tokenization-time", floor(tokenising));
    add_number(http, "x-queue-time", floor(queue));
    add_number(http, "x-inference-time", floor(total - queue - tokenising));
    te_metrics_times(m, total / 1000, tokenising / 1000, ROSE_MAX(queue, 0.0) / 1000, ROSE_MAX(total - queue - tokenising, 0.0) / 1000);
    for (int i = 0; i < t->count; i++) te_metrics_tokens(m, t->results[i].tokens);
    m->success[!c->request.single]++;
    *(t->rose.task == ROSE_TASK_EMBED ? &m->embedded : &m->predicted) += (uint64_t)t->count;
}

static void refuse(struct server *s, struct httpd_request *http, enum pooled_route route, const struct api_error *e)
{
    if (as_tei(route)) te_metrics_failed(&s->te, e);
    pooled_refuse(http, pooled_is_tei(route), e);
}

static void done(struct texts *t)
{
    struct pooled_call *c = t->user;
    struct strbuf *b = httpd_stream(c->http);
    struct api_error e;
    pooled_write(c, t, b);
    if (!b->failed) {
        if (as_tei(c->request.route)) add_times(c, t);
        httpd_reply_written(c->http, 200, "application/json");
        return;
    }
    b->n = 0;
    b->failed = false;
    no_memory(&e);
    refuse(c->s, c->http, c->request.route, &e);
}

static void failed(struct texts *t, const struct api_error *e)
{
    struct pooled_call *c = t->user;
    refuse(c->s, c->http, c->request.route, e);
}

/* --- what the model is to do ---------------------------------------------------------------------------------------------------------- */

static bool cannot(const struct pooled_call *c, const char *what, struct api_error *e)
{
    const struct model *m = c->model;
    if (!c->request.model.n) return api_error_set(e, 400, "invalid_request_error", "unsupported_model", NULL, "no model here can %s; see /v1/models", what); /* whichever was looked at last */
    const char *hint = m->info.tasks & ROSE_CAN_GENERATE && !strcmp(what, "embed") ? ": it writes text; rose serve --task embed makes it embed instead" : "";
    return api_error_set(e, 400, "invalid_request_error", "unsupported_model", "model", "model \"%s\" does not %s%s", m->name, what, hint);
}

/* One answer for a whole text. A classifier of tokens has none: TEI and vLLM have a form for its rows in /pooling alone. */
static bool can_classify(const struct pooled_call *c, struct api_error *e)
{
    const struct model *m = c->model;
    if (m->info.tasks & ROSE_CAN_CLASSIFY) return true;
    if (!(m->info.tasks & ROSE_CAN_CLASSIFY_TOKENS)) return cannot(c, "classify", e);
    return api_error_set(e, 400, "invalid_request_error", "unsupported_model", "model",
                         "model \"%s\" classifies each token and not a text as a whole: /pooling with \"task\": \"token_classify\" and KServe's /v2/models/%s/infer give a row a token", m->name, m->name);
}

/* The model that is named; else the first that does what the route is for. */
static struct model *find_model(struct models *models, const struct pooled_request *r)
{
    unsigned classes = ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS, can = ROSE_CAN_EMBED;
    struct model *m;
    switch (r->route) {
    case POOLED_CLASSIFY: case POOLED_TEI_PREDICT:
        m = models_find(models, r->model, ROSE_CAN_CLASSIFY);
        if (!m || m->info.tasks & ROSE_CAN_CLASSIFY) return m;
        can = ROSE_CAN_CLASSIFY_TOKENS; /* whose refusal says more */
        break;
    case POOLED_POOLING:
        if (!r->task.n) can |= classes;
        else if (str_is(r->task, "classify")) can = ROSE_CAN_CLASSIFY;
        else if (str_is(r->task, "token_classify")) can = ROSE_CAN_CLASSIFY_TOKENS;
        break;
    case POOLED_TEI_EMBED_SPARSE: can = ROSE_CAN_SPARSE; break;
    case POOLED_RERANK: case POOLED_SCORE: case POOLED_TEI_RERANK:
        m = models_find(models, r->model, ROSE_CAN_SCORE);
        if (!m || m->info.tasks & ROSE_CAN_SCORE) return m;
        break; /* embeddings are compared */
    default: break;
    }
    return models_find(models, r->model, can);
}

/* One list: pairs as pairs, or all texts of both sides where their embeddings are compared. */
static struct text_input *pair_up(const struct pooled_call *c, struct arena *a, int *count)
{
    const struct pooled_request *r = &c->request;
    int pairs = ROSE_MAX(r->first_count, r->second_count);
    *count = c->by_embedding ? r->first_count + r->second_count : pairs;
    struct text_input *list = ARENA_ARRAY(a, struct text_input, (size_t)*count + 1);
    for (int i = 0; list && c->by_embedding && i < *count; i++) list[i] = i < r->first_count ? r->first[i] : r->second[i - r->first_count];
    for (int i = 0; list && !c->by_embedding && i < pairs; i++) {
        list[i].text = r->first[r->first_count == 1 ? 0 : i].text;
        list[i].pair = r->second[r->second_count == 1 ? 0 : i].text;
        if (!list[i].pair.p) list[i].pair.p = "";
    }
    return list;
}

static bool plan_pooling(const struct pooled_call *c, struct rose_request *r, enum rose_task *task, struct api_error *e)
{
    struct str t = c->request.task;
    unsigned can = c->model->info.tasks;
    bool embed = str_is(t, "embed"), tokens = str_is(t, "token_embed") || str_is(t, "encode"), classes = str_is(t, "classify") || str_is(t, "token_classify");
    if (t.n && !embed && !tokens && !classes) return api_error_field(e, "task", "task must be \"embed\", \"token_embed\", \"classify\" or \"token_classify\"");
    if (!t.n) classes = !(can & ROSE_CAN_EMBED);
    *task = classes ? ROSE_TASK_CLASSIFY : ROSE_TASK_EMBED;
    if (tokens) r->pooling = ROSE_POOL_NONE;
    return true;
}

/* Which task, which texts. */
static bool plan(struct pooled_call *c, struct rose_request *rose, enum rose_task *task, struct text_input **list, int *count, const char **field, struct api_error *e)
{
    struct pooled_request *r = &c->request;
    unsigned can = c->model->info.tasks;
    struct arena *a = &c->http->arena;
    *list = r->first;
    *count = r->first_count;
    *field = r->route == POOLED_EMBEDDINGS || r->route == POOLED_CLASSIFY || r->route == POOLED_POOLING ? "input" : "inputs";
    *task = ROSE_TASK_EMBED;
    switch (r->route) {
    case POOLED_POOLING:
        if (!plan_pooling(c, rose, task, e)) return false;
        if (str_is(r->task, "classify")) return can_classify(c, e);
        if (r->task.n && *task == ROSE_TASK_CLASSIFY) return can & ROSE_CAN_CLASSIFY_TOKENS || cannot(c, "classify tokens", e);
        if (*task == ROSE_TASK_CLASSIFY) return can & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS) || cannot(c, "embed or classify", e);
        return can & ROSE_CAN_EMBED || cannot(c, "embed", e);
    case POOLED_CLASSIFY: case POOLED_TEI_PREDICT:
        *task = ROSE_TASK_CLASSIFY;
        return can_classify(c, e);
    case POOLED_TEI_EMBED_SPARSE:
        rose->sparse = true;
        return can & ROSE_CAN_SPARSE || cannot(c, "give sparse embeddings", e);
    case POOLED_TEI_EMBED_ALL: rose->pooling = ROSE_POOL_NONE; return can & ROSE_CAN_EMBED || cannot(c, "embed", e);
    case POOLED_EMBEDDINGS: case POOLED_TEI_EMBED: return can & ROSE_CAN_EMBED || cannot(c, "embed", e);
    default: break;
    }
    c->by_embedding = r->route == POOLED_TEI_SIMILARITY || !(can & ROSE_CAN_SCORE);
    if (c->by_embedding && !(can & ROSE_CAN_EMBED)) return cannot(c, r->route == POOLED_TEI_SIMILARITY ? "embed" : "score", e);
    if (!c->by_embedding) *task = ROSE_TASK_SCORE;
    *field = c->by_embedding ? "texts" : r->route == POOLED_RERANK ? "documents" : r->route == POOLED_SCORE ? "text_2" : "texts";
    *list = pair_up(c, a, count);
    return *list || no_memory(e);
}

static bool fill(const struct pooled_call *c, struct rose_request *to, struct api_error *e)
{
    const struct pooled_request *r = &c->request;
    struct arena *a = &c->http->arena;
    bool tei = pooled_is_tei(r->route);
    to->prompt_name = r->prompt_name.p ? fields_terminated(a, "prompt_name", r->prompt_name, e) : NULL; /* "": not the model's default either */
    to->instruction = r->instruction.n ? fields_terminated(a, "instruction", r->instruction, e) : NULL;
    to->dimensions = r->dimensions;
    to->priority = r->priority;
    /* TEI normalises embeddings unless asked not to, and never those of single tokens. */
    to->normalize = r->route == POOLED_TEI_EMBED_ALL ? ROSE_OFF : r->normalize < 0 ? (tei && r->route == POOLED_TEI_EMBED ? ROSE_ON : ROSE_DEFAULT) : r->normalize ? ROSE_ON : ROSE_OFF;
    to->activation = r->activation < 0 ? (tei ? (r->raw_scores ? ROSE_OFF : ROSE_ON) : ROSE_DEFAULT) : r->activation ? ROSE_ON : ROSE_OFF;
    to->truncate = !r->truncate ? ROSE_TRUNCATE_NONE : r->left ? ROSE_TRUNCATE_LEFT : ROSE_TRUNCATE_RIGHT;
    to->truncate_tokens = r->truncate ? ROSE_MAX(r->truncate_tokens, 0) : 0;
    return !e->status;
}

/* What the model does not have is no fault of the first text's. */
static bool model_has(const struct pooled_call *c, struct api_error *e)
{
    const struct pooled_request *r = &c->request;
    const struct rose_model_info *info = &c->model->info;
    struct str name = r->prompt_name;
    if (!(info->tasks & ROSE_CAN_EMBED)) return true;
    bool rows = str_is(r->task, "token_embed") || str_is(r->task, "encode"); /* of tokens: as wide as the model */
    int most = rows ? info->hidden : info->embedding_size;
    if (r->dimensions > most) return api_error_field(e, "dimensions", "dimensions must lie between 1 and %d, which is what %s gives", most, c->model->name);
    bool there = !name.n, ids = false;
    struct strbuf list = {.limit = 400};
    for (int i = 0; i < info->prompts_count; i++) {
        there |= str_is(name, info->prompts[i]);
        strbuf_printf(&list, "%s%s", i ? ", " : "", info->prompts[i]);
    }
    if (!there) api_error_field(e, "prompt_name", "the model has no prompt \"%.*s\"; it has: %s", (int)ROSE_MIN(name.n, 100), name.p, list.n ? list.p : "none");
    strbuf_free(&list);
    for (int i = 0; name.n && i < r->first_count; i++) ids |= r->first[i].tokens != NULL;
    return there && (!ids || api_error_field(e, "prompt_name", "prompt_name goes before texts: token ids are taken as they are"));
}

/* --- calls ------------------------------------------------------------------------------------------------------------------------------------ */

const struct json *pooled_body(struct httpd_request *http, struct api_error *e)
{
    const struct json *body;
    struct rose_error err = {0};
    enum rose_status s = json_parse(&http->arena, NULL, strbuf_str(&http->body), &body, &err);
    if (s == ROSE_OK) return body;
    if (s == ROSE_NO_MEMORY) api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values");
    else api_error_set(e, 400, "invalid_request_error", "invalid_json", NULL, "the request's body is not valid: %s", err.message);
    return NULL;
}

void pooled_say_unknown(const struct server *s, const struct httpd_request *http, const char *unknown)
{
    if (s->options->log_debug && unknown[0]) log_line(s->options, "debug", "%s: fields that mean nothing there are left out: %s (request %s)", http->path, unknown, http->id);
}

static bool begin(struct server *s, struct httpd_request *http, enum pooled_route route, const struct json *body, struct api_error *e)
{
    static const struct texts_handler handler = {done, failed};
    struct pooled_call *c = ARENA_NEW(&http->arena, struct pooled_call);
    struct text_input *list;
    struct rose_request rose;
    enum rose_task task;
    const char *field;
    int count;
    if (!c) return no_memory(e);
    c->s = s;
    c->http = http;
    c->request.truncate = s->options->auto_truncate;
    if (!pooled_read(route, body, &http->arena, &c->request, e)) return false;
    pooled_say_unknown(s, http, c->request.unknown);
    if (as_tei(route)) s->te.requests[!c->request.single]++;
    c->model = find_model(&s->models, &c->request);
    if (!c->model) return models_missing(&s->models, c->request.model, e);
    http->log_model = c->model->name;
    if (s->draining) return api_error_set(e, 503, "server_error", "shutting_down", NULL, "the server is shutting down and takes no new requests");
    rose_request_init(&rose);
    rose.tokenize_flags = s->options->parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
    if (!model_has(c, e) || !fill(c, &rose, e) || !plan(c, &rose, &task, &list, &count, &field, e)) return false;
    struct texts *t = texts_new(http, &s->models, c->model, task, list, count);
    if (!t) return no_memory(e);
    rose.task = task;
    rose.group = t->rose.group;
    t->rose = rose;
    t->field = field;
    t->handler = &handler;
    t->user = c;
    if (as_tei(route)) *(task == ROSE_TASK_EMBED ? &s->te.embeds : &s->te.predicts) += (uint64_t)count;
    texts_start(t);
    return true;
}

void pooled_start(struct server *s, struct httpd_request *http, enum pooled_route route)
{
    struct api_error e = {0};
    const struct json *body = pooled_body(http, &e);
    if (!body || !begin(s, http, route, body, &e)) refuse(s, http, route, &e);
}

void pooled_rerank_either(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    const struct json *body = pooled_body(http, &e);
    bool tei = !json_get(body, "documents") && (json_get(body, "texts") || !json_get(body, "model"));
    enum pooled_route route = tei ? POOLED_TEI_RERANK : POOLED_RERANK;
    if (!body || !begin(s, http, route, body, &e)) refuse(s, http, route, &e);
}

void pooled_root(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    const struct json *body = pooled_body(http, &e);
    const struct model *m = body ? models_find(&s->models, json_str(json_get(body, "model"), ""), ~(unsigned)ROSE_CAN_GENERATE) : NULL;
    unsigned can = m ? m->info.tasks : 0;
    enum pooled_route route = can & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS) ? POOLED_TEI_PREDICT : POOLED_TEI_EMBED;
    if (json_get(body, "query")) route = POOLED_TEI_RERANK;
    else if (json_get(json_get(body, "inputs"), "sentences")) route = POOLED_TEI_SIMILARITY; /* as Hugging Face's own client asks */
    if (!body || !begin(s, http, route, body, &e)) refuse(s, http, route, &e);
}

/* TEI's /info: of the first model that embeds, ranks or classifies. */
static void add_labels(const struct rose_model_info *i, struct strbuf *b)
{
    strbuf_adds(b, "{\"id2label\":{");
    for (int k = 0; k < i->labels_count; k++) {
        strbuf_printf(b, "%s\"%d\":", k ? "," : "", k);
        json_add_str(b, str_of(i->labels[k]));
    }
    strbuf_adds(b, "},\"label2id\":{");
    for (int k = 0; k < i->labels_count; k++) {
        if (k) strbuf_addc(b, ',');
        json_add_str(b, str_of(i->labels[k]));
        strbuf_printf(b, ":%d", k);
    }
    strbuf_adds(b, "}}");
}

void pooled_info(struct server *s, struct httpd_request *http)
{
    const struct model *m = NULL;
    struct strbuf b = {0};
    struct api_error e;
    for (int i = 0; i < s->models.count && !m; i++)
        if (s->models.models[i].state == MODEL_READY && s->models.models[i].info.tasks & ~(unsigned)ROSE_CAN_GENERATE) m = &s->models.models[i];
    if (!m) {
        models_missing(&s->models, STR(""), &e);
        if (e.status == 404) api_error_set(&e, 404, "not_found_error", "model_not_found", NULL, "no model here embeds, ranks or classifies");
        pooled_refuse(http, true, &e);
        return;
    }
    const struct rose_model_info *i = &m->info;
    strbuf_adds(&b, "{\"model_id\":");
    json_add_str(&b, str_of(m->name));
    strbuf_adds(&b, ",\"model_sha\":null,\"model_dtype\":");
    json_add_str(&b, str_of(i->weights_type));
    strbuf_adds(&b, ",\"model_type\":{");
    if (i->tasks & ROSE_CAN_SCORE && !(i->tasks & ROSE_CAN_EMBED)) {
        strbuf_adds(&b, "\"reranker\":");
        add_labels(i, &b);
    } else if (i->tasks & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS)) {
        strbuf_adds(&b, "\"classifier\":");
        add_labels(i, &b);
    } else {
        strbuf_adds(&b, "\"embedding\":{\"pooling\":");
        json_add_str(&b, str_of(i->pooling ? i->pooling : ""));
        strbuf_addc(&b, '}');
    }
    strbuf_printf(&b, "},\"max_concurrent_requests\":%d,\"max_input_length\":%d,\"max_batch_tokens\":%d,\"max_batch_requests\":null,\"max_client_batch_size\":%d,\"auto_truncate\":%s,"
                      "\"tokenization_workers\":1,\"version\":\"" ROSE_VERSION "\",\"sha\":null,\"docker_label\":null,\"served_model_name\":", s->options->connections, i->longest_input, i->step_tokens,
                  TEXTS_MAX, s->options->auto_truncate ? "true" : "false");
    json_add_str(&b, str_of(m->name));
    strbuf_addc(&b, '}');
    httpd_reply(http, 200, "application/json", strbuf_str(&b));
    strbuf_free(&b);
}
