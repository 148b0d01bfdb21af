#include "server/fields.h"

#include <stdio.h>
#include <string.h>

static bool set(struct api_error *e, int status, const char *type, const char *code, const char *param, const char *fmt, va_list args) __attribute__((format(printf, 6, 0)));
static bool set(struct api_error *e, int status, const char *type, const char *code, const char *param, const char *fmt, va_list args)
{
    e->status = status;
    e->type = type;
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->message, sizeof e->message, fmt, args);
    return false;
}

bool api_error_set(struct api_error *e, int status, const char *type, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(e, status, type, code, param, fmt, args);
    va_end(args);
    return false;
}

bool api_error_field(struct api_error *e, const char *param, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(e, 400, "invalid_request_error", "invalid_value", param, fmt, args);
    va_end(args);
    return false;
}

/* The engine's sentences about a field begin with its name. */
static const char *named_field(const char *message)
{
    static const char *const names[] = {"stop token", "prompt token", "temperature", "top_p", "top_k", "min_p", "min_tokens", "max_tokens", "logit_bias", "repetition_penalty", "presence_penalty",
                                        "frequency_penalty", "stop", "logprobs", "n "};
    static const char *const params[] = {"stop_token_ids", "prompt", "temperature", "top_p", "top_k", "min_p", "min_tokens", "max_tokens", "logit_bias", "repetition_penalty", "presence_penalty",
                                         "frequency_penalty", "stop", "logprobs", "n"};
    for (size_t i = 0; i < ROSE_COUNT(names); i++)
        if (str_starts(str_of(message), str_of(names[i]))) return params[i];
    if (str_starts(str_of(message), STR("\"messages\"")) || str_starts(str_of(message), STR("chat template"))) return "messages";
    if (str_starts(str_of(message), STR("the prompt"))) return "prompt";
    return NULL;
}

bool api_error_rose(struct api_error *e, enum rose_status status, const struct rose_error *err)
{
    const char *m = err->message[0] ? err->message : rose_status_name(status), *param = named_field(m);
    switch (status) {
    case ROSE_BUSY: return api_error_set(e, 429, "rate_limit_error", "busy", NULL, "%s", m);
    case ROSE_LIMIT: return api_error_set(e, 400, "invalid_request_error", "context_length_exceeded", param, "%s", m);
    case ROSE_NO_MEMORY: return api_error_set(e, 503, "server_error", "no_memory", NULL, "%s", m);
    case ROSE_NOT_FOUND: return api_error_set(e, 404, "not_found_error", NULL, NULL, "%s", m);
    case ROSE_DEVICE: return api_error_set(e, 503, "server_error", "device", NULL, "%s", m);
    case ROSE_CANCELLED: return api_error_set(e, 503, "server_error", "cancelled", NULL, "%s", m);
    case ROSE_INTERNAL: case ROSE_IO: return api_error_set(e, 500, "server_error", NULL, NULL, "%s", m);
    default: return api_error_set(e, 400, "invalid_request_error", "invalid_value", param, "%s", m);
    }
}

static bool wrong_type(struct api_error *e, const char *name, const char *wanted, const struct json *v)
{
    return api_error_field(e, name, "%s must be %s, not %s", name, wanted, json_type_name(v->type));
}

static bool is_neutral(const struct field *f, const struct json *v)
{
    switch (v->type) {
    case JSON_NULL: case JSON_FALSE: return true;
    case JSON_NUMBER: return v->number == f->low;
    case JSON_STRING: case JSON_ARRAY: case JSON_OBJECT: return v->type == JSON_STRING ? v->string.n == 0 : v->count == 0;
    default: return false;
    }
}

