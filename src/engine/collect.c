/* The other end of a step: drawn tokens become text, events and ends of requests. */
#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "engine/engine.h"
#include "engine/histogram.h"

static void final_event(struct engine *e, struct request *r, enum rose_status status, const char *message)
{
    double now = engine_now();
    struct rose_event out = {.kind = ROSE_EVENT_FINAL, .id = r->id, .user = r->user, .token = -1, .finish = r->finish, .stop_index = r->stop_index,
                             .stop_token = r->stop_token, .status = status, .message = message, .prompt_tokens_count = r->prompt_count,
                             .cached_tokens = r->sequences[0].cached, .completion_tokens = r->completion_tokens};
    double admitted = r->admitted_s ? r->admitted_s : now, first = r->sequences[0].first_token_s ? r->sequences[0].first_token_s : now;
    out.queued_s = admitted - r->submitted_s;
    out.prefill_s = first - admitted;
    out.decode_s = now - first;
    struct rose_stats *s = &e->counters.stats;
    pthread_mutex_lock(&e->counters.lock);
    s->finished++;
    s->cancelled += r->finish == ROSE_FINISH_CANCELLED || r->finish == ROSE_FINISH_DEADLINE;
    s->failed += r->finish == ROSE_FINISH_ERROR;
    histogram_observe(&s->end_to_end, now - r->submitted_s);
    histogram_observe(&s->queue_time, out.queued_s);
    pthread_mutex_unlock(&e->counters.lock);
    events_push(&e->events, &out);
}

/* A request is freed when all its choices have ended and no step in flight holds one. */
static void maybe_free(struct engine *e, struct request *r)
{
    if (r->open) return;
    for (int i = 0; i < r->choices; i++)
        if (r->sequences[i].in_flight) return;
    if (r->previous) r->previous->next = r->next;
    else e->live = r->next;
    if (r->next) r->next->previous = r->previous;
    request_close(r);
}

static void leave_slot(struct engine *e, struct sequence *s)
{
    paging_release(e, s);
    e->slots[s->slot] = NULL;
    e->running--;
    s->slot = -1;
}

void sequence_end(struct engine *e, struct sequence *s, enum rose_finish finish, enum rose_status status, const char *message)
{
    struct request *r = s->request;
    if (s->state == SEQUENCE_ENDED) return;
    if (s->state == SEQUENCE_WAITING) {
        engine_wait_queue_remove(e, s);
    } else if (s->in_flight) {
        s->ended_in_flight = true; /* its pages are being written: they go back when the step is collected */
    } else {
        leave_slot(e, s);
    }
    s->state = SEQUENCE_ENDED;
    r->completion_tokens += s->generated;
    r->finish = finish;
    r->open--;
    if (r->choices > 1)
        events_push(&e->events, &(struct rose_event){.kind = ROSE_EVENT_CHOICE, .id = r->id, .user = r->user, .choice = s->choice, .token = -1, .finish = finish,
                                                     .stop_index = r->stop_index, .stop_token = r->stop_token, .completion_tokens = s->generated});
    if (r->open) return;
    if (!r->admitted_s) {
        pthread_mutex_lock(&e->lock);
        e->queued--;
        pthread_mutex_unlock(&e->lock);
    }
    final_event(e, r, status, message);
    maybe_free(e, r);
}

static void text_event(struct engine *e, struct sequence *s, struct str text)
{
    if (!text.n) return;
    events_push(&e->events, &(struct rose_event){.kind = ROSE_EVENT_TOKEN, .id = s->request->id, .user = s->request->user, .choice = s->choice, .token = -1,
                                                 .text = text.p, .text_bytes = text.n, .stop_index = -1, .stop_token = -1});
}

/* The end of an answer: what the decoder and the stop matcher still hold is shown. */
static void flush_text(struct engine *e, struct sequence *s)
{
    struct str text = {"", 0}, show;
    guard_leave();
    enum rose_status status = token_stream_end(&s->stream, &text, NULL);
    guard_enter();
    if (status == ROSE_OK && text.n) {
        int hit = stops_add(&s->stops, text, &show);
        text_event(e, s, show);
        if (hit >= 0) {
            s->request->stop_index = hit;
            return;
        }
    }
    text_event(e, s, stops_end(&s->stops));
}

