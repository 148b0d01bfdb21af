#include "engine/request.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"

static enum rose_status check_sampling(const struct rose_sampling *s, int32_t vocabulary, struct rose_error *err)
{
    const struct { const char *name; float value, low, high; } ranges[] = {
        {"temperature", s->temperature, 0, 100},          {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},                        {"repetition_penalty", s->repetition_penalty, 0, 100},
        {"presence_penalty", s->presence_penalty, -100, 100}, {"frequency_penalty", s->frequency_penalty, -100, 100}};
    for (size_t i = 0; i < ROSE_COUNT(ranges); i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return status_set(err, ROSE_INVALID, "%s must lie between %g and %g", ranges[i].name, (double)ranges[i].low, (double)ranges[i].high);
    if (s->top_k < 0) return status_set(err, ROSE_INVALID, "top_k must not be negative");
    if (s->min_tokens < 0) return status_set(err, ROSE_INVALID, "min_tokens must not be negative");
    if (s->logit_bias_count > 1024) return status_set(err, ROSE_INVALID, "logit_bias has %zu entries; at most 1024 are taken", s->logit_bias_count);
    for (size_t i = 0; i < s->logit_bias_count; i++) {
        if (s->logit_bias[i].id < 0 || s->logit_bias[i].id >= vocabulary)
            return status_set(err, ROSE_INVALID, "logit_bias names token %d; the vocabulary has 0 to %d", s->logit_bias[i].id, vocabulary - 1);
        if (isnan(s->logit_bias[i].bias)) return status_set(err, ROSE_INVALID, "logit_bias of token %d is not a number", s->logit_bias[i].id);
    }
    return ROSE_OK;
}

static enum rose_status check_tag(const char *tag, const char *name, struct rose_error *err)
{
    size_t n = tag ? strlen(tag) : 0;
    if (n == 0 || n > THOUGHTS_TAG_BYTES || strchr(tag + 1, tag[0]))
        return status_set(err, ROSE_INVALID, "%s must have 1 to %d bytes, whose first occurs once", name, THOUGHTS_TAG_BYTES);
    return ROSE_OK;
}

static enum rose_status check(const struct rose_request *in, const int32_t *tokens, size_t count, const struct request_limits *l, struct rose_error *err)
{
    if (count == 0) return status_set(err, ROSE_INVALID, "the prompt is empty: it must have at least one token");
    if (count > (size_t)l->context || (count == (size_t)l->context && in->max_tokens != 0))
        return status_set(err, ROSE_LIMIT, "the prompt has %zu tokens and the context holds %d, answer included; shorten it or start with a larger --ctx", count, l->context);
    if (in->max_tokens > 0 && (size_t)in->max_tokens > (size_t)l->context - count)
        return status_set(err, ROSE_LIMIT, "the prompt has %zu tokens and %d more are wanted; the context holds %d: ask for fewer or start with a larger --ctx", count, in->max_tokens, l->context);
    if (in->max_tokens < -1) return status_set(err, ROSE_INVALID, "max_tokens must not be negative");
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= l->vocabulary)
            return status_set(err, ROSE_INVALID, "prompt token %zu is %d; the vocabulary has 0 to %d", i, tokens[i], l->vocabulary - 1);
    if (in->logprobs < -1 || in->logprobs > 20 || in->prompt_logprobs < -1 || in->prompt_logprobs > 20)
        return status_set(err, ROSE_INVALID, "logprobs must lie between 0 and 20");
    if (in->choices < 0 || in->choices > 128) return status_set(err, ROSE_INVALID, "n must lie between 1 and 128");
    if (in->stops_count > 64 || in->stop_ids_count > 64) return status_set(err, ROSE_INVALID, "at most 64 stops are taken");
    for (size_t i = 0; i < in->stops_count; i++) {
        size_t n = strlen(in->stops[i]);
        if (n == 0) return status_set(err, ROSE_INVALID, "stop string %zu is empty", i);
        if (n > STOPS_MAX_BYTES) return status_set(err, ROSE_INVALID, "stop string %zu has %zu bytes; at most %d are taken", i, n, STOPS_MAX_BYTES);
    }
    for (size_t i = 0; i < in->stop_ids_count; i++)
        if (in->stop_ids[i] < 0 || in->stop_ids[i] >= l->vocabulary)
            return status_set(err, ROSE_INVALID, "stop token %d lies outside the vocabulary of %d", in->stop_ids[i], l->vocabulary);
    if (in->thought_tokens < 0) return status_set(err, ROSE_INVALID, "thought_tokens must not be negative");
    if (in->thought_tokens) ROSE_TRY(check_tag(in->thought_close, "thought_close", err));
    if (in->thought_tokens && in->thought_open) ROSE_TRY(check_tag(in->thought_open, "thought_open", err));
    return check_sampling(&in->sampling, l->vocabulary, err);
}

