/* OpenAI requests: the tables of fields, and messages for the chat template. */
#include <stdio.h>

#include "server/api.h"

#define AT(member) offsetof(struct api_request, member)
#define LATER "it comes with a later version"

/* --- fields with a form of their own ---------------------------------------------------------------------------------------------------- */

bool api_stops(const struct json *v, const char *field, struct arena *arena, struct rose_request *out, struct api_error *e)
{
    bool one = v->type == JSON_STRING;
    uint32_t count = one ? 1 : v->count;
    if (!one && v->type != JSON_ARRAY) return api_error_field(e, field, "%s must be a string or a list of strings", field);
    if (count > 64) return api_error_field(e, field, "%s has %u entries; at most 64 are taken", field, count);
    const char **stops = ARENA_ARRAY(arena, const char *, count + 1);
    if (!stops) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        const struct json *s = one ? v : json_at(v, i);
        if (s->type != JSON_STRING) return api_error_field(e, field, "%s[%u] must be a string", field, i);
        if (s->string.n == 0) return api_error_field(e, field, "%s[%u] is empty: an empty text would stop every answer before it begins", field, i);
        if (memchr(s->string.p, 0, s->string.n)) return api_error_field(e, field, "%s[%u] has a NUL character", field, i);
        if (!(stops[i] = arena_strndup(arena, s->string.p, s->string.n))) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    }
    out->stops = stops;
    out->stops_count = count;
    return true;
}

bool api_token_list(const struct json *v, const char *field, struct arena *arena, int32_t **ids, size_t *count, struct api_error *e)
{
    if (v->type != JSON_ARRAY) return api_error_field(e, field, "%s must be a list of token ids", field);
    *ids = ARENA_ARRAY(arena, int32_t, (size_t)v->count + 1);
    if (!*ids) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t id = json_int(json_at(v, i), -1);
        if (id < 0 || id > INT32_MAX) return api_error_field(e, field, "%s[%u] must be a token id", field, i);
        (*ids)[i] = (int32_t)id;
    }
    *count = v->count;
    return true;
}

static bool read_stop(void *target, const struct json *v, struct arena *arena, struct api_error *e) { return api_stops(v, "stop", arena, &((struct api_request *)target)->rose, e); }

static bool read_stop_ids(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct rose_request *r = &((struct api_request *)target)->rose;
    int32_t *ids;
    if (!api_token_list(v, "stop_token_ids", arena, &ids, &r->stop_ids_count, e)) return false;
    r->stop_ids = ids;
    return true;
}

static bool read_bias(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct rose_sampling *s = &((struct api_request *)target)->rose.sampling;
    if (v->type != JSON_OBJECT) return api_error_field(e, "logit_bias", "logit_bias must be an object of token ids and numbers");
    if (v->count > 1024) return api_error_field(e, "logit_bias", "logit_bias has %u entries; at most 1024 are taken", v->count);
    struct rose_logit_bias *b = ARENA_ARRAY(arena, struct rose_logit_bias, v->count + 1);
    if (!b) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t id;
        const struct json *x = &json_member(v, i)->value;
        if (!str_to_i64(json_member(v, i)->key, &id) || id < 0 || id > INT32_MAX) return api_error_field(e, "logit_bias", "logit_bias: a key is no token id");
        if (x->type != JSON_NUMBER || !(x->number >= -100 && x->number <= 100)) return api_error_field(e, "logit_bias", "logit_bias of token %d must be a number from -100 to 100", (int)id);
        b[i] = (struct rose_logit_bias){(int32_t)id, (float)x->number};
    }
    s->logit_bias = b;
    s->logit_bias_count = v->count;
    return true;
}

static bool read_seed(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct rose_sampling *s = &((struct api_request *)target)->rose.sampling;
    (void)arena;
    if (v->type != JSON_NUMBER || !(v->is_integer || v->is_wide)) return api_error_field(e, "seed", "seed must be an integer of 64 bits");
    s->seed = (uint64_t)v->integer;
    s->has_seed = true;
    return true;
}