static bool ends_answer(const struct engine *e, const struct sequence *s, int32_t token)
{
    const struct request *r = s->request;
    for (size_t i = 0; i < r->stop_ids_count; i++)
        if (r->stop_ids[i] == token) return true;
    if (r->sampling.ignore_eos) return false;
    for (int32_t i = 0; i < e->model->config.eos_count; i++)
        if (e->model->config.eos[i] == token) return true;
    return false;
}

static void token_times(struct engine *e, struct sequence *s)
{
    double now = engine_now();
    struct rose_stats *st = &e->counters.stats;
    pthread_mutex_lock(&e->counters.lock);
    st->tokens_out++;
    if (!s->evented) histogram_observe(&st->ttft, now - s->request->submitted_s);
    else histogram_observe(&st->inter_token, now - s->last_token_s);
    pthread_mutex_unlock(&e->counters.lock);
    if (!s->evented) s->first_token_s = now;
    s->evented = true;
    s->last_token_s = now;
}

/* One drawn token. */
static void take_token(struct engine *e, struct sequence *s, const struct sample_output *out)
{
    struct request *r = s->request;
    struct rose_error err = {0};
    s->tokens[s->known++] = out->token;
    s->generated++;
    token_times(e, s);
    bool end = ends_answer(e, s, out->token);
    struct str text = {"", 0}, show = {"", 0};
    int hit = -1;
    if (!end) {
        guard_leave(); /* a stream's buffers grow to the longest token it has seen, then no more */
        enum rose_status status = token_stream_add(&s->stream, (uint32_t)out->token, &text, &err);
        guard_enter();
        if (status != ROSE_OK) {
            sequence_end(e, s, ROSE_FINISH_ERROR, ROSE_INTERNAL, err.message);
            return;
        }
        thoughts_add(&r->thoughts, &s->thoughts, text, s->generated);
        /* Stops do not act before min_tokens. */
        hit = s->generated > r->sampling.min_tokens || !r->sampling.min_tokens ? stops_add(&s->stops, text, &show) : -1;
        if (r->sampling.min_tokens && s->generated <= r->sampling.min_tokens) show = text;
    }
    struct rose_logprob top[SAMPLE_TOP];
    struct rose_event event = {.kind = ROSE_EVENT_TOKEN, .id = r->id, .user = r->user, .choice = s->choice, .token = out->token, .text = show.p,
                               .text_bytes = show.n, .logprob = out->logprob, .top = top, .top_count = ROSE_MAX(r->logprobs, 0), .stop_index = -1, .stop_token = -1};
    for (int i = 0; i < event.top_count; i++) top[i] = (struct rose_logprob){out->top_ids[i], out->top_logprobs[i]};
    events_push(&e->events, &event);
    if (hit >= 0) {
        r->stop_index = hit;
        sequence_end(e, s, ROSE_FINISH_STOP, ROSE_OK, NULL);
    } else if (end) {
        r->stop_token = out->token;
        flush_text(e, s);
        sequence_end(e, s, ROSE_FINISH_STOP, ROSE_OK, NULL);
    } else if (s->generated >= r->max_tokens) {
        flush_text(e, s);
        sequence_end(e, s, r->stop_index >= 0 ? ROSE_FINISH_STOP : ROSE_FINISH_LENGTH, ROSE_OK, NULL);
    }
}

