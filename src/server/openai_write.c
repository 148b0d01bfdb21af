/* OpenAI answers: whole and streamed, chat and completions. */
#include <stdio.h>

#include "base/utf8.h"
#include "server/generation.h"

static void add_error(const struct api_error *e, struct strbuf *b)
{
    strbuf_adds(b, "{\"error\":{\"message\":");
    json_add_str(b, str_of(e->message));
    strbuf_printf(b, ",\"type\":\"%s\",\"param\":", e->type);
    if (e->param[0]) json_add_str(b, str_of(e->param));
    else strbuf_adds(b, "null");
    if (e->code) strbuf_printf(b, ",\"code\":\"%s\"}}", e->code);
    else strbuf_adds(b, ",\"code\":null}}");
}

static void refusal(const struct api_error *e, const char *request_id, struct strbuf *out)
{
    (void)request_id;
    add_error(e, out);
}

static const char *finish_reason(enum rose_finish finish) { return finish == ROSE_FINISH_STOP ? "stop" : "length"; }

static void add_usage(const struct generation *g, struct strbuf *b)
{
    struct usage u = generation_usage(g);
    strbuf_printf(b, "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}", u.prompt, u.completion,
                  u.prompt + u.completion, u.cached);
    strbuf_printf(b, ",\"completion_tokens_details\":{\"reasoning_tokens\":%d}}", u.thoughts);
}

/* --- log-probabilities ------------------------------------------------------------------------------------------------------------ */

static struct str token_text(const struct generation *g, int32_t id)
{
    size_t n;
    const char *p = rose_token_text(g->model->engine, id, &n);
    return (struct str){p ? p : "", n};
}

static void add_chat_token(const struct generation *g, int32_t id, float logprob, struct strbuf *b)
{
    struct str text = token_text(g, id);
    strbuf_adds(b, "{\"token\":");
    json_add_str(b, text);
    strbuf_adds(b, ",\"logprob\":");
    json_add_num(b, logprob > -9999 ? (double)logprob : -9999.0);
    strbuf_adds(b, ",\"bytes\":[");
    for (size_t i = 0; i < text.n; i++) strbuf_printf(b, "%s%d", i ? "," : "", (unsigned char)text.p[i]);
    strbuf_addc(b, ']');
}

static void add_chat_logprobs(const struct generation *g, const struct choice *c, struct strbuf *b)
{
    strbuf_adds(b, "{\"content\":[");
    for (size_t i = 0; i < c->entries.n; i++) {
        const struct token_entry *e = &c->entries.p[i];
        if (i) strbuf_addc(b, ',');
        add_chat_token(g, e->id, e->logprob, b);
        strbuf_adds(b, ",\"top_logprobs\":[");
        for (int k = 0; k < e->top_count; k++) {
            if (k) strbuf_addc(b, ',');
            add_chat_token(g, e->top[k].id, e->top[k].logprob, b);
            strbuf_addc(b, '}');
        }
        strbuf_adds(b, "]}");
    }
    strbuf_adds(b, "],\"refusal\":null}");
}

static size_t characters(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}

static void add_number_or_null(struct strbuf *b, float x) { json_add_num(b, x != x ? (double)x : x > -9999 ? (double)x : -9999.0); }

/* tokens, token_logprobs, top_logprobs, text_offset: parallel lists. */
static void add_completion_logprobs(const struct generation *g, struct choice *c, struct strbuf *b)
{
    size_t n = c->entries.n;
    strbuf_adds(b, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) strbuf_addc(b, ',');
        json_add_str(b, token_text(g, c->entries.p[i].id));
    }
    strbuf_adds(b, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) strbuf_addc(b, ',');
        add_number_or_null(b, c->entries.p[i].logprob);
    }
    strbuf_adds(b, "],\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        const struct token_entry *e = &c->entries.p[i];
        if (i) strbuf_addc(b, ',');
        if (!e->top_count) strbuf_adds(b, "null");
        for (int k = 0; k < e->top_count; k++) {
            strbuf_addc(b, k ? ',' : '{');
            json_add_str(b, token_text(g, e->top[k].id));
            strbuf_addc(b, ':');
            add_number_or_null(b, e->top[k].logprob);
            if (k + 1 == e->top_count) strbuf_addc(b, '}');
        }
    }
    strbuf_adds(b, "],\"text_offset\":[");
    for (size_t i = 0; i < n; i++) {
        strbuf_printf(b, "%s%zu", i ? "," : "", c->offset);
        c->offset += characters(token_text(g, c->entries.p[i].id));
    }
    strbuf_adds(b, "]}");
}

