/* Routes that answer at once: health, version, models, tokens, the engine's state. */
#include "server/beside.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void reply_json(struct httpd_request *r, int status, struct strbuf *b)
{
    struct api_error e;
    if (b->failed && !api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory")) route_error(r, &e);
    else httpd_reply(r, status, "application/json", strbuf_str(b));
    strbuf_free(b);
}

/* Live while every engine makes progress, not merely while this thread answers. */
void ops_health(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    bool stuck = false, lost = false;
    double longest = 0;
    for (int i = 0; i < s->models.count; i++) {
        struct rose_stats st;
        if (!model_is_up(&s->models.models[i])) continue;
        model_stats(&s->models.models[i], &st);
        stuck |= st.seconds_since_step > s->options->stall_s;
        lost |= st.lost;
        longest = ROSE_MAX(longest, st.seconds_since_step);
    }
    strbuf_printf(&b, "{\"status\":\"%s\",\"seconds_since_step\":%.3f}", s->draining ? "draining" : lost ? "device lost" : stuck ? "stuck" : "ok", longest);
    reply_json(r, s->draining || stuck || lost ? 503 : 200, &b);
}

void ops_version(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "{\"name\":\"rose\",\"version\":\"%s\",\"device\":", ROSE_VERSION);
    json_add_str(&b, str_of(s->device));
    strbuf_addc(&b, '}');
    reply_json(r, 200, &b);
}

void ops_metrics(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    metrics_write(s, &b);
    httpd_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_str(&b));
    strbuf_free(&b);
}

/* What it can do, as --task and /pooling call it. */
static void add_tasks(unsigned can, struct strbuf *b)
{
    static const struct { unsigned bits; const char *name; } tasks[] = {{ROSE_CAN_GENERATE, "generate"}, {ROSE_CAN_EMBED, "embed"}, {ROSE_CAN_CLASSIFY, "classify"},
                                                                        {ROSE_CAN_CLASSIFY_TOKENS, "token_classify"}, {ROSE_CAN_SCORE, "score"}};
    const char *comma = "";
    for (size_t i = 0; i < ROSE_COUNT(tasks); i++) {
        if (!(can & tasks[i].bits)) continue;
        strbuf_printf(b, "%s\"%s\"", comma, tasks[i].name);
        comma = ",";
    }
}

static void add_model(const struct model *m, struct strbuf *b)
{
    strbuf_adds(b, "{\"id\":");
    json_add_str(b, str_of(m->name));
    strbuf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"rose\",\"max_model_len\":%d,\"parameters\":%lld,\"architecture\":", (long long)m->created, m->info.context,
                  (long long)m->info.parameters);
    json_add_str(b, str_of(m->info.architecture));
    strbuf_adds(b, ",\"weights\":");
    json_add_str(b, str_of(m->info.weights_type));
    strbuf_printf(b, ",\"reasoning\":%s,\"tasks\":[", m->reasoning ? "true" : "false");
    add_tasks(m->null ? ROSE_CAN_GENERATE : m->info.tasks, b);
    strbuf_adds(b, "]}");
}

void ops_models(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < s->models.count; i++) {
        struct model *m = &s->models.models[i];
        if (m->state != MODEL_READY || models_lookup(&s->models, str_of(m->name), 0) != m) continue; /* of a name the version that answers to it */
        if (b.n && b.p[b.n - 1] != '[') strbuf_addc(&b, ',');
        add_model(m, &b);
    }
    strbuf_adds(&b, "]}");
    reply_json(r, 200, &b);
}

static struct model *find_model(struct server *s, struct httpd_request *r, struct str name, unsigned can)
{
    struct model *m = models_find(&s->models, name, can);
    struct api_error e;
    if (!m && !models_missing(&s->models, name, &e)) route_error(r, &e);
    return m;
}

