#include "server/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/status.h"
#include "server/beside.h"

/* The table of models that the handles belong to; there is one server a process. */
static struct models *owner;

/* --- endings --------------------------------------------------------------------------------------------------------------------- */

static void close_all(struct generation *g, bool cancel)
{
    if (g->beside) {
        beside_drop(g->beside);
        g->beside = NULL;
        g->parts[g->submitted].handle = 0; /* the job's now */
    }
    for (int i = 0; i < g->parts_count; i++) {
        if (cancel && g->parts[i].handle && !g->parts[i].ended) model_cancel(g->model, g->parts[i].id);
        models_release(owner, g->parts[i].handle);
        g->parts[i].handle = 0;
    }
    for (int i = 0; i < g->choices_count; i++) {
        strbuf_free(&g->choices[i].text);
        strbuf_free(&g->choices[i].thoughts);
        strbuf_free(&g->choices[i].prompt_logprobs);
        free(g->choices[i].entries.p);
        g->choices[i].entries = (struct token_entries){0};
    }
    if (g->http) g->http->on_gone = NULL;
    g->http = NULL;
}

static void on_gone(struct httpd_request *r)
{
    r->log_finish = "gone";
    close_all(r->owner, true);
}

void generation_refuse(struct httpd_request *http, const struct writer *writer, const struct api_error *e)
{
    struct strbuf b = {0};
    writer->refusal(e, http->id, &b);
    if (e->status == 429 || e->status == 503) httpd_add_header(http, "Retry-After", "1");
    httpd_reply(http, e->status, "application/json", strbuf_str(&b));
    strbuf_free(&b);
}

static void refuse(struct generation *g, const struct api_error *e)
{
    if (g->writer->fail) g->writer->fail(g, e);
    else generation_refuse(g->http, g->writer, e);
}

/* The engine gave up on it. */
static void fail(struct generation *g, const struct api_error *e)
{
    struct httpd_request *http = g->http;
    http->log_finish = "error";
    if (g->began) {
        g->writer->error(g, e);
        httpd_stream_flush(http);
        if (!g->http) return; /* the flush found the client gone */
        httpd_stream_end(http);
    } else {
        refuse(g, e);
    }
    close_all(g, true);
}

static void log_facts(const struct generation *g)
{
    struct usage u = generation_usage(g);
    g->http->log_prompt = u.prompt;
    g->http->log_completion = u.completion;
    g->http->log_cached = u.cached;
    g->http->log_finish = rose_finish_name(g->choices[0].finish);
}

static void finish(struct generation *g)
{
    struct httpd_request *http = g->http;
    log_facts(g);
    if (g->request->stream) {
        g->writer->finish(g);
        httpd_stream_flush(http);
        if (!g->http) return;
        httpd_stream_end(http);
    } else if (g->writer->reply) {
        g->writer->reply(g);
    } else {
        struct strbuf b = {0};
        g->writer->whole(g, &b);
        struct api_error e;
        if (b.failed && !api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory")) generation_refuse(http, g->writer, &e);
        else httpd_reply(http, 200, "application/json", strbuf_str(&b));
        strbuf_free(&b);
    }
    close_all(g, false);
}

/* --- streams ------------------------------------------------------------------------------------------------------------------------- */

/* Every flush may find the client gone, which closes the generation: `http` is NULL then. */
static bool begin(struct generation *g)
{
    if (g->began || !g->request->stream) return true;
    g->began = true;
    httpd_stream_begin(g->http, 200, "text/event-stream; charset=utf-8");
    if (g->writer->begin) g->writer->begin(g);
    httpd_stream_flush(g->http);
    return g->http != NULL;
}

static void write_piece(struct generation *g, int index)
{
    struct choice *c = &g->choices[index];
    if (!begin(g)) return;
    g->writer->piece(g, index);
    c->text.n = c->thoughts.n = c->entries.n = 0;
    httpd_stream_flush(g->http);
}

static void on_idle(struct httpd_request *http)
{
    struct generation *g = http->owner;
    if (!g->request->stream || g->beside) return; /* not taken yet: it may still be refused, by its status */
    if (!begin(g)) return;
    g->writer->ping(g);
    httpd_stream_flush(g->http);
}

/* --- events ----------------------------------------------------------------------------------------------------------------------------- */

static bool add_entry(struct choice *c, int32_t id, float logprob, const struct rose_logprob *top, int top_count)
{
    struct token_entries *list = &c->entries;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 16;
        struct token_entry *more = realloc(list->p, cap * sizeof *more);
        if (!more) return false;
        list->p = more;
        list->cap = cap;
    }
    struct token_entry *e = &list->p[list->n++];
    *e = (struct token_entry){.id = id, .logprob = logprob, .top_count = ROSE_MIN(top_count, 20)};
    for (int i = 0; i < e->top_count; i++) e->top[i] = top[i];
    return true;
}