/* --- streams ------------------------------------------------------------------------------------------------------------------------- */

static bool is_chat(const struct generation *g) { return g->request->kind == API_CHAT; }

/* The head is the same for every chunk: it is written once. */
static void chunk_head(struct generation *g, struct strbuf *b)
{
    if (!g->head.n) {
        struct strbuf h = {0};
        strbuf_printf(&h, "data: {\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", is_chat(g) ? "chatcmpl" : "cmpl", g->http->id,
                      is_chat(g) ? "chat.completion.chunk" : "text_completion", (long long)g->created);
        json_add_str(&h, str_of(g->model->name));
        strbuf_adds(&h, ",\"choices\":[");
        char *copy = h.failed ? NULL : arena_strndup(&g->http->arena, h.p, h.n);
        if (copy) g->head = (struct str){copy, h.n};
        strbuf_free(&h);
    }
    strbuf_add(b, g->head.p, g->head.n);
}

static void chunk_tail(const struct generation *g, struct strbuf *b)
{
    strbuf_adds(b, g->request->include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

/* Once, with the first chunk behind the prompt. */
static void add_prompt_logprobs(struct choice *c, struct strbuf *b)
{
    if (!c->prompt_logprobs.n) return;
    strbuf_adds(b, ",\"prompt_logprobs\":");
    strbuf_add(b, c->prompt_logprobs.p, c->prompt_logprobs.n);
    c->prompt_logprobs.n = 0;
}

static void chat_begin(struct generation *g)
{
    struct strbuf *b = httpd_stream(g->http);
    for (int i = 0; i < g->choices_count; i++) {
        chunk_head(g, b);
        strbuf_printf(b, "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}", i);
        chunk_tail(g, b);
    }
}

static void chat_piece(struct generation *g, int index)
{
    struct choice *c = &g->choices[index];
    struct strbuf *b = httpd_stream(g->http);
    chunk_head(g, b);
    strbuf_printf(b, "{\"index\":%d,\"delta\":{", index);
    if (c->thoughts.n) {
        strbuf_adds(b, "\"reasoning_content\":");
        json_add_str(b, strbuf_str(&c->thoughts));
    }
    if (c->text.n || !c->thoughts.n) {
        strbuf_adds(b, c->thoughts.n ? ",\"content\":" : "\"content\":");
        json_add_str(b, strbuf_str(&c->text));
    }
    strbuf_adds(b, "},\"logprobs\":");
    if (g->request->wants_logprobs) add_chat_logprobs(g, c, b);
    else strbuf_adds(b, "null");
    strbuf_adds(b, ",\"finish_reason\":null");
    add_prompt_logprobs(c, b);
    strbuf_addc(b, '}');
    chunk_tail(g, b);
}

static void chat_finish_choice(struct generation *g, int index)
{
    struct strbuf *b = httpd_stream(g->http);
    chunk_head(g, b);
    strbuf_printf(b, "{\"index\":%d,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}", index, finish_reason(g->choices[index].finish));
    chunk_tail(g, b);
}

static void completion_piece(struct generation *g, int index)
{
    struct choice *c = &g->choices[index];
    struct strbuf *b = httpd_stream(g->http);
    chunk_head(g, b);
    strbuf_printf(b, "{\"index\":%d,\"text\":", index);
    json_add_str(b, strbuf_str(&c->text));
    strbuf_adds(b, ",\"logprobs\":");
    if (g->request->wants_logprobs) add_completion_logprobs(g, c, b);
    else strbuf_adds(b, "null");
    strbuf_adds(b, ",\"finish_reason\":null");
    add_prompt_logprobs(c, b);
    strbuf_addc(b, '}');
    chunk_tail(g, b);
}

static void completion_finish_choice(struct generation *g, int index)
{
    struct strbuf *b = httpd_stream(g->http);
    chunk_head(g, b);
    strbuf_printf(b, "{\"index\":%d,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"%s\"}", index, finish_reason(g->choices[index].finish));
    chunk_tail(g, b);
}

static void stream_finish(struct generation *g)
{
    struct strbuf *b = httpd_stream(g->http);
    if (g->request->include_usage) {
        chunk_head(g, b);
        strbuf_adds(b, "],\"usage\":");
        add_usage(g, b);
        strbuf_adds(b, "}\n\n");
    }
    strbuf_adds(b, "data: [DONE]\n\n");
}

static void stream_error(struct generation *g, const struct api_error *e)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_adds(b, "data: ");
    add_error(e, b);
    strbuf_adds(b, "\n\ndata: [DONE]\n\n");
}

static void ping(struct generation *g) { strbuf_adds(httpd_stream(g->http), ": ping\n\n"); }

/* --- whole answers ---------------------------------------------------------------------------------------------------------------------- */

static void whole_head(const struct generation *g, const char *prefix, const char *object, struct strbuf *b)
{
    strbuf_printf(b, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", prefix, g->http->id, object, (long long)g->created);
    json_add_str(b, str_of(g->model->name));
    strbuf_adds(b, ",\"choices\":[");
}

static void chat_whole(struct generation *g, struct strbuf *b)
{
    whole_head(g, "chatcmpl", "chat.completion", b);
    for (int i = 0; i < g->choices_count; i++) {
        struct choice *c = &g->choices[i];
        strbuf_printf(b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "", i);
        json_add_str(b, strbuf_str(&c->text));
        strbuf_adds(b, ",\"refusal\":null");
        if (c->thoughts.n) {
            strbuf_adds(b, ",\"reasoning_content\":");
            json_add_str(b, strbuf_str(&c->thoughts));
        }
        strbuf_adds(b, "},\"logprobs\":");
        if (g->request->wants_logprobs) add_chat_logprobs(g, c, b);
        else strbuf_adds(b, "null");
        strbuf_printf(b, ",\"finish_reason\":\"%s\"}", finish_reason(c->finish));
    }
    strbuf_adds(b, "],\"usage\":");
    add_usage(g, b);
    add_prompt_logprobs(&g->choices[0], b);
    strbuf_addc(b, '}');
}

static void completion_whole(struct generation *g, struct strbuf *b)
{
    whole_head(g, "cmpl", "text_completion", b);
    for (int i = 0; i < g->choices_count; i++) {
        struct choice *c = &g->choices[i];
        strbuf_printf(b, "%s{\"index\":%d,\"text\":", i ? "," : "", i);
        json_add_str(b, strbuf_str(&c->text));
        strbuf_adds(b, ",\"logprobs\":");
        if (g->request->wants_logprobs) add_completion_logprobs(g, c, b);
        else strbuf_adds(b, "null");
        strbuf_printf(b, ",\"finish_reason\":\"%s\"", finish_reason(c->finish));
        add_prompt_logprobs(c, b);
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "],\"usage\":");
    add_usage(g, b);
    strbuf_addc(b, '}');
}

const struct writer openai_chat_writer = {.begin = chat_begin, .piece = chat_piece, .finish_choice = chat_finish_choice, .finish = stream_finish,
                                          .error = stream_error, .ping = ping, .whole = chat_whole, .refusal = refusal};
const struct writer openai_completion_writer = {.piece = completion_piece, .finish_choice = completion_finish_choice, .finish = stream_finish,
                                                .error = stream_error, .ping = ping, .whole = completion_whole, .refusal = refusal};