static bool read_response_format(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    (void)target, (void)arena;
    if (str_is(json_str(json_get(v, "type"), ""), "text")) return true;
    return api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", "response_format", "response_format other than {\"type\": \"text\"} is not supported: " LATER);
}

static bool read_tool_choice(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    (void)target, (void)arena;
    if (v->type == JSON_STRING && (str_is(v->string, "none") || str_is(v->string, "auto"))) return true;
    return api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", "tool_choice", "tool_choice is not supported: tools come with a later version");
}

static bool read_modalities(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    (void)target, (void)arena;
    for (uint32_t i = 0; v->type == JSON_ARRAY && i < v->count; i++)
        if (!str_is(json_str(json_at(v, i), ""), "text")) return api_error_field(e, "modalities", "modalities: only \"text\" is supported");
    return v->type == JSON_ARRAY || api_error_field(e, "modalities", "modalities must be a list");
}

static bool read_top_k(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct rose_sampling *s = &((struct api_request *)target)->rose.sampling;
    (void)arena;
    int64_t k = json_int(v, -2);
    if (v->type != JSON_NUMBER || k < -1 || k > INT32_MAX) return api_error_field(e, "top_k", "top_k must be an integer: -1 or 0 for off, or how many tokens");
    s->top_k = k < 0 ? 0 : (int)k;
    return true;
}

static bool read_stream_options(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    static const struct field table[] = {{"include_usage", FIELD_BOOL, AT(include_usage), 0, 0, NULL, NULL},
                                         {"include_obfuscation", FIELD_IGNORE, 0, 0, 0, NULL, NULL},
                                         {"continuous_usage_stats", FIELD_NEUTRAL, 0, 0, 0, "usage comes once, with the last chunk", NULL}};
    if (v->type != JSON_OBJECT) return api_error_field(e, "stream_options", "stream_options must be an object");
    ((struct api_request *)target)->stream_options = v;
    return fields_read(table, ROSE_COUNT(table), "stream_options.", v, target, arena, e);
}

static bool read_add_generation_prompt(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    (void)arena;
    if (v->type != JSON_TRUE && v->type != JSON_FALSE) return api_error_field(e, "add_generation_prompt", "add_generation_prompt must be true or false");
    ((struct api_request *)target)->add_generation_prompt = v->type == JSON_TRUE;
    return true;
}

/* "logprobs": chat: true or false; completions: how many. */
static bool read_chat_logprobs(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    (void)arena;
    if (v->type != JSON_TRUE && v->type != JSON_FALSE) return api_error_field(e, "logprobs", "logprobs must be true or false; top_logprobs says how many");
    ((struct api_request *)target)->wants_logprobs = v->type == JSON_TRUE;
    return true;
}

static bool read_completion_logprobs(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct api_request *r = target;
    (void)arena;
    int64_t n = json_int(v, -1);
    if (v->type == JSON_FALSE) return true;
    if (v->type != JSON_NUMBER || n < 0 || n > 20) return api_error_field(e, "logprobs", "logprobs must be an integer from 0 to 20");
    r->wants_logprobs = true;
    r->top_logprobs = (int)n;
    return true;
}

/* --- the tables --------------------------------------------------------------------------------------------------------------------------- */

#define ROW(name, kind, member, low, high) {name, kind, AT(member), low, high, NULL, NULL}
#define CALL(name, function) {name, FIELD_CALL, 0, 0, 0, NULL, function}
#define REFUSE(name, why) {name, FIELD_REFUSE, 0, 0, 0, why, NULL}
#define NEUTRAL(name, value, why) {name, FIELD_NEUTRAL, 0, value, 0, why, NULL}
#define IGNORE(name) {name, FIELD_IGNORE, 0, 0, 0, NULL, NULL}

