#include "server/texts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "server/beside.h"

/* Of one call in the engine: so many texts, and no further one behind so many bytes. What ended texts make room for is tokenised between two
 * looks at the sockets, so that the bytes bound the wait of everybody else; long texts are tokenised beside the loop. */
enum { OPEN_MOST = 256, OPEN_BYTES = 256 << 10 };
static const size_t held_most = (size_t)512 << 20; /* bytes of results of one call */

struct texts *texts_new(struct httpd_request *http, struct models *models, struct model *model, enum rose_task task, const struct text_input *inputs, int count)
{
    static uint64_t groups;
    struct texts *t = ARENA_NEW(&http->arena, struct texts);
    if (!t) return NULL;
    *t = (struct texts){.http = http, .models = models, .model = model, .inputs = inputs, .count = count, .field = "input"};
    rose_request_init(&t->rose);
    t->rose.task = task;
    t->rose.tokenize_flags = models->options->parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
    t->rose.group = ++groups;
    t->results = ARENA_ARRAY(&http->arena, struct text_result, (size_t)count + 1);
    t->requests = ARENA_ARRAY(&http->arena, struct texts_request, (size_t)count + 1);
    return t->results && t->requests ? t : NULL;
}

/* Nothing more will come. */
static void close_all(struct texts *t)
{
    if (t->beside) {
        beside_drop(t->beside);
        t->beside = NULL;
        t->requests[t->next - 1].handle = 0; /* the job's now */
    }
    for (int i = 0; i < t->next; i++) {
        struct texts_request *r = &t->requests[i];
        if (!r->handle) continue;
        model_cancel(t->model, r->id);
        models_release(t->models, r->handle);
        r->handle = 0;
    }
    for (int i = 0; i < t->count; i++) {
        struct text_result *r = &t->results[i];
        if (!t->block || r->values < t->block || r->values >= t->block + (size_t)t->count * (size_t)r->cols) free((void *)(uintptr_t)r->values);
        free((void *)(uintptr_t)r->ids);
        *r = (struct text_result){0};
    }
    free(t->block);
    t->block = NULL;
    if (t->http) t->http->on_gone = NULL;
    t->http = NULL;
}

static void ended(const struct texts *t, bool ok) { model_count(t->model, ok, t->queued_s, httpd_now() - t->began_s - t->queued_s); }

static void on_gone(struct httpd_request *http)
{
    http->log_finish = "gone";
    ended(http->owner, false);
    close_all(http->owner);
}

static void fail(struct texts *t, int index, struct api_error *e)
{
    char message[sizeof e->message];
    t->http->log_finish = "error";
    if (index >= 0) {
        snprintf(message, sizeof message, "%.60s[%d]: %.1100s", t->field, index, e->message);
        snprintf(e->param, sizeof e->param, "%.60s[%d]", t->field, index);
        snprintf(e->message, sizeof e->message, "%s", message);
    }
    struct httpd_request *http = t->http;
    http->on_gone = NULL;
    ended(t, false);
    t->handler->failed(t, e);
    close_all(t);
}

static size_t bytes_of(const struct text_input *in) { return in->text.n + in->pair.n; }

/* The engine did not take text i, which does not count any more. */
static void not_taken(struct texts *t, int i, enum rose_status s, const struct rose_error *err)
{
    struct api_error e = {0};
    models_release(t->models, t->requests[i].handle);
    t->requests[i].handle = 0;
    if (s == ROSE_BUSY && t->open) return; /* the queue is full: when one of ours has ended it goes on */
    api_error_rose(&e, s, err);
    fail(t, s == ROSE_BUSY || s == ROSE_NO_MEMORY ? -1 : i, &e);
}

static void submit(struct texts *t);

static void submitted(void *user, int i, const struct beside_result *result)
{
    struct texts *t = user;
    t->beside = NULL;
    t->taken_s += httpd_now() - t->beside_s;
    if (result->status == ROSE_OK) {
        t->requests[i].id = result->id;
        submit(t);
        return;
    }
    t->next--;
    t->open--;
    t->open_bytes -= bytes_of(&t->inputs[i]);
    not_taken(t, i, result->status, result->err);
}