static void *copy(struct arena *a, const void *from, size_t count, size_t size)
{
    void *to = arena_zalloc(a, count ? count : 1, size);
    if (to && count) memcpy(to, from, count * size);
    return to;
}

/* A seed for those who gave none: from the id's address space of time and place; only its spread matters. */
static uint64_t fresh_seed(const struct request *r)
{
    static _Atomic uint64_t counter;
    double now = r->submitted_s;
    return hash_mix(hash_bytes(&now, sizeof now, (uint64_t)(uintptr_t)r), ++counter);
}

static bool copy_all(struct request *r, const struct rose_request *in, const int32_t *tokens, size_t count)
{
    struct arena *a = &r->arena;
    r->sampling = in->sampling;
    r->sampling.logit_bias = copy(a, in->sampling.logit_bias, in->sampling.logit_bias_count, sizeof *in->sampling.logit_bias);
    r->prompt = copy(a, tokens, count, sizeof *tokens);
    r->stop_ids = copy(a, in->stop_ids, in->stop_ids_count, sizeof *in->stop_ids);
    r->stop_strings = ARENA_ARRAY(a, struct str, in->stops_count + 1);
    if (!r->sampling.logit_bias || !r->prompt || !r->stop_ids || !r->stop_strings) return false;
    for (size_t i = 0; i < in->stops_count; i++) {
        size_t n = strlen(in->stops[i]);
        r->stop_strings[i] = (struct str){arena_strndup(a, in->stops[i], n), n};
        if (!r->stop_strings[i].p) return false;
    }
    return true;
}

/* The closing tag's tokens: a control token where the model has one. */
static enum rose_status copy_thoughts(struct request *r, const struct rose_request *in, const struct request_limits *l, struct rose_error *err)
{
    struct thoughts *t = &r->thoughts;
    struct token_ids ids = {0};
    if (!in->thought_tokens) return ROSE_OK;
    const char *open = in->thought_open ? in->thought_open : "";
    t->budget = in->thought_tokens;
    t->open = (struct str){arena_strndup(&r->arena, open, strlen(open)), strlen(open)};
    t->close = (struct str){arena_strndup(&r->arena, in->thought_close, strlen(in->thought_close)), strlen(in->thought_close)};
    enum rose_status s = l->tokenizer ? tokenizer_encode(l->tokenizer, t->close, TOKENIZER_PARSE_SPECIAL, &ids, err)
                                      : status_set(err, ROSE_UNSUPPORTED, "thought_tokens needs a tokenizer");
    if (s == ROSE_OK) t->close_ids = copy(&r->arena, ids.p, ids.n, sizeof *ids.p);
    t->close_count = (int32_t)ids.n;
    token_ids_free(&ids);
    if (s != ROSE_OK) return s;
    if (!t->open.p || !t->close.p || !t->close_ids) return status_set(err, ROSE_NO_MEMORY, "no memory for a request");
    for (int32_t i = 0; i < t->close_count; i++)
        if (t->close_ids[i] >= l->vocabulary) return status_set(err, ROSE_INVALID, "thought_close has tokens outside the vocabulary");
    return ROSE_OK;
}