#define SHARED_FIELDS                                                                                                                                \
    ROW("model", FIELD_TEXT, model, 0, 0), ROW("stream", FIELD_BOOL, stream, 0, 0), CALL("stream_options", read_stream_options),                     \
        ROW("max_tokens", FIELD_INT, rose.max_tokens, 0, 1 << 30), ROW("temperature", FIELD_NUMBER, rose.sampling.temperature, 0, 100),              \
        ROW("top_p", FIELD_NUMBER, rose.sampling.top_p, 0, 1), CALL("top_k", read_top_k), ROW("min_p", FIELD_NUMBER, rose.sampling.min_p, 0, 1),     \
        ROW("n", FIELD_INT, n, 1, API_MAX_CHOICES), CALL("stop", read_stop), CALL("seed", read_seed),                                                \
        ROW("presence_penalty", FIELD_NUMBER, rose.sampling.presence_penalty, -2, 2),                                                                \
        ROW("frequency_penalty", FIELD_NUMBER, rose.sampling.frequency_penalty, -2, 2),                                                              \
        ROW("repetition_penalty", FIELD_NUMBER, rose.sampling.repetition_penalty, 0.01, 100), CALL("logit_bias", read_bias),                         \
        ROW("min_tokens", FIELD_INT, rose.sampling.min_tokens, 0, 1 << 30), ROW("ignore_eos", FIELD_BOOL, rose.sampling.ignore_eos, 0, 0),           \
        CALL("stop_token_ids", read_stop_ids), ROW("include_stop_str_in_output", FIELD_BOOL, rose.include_stop, 0, 0),                               \
        ROW("skip_special_tokens", FIELD_BOOL, skip_special_tokens, 0, 0), ROW("prompt_logprobs", FIELD_INT, rose.prompt_logprobs, 0, 20),           \
        ROW("priority", FIELD_INT, rose.priority, -(1 << 30), 1 << 30), ROW("cache_salt", FIELD_TEXT, cache_salt, 0, 0),                             \
        ROW("user", FIELD_TEXT, user, 0, 0), IGNORE("metadata"), IGNORE("store"), IGNORE("service_tier"), IGNORE("prompt_cache_key"),                \
        IGNORE("prompt_cache_retention"), IGNORE("safety_identifier"), CALL("response_format", read_response_format),                                \
        REFUSE("allowed_token_ids", "use logit_bias"), REFUSE("bad_words", "use logit_bias"), NEUTRAL("use_beam_search", 0, NULL),                   \
        NEUTRAL("length_penalty", 1, NULL), NEUTRAL("truncate_prompt_tokens", 0, NULL), REFUSE("guided_json", LATER), REFUSE("guided_regex", LATER), \
        REFUSE("guided_choice", LATER), REFUSE("guided_grammar", LATER), REFUSE("structured_outputs", LATER)

static const struct field chat_fields[] = {
    SHARED_FIELDS,
    ROW("messages", FIELD_ARRAY, messages, 0, 0),
    ROW("max_completion_tokens", FIELD_INT, max_completion_tokens, 0, 1 << 30),
    CALL("logprobs", read_chat_logprobs),
    {"top_logprobs", FIELD_INT, AT(top_logprobs), 0, 20, NULL, NULL},
    CALL("tool_choice", read_tool_choice),
    CALL("modalities", read_modalities),
    CALL("add_generation_prompt", read_add_generation_prompt),
    ROW("continue_final_message", FIELD_BOOL, continue_final_message, 0, 0),
    ROW("chat_template_kwargs", FIELD_OBJECT, kwargs, 0, 0),
    ROW("documents", FIELD_ARRAY, documents, 0, 0),
    ROW("reasoning_effort", FIELD_TEXT, reasoning_effort, 0, 0),
    IGNORE("parallel_tool_calls"),
    NEUTRAL("tools", 0, LATER),
    NEUTRAL("functions", 0, LATER),
    REFUSE("function_call", LATER),
    NEUTRAL("echo", 0, "use /v1/completions"),
    REFUSE("audio", "there is no audio"),
    REFUSE("prediction", NULL),
    REFUSE("verbosity", NULL),
    REFUSE("web_search_options", NULL),
    REFUSE("chat_template", "the server's operator chooses it (--chat-template)"),
    NEUTRAL("add_special_tokens", 0, "the chat template writes them"),
};