bool generation_prompt_text(struct generation *g, int part, struct strbuf *out)
{
    const struct api_prompt *p = &g->request->prompts[part];
    if (p->kind == ROSE_REQUEST_TEXT) return strbuf_add(out, p->text.p, p->text.n);
    size_t n;
    if (p->kind != ROSE_REQUEST_TOKENS || rose_detokenize(g->model->engine, p->tokens, p->count, 0, NULL, 0, &n, NULL) != ROSE_OK || !strbuf_reserve(out, n)) return false;
    if (rose_detokenize(g->model->engine, p->tokens, p->count, 0, out->p + out->n, n, &n, NULL) != ROSE_OK) return false;
    out->n += n;
    return true;
}

/* What the model had thought likely at a token of the prompt; NULL when nothing was asked for. */
static const struct rose_logprob *top_at(const struct rose_event *e, int i) { return e->top_per_token ? e->top + (ptrdiff_t)i * e->top_per_token : NULL; }

/* vLLM's form: for every prompt token an object of token ids, or null for the first. */
static void add_prompt_logprobs(const struct generation *g, const struct rose_event *e, struct strbuf *b)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < e->prompt_count; i++) {
        const struct rose_logprob *top = top_at(e, i);
        if (i) strbuf_addc(b, ',');
        if (i == 0) {
            strbuf_adds(b, "null");
            continue;
        }
        bool listed = false;
        strbuf_addc(b, '{');
        for (int k = -1; k < e->top_per_token; k++) {
            int32_t id = k < 0 ? e->prompt_tokens[i] : top[k].id;
            if (k >= 0 && id == e->prompt_tokens[i]) continue;
            int rank = k + 1;
            for (int j = 0; k < 0 && j < e->top_per_token; j++)
                if (top[j].id == id) rank = j + 1;
            size_t n;
            const char *text = rose_token_text(g->model->engine, id, &n);
            strbuf_printf(b, "%s\"%d\":{\"logprob\":", listed ? "," : "", id);
            json_add_num(b, (double)(k < 0 ? e->prompt_logprobs[i] : top[k].logprob));
            if (rank > 0) strbuf_printf(b, ",\"rank\":%d", rank);
            strbuf_adds(b, ",\"decoded_token\":");
            json_add_str(b, (struct str){text ? text : "", n});
            strbuf_addc(b, '}');
            listed = true;
        }
        strbuf_addc(b, '}');
    }
    strbuf_addc(b, ']');
}

static void take_prompt(struct generation *g, int part, const struct rose_event *e)
{
    const struct api_request *r = g->request;
    g->parts[part].prompt_tokens = e->prompt_tokens_count;
    g->parts[part].cached_tokens = e->cached_tokens;
    if (r->wants_prompt_logprobs && e->prompt_count) add_prompt_logprobs(g, e, &g->choices[part * r->n].prompt_logprobs);
    if (!begin(g)) return;
    for (int i = 0; g->http && r->echo && i < r->n; i++) {
        struct choice *c = &g->choices[part * r->n + i];
        generation_prompt_text(g, part, &c->text);
        for (int t = 0; r->wants_logprobs && t < e->prompt_count; t++)
            add_entry(c, e->prompt_tokens[t], e->prompt_logprobs[t], top_at(e, t), t ? ROSE_MIN(e->top_per_token, r->top_logprobs) : 0);
        if (r->stream) write_piece(g, part * r->n + i);
    }
    if (g->http && r->stream && g->choices[part * r->n].prompt_logprobs.n) write_piece(g, part * r->n); /* without waiting for a token, of which there may be none */
}

