/* Anthropic's /v1/messages: the table of fields, and messages for the chat template. */
#include <stdio.h>

#include "server/api.h"

#define AT(member) offsetof(struct api_request, member)
#define LATER "it comes with a later version"

static bool read_stops(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    return v->type != JSON_ARRAY ? api_error_field(e, "stop_sequences", "stop_sequences must be a list of strings")
                                 : api_stops(v, "stop_sequences", arena, &((struct api_request *)target)->rose, e);
}

/* {"type": "enabled" | "disabled" | "adaptive"}: the variable that templates of reasoning models look at. */
static bool read_thinking(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    static const struct json_member on = {{"enable_thinking", 15}, {.type = JSON_TRUE}}, off = {{"enable_thinking", 15}, {.type = JSON_FALSE}};
    struct api_request *r = target;
    struct str type = json_str(json_get(v, "type"), "");
    bool enabled = str_is(type, "enabled") || str_is(type, "adaptive");
    if (!enabled && !str_is(type, "disabled")) return api_error_field(e, "thinking", "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    /* Anthropic's rules for the budget. */
    const struct json *budget = json_get(v, "budget_tokens");
    if (str_is(type, "enabled") && (!json_is(budget, JSON_NUMBER) || !budget->is_integer || budget->integer < 1024 || budget->integer > INT32_MAX))
        return api_error_field(e, "thinking.budget_tokens", "thinking.budget_tokens must be an integer, 1024 or more");
    if (!str_is(type, "enabled") && !json_is_null(budget)) return api_error_field(e, "thinking.budget_tokens", "thinking.budget_tokens goes with \"type\": \"enabled\"");
    r->thinking_budget = budget && str_is(type, "enabled") ? (int)budget->integer : 0;
    struct json *kwargs = ARENA_NEW(arena, struct json);
    if (!kwargs || !(kwargs->members = ARENA_ARRAY(arena, struct json_member, 1))) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    kwargs->type = JSON_OBJECT;
    kwargs->count = 1;
    kwargs->members[0] = enabled ? on : off;
    r->kwargs = kwargs;
    return true;
}

#define ROW(name, kind, member, low, high) {name, kind, AT(member), low, high, NULL, NULL}
static const struct field fields[] = {
    ROW("model", FIELD_TEXT, model, 0, 0),
    ROW("messages", FIELD_ARRAY, messages, 0, 0),
    ROW("system", FIELD_ANY, system, 0, 0),
    ROW("max_tokens", FIELD_INT, rose.max_tokens, 1, 1 << 30),
    ROW("stream", FIELD_BOOL, stream, 0, 0),
    ROW("temperature", FIELD_NUMBER, rose.sampling.temperature, 0, 1),
    ROW("top_p", FIELD_NUMBER, rose.sampling.top_p, 0, 1),
    ROW("top_k", FIELD_INT, rose.sampling.top_k, 0, 1 << 30),
    {"stop_sequences", FIELD_CALL, 0, 0, 0, NULL, read_stops},
    {"thinking", FIELD_CALL, 0, 0, 0, NULL, read_thinking},
    {"metadata", FIELD_IGNORE, 0, 0, 0, NULL, NULL},
    {"service_tier", FIELD_IGNORE, 0, 0, 0, NULL, NULL},
    {"cache_control", FIELD_IGNORE, 0, 0, 0, NULL, NULL},
    {"inference_geo", FIELD_IGNORE, 0, 0, 0, NULL, NULL},
    {"tools", FIELD_NEUTRAL, 0, 0, 0, LATER, NULL},
    {"tool_choice", FIELD_NEUTRAL, 0, 0, 0, "tools come with a later version", NULL},
    {"mcp_servers", FIELD_NEUTRAL, 0, 0, 0, NULL, NULL},
    {"container", FIELD_REFUSE, 0, 0, 0, NULL, NULL},
    {"context_management", FIELD_NEUTRAL, 0, 0, 0, NULL, NULL},
    {"output_config", FIELD_NEUTRAL, 0, 0, 0, LATER, NULL},
    {"output_format", FIELD_NEUTRAL, 0, 0, 0, LATER, NULL},
};

/* Text blocks are joined as they are; an assistant's earlier thoughts go to reasoning_content, where templates look for them. */
static bool add_blocks(struct strbuf *b, const struct json *content, const char *name, struct api_error *e)
{
    struct strbuf text = {0}, thoughts = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < content->count; i++) {
        const struct json *block = json_at(content, i);
        struct str type = json_str(json_get(block, "type"), "");
        bool is_text = str_is(type, "text"), is_thought = str_is(type, "thinking");
        const struct json *t = json_get(block, is_text ? "text" : "thinking");
        if (str_is(type, "redacted_thinking")) continue;
        if (!is_text && !is_thought) ok = api_error_field(e, name, "%s[%u]: blocks of type \"%.*s\" are not supported; only text is", name, i, (int)ROSE_MIN(type.n, 40), type.p);
        else if (!json_is(t, JSON_STRING)) ok = api_error_field(e, name, "%s[%u] must have a string of text", name, i);
        else strbuf_add(is_text ? &text : &thoughts, t->string.p, t->string.n);
    }
    if (ok) {
        json_add_str(b, strbuf_str(&text));
        if (thoughts.n) {
            strbuf_adds(b, ",\"reasoning_content\":");
            json_add_str(b, strbuf_str(&thoughts));
        }
    }
    strbuf_free(&text);
    strbuf_free(&thoughts);
    return ok;
}