static const struct field completion_fields[] = {
    SHARED_FIELDS,
    ROW("prompt", FIELD_ANY, prompt, 0, 0),
    ROW("echo", FIELD_BOOL, echo, 0, 0),
    CALL("logprobs", read_completion_logprobs),
    {"best_of", FIELD_INT, AT(max_completion_tokens), 1, API_MAX_CHOICES, NULL, NULL},
    ROW("add_special_tokens", FIELD_BOOL, add_special_tokens, 0, 0),
    NEUTRAL("suffix", 0, "no text can be put in the middle"),
};

/* --- messages ------------------------------------------------------------------------------------------------------------------------------ */

/* Content as one text: templates of most models take nothing else. A list's text parts are joined by newlines. */
static bool add_content(struct strbuf *b, const struct json *content, uint32_t message, struct api_error *e)
{
    char name[64];
    snprintf(name, sizeof name, "messages[%u].content", message);
    if (json_is_null(content)) return strbuf_adds(b, "\"\""), true;
    if (content->type == JSON_STRING) return json_add_str(b, content->string), true;
    if (content->type != JSON_ARRAY) return api_error_field(e, name, "%s must be a string or a list of parts", name);
    struct strbuf text = {0};
    bool ok = true;
    for (uint32_t i = 0; ok && i < content->count; i++) {
        const struct json *part = json_at(content, i);
        struct str type = json_str(json_get(part, "type"), part->type == JSON_STRING ? "text" : "");
        const struct json *t = part->type == JSON_STRING ? part : json_get(part, str_is(type, "refusal") ? "refusal" : "text");
        if (!str_is(type, "text") && !str_is(type, "refusal") && !str_is(type, "input_text") && !str_is(type, "output_text"))
            ok = api_error_field(e, name, "%s[%u]: parts of type \"%.*s\" are not supported; only text is", name, i, (int)ROSE_MIN(type.n, 40), type.p);
        else if (!json_is(t, JSON_STRING)) ok = api_error_field(e, name, "%s[%u].text must be a string", name, i);
        else {
            if (i) strbuf_addc(&text, '\n');
            strbuf_add(&text, t->string.p, t->string.n);
        }
    }
    if (ok) json_add_str(b, strbuf_str(&text));
    strbuf_free(&text);
    return ok;
}

/* Arguments written as a JSON text become the object, which is what templates go through; anything else stays as it is. */
static void add_arguments(struct strbuf *b, const struct json *v)
{
    const struct json *object = NULL;
    struct arena a;
    arena_init(&a, (size_t)64 << 20);
    if (v->type == JSON_STRING && json_parse(&a, NULL, v->string, &object, NULL) == ROSE_OK && object->type == JSON_OBJECT) json_add_value(b, object);
    else json_add_value(b, v);
    arena_free(&a);
}

static void add_member(struct strbuf *b, struct str key, const struct json *v);

static void add_object(struct strbuf *b, const struct json *object)
{
    if (object->type != JSON_OBJECT) {
        json_add_value(b, object);
        return;
    }
    strbuf_addc(b, '{');
    for (uint32_t i = 0; i < object->count; i++) {
        if (i) strbuf_addc(b, ',');
        add_member(b, json_member(object, i)->key, &json_member(object, i)->value);
    }
    strbuf_addc(b, '}');
}

/* A member of a tool call: {"id", "type", "function": {"name", "arguments"}}. */
static void add_member(struct strbuf *b, struct str key, const struct json *v)
{
    json_add_str(b, key);
    strbuf_addc(b, ':');
    if (str_is(key, "arguments")) add_arguments(b, v);
    else if (str_is(key, "function")) add_object(b, v);
    else json_add_value(b, v);
}