static bool open_sequence(struct request *r, struct sequence *s, const struct request_limits *l)
{
    struct arena *a = &r->arena;
    int32_t blocks = (s->capacity + l->page_tokens - 1) / l->page_tokens + 1;
    s->tokens = ARENA_ARRAY(a, int32_t, (size_t)s->capacity + 1);
    s->nodes = ARENA_ARRAY(a, int32_t, (size_t)blocks);
    for (int32_t g = 0; g < l->groups; g++)
        if (!(s->pages[g] = ARENA_ARRAY(a, int32_t, (size_t)blocks))) return false;
    if (!s->tokens || !s->nodes || !stops_open(&s->stops, r->stop_strings, r->stops_count, r->include_stop)) return false;
    memcpy(s->tokens, r->prompt, (size_t)r->prompt_count * sizeof *s->tokens);
    if (r->prompt_logprobs >= 0) {
        s->prompt_logprobs = ARENA_ARRAY(a, float, (size_t)r->prompt_count);
        s->prompt_top = ARENA_ARRAY(a, struct rose_logprob, (size_t)r->prompt_count * (size_t)ROSE_MAX(r->prompt_logprobs, 1));
        if (!s->prompt_logprobs || !s->prompt_top) return false;
    }
    thoughts_begin(&r->thoughts, &s->thoughts);
    token_stream_init(&s->stream, l->tokenizer, r->keep_special ? 0 : TOKENIZER_SKIP_SPECIAL);
    return true;
}

enum rose_status request_open(const struct rose_request *in, const int32_t *tokens, size_t count, const struct request_limits *limits, struct request **out,
                              struct rose_error *err)
{
    ROSE_TRY(check(in, tokens, count, limits, err));
    struct request *r = calloc(1, sizeof *r);
    if (!r) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    r->user = in->user;
    r->stops_count = in->stops_count;
    r->stop_ids_count = in->stop_ids_count;
    r->include_stop = in->include_stop;
    r->keep_special = in->keep_special;
    r->logprobs = in->logprobs;
    r->prompt_logprobs = in->prompt_logprobs;
    r->priority = in->priority;
    r->choices = r->open = in->choices ? in->choices : 1;
    r->stop_index = -1;
    r->stop_token = -1;
    r->prompt_count = (int32_t)count;
    int32_t room = limits->context - r->prompt_count;
    r->max_tokens = in->max_tokens < 0 ? room : in->max_tokens;
    const char *salt = in->cache_salt ? in->cache_salt : "";
    r->salt = hash_bytes(salt, strlen(salt), 0);
    bool ok = copy_all(r, in, tokens, count);
    enum rose_status thoughts = ok ? copy_thoughts(r, in, limits, err) : ROSE_OK;
    if (thoughts != ROSE_OK) {
        request_close(r);
        return thoughts;
    }
    r->seed = in->sampling.has_seed ? in->sampling.seed : fresh_seed(r);
    r->sequences = ok ? ARENA_ARRAY(&r->arena, struct sequence, (size_t)r->choices) : NULL;
    ok = ok && r->sequences;
    for (int i = 0; ok && i < r->choices; i++) {
        struct sequence *s = &r->sequences[i];
        *s = (struct sequence){.request = r, .choice = i, .slot = -1, .known = r->prompt_count, .length = r->prompt_count,
                               .capacity = r->prompt_count + r->max_tokens};
        ok = open_sequence(r, s, limits);
    }
    if (!ok) {
        request_close(r);
        return status_set(err, ROSE_NO_MEMORY, "no memory for a request of %zu tokens", count);
    }
    *out = r;
    return ROSE_OK;
}

void request_close(struct request *r)
{
    if (!r) return;
    for (int i = 0; r->sequences && i < r->choices; i++) {
        stops_close(&r->sequences[i].stops);
        if (r->sequences[i].stream.t) token_stream_free(&r->sequences[i].stream);
    }
    arena_free(&r->arena);
    free(r);
}