void ops_model(struct server *s, struct httpd_request *r)
{
    struct str name = str_of(r->path + strlen("/v1/models/"));
    struct model *m = models_lookup(&s->models, name, 0); /* what is here, as in the list: with --any-model requests may use other names all the same */
    struct api_error e;
    if ((!m || m->state != MODEL_READY) && !models_missing(&s->models, name, &e)) {
        route_error(r, &e);
        return;
    }
    struct strbuf b = {0};
    add_model(m, &b);
    reply_json(r, 200, &b);
}

/* --- the engine's state, for the page ------------------------------------------------------------------------------------------------- */

static void add_stats(struct models *all, const struct model *m, uint64_t since, struct strbuf *b)
{
    char label[MODEL_LABEL_MAX];
    struct rose_stats st;
    struct rose_step steps[ROSE_STEPS_KEPT];
    model_stats(m, &st);
    strbuf_adds(b, "{\"model\":");
    json_add_str(b, str_of(models_label(all, m, label)));
    strbuf_printf(b, ",\"running\":%d,\"waiting\":%d,\"pages_total\":%d,\"pages_free\":%d,\"pages_cached\":%d,\"page_tokens\":%d,\"max_sequences\":%d,\"step_tokens\":%d,\"context\":%d",
                  st.running, st.waiting, st.pages_total, st.pages_free, st.pages_cached, m->info.page_tokens, m->info.max_sequences, m->info.step_tokens, m->info.context);
    strbuf_printf(b, ",\"tokens_in\":%llu,\"tokens_out\":%llu,\"requests\":%llu,\"finished\":%llu,\"cancelled\":%llu,\"failed\":%llu,\"preemptions\":%llu,\"steps\":[",
                  (unsigned long long)st.tokens_in, (unsigned long long)st.tokens_out, (unsigned long long)st.requests, (unsigned long long)st.finished,
                  (unsigned long long)st.cancelled, (unsigned long long)st.failed, (unsigned long long)st.preemptions);
    size_t n = m->null ? 0 : rose_engine_steps(m->engine, since, steps, ROSE_STEPS_KEPT);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s[%llu,%d,%d,%.6f]", i ? "," : "", (unsigned long long)steps[i].index, steps[i].prefill_rows, steps[i].decode_rows, (double)steps[i].seconds);
    strbuf_adds(b, "]}");
}

/* ?since=STEP: only steps behind that one: [index, prefill rows, decode rows, seconds]. */
void ops_stats(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    const char *since = httpd_argument(r, "since");
    strbuf_printf(&b, "{\"uptime_s\":%.3f,\"models\":[", httpd_now() - s->started_s);
    for (int i = 0; i < s->models.count; i++) {
        if (!model_is_up(&s->models.models[i])) continue;
        if (b.n && b.p[b.n - 1] != '[') strbuf_addc(&b, ',');
        add_stats(&s->models, &s->models.models[i], since ? strtoull(since, NULL, 10) : 0, &b);
    }
    strbuf_adds(&b, "]}");
    reply_json(r, 200, &b);
}

/* --- tokens ------------------------------------------------------------------------------------------------------------------------------ */

static const struct json *read_body(struct httpd_request *r, struct api_error *e)
{
    const struct json *body;
    struct rose_error err = {0};
    enum rose_status st = json_parse(&r->arena, NULL, strbuf_str(&r->body), &body, &err);
    if (st == ROSE_OK) return body;
    if (st == ROSE_FORMAT) api_error_set(e, 400, "invalid_request_error", "invalid_json", NULL, "the request's body is not valid: %s", err.message);
    else if (st == ROSE_NO_MEMORY) api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values");
    else api_error_rose(e, st, &err);
    return NULL;
}

static bool fits(const struct model *m, struct str text, struct httpd_request *r)
{
    struct api_error e;
    size_t limit = model_text_limit(m);
    if (text.n <= limit) return true;
    api_error_set(&e, 400, "invalid_request_error", "context_length_exceeded", NULL, "the request has %zu bytes of text; at most %zu are taken", text.n, limit);
    route_error(r, &e);
    return false;
}