static bool add_message(struct strbuf *b, const struct json *m, uint32_t index, struct api_error *e)
{
    char name[64];
    snprintf(name, sizeof name, "messages[%u]", index);
    if (m->type != JSON_OBJECT) return api_error_field(e, name, "%s must be an object with a role and content", name);
    const struct json *role = json_get(m, "role");
    if (!json_is(role, JSON_STRING) || !role->string.n) return api_error_field(e, name, "%s.role must be a string such as \"user\"", name);
    strbuf_adds(b, "{\"role\":");
    json_add_str(b, str_is(role->string, "developer") ? STR("system") : role->string); /* OpenAI's newer word for it */
    strbuf_adds(b, ",\"content\":");
    if (!add_content(b, json_get(m, "content"), index, e)) return false;
    for (uint32_t i = 0; i < m->count; i++) {
        struct str key = json_member(m, i)->key;
        const struct json *v = &json_member(m, i)->value;
        if (v->type == JSON_NULL || str_is(key, "role") || str_is(key, "content")) continue;
        strbuf_addc(b, ',');
        if (str_is(key, "tool_calls") && v->type == JSON_ARRAY) {
            strbuf_adds(b, "\"tool_calls\":[");
            for (uint32_t k = 0; k < v->count; k++) {
                if (k) strbuf_addc(b, ',');
                add_object(b, json_at(v, k));
            }
            strbuf_addc(b, ']');
        } else {
            json_add_str(b, key);
            strbuf_addc(b, ':');
            json_add_value(b, v);
        }
    }
    return strbuf_addc(b, '}'), true;
}

/* Most templates write any role as it comes, and a model answers to one that it has never seen as it likes. Others than OpenAI's are for templates that
 * have the word in quotes: 'ipython' of Llama, 'observation' of GLM. */
static bool is_role(struct str role, const char *chat_template)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    char quoted[40];
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(role, known[i])) return true;
    if (!chat_template || role.n > sizeof quoted - 3 || memchr(role.p, '\0', role.n)) return false;
    snprintf(quoted, sizeof quoted, "'" STR_FMT "'", STR_ARG(role));
    if (strstr(chat_template, quoted)) return true;
    quoted[0] = quoted[role.n + 1] = '"';
    return strstr(chat_template, quoted) != NULL;
}

bool openai_roles(const struct json *messages, const char *chat_template, struct api_error *e)
{
    char name[64];
    for (uint32_t i = 0; messages && i < messages->count; i++) {
        struct str role = json_str(json_get(json_at(messages, i), "role"), "");
        if (is_role(role, chat_template)) continue;
        snprintf(name, sizeof name, "messages[%u].role", i);
        return api_error_field(e, name, "%s is \"%.*s\": it must be system, developer, user, assistant, tool or function, or a role that the model's chat template names", name,
                               (int)ROSE_MIN(role.n, 60), role.p);
    }
    return true;
}

static bool add_messages(struct strbuf *b, const struct api_request *r, struct api_error *e)
{
    strbuf_adds(b, "{");
    /* Of equal keys the last counts: the caller's variables cannot replace what follows. */
    for (uint32_t i = 0; r->kwargs && i < r->kwargs->count; i++) {
        json_add_str(b, json_member(r->kwargs, i)->key);
        strbuf_addc(b, ':');
        json_add_value(b, &json_member(r->kwargs, i)->value);
        strbuf_addc(b, ',');
    }
    if (r->documents) {
        strbuf_adds(b, "\"documents\":");
        json_add_value(b, r->documents);
        strbuf_addc(b, ',');
    }
    if (r->reasoning_effort.n) {
        strbuf_adds(b, "\"reasoning_effort\":");
        json_add_str(b, r->reasoning_effort);
        strbuf_addc(b, ',');
    }
    strbuf_printf(b, "\"tools\":null,\"add_generation_prompt\":%s,\"continue_final_message\":%s,\"messages\":[",
                  r->add_generation_prompt && !r->continue_final_message ? "true" : "false", r->continue_final_message ? "true" : "false");
    for (uint32_t i = 0; i < r->messages->count; i++) {
        if (i) strbuf_addc(b, ',');
        if (!add_message(b, json_at(r->messages, i), i, e)) return false;
    }
    return strbuf_adds(b, "]}"), true;
}

bool openai_chat_object(const struct api_request *r, struct arena *arena, struct str *out, struct api_error *e)
{
    if (!r->messages) return api_error_field(e, "messages", "messages is missing: it must be a list of messages");
    if (!r->messages->count) return api_error_field(e, "messages", "messages is empty: there must be at least one message");
    if (r->continue_final_message && r->add_generation_prompt == 1)
        return api_error_field(e, "continue_final_message", "continue_final_message and add_generation_prompt exclude each other");
    struct strbuf b = {.limit = (size_t)512 << 20};
    bool ok = add_messages(&b, r, e);
    char *copy = ok && !b.failed ? arena_strndup(arena, b.p, b.n) : NULL;
    *out = (struct str){copy, b.n};
    strbuf_free(&b);
    return !ok ? false : copy ? true : api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
}