static void take_token(struct generation *g, int index, const struct rose_event *e)
{
    struct choice *c = &g->choices[index];
    const struct api_request *r = g->request;
    if (!begin(g)) return;
    if (e->token >= 0) {
        c->completion_tokens++;
        if (c->split.state == REASONING_THINK) c->thought_tokens++;
        if (r->wants_logprobs) add_entry(c, e->token, e->logprob, e->top, e->top_count);
    }
    reasoning_add(&c->split, (struct str){e->text, e->text_bytes}, &c->thoughts, &c->text);
    /* A token whose text is still held back goes out with the text. */
    if (r->stream && e->token >= 0 && (c->text.n || c->thoughts.n)) write_piece(g, index);
}

/* Tokens that ended the answer have no part in its text: the end token, and those of a stop string. */
static void drop_unshown(struct generation *g, struct choice *c, const struct rose_event *e)
{
    size_t shown = c->text.n + c->thoughts.n, bytes = 0, n;
    if (c->entries.n && e->stop_token >= 0 && c->entries.p[c->entries.n - 1].id == e->stop_token) c->entries.n--;
    if (e->stop_index < 0 || g->request->rose.include_stop) return;
    for (size_t i = 0; i < c->entries.n; i++) {
        rose_token_text(g->model->engine, c->entries.p[i].id, &n);
        bytes += n;
    }
    while (c->entries.n) {
        rose_token_text(g->model->engine, c->entries.p[c->entries.n - 1].id, &n);
        if (bytes - n < shown) break;
        bytes -= n;
        c->entries.n--;
    }
}

static void end_choice(struct generation *g, int index, const struct rose_event *e)
{
    struct choice *c = &g->choices[index];
    if (c->ended) return;
    c->ended = true;
    c->finish = e->finish;
    c->stop_index = e->stop_index;
    reasoning_end(&c->split, &c->thoughts, &c->text);
    drop_unshown(g, c, e);
    if (!g->request->stream) return;
    if (c->text.n || c->thoughts.n || c->entries.n) write_piece(g, index);
    if (!g->http || !begin(g)) return;
    g->writer->finish_choice(g, index);
    httpd_stream_flush(g->http);
}

static void take_final(struct generation *g, int part, const struct rose_event *e)
{
    struct part *p = &g->parts[part];
    p->ended = true;
    p->completion_tokens = e->completion_tokens;
    if (e->prompt_tokens_count) p->prompt_tokens = e->prompt_tokens_count;
    if (e->finish == ROSE_FINISH_ERROR || e->finish == ROSE_FINISH_CANCELLED) {
        struct api_error error = {0};
        struct rose_error err = {0};
        snprintf(err.message, sizeof err.message, "%s", e->finish == ROSE_FINISH_CANCELLED ? "the server is shutting down" : e->message ? e->message : "the engine failed");
        api_error_rose(&error, e->finish == ROSE_FINISH_CANCELLED ? ROSE_CANCELLED : e->status, &err);
        if (error.status < 500) error.status = 500; /* it had been accepted: no fault of the client's */
        fail(g, &error);
        return;
    }
    if (g->request->n == 1) end_choice(g, part, e);
    if (!g->http) return;
    models_release(owner, p->handle);
    p->handle = 0;
    if (--g->parts_open == 0) finish(g);
}

static void take(struct event_sink *sink, int part, const struct rose_event *e)
{
    struct generation *g = (struct generation *)sink;
    int index = part * g->request->n + e->choice;
    switch (e->kind) {
    case ROSE_EVENT_PROMPT: take_prompt(g, part, e); break;
    case ROSE_EVENT_TOKEN: take_token(g, index, e); break;
    case ROSE_EVENT_CHOICE: end_choice(g, index, e); break;
    case ROSE_EVENT_FINAL: take_final(g, part, e); break;
    }
}