static bool read_number(const struct field *f, const char *name, const struct json *v, void *to, struct api_error *e)
{
    bool whole = f->kind == FIELD_INT;
    if (v->type != JSON_NUMBER) return wrong_type(e, name, whole ? "an integer" : "a number", v);
    if (!(v->number >= f->low && v->number <= f->high)) {
        int digits = whole ? 10 : 6;
        return api_error_field(e, name, "%s must lie between %.*g and %.*g", name, digits, f->low, digits, f->high);
    }
    int64_t i = json_int(v, INT64_MIN);
    if (whole && i == INT64_MIN) return api_error_field(e, name, "%s must be an integer", name);
    if (whole) *(int *)to = (int)i;
    else *(float *)to = (float)v->number;
    return true;
}

static bool read_one(const struct field *f, const char *name, const struct json *v, char *target, struct arena *arena, struct api_error *e)
{
    void *to = target + f->offset;
    if (v->type == JSON_NULL || f->kind == FIELD_IGNORE) return true;
    switch (f->kind) {
    case FIELD_REFUSE: return api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", name, "%s is not supported%s%s", name, f->why ? ": " : "", f->why ? f->why : "");
    case FIELD_NEUTRAL:
        return is_neutral(f, v) ||
               api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", name, "%s is not supported%s%s", name, f->why ? ": " : "", f->why ? f->why : "");
    case FIELD_BOOL:
        if (v->type != JSON_TRUE && v->type != JSON_FALSE) return wrong_type(e, name, "true or false", v);
        *(bool *)to = v->type == JSON_TRUE;
        return true;
    case FIELD_INT: case FIELD_NUMBER: return read_number(f, name, v, to, e);
    case FIELD_TEXT:
        if (v->type != JSON_STRING) return wrong_type(e, name, "a string", v);
        *(struct str *)to = v->string;
        return true;
    case FIELD_ARRAY: case FIELD_OBJECT:
        if (v->type != (f->kind == FIELD_ARRAY ? JSON_ARRAY : JSON_OBJECT)) return wrong_type(e, name, f->kind == FIELD_ARRAY ? "a list" : "an object", v);
        *(const struct json **)to = v;
        return true;
    case FIELD_ANY: *(const struct json **)to = v; return true;
    default: return f->call(target, v, arena, e);
    }
}

/* unknown NULL: a field without a row is refused. */
static bool read_fields(const struct field *table, size_t rows, const char *where, const struct json *object, void *target, struct arena *arena, char *unknown, size_t room, struct api_error *e)
{
    if (object->type != JSON_OBJECT) return api_error_field(e, *where ? where : NULL, "the request's body must be a JSON object");
    char name[96];
    for (uint32_t i = 0; i < object->count; i++) {
        struct str key = json_member(object, i)->key;
        snprintf(name, sizeof name, "%s%.*s", where, (int)ROSE_MIN(key.n, 64), key.p);
        size_t row = 0, n = unknown ? strlen(unknown) : 0;
        while (row < rows && !str_is(key, table[row].name)) row++;
        if (row == rows && !unknown) return api_error_set(e, 400, "invalid_request_error", "unknown_parameter", name, "unknown field %s", name);
        if (row == rows) snprintf(unknown + n, room - n, "%s%s", n ? ", " : "", name);
        else if (!read_one(&table[row], name, &json_member(object, i)->value, target, arena, e)) return false;
    }
    return true;
}

bool fields_read(const struct field *table, size_t rows, const char *where, const struct json *object, void *target, struct arena *arena, struct api_error *e)
{
    return read_fields(table, rows, where, object, target, arena, NULL, 0, e);
}

bool fields_read_known(const struct field *table, size_t rows, const char *where, const struct json *object, void *target, struct arena *arena, char *unknown, size_t room, struct api_error *e)
{
    return read_fields(table, rows, where, object, target, arena, unknown, room, e);
}

const char *fields_terminated(struct arena *arena, const char *name, struct str text, struct api_error *e)
{
    if (text.n && memchr(text.p, 0, text.n)) return api_error_field(e, name, "%s has a NUL character (\\u0000), which is not taken there: leave it out", name), NULL;
    const char *copy = arena_strndup(arena, text.n ? text.p : "", text.n);
    if (!copy) api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    return copy;
}