static void submit(struct texts *t)
{
    struct rose_error err = {0};
    while (!t->beside && t->next < t->count && t->open < OPEN_MOST && t->open_bytes < OPEN_BYTES) {
        const struct text_input *in = &t->inputs[t->next];
        struct texts_request *to = &t->requests[t->next];
        struct rose_request r = t->rose;
        r.kind = in->tokens ? ROSE_REQUEST_TOKENS : ROSE_REQUEST_TEXT;
        r.prompt = in->text.p;
        r.prompt_bytes = in->text.n;
        r.tokens = in->tokens;
        r.tokens_count = in->tokens_count;
        r.token_types = in->types;
        r.pair = in->pair.p;
        r.pair_bytes = in->pair.n;
        r.user = to->handle = models_handle(t->models, t->model, &t->sink, t->next);
        size_t limit = model_text_limit(t->model);
        t->beside_s = httpd_now();
        if (r.user && bytes_of(in) >= BESIDE_BYTES && bytes_of(in) <= limit) t->beside = beside_submit(t->models, t->model, &r, submitted, t, t->next);
        enum rose_status s = t->beside ? ROSE_OK : !r.user ? status_set(&err, ROSE_NO_MEMORY, "out of memory")
                             : bytes_of(in) > limit ? status_set(&err, ROSE_LIMIT, "the text has %zu bytes; at most %zu are taken", bytes_of(in), limit)
                                                    : model_submit(t->model, &r, &to->id, &err);
        if (!t->beside) t->taken_s += httpd_now() - t->beside_s;
        if (s != ROSE_OK) {
            not_taken(t, t->next, s, &err);
            return;
        }
        t->next++;
        t->open++;
        t->open_bytes += bytes_of(in);
    }
}

static bool keep(struct texts *t, int i, const struct rose_event *ev)
{
    struct text_result *r = &t->results[i];
    size_t n = (size_t)ev->rows * (size_t)ev->cols, ids = ev->value_ids ? (size_t)(ev->rows > 1 || t->rose.pooling == ROSE_POOL_NONE ? ev->rows : ev->cols) : 0;
    *r = (struct text_result){.rows = ev->rows, .cols = ev->cols, .tokens = ev->prompt_tokens_count};
    t->held += n * 4 + ids * 4;
    if (t->held > held_most) return false;
    bool one_row = ev->rows == 1 && !ev->value_ids;
    /* The first answer shows the width; of the same width all lie in one block. */
    if (one_row && !t->block && t->ended == 1) {
        size_t all = (size_t)t->count * (size_t)ev->cols * 4;
        if (all <= held_most) t->block = malloc(all + 1);
        if (t->block) t->results[t->count].cols = ev->cols; /* the spare result behind the last keeps the block's width */
    }
    float *to;
    if (one_row && t->block && t->results[t->count].cols == ev->cols) to = t->block + (size_t)i * (size_t)ev->cols;
    else to = malloc(n * 4 + 1);
    int32_t *to_ids = ids ? malloc(ids * 4) : NULL;
    r->values = to;
    r->ids = to_ids;
    if (!to || (ids && !to_ids)) return false;
    if (n) memcpy(to, ev->values, n * 4);
    if (ids) memcpy(to_ids, ev->value_ids, ids * 4);
    return true;
}

static void take(struct event_sink *sink, int i, const struct rose_event *ev)
{
    struct texts *t = (struct texts *)sink;
    if (ev->kind != ROSE_EVENT_FINAL) return;
    models_release(t->models, t->requests[i].handle);
    t->requests[i].handle = 0;
    t->open--;
    t->open_bytes -= bytes_of(&t->inputs[i]);
    if (!t->ended++) t->queued_s = ev->queued_s;
    struct api_error e = {0};
    if (ev->finish != ROSE_FINISH_STOP) {
        struct rose_error err = {0};
        bool shut = ev->finish == ROSE_FINISH_CANCELLED, late = ev->finish == ROSE_FINISH_DEADLINE;
        snprintf(err.message, sizeof err.message, "%s", shut ? "the server is shutting down" : late ? "the deadline passed before it was computed" : ev->message ? ev->message : "the engine failed");
        api_error_rose(&e, shut ? ROSE_CANCELLED : late ? ROSE_BUSY : ev->status, &err);
        if (e.status < 500 && !late) e.status = 500; /* it had been accepted: no fault of the client's */
        fail(t, shut || late ? -1 : i, &e);
        return;
    }
    t->tokens += ev->prompt_tokens_count;
    if (!keep(t, i, ev)) {
        bool large = t->held > held_most;
        api_error_set(&e, large ? 413 : 503, large ? "invalid_request_error" : "server_error", large ? "too_large" : "no_memory", t->field,
                      large ? "the answer would have more than %zu MB: send fewer or shorter texts" : "out of memory", held_most >> 20);
        fail(t, -1, &e);
        return;
    }
    if (t->ended < t->count) {
        submit(t);
        return;
    }
    t->http->log_prompt = t->tokens;
    t->http->log_finish = "stop";
    t->http->on_gone = NULL;
    ended(t, true);
    t->handler->done(t);
    close_all(t);
}

void texts_start(struct texts *t)
{
    t->sink = (struct event_sink){take, NULL};
    t->began_s = httpd_now();
    t->http->owner = t;
    t->http->on_gone = on_gone;
    t->http->log_model = t->model->name;
    if (t->count == 0) {
        t->http->on_gone = NULL;
        t->handler->done(t);
        close_all(t);
        return;
    }
    submit(t);
}