static bool is_full(const struct event_sink *sink)
{
    const struct generation *g = (const struct generation *)sink;
    return g->http && httpd_pending(g->http) > 16384;
}

struct usage generation_usage(const struct generation *g)
{
    struct usage u = {0};
    for (int i = 0; i < g->parts_count; i++) {
        u.prompt += g->parts[i].prompt_tokens;
        u.cached += g->parts[i].cached_tokens;
        u.completion += g->parts[i].completion_tokens;
    }
    for (int i = 0; i < g->choices_count; i++) u.thoughts += g->choices[i].thought_tokens;
    return u;
}

/* --- beginnings -------------------------------------------------------------------------------------------------------------------------- */

/* Some templates open the thoughts themselves: the prompt then ends with <think>. */
static enum reasoning_state first_state(const struct model *m, const struct api_request *r)
{
    if (!m->reasoning || r->kind == API_COMPLETION) return REASONING_OFF;
    struct str in = r->prompts[0].text;
    size_t n = 0;
    if (rose_render(m->engine, in.p, in.n, NULL, 0, &n, NULL) != ROSE_OK) return REASONING_BEGIN;
    char *text = malloc(n + 1);
    enum reasoning_state state = REASONING_BEGIN;
    if (text && rose_render(m->engine, in.p, in.n, text, n, &n, NULL) == ROSE_OK) {
        while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
        if (str_ends((struct str){text, n}, STR("<think>"))) state = REASONING_THINK;
    }
    free(text);
    return state;
}

static bool fits(const struct generation *g, struct api_error *e)
{
    size_t bytes = 0, limit = model_text_limit(g->model);
    for (int i = 0; i < g->parts_count; i++) bytes += g->request->prompts[i].text.n;
    return bytes <= limit || api_error_set(e, 400, "invalid_request_error", "context_length_exceeded", g->request->kind == API_COMPLETION ? "prompt" : "messages",
                                           "the request has %zu bytes of text; at most %zu are taken, with a context of %d tokens", bytes, limit, g->model->info.context);
}

static void submitted(void *user, int part, const struct beside_result *result);

/* All parts from g->submitted on; a long one goes beside the loop, and the others follow when it has arrived. */
static bool submit(struct generation *g, struct api_error *e)
{
    struct rose_error err = {0};
    enum reasoning_state first = g->choices[0].split.state;
    for (int i; (i = g->submitted) < g->parts_count; g->submitted++) {
        struct rose_request r = g->request->rose;
        if (first == REASONING_BEGIN || first == REASONING_THINK) {
            r.thought_tokens = g->request->thinking_budget;
            r.thought_open = first == REASONING_BEGIN ? REASONING_OPEN : NULL;
            r.thought_close = REASONING_CLOSE;
        }
        const struct api_prompt *p = &g->request->prompts[i];
        r.kind = p->kind;
        r.prompt = p->text.p;
        r.prompt_bytes = p->text.n;
        r.tokens = p->tokens;
        r.tokens_count = p->count;
        r.user = g->parts[i].handle = models_handle(owner, g->model, &g->sink, i);
        if (!r.user) return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
        /* A stream of several prompts begins with the first of them, and then no other can be refused by a status any more. */
        bool waits = r.prompt_bytes >= BESIDE_BYTES && (g->parts_count == 1 || !g->request->stream);
        if (waits && (g->beside = beside_submit(owner, g->model, &r, submitted, g, i)) != NULL) return true;
        enum rose_status s = model_submit(g->model, &r, &g->parts[i].id, &err);
        if (s == ROSE_OK) continue;
        models_release(owner, g->parts[i].handle);
        g->parts[i].handle = 0;
        return api_error_rose(e, s, &err);
    }
    return true;
}