static void add_tokens(const struct model *m, const struct api_tokens *t, const int32_t *ids, size_t n, struct strbuf *b)
{
    strbuf_printf(b, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", n, m->info.context);
    for (size_t i = 0; i < n; i++) strbuf_printf(b, "%s%d", i ? "," : "", ids[i]);
    strbuf_adds(b, "],\"token_strs\":");
    if (!t->return_token_strs) strbuf_adds(b, "null");
    for (size_t i = 0; t->return_token_strs && i < n; i++) {
        size_t bytes;
        const char *text = rose_token_text(m->engine, ids[i], &bytes);
        strbuf_addc(b, i ? ',' : '[');
        json_add_str(b, (struct str){text ? text : "", bytes});
    }
    if (t->return_token_strs) strbuf_adds(b, n ? "]" : "[]");
    strbuf_addc(b, '}');
}

/* A text or chat to be tokenised: here when it is short, else beside the loop. In the request's arena. */
struct counting {
    struct httpd_request *http;
    struct model *model;
    struct api_tokens tokens;
    bool ids; /* else their number alone */
    struct beside_job *job;
};

static void counted(void *user, int part, const struct beside_result *result)
{
    struct counting *c = user;
    struct strbuf b = {0};
    struct api_error e = {0};
    (void)part;
    c->job = NULL;
    c->http->on_gone = NULL;
    if (result->status == ROSE_OK) {
        if (c->ids) add_tokens(c->model, &c->tokens, result->tokens, result->count, &b);
        else strbuf_printf(&b, "{\"input_tokens\":%zu}", result->count);
        reply_json(c->http, 200, &b);
        return;
    }
    api_error_rose(&e, result->status, result->err);
    route_error(c->http, &e);
}

static void counting_gone(struct httpd_request *r)
{
    struct counting *c = r->owner;
    beside_drop(c->job);
}

static void count_tokens(struct server *s, struct counting *c)
{
    const struct api_tokens *t = &c->tokens;
    struct str text = t->text;
    bool chat = t->messages != NULL;
    bool parse = s->options->parse_special && !(c->model->info.tasks & ROSE_CAN_GENERATE); /* the ids that its texts get */
    int flags = (t->add_special_tokens ? 0 : ROSE_TOKENIZE_NO_SPECIAL) | (parse ? ROSE_TOKENIZE_PARSE_SPECIAL : 0);
    if (!fits(c->model, text, c->http)) return;
    c->http->owner = c;
    if (text.n >= BESIDE_BYTES && (c->job = beside_tokenize(&s->models, c->model, text, chat, flags, c->ids, counted, c)) != NULL) {
        c->http->on_gone = counting_gone;
        return;
    }
    struct rose_error err = {0};
    size_t count = 0, room = c->ids ? text.n + 64 : 0; /* no token is shorter than a byte, but for a few special ones */
    int32_t *ids = NULL;
    enum rose_status st;
    do {
        free(ids);
        room = ROSE_MAX(room, count);
        ids = malloc(room * sizeof *ids + 1);
        if (!ids) st = status_set(&err, ROSE_NO_MEMORY, "out of memory");
        else st = chat ? rose_tokenize_chat(c->model->engine, text.p, text.n, ids, room, &count, &err) : rose_tokenize(c->model->engine, text.p, text.n, flags, ids, room, &count, &err);
    } while (st == ROSE_OK && c->ids && count > room);
    counted(c, 0, &(struct beside_result){.status = st, .err = &err, .tokens = ids, .count = count});
    free(ids);
}

static struct counting *new_counting(struct httpd_request *r, bool ids)
{
    struct counting *c = ARENA_NEW(&r->arena, struct counting);
    struct api_error e = {0};
    if (c) *c = (struct counting){.http = r, .ids = ids};
    else if (!api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory")) route_error(r, &e);
    return c;
}

void ops_tokenize(struct server *s, struct httpd_request *r)
{
    struct api_error e = {0};
    struct counting *c = new_counting(r, true);
    const struct json *body = c ? read_body(r, &e) : NULL;
    if (!c) return;
    if (!body || !openai_tokenize_read(body, &r->arena, &c->tokens, &e)) {
        route_error(r, &e);
        return;
    }
    c->model = find_model(s, r, c->tokens.model, c->tokens.messages ? ROSE_CAN_GENERATE : 0);
    if (c->model) count_tokens(s, c);
}

/* Ids to text, here or beside the loop. The thread's own: the request may be gone. */
struct decoding {
    struct strbuf answer;
    size_t count;
    int32_t ids[];
};

static enum rose_status decode(void *state, const struct rose_engine *engine, struct rose_error *err)
{
    struct decoding *d = state;
    struct strbuf text = {0};
    size_t n = 0;
    enum rose_status st = rose_detokenize(engine, d->ids, d->count, 0, NULL, 0, &n, err);
    if (st == ROSE_OK && !strbuf_reserve(&text, n)) st = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK) st = rose_detokenize(engine, d->ids, d->count, 0, text.p, n, &text.n, err);
    if (st == ROSE_OK) {
        strbuf_adds(&d->answer, "{\"prompt\":");
        json_add_str(&d->answer, strbuf_str(&text));
        strbuf_addc(&d->answer, '}');
        if (d->answer.failed) st = status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    strbuf_free(&text);
    return st;
}

static void free_decoding(void *state)
{
    struct decoding *d = state;
    strbuf_free(&d->answer);
    free(d);
}

struct decode_wait { /* in the request's arena */
    struct httpd_request *http;
    struct decoding *d;
    struct beside_job *job;
};

static void decoded(void *user, int part, const struct beside_result *result)
{
    struct decode_wait *w = user;
    struct api_error e = {0};
    (void)part;
    w->http->on_gone = NULL;
    if (result->status == ROSE_OK) {
        reply_json(w->http, 200, &w->d->answer);
        return;
    }
    api_error_rose(&e, result->status, result->err);
    route_error(w->http, &e);
}

static void decode_gone(struct httpd_request *r) { beside_drop(((struct decode_wait *)r->owner)->job); }

void ops_detokenize(struct server *s, struct httpd_request *r)
{
    struct api_error e = {0};
    struct api_tokens t;
    struct rose_error err = {0};
    const struct json *body = read_body(r, &e);
    if (!body || !openai_detokenize_read(body, &r->arena, &t, &e)) {
        route_error(r, &e);
        return;
    }
    struct model *m = find_model(s, r, t.model, 0);
    if (!m) return;
    struct decode_wait *w = ARENA_NEW(&r->arena, struct decode_wait);
    struct decoding *d = w ? malloc(sizeof *d + t.ids_count * sizeof *d->ids) : NULL;
    if (!d) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
        route_error(r, &e);
        return;
    }
    *d = (struct decoding){.count = t.ids_count};
    if (d->count) memcpy(d->ids, t.ids, d->count * sizeof *d->ids);
    *w = (struct decode_wait){.http = r, .d = d};
    r->owner = w;
    if (d->count >= BESIDE_BYTES / 4 && (w->job = beside_do(&s->models, m, d->count * 4, decode, d, free_decoding, decoded, w)) != NULL) {
        r->on_gone = decode_gone;
        return;
    }
    struct beside_result result = {0};
    result.status = decode(d, m->engine, &err);
    result.err = &err;
    decoded(w, 0, &result);
    free_decoding(d);
}

void ops_count_tokens(struct server *s, struct httpd_request *r)
{
    struct api_error e = {0};
    struct api_request q;
    struct counting *c = new_counting(r, false);
    const struct json *body = c ? read_body(r, &e) : NULL;
    if (!c) return;
    if (!body || !anthropic_read(body, true, &r->arena, &q, &e)) {
        route_error(r, &e);
        return;
    }
    c->tokens = (struct api_tokens){.text = q.prompts[0].text, .messages = q.messages, .add_special_tokens = true};
    c->model = find_model(s, r, q.model, ROSE_CAN_GENERATE);
    if (c->model) count_tokens(s, c);
}