static void prompt_event(struct engine *e, struct sequence *s)
{
    struct request *r = s->request;
    s->prompt_done = true;
    for (int i = 0; i < r->choices; i++)
        if (i != s->choice && r->sequences[i].prompt_done) return; /* one of the choices has told it */
    struct rose_event event = {.kind = ROSE_EVENT_PROMPT, .id = r->id, .user = r->user, .token = -1, .prompt_tokens_count = r->prompt_count,
                               .cached_tokens = s->cached, .stop_index = -1, .stop_token = -1};
    if (s->prompt_logprobs) {
        s->prompt_logprobs[0] = NAN;
        event.prompt_tokens = r->prompt;
        event.prompt_logprobs = s->prompt_logprobs;
        event.prompt_count = r->prompt_count;
        event.top = s->prompt_top;
        event.top_per_token = r->prompt_logprobs;
        event.top_count = r->prompt_count * r->prompt_logprobs;
    }
    pthread_mutex_lock(&e->counters.lock);
    e->counters.stats.tokens_in += (uint64_t)r->prompt_count;
    e->counters.stats.prefix_lookup_tokens += (uint64_t)r->prompt_count;
    e->counters.stats.prefix_hit_tokens += (uint64_t)s->cached;
    pthread_mutex_unlock(&e->counters.lock);
    events_push(&e->events, &event);
}

static void take_prompt_scores(struct sequence *s, const struct step_entry *entry, const struct sample_output *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t position = entry->first_position + i + 1;
        s->prompt_logprobs[position] = out[i].logprob;
        for (int k = 0; k < s->request->prompt_logprobs; k++)
            s->prompt_top[(size_t)position * (size_t)s->request->prompt_logprobs + (size_t)k] = (struct rose_logprob){out[i].top_ids[k], out[i].top_logprobs[k]};
    }
}

static void collect_entry(struct engine *e, const struct step *step, const struct step_entry *entry)
{
    struct sequence *s = entry->sequence;
    struct request *r = s->request;
    s->in_flight--;
    if (s->ended_in_flight) {
        if (s->in_flight) return;
        s->ended_in_flight = false;
        leave_slot(e, s);
        maybe_free(e, r);
        return;
    }
    const struct sample_output *out = step->results + entry->sample;
    int32_t scores = entry->samples - entry->draws;
    if (s->prompt_logprobs && !s->prompt_done) take_prompt_scores(s, entry, out, scores);
    if (!s->prompt_done && entry->first_position + entry->rows >= r->prompt_count) prompt_event(e, s);
    if (entry->draws) take_token(e, s, &out[scores]);
    else if (r->max_tokens == 0 && s->prompt_done) sequence_end(e, s, ROSE_FINISH_LENGTH, ROSE_OK, NULL);
}

void step_collect(struct engine *e)
{
    struct step *step = &e->steps[e->collected % (uint64_t)e->options.depth];
    struct rose_error err = {0};
    if (device_wait(e->device, &step->done, &err) != ROSE_OK) {
        engine_fail(e, &err);
        return;
    }
    e->collected++;
    double now = engine_now();
    struct rose_stats *st = &e->counters.stats;
    pthread_mutex_lock(&e->counters.lock);
    st->steps++;
    st->last_prefill_rows = step->prefill_rows;
    st->last_decode_rows = step->decode_rows;
    st->last_step_s = now - step->begun_s;
    /* With two steps in flight a step begins while its predecessor runs: what it adds is the time between the two ends. */
    double took = now - ROSE_MAX(step->begun_s, e->counters.last_step_at_s);
    e->counters.last_step_at_s = now;
    e->counters.recent[st->steps % ROSE_STEPS_KEPT] = (struct rose_step){st->steps, step->prefill_rows, step->decode_rows, (float)st->last_step_s};
    histogram_observe(&st->step_time, st->last_step_s);
    pthread_mutex_unlock(&e->counters.lock);
    pace_observe(&e->pace, step->decode_rows, step->prefill_rows, took);
    events_hold(&e->events);
    for (int32_t i = 0; i < step->entries_count; i++) {
        struct sequence *s = step->entries[i].sequence;
        int slot = s->slot;
        collect_entry(e, step, &step->entries[i]);
        /* The request may be gone now; only a sequence that still has its slot is touched. */
        if (e->slots[slot] == s && s->state == SEQUENCE_RUNNING) paging_publish(e, s);
    }
    events_release(&e->events);
}