/* --- the readers ----------------------------------------------------------------------------------------------------------------------------- */

static void init(struct api_request *r, enum api_kind kind)
{
    *r = (struct api_request){.kind = kind, .n = 1, .max_completion_tokens = -1, .add_generation_prompt = -1, .add_special_tokens = true, .skip_special_tokens = true};
    rose_request_init(&r->rose);
    r->rose.sampling.temperature = 1;
}

static bool finish(struct api_request *r, struct arena *arena, struct api_error *e)
{
    if (r->stream_options && !r->stream) return api_error_field(e, "stream_options", "stream_options goes with \"stream\": true");
    r->rose.choices = r->n;
    r->wants_prompt_logprobs = r->rose.prompt_logprobs >= 0;
    r->rose.keep_special = !r->skip_special_tokens;
    if (r->wants_logprobs) r->rose.logprobs = r->top_logprobs;
    if (r->cache_salt.n && !(r->rose.cache_salt = arena_strndup(arena, r->cache_salt.p, r->cache_salt.n))) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    return true;
}

bool openai_chat_read(const struct json *body, struct arena *arena, struct api_request *r, struct api_error *e)
{
    init(r, API_CHAT);
    r->top_logprobs = -1;
    if (!fields_read(chat_fields, ROSE_COUNT(chat_fields), "", body, r, arena, e)) return false;
    if (r->max_completion_tokens >= 0) r->rose.max_tokens = r->max_completion_tokens;
    if (r->rose.max_tokens == 0) return api_error_field(e, "max_tokens", "max_tokens must be at least 1");
    if (r->top_logprobs >= 0 && !r->wants_logprobs) return api_error_field(e, "top_logprobs", "top_logprobs goes with \"logprobs\": true");
    r->top_logprobs = ROSE_MAX(r->top_logprobs, 0);
    r->prompts = ARENA_NEW(arena, struct api_prompt);
    if (!r->prompts) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    r->prompts_count = 1;
    r->prompts->kind = ROSE_REQUEST_CHAT;
    return openai_chat_object(r, arena, &r->prompts->text, e) && finish(r, arena, e);
}

/* A string, strings, token ids, or lists of token ids. */
static bool read_prompts(struct api_request *r, struct arena *arena, struct api_error *e)
{
    const struct json *p = r->prompt;
    if (json_is_null(p)) return api_error_field(e, "prompt", "prompt is missing");
    bool many = p->type == JSON_ARRAY && p->count && json_at(p, 0)->type != JSON_NUMBER;
    if (p->type == JSON_ARRAY && !p->count) return api_error_field(e, "prompt", "prompt is empty: it must have at least one token");
    r->prompts_count = many ? (int)ROSE_MIN(p->count, (uint32_t)API_MAX_CHOICES + 1) : 1;
    if (r->prompts_count * r->n > API_MAX_CHOICES) return api_error_field(e, "prompt", "prompts times n must be at most %d", API_MAX_CHOICES);
    r->prompts = ARENA_ARRAY(arena, struct api_prompt, (size_t)r->prompts_count);
    if (!r->prompts) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
    for (int i = 0; i < r->prompts_count; i++) {
        const struct json *v = many ? json_at(p, i) : p;
        struct api_prompt *to = &r->prompts[i];
        if (v->type == JSON_STRING) {
            *to = (struct api_prompt){.kind = ROSE_REQUEST_TEXT, .text = v->string};
        } else if (v->type == JSON_ARRAY) {
            int32_t *ids;
            to->kind = ROSE_REQUEST_TOKENS;
            if (!api_token_list(v, "prompt", arena, &ids, &to->count, e)) return false;
            to->tokens = ids;
        } else {
            return api_error_field(e, "prompt", "prompt must be a string, a list of strings, a list of token ids, or a list of such lists");
        }
    }
    return true;
}

