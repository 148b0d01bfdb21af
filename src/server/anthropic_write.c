/* Anthropic answers. A message has a block of thoughts, if there are any, and a block of text; a stream opens each when its first piece comes. */
#include "server/generation.h"

static const char *error_type(const struct api_error *e)
{
    switch (e->status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return e->status < 500 ? "invalid_request_error" : "api_error";
    }
}

static void refusal(const struct api_error *e, const char *request_id, struct strbuf *out)
{
    strbuf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e));
    json_add_str(out, str_of(e->message));
    strbuf_printf(out, "},\"request_id\":\"%s\"}", request_id);
}

static const char *stop_reason(const struct choice *c) { return c->finish != ROSE_FINISH_STOP ? "max_tokens" : c->stop_index >= 0 ? "stop_sequence" : "end_turn"; }

static void add_stop(const struct generation *g, struct strbuf *b)
{
    const struct choice *c = &g->choices[0];
    strbuf_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->finish == ROSE_FINISH_STOP && c->stop_index >= 0) json_add_str(b, str_of(g->request->rose.stops[c->stop_index]));
    else strbuf_adds(b, "null");
}

static void add_usage(const struct generation *g, bool answer, struct strbuf *b)
{
    struct usage u = generation_usage(g);
    strbuf_printf(b, "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,\"output_tokens\":%d}", u.prompt - u.cached, u.cached,
                  answer ? u.completion : 0);
}

static void begin(struct generation *g)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_printf(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->http->id);
    json_add_str(b, str_of(g->model->name));
    strbuf_adds(b, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    add_usage(g, false, b);
    strbuf_adds(b, "}}\n\n");
}

static void stop_block(struct strbuf *b, int index)
{
    strbuf_printf(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%d}\n\n", index);
}

static void delta(struct strbuf *b, int index, const char *kind, const char *key, struct str text)
{
    strbuf_printf(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", index, kind, key);
    json_add_str(b, text);
    strbuf_adds(b, "}}\n\n");
}

static void open_text(struct choice *c, struct strbuf *b)
{
    if (c->has_text) return;
    if (c->has_thoughts) stop_block(b, 0);
    c->has_text = true;
    strbuf_printf(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n", c->has_thoughts);
}

static void piece(struct generation *g, int index)
{
    struct choice *c = &g->choices[index];
    struct strbuf *b = httpd_stream(g->http);
    if (c->thoughts.n) {
        if (!c->has_thoughts)
            strbuf_adds(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\","
                           "\"signature\":\"\"}}\n\n");
        c->has_thoughts = true;
        delta(b, 0, "thinking_delta", "thinking", strbuf_str(&c->thoughts));
    }
    if (!c->text.n) return;
    open_text(c, b);
    delta(b, c->has_thoughts, "text_delta", "text", strbuf_str(&c->text));
}

static void finish_choice(struct generation *g, int index)
{
    struct choice *c = &g->choices[index];
    struct strbuf *b = httpd_stream(g->http);
    if (!c->has_thoughts) open_text(c, b); /* an empty answer has an empty block */
    stop_block(b, c->has_thoughts && c->has_text);
}

static void finish(struct generation *g)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_adds(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    add_stop(g, b);
    strbuf_adds(b, "},");
    add_usage(g, true, b);
    strbuf_adds(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void error(struct generation *g, const struct api_error *e)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_adds(b, "event: error\ndata: ");
    refusal(e, g->http->id, b);
    strbuf_adds(b, "\n\n");
}

static void ping(struct generation *g) { strbuf_adds(httpd_stream(g->http), "event: ping\ndata: {\"type\":\"ping\"}\n\n"); }

static void whole(struct generation *g, struct strbuf *b)
{
    const struct choice *c = &g->choices[0];
    strbuf_printf(b, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->http->id);
    json_add_str(b, str_of(g->model->name));
    strbuf_adds(b, ",\"content\":[");
    if (c->thoughts.n) {
        strbuf_adds(b, "{\"type\":\"thinking\",\"thinking\":");
        json_add_str(b, strbuf_str(&c->thoughts));
        strbuf_adds(b, ",\"signature\":\"\"},");
    }
    strbuf_adds(b, "{\"type\":\"text\",\"text\":");
    json_add_str(b, strbuf_str(&c->text));
    strbuf_adds(b, "}],");
    add_stop(g, b);
    strbuf_addc(b, ',');
    add_usage(g, true, b);
    strbuf_addc(b, '}');
}

const struct writer anthropic_writer = {.begin = begin, .piece = piece, .finish_choice = finish_choice, .finish = finish, .error = error, .ping = ping, .whole = whole,
                                        .refusal = refusal};