static void submitted(void *user, int part, const struct beside_result *result)
{
    struct generation *g = user;
    struct api_error e = {0};
    g->beside = NULL;
    g->submitted++;
    if (result->status == ROSE_OK) {
        g->parts[part].id = result->id;
        if (submit(g, &e)) return;
    } else {
        models_release(owner, g->parts[part].handle);
        g->parts[part].handle = 0;
        api_error_rose(&e, result->status, result->err);
    }
    fail(g, &e);
}

static bool read_request(struct httpd_request *http, enum api_kind kind, struct api_request *r, struct api_error *e)
{
    const struct json *body;
    struct rose_error err = {0};
    enum rose_status s = json_parse(&http->arena, NULL, strbuf_str(&http->body), &body, &err);
    if (s == ROSE_FORMAT) return api_error_set(e, 400, "invalid_request_error", "invalid_json", NULL, "the request's body is not valid: %s", err.message);
    if (s == ROSE_NO_MEMORY) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values");
    if (s != ROSE_OK) return api_error_rose(e, s, &err);
    return kind == API_CHAT ? openai_chat_read(body, &http->arena, r, e)
                            : kind == API_COMPLETION ? openai_completion_read(body, &http->arena, r, e) : anthropic_read(body, false, &http->arena, r, e);
}

static bool prepare(struct generation *g, struct api_error *e)
{
    struct api_request *r = g->request;
    struct arena *arena = &g->http->arena;
    g->created = (int64_t)time(NULL);
    if (!g->model) g->model = models_find(owner, r->model, ROSE_CAN_GENERATE);
    if (!g->model) return models_missing(owner, r->model, e);
    g->http->log_model = g->model->name;
    if (owner->draining) return api_error_set(e, 503, "server_error", "shutting_down", NULL, "the server is shutting down and takes no new requests");
    if (r->kind == API_CHAT && !openai_roles(r->messages, g->model->info.chat_template, e)) return false;
    g->parts_count = g->parts_open = r->prompts_count;
    g->choices_count = r->prompts_count * r->n;
    g->parts = ARENA_ARRAY(arena, struct part, (size_t)g->parts_count);
    g->choices = ARENA_ARRAY(arena, struct choice, (size_t)g->choices_count);
    if (!g->parts || !g->choices) return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    if (!fits(g, e)) return false;
    enum reasoning_state state = first_state(g->model, r);
    for (int i = 0; i < g->choices_count; i++) g->choices[i].split.state = state;
    return true;
}

static struct generation *new_generation(struct models *models, struct httpd_request *http, const struct writer *writer, struct api_request **r)
{
    struct generation *g = ARENA_NEW(&http->arena, struct generation);
    owner = models;
    if (g && !*r) *r = ARENA_NEW(&http->arena, struct api_request);
    if (!g || !*r) return NULL;
    *g = (struct generation){.sink = {take, is_full}, .http = http, .request = *r, .writer = writer};
    http->owner = g;
    return g;
}

static void start(struct generation *g, bool read, struct api_error *e)
{
    struct httpd_request *http = g->http;
    if (read && prepare(g, e) && submit(g, e)) {
        http->on_gone = on_gone;
        http->on_idle = on_idle;
        return;
    }
    refuse(g, e);
    close_all(g, true);
}

void generation_start(struct models *models, struct httpd_request *http, enum api_kind kind)
{
    const struct writer *writer = kind == API_CHAT ? &openai_chat_writer : kind == API_COMPLETION ? &openai_completion_writer : &anthropic_writer;
    struct api_request *r = NULL;
    struct api_error e = {0};
    struct generation *g = new_generation(models, http, writer, &r);
    if (g) {
        start(g, read_request(http, kind, r, &e), &e);
        return;
    }
    api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
    generation_refuse(http, writer, &e);
}

void generation_submit(struct models *models, struct httpd_request *http, struct model *model, struct api_request *r, const struct writer *writer, void *user)
{
    struct api_error e = {0};
    struct generation *g = new_generation(models, http, writer, &r);
    if (g) {
        g->model = model;
        g->user = user;
        start(g, true, &e);
        return;
    }
    struct generation none = {.http = http, .user = user, .writer = writer};
    api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
    refuse(&none, &e);
}