bool openai_completion_read(const struct json *body, struct arena *arena, struct api_request *r, struct api_error *e)
{
    init(r, API_COMPLETION);
    r->rose.max_tokens = 16; /* OpenAI's default of this route */
    if (!fields_read(completion_fields, ROSE_COUNT(completion_fields), "", body, r, arena, e) || !read_prompts(r, arena, e)) return false;
    if (r->max_completion_tokens >= 0 && r->max_completion_tokens != r->n) return api_error_field(e, "best_of", "best_of other than n is not supported");
    if (r->rose.max_tokens == 0 && !r->echo && r->rose.prompt_logprobs < 0) return api_error_field(e, "max_tokens", "max_tokens 0 goes with echo or prompt_logprobs");
    if (!r->add_special_tokens) r->rose.tokenize_flags |= ROSE_TOKENIZE_NO_SPECIAL;
    if (!finish(r, arena, e)) return false;
    if (r->echo && r->wants_logprobs && r->rose.prompt_logprobs < r->top_logprobs) r->rose.prompt_logprobs = r->top_logprobs;
    return true;
}

/* --- tokenize, detokenize ---------------------------------------------------------------------------------------------------------------------- */

#define TOKENS_AT(member) offsetof(struct api_tokens, member)

static bool read_tokenize_text(void *target, const struct json *v, struct arena *arena, struct api_error *e)
{
    struct api_tokens *t = target;
    (void)arena;
    if (v->type != JSON_STRING) return api_error_field(e, "prompt", "the text must be a string");
    t->text = v->string;
    t->has_text = true;
    return true;
}

bool openai_tokenize_read(const struct json *body, struct arena *arena, struct api_tokens *t, struct api_error *e)
{
    static const struct field table[] = {{"model", FIELD_TEXT, TOKENS_AT(model), 0, 0, NULL, NULL},
                                         {"prompt", FIELD_CALL, 0, 0, 0, NULL, read_tokenize_text},
                                         {"content", FIELD_CALL, 0, 0, 0, NULL, read_tokenize_text},
                                         {"messages", FIELD_ARRAY, TOKENS_AT(messages), 0, 0, NULL, NULL},
                                         {"add_special_tokens", FIELD_BOOL, TOKENS_AT(add_special_tokens), 0, 0, NULL, NULL},
                                         {"add_generation_prompt", FIELD_BOOL, TOKENS_AT(continue_final_message), 0, 0, NULL, NULL},
                                         {"return_token_strs", FIELD_BOOL, TOKENS_AT(return_token_strs), 0, 0, NULL, NULL},
                                         {"chat_template_kwargs", FIELD_OBJECT, TOKENS_AT(kwargs), 0, 0, NULL, NULL}};
    *t = (struct api_tokens){.add_special_tokens = true, .continue_final_message = true}; /* the flag holds add_generation_prompt while reading */
    if (!fields_read(table, ROSE_COUNT(table), "", body, t, arena, e)) return false;
    t->add_generation_prompt = t->continue_final_message;
    t->continue_final_message = false;
    if (t->has_text == (t->messages != NULL)) return api_error_field(e, "prompt", "give either prompt (a text) or messages");
    if (!t->messages) return true;
    struct api_request chat;
    init(&chat, API_CHAT);
    chat.messages = t->messages;
    chat.kwargs = t->kwargs;
    chat.add_generation_prompt = t->add_generation_prompt;
    return openai_chat_object(&chat, arena, &t->text, e);
}

bool openai_detokenize_read(const struct json *body, struct arena *arena, struct api_tokens *t, struct api_error *e)
{
    static const struct field table[] = {{"model", FIELD_TEXT, TOKENS_AT(model), 0, 0, NULL, NULL},
                                         {"tokens", FIELD_ARRAY, TOKENS_AT(tokens), 0, 0, NULL, NULL}};
    *t = (struct api_tokens){0};
    if (!fields_read(table, ROSE_COUNT(table), "", body, t, arena, e)) return false;
    if (!t->tokens) return api_error_field(e, "tokens", "tokens is missing: it must be a list of token ids");
    return api_token_list(t->tokens, "tokens", arena, &t->ids, &t->ids_count, e);
}