static bool add_content(struct strbuf *b, const struct json *content, const char *name, struct api_error *e)
{
    if (json_is(content, JSON_STRING)) return json_add_str(b, content->string), true;
    if (json_is(content, JSON_ARRAY)) return add_blocks(b, content, name, e);
    return api_error_field(e, name, "%s must be a string or a list of blocks", name);
}

static bool add_messages(struct strbuf *b, struct api_request *r, struct api_error *e)
{
    const struct json *last = json_at(r->messages, r->messages->count - 1);
    r->continue_final_message = str_is(json_str(json_get(last, "role"), ""), "assistant"); /* an answer begun by the caller */
    strbuf_adds(b, "{");
    if (r->kwargs) strbuf_printf(b, "\"enable_thinking\":%s,", json_is(&json_member(r->kwargs, 0)->value, JSON_TRUE) ? "true" : "false");
    strbuf_printf(b, "\"tools\":null,\"add_generation_prompt\":%s,\"continue_final_message\":%s,\"messages\":[", r->continue_final_message ? "false" : "true",
                  r->continue_final_message ? "true" : "false");
    if (!json_is_null(r->system)) {
        strbuf_adds(b, "{\"role\":\"system\",\"content\":");
        if (!add_content(b, r->system, "system", e)) return false;
        strbuf_adds(b, "},");
    }
    for (uint32_t i = 0; i < r->messages->count; i++) {
        const struct json *m = json_at(r->messages, i);
        struct str role = json_str(json_get(m, "role"), "");
        char name[64];
        snprintf(name, sizeof name, "messages[%u]", i);
        if (!str_is(role, "user") && !str_is(role, "assistant")) return api_error_field(e, name, "%s.role must be \"user\" or \"assistant\"", name);
        strbuf_printf(b, "%s{\"role\":\"%s\",\"content\":", i ? "," : "", str_is(role, "user") ? "user" : "assistant");
        snprintf(name, sizeof name, "messages[%u].content", i);
        if (!add_content(b, json_get(m, "content"), name, e)) return false;
        strbuf_adds(b, "}");
    }
    return strbuf_adds(b, "]}"), true;
}

bool anthropic_read(const struct json *body, bool count_only, struct arena *arena, struct api_request *r, struct api_error *e)
{
    *r = (struct api_request){.kind = API_MESSAGES, .n = 1, .prompts_count = 1, .prompts = ARENA_NEW(arena, struct api_prompt)};
    rose_request_init(&r->rose);
    r->rose.sampling.temperature = 1;
    if (!r->prompts) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    if (!fields_read(fields, ROSE_COUNT(fields), "", body, r, arena, e)) return false;
    if (!r->messages || !r->messages->count) return api_error_field(e, "messages", "messages must be a list of at least one message");
    if (!count_only && r->rose.max_tokens < 1) return api_error_field(e, "max_tokens", "max_tokens is missing: say how many tokens the answer may have");
    if (!count_only && r->thinking_budget >= r->rose.max_tokens)
        return api_error_field(e, "thinking.budget_tokens", "thinking.budget_tokens (%d) must be less than max_tokens (%d)", r->thinking_budget, r->rose.max_tokens);
    struct strbuf b = {.limit = (size_t)512 << 20};
    bool ok = add_messages(&b, r, e);
    char *copy = ok && !b.failed ? arena_strndup(arena, b.p, b.n) : NULL;
    r->prompts[0] = (struct api_prompt){.kind = ROSE_REQUEST_CHAT, .text = {copy, b.n}};
    strbuf_free(&b);
    return !ok ? false : copy ? true : api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
}
