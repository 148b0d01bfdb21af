/* The routes' tables of fields, and texts of all the shapes that they take. */
#include <stdio.h>

#include "server/api.h"
#include "server/pooled.h"

#define AT(member) offsetof(struct pooled_request, member)
#define ROW(name, kind, member, low, high) {name, kind, AT(member), low, high, NULL, NULL}
#define CALL(name, function) {name, FIELD_CALL, 0, 0, 0, NULL, function}
#define REFUSE(name, why) {name, FIELD_REFUSE, 0, 0, 0, why, NULL}
#define NEUTRAL(name, value, why) {name, FIELD_NEUTRAL, 0, value, 0, why, NULL}
#define IGNORE(name) {name, FIELD_IGNORE, 0, 0, 0, NULL, NULL}

static bool no_memory(struct api_error *e) { return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory"); }

/* --- fields with a form of their own ------------------------------------------------------------------------------------------------ */

static bool read_switch(int *to, const struct json *v, const char *name, struct api_error *e)
{
    if (v->type != JSON_TRUE && v->type != JSON_FALSE) return api_error_field(e, name, "%s must be true or false", name);
    *to = v->type == JSON_TRUE;
    return true;
}
static bool read_normalize(void *t, const struct json *v, struct arena *a, struct api_error *e) { return (void)a, read_switch(&((struct pooled_request *)t)->normalize, v, "normalize", e); }
static bool read_activation(void *t, const struct json *v, struct arena *a, struct api_error *e) { return (void)a, read_switch(&((struct pooled_request *)t)->activation, v, "activation", e); }
static bool read_return_documents(void *t, const struct json *v, struct arena *a, struct api_error *e)
{
    return (void)a, read_switch(&((struct pooled_request *)t)->return_documents, v, "return_documents", e);
}

static bool read_direction(void *target, const struct json *v, struct arena *a, struct api_error *e)
{
    struct pooled_request *r = target;
    struct str s = json_str(v, "");
    (void)a;
    r->left = str_is(s, "Left") || str_is(s, "left");
    return r->left || str_is(s, "Right") || str_is(s, "right") || api_error_field(e, "truncation_direction", "truncation_direction must be \"Left\" or \"Right\"");
}

/* vLLM's: -1 is the longest that the model takes. */
static bool read_truncate_tokens(void *target, const struct json *v, struct arena *a, struct api_error *e)
{
    struct pooled_request *r = target;
    int64_t n = json_int(v, 0);
    (void)a;
    if (v->type != JSON_NUMBER || n < -1 || n == 0 || n > INT32_MAX) return api_error_field(e, "truncate_prompt_tokens", "truncate_prompt_tokens must be -1 or a number of tokens");
    r->truncate = true;
    r->truncate_tokens = (int)n;
    return true;
}

/* Cohere's and NVIDIA's word for a prompt: names of prompts that models have. */
static bool read_input_type(void *target, const struct json *v, struct arena *a, struct api_error *e)
{
    struct pooled_request *r = target;
    struct str s = json_str(v, "");
    (void)a;
    if (v->type != JSON_STRING || !s.n) return api_error_field(e, "input_type", "input_type must be a string");
    r->prompt_name = s;
    return true;
}

/* --- the tables -------------------------------------------------------------------------------------------------------------------------- */

#define COMMON ROW("model", FIELD_TEXT, model, 0, 0), IGNORE("user"), ROW("priority", FIELD_INT, priority, -(1 << 30), 1 << 30), CALL("truncate_prompt_tokens", read_truncate_tokens)
/* Any other field is left out, as TEI does. */
#define TEI ROW("truncate", FIELD_BOOL, truncate, 0, 0), CALL("truncation_direction", read_direction), ROW("model", FIELD_TEXT, model, 0, 0)
#define EMBEDDING                                                                                                                                    \
    ROW("input", FIELD_ANY, input, 0, 0), ROW("encoding_format", FIELD_TEXT, encoding_format, 0, 0), ROW("dimensions", FIELD_INT, dimensions, 1, 1 << 20), \
        ROW("prompt_name", FIELD_TEXT, prompt_name, 0, 0), CALL("input_type", read_input_type), CALL("normalize", read_normalize),                    \
        NEUTRAL("add_special_tokens", 1, "special tokens are always added"), REFUSE("messages", "send texts as input"),                                \
        NEUTRAL("embed_dtype", 0, "values are float32"), NEUTRAL("endianness", 0, "base64 is little-endian")

static const struct field embeddings_fields[] = {COMMON, EMBEDDING};
static const struct field pooling_fields[] = {COMMON, EMBEDDING, ROW("task", FIELD_TEXT, task, 0, 0), CALL("activation", read_activation)};
static const struct field classify_fields[] = {COMMON, ROW("input", FIELD_ANY, input, 0, 0), CALL("activation", read_activation), CALL("use_activation", read_activation)};
static const struct field score_fields[] = {
    COMMON,
    ROW("text_1", FIELD_ANY, input, 0, 0),
    ROW("text_2", FIELD_ANY, other, 0, 0),
    ROW("queries", FIELD_ANY, input, 0, 0),
    ROW("documents", FIELD_ANY, other, 0, 0),
    ROW("instruction", FIELD_TEXT, instruction, 0, 0),
    CALL("activation", read_activation),
    CALL("use_activation", read_activation),
};
static const struct field rerank_fields[] = {
    COMMON,
    ROW("query", FIELD_ANY, query, 0, 0),
    ROW("documents", FIELD_ANY, other, 0, 0),
    ROW("top_n", FIELD_INT, top_n, 1, 1 << 30),
    CALL("return_documents", read_return_documents),
    ROW("instruction", FIELD_TEXT, instruction, 0, 0),
    ROW("truncation", FIELD_BOOL, truncate, 0, 0),
    CALL("activation", read_activation),
    CALL("use_activation", read_activation),
    REFUSE("max_tokens_per_doc", "use truncate_prompt_tokens, which counts query and document"),
    REFUSE("max_chunks_per_doc", "a document is scored whole"),
    REFUSE("rank_fields", "send documents as texts"),
};
static const struct field tei_embed_fields[] = {TEI, ROW("inputs", FIELD_ANY, input, 0, 0), CALL("normalize", read_normalize), ROW("prompt_name", FIELD_TEXT, prompt_name, 0, 0),
                                                ROW("dimensions", FIELD_INT, dimensions, 1, 1 << 20)};
static const struct field tei_other_fields[] = {TEI, ROW("inputs", FIELD_ANY, input, 0, 0), ROW("prompt_name", FIELD_TEXT, prompt_name, 0, 0)};
static const struct field tei_rerank_fields[] = {TEI, ROW("query", FIELD_ANY, query, 0, 0), ROW("texts", FIELD_ANY, other, 0, 0), ROW("raw_scores", FIELD_BOOL, raw_scores, 0, 0),
                                                 ROW("return_text", FIELD_BOOL, return_text, 0, 0)};
static const struct field tei_predict_fields[] = {TEI, ROW("inputs", FIELD_ANY, input, 0, 0), ROW("raw_scores", FIELD_BOOL, raw_scores, 0, 0)};
static const struct field tei_similarity_fields[] = {ROW("inputs", FIELD_OBJECT, input, 0, 0), ROW("parameters", FIELD_OBJECT, parameters, 0, 0), ROW("model", FIELD_TEXT, model, 0, 0)};
static const struct field tei_similarity_inputs[] = {ROW("source_sentence", FIELD_ANY, query, 0, 0), ROW("sentences", FIELD_ANY, other, 0, 0)};
static const struct field tei_similarity_parameters[] = {ROW("truncate", FIELD_BOOL, truncate, 0, 0), CALL("truncation_direction", read_direction), ROW("prompt_name", FIELD_TEXT, prompt_name, 0, 0)};

static const struct { const struct field *fields; size_t count; } tables[POOLED_ROUTES] = {
#define TABLE(t) {t, ROSE_COUNT(t)}
    [POOLED_EMBEDDINGS] = TABLE(embeddings_fields), [POOLED_RERANK] = TABLE(rerank_fields), [POOLED_SCORE] = TABLE(score_fields), [POOLED_CLASSIFY] = TABLE(classify_fields),
    [POOLED_POOLING] = TABLE(pooling_fields), [POOLED_TEI_EMBED] = TABLE(tei_embed_fields), [POOLED_TEI_EMBED_ALL] = TABLE(tei_other_fields),
    [POOLED_TEI_EMBED_SPARSE] = TABLE(tei_other_fields), [POOLED_TEI_RERANK] = TABLE(tei_rerank_fields), [POOLED_TEI_PREDICT] = TABLE(tei_predict_fields),
    [POOLED_TEI_SIMILARITY] = TABLE(tei_similarity_fields),
};

/* --- texts ------------------------------------------------------------------------------------------------------------------------------ */

static bool too_many(const char *field, uint32_t n, struct api_error *e)
{
    return api_error_set(e, 413, "invalid_request_error", "too_large", field, "%s has %u entries; at most %d are taken at once", field, n, TEXTS_MAX);
}

/* "text", or {"text": "..."} */
static bool read_text(const struct json *v, const char *field, struct str *out, struct api_error *e)
{
    if (v->type == JSON_OBJECT && json_is(json_get(v, "text"), JSON_STRING)) v = json_get(v, "text");
    if (v->type != JSON_STRING) return api_error_field(e, field, "%s must be a string", field);
    *out = v->string;
    return true;
}

static bool read_one(const struct json *v, const char *field, struct arena *a, struct text_input *to, struct api_error *e)
{
    int32_t *ids;
    if (v->type != JSON_ARRAY) return read_text(v, field, &to->text, e);
    if (!api_token_list(v, field, a, &ids, &to->tokens_count, e)) return false;
    to->tokens = ids;
    return true;
}

bool pooled_read_list(const struct json *v, const char *field, bool ids, struct arena *a, struct text_input **out, int *count, bool *single, struct api_error *e)
{
    char name[64];
    if (json_is_null(v)) return api_error_field(e, field, "%s is missing", field);
    *single = v->type != JSON_ARRAY || (ids && v->count && json_at(v, 0)->type == JSON_NUMBER);
    if (!*single && !v->count) return api_error_field(e, field, "%s is empty: it must have at least one entry", field);
    if (!*single && v->count > TEXTS_MAX) return too_many(field, v->count, e);
    *count = *single ? 1 : (int)v->count;
    if (!(*out = ARENA_ARRAY(a, struct text_input, (size_t)*count))) return no_memory(e);
    for (int i = 0; i < *count; i++) {
        const struct json *x = *single ? v : json_at(v, i);
        if (*single) snprintf(name, sizeof name, "%.50s", field);
        else snprintf(name, sizeof name, "%.50s[%d]", field, i);
        if (x->type == JSON_ARRAY && !ids) return api_error_field(e, name, "%s must be a string", name);
        if (*single && x->type != JSON_STRING && x->type != JSON_ARRAY && x->type != JSON_OBJECT) return api_error_field(e, name, "%s must be a string or a list of strings%s", name, ids ? " or of token ids" : "");
        if (!read_one(x, name, a, &(*out)[i], e)) return false;
        if ((*out)[i].tokens && !(*out)[i].tokens_count) return api_error_field(e, name, "%s is empty: it must have at least one token", name);
    }
    return true;
}

/* TEI's /predict: "a"; ["a"] and ["a", "b"] are one text and one pair; lists of those are many. */
static bool read_predict(struct pooled_request *r, struct arena *a, struct api_error *e)
{
    const struct json *v = r->input;
    if (json_is_null(v)) return api_error_field(e, "inputs", "inputs is missing");
    if (v->type != JSON_STRING && v->type != JSON_ARRAY && v->type != JSON_OBJECT) return api_error_field(e, "inputs", "inputs must be a string, a pair of strings, or a list of those");
    r->single = v->type != JSON_ARRAY || !v->count || json_at(v, 0)->type != JSON_ARRAY;
    if (v->type == JSON_ARRAY && !v->count) return api_error_field(e, "inputs", "inputs is empty: it must have at least one entry");
    if (!r->single && v->count > TEXTS_MAX) return too_many("inputs", v->count, e);
    r->first_count = r->single ? 1 : (int)v->count;
    if (!(r->first = ARENA_ARRAY(a, struct text_input, (size_t)r->first_count))) return no_memory(e);
    for (int i = 0; i < r->first_count; i++) {
        const struct json *x = r->single ? v : json_at(v, i);
        struct text_input *to = &r->first[i];
        bool list = x->type == JSON_ARRAY;
        if (list && (x->count < 1 || x->count > 2)) return api_error_field(e, "inputs", "inputs[%d] must be a text or a pair of texts", i);
        if (!read_text(list ? json_at(x, 0) : x, "inputs", &to->text, e)) return false;
        if (list && x->count == 2 && !read_text(json_at(x, 1), "inputs", &to->pair, e)) return false;
    }
    return true;
}

static bool read_pairs(struct pooled_request *r, const char *first, const char *second, struct arena *a, struct api_error *e)
{
    bool one, other;
    if (!pooled_read_list(r->query ? r->query : r->input, first, false, a, &r->first, &r->first_count, &one, e)) return false;
    if (!pooled_read_list(r->other, second, false, a, &r->second, &r->second_count, &other, e)) return false;
    if (r->first_count == 1 || r->second_count == 1 || r->first_count == r->second_count) return true;
    return api_error_field(e, first, "%s has %d texts and %s has %d: they must be equally many, or one of them one", first, r->first_count, second, r->second_count);
}

static bool read_similarity(struct pooled_request *r, struct arena *a, struct api_error *e)
{
    if (!r->input) return api_error_field(e, "inputs", "inputs is missing");
    if (!fields_read_known(tei_similarity_inputs, ROSE_COUNT(tei_similarity_inputs), "inputs.", r->input, r, a, r->unknown, sizeof r->unknown, e)) return false;
    if (r->parameters && !fields_read_known(tei_similarity_parameters, ROSE_COUNT(tei_similarity_parameters), "parameters.", r->parameters, r, a, r->unknown, sizeof r->unknown, e)) return false;
    if (r->query && r->query->type != JSON_STRING) return api_error_field(e, "inputs.source_sentence", "inputs.source_sentence must be a string");
    return read_pairs(r, "inputs.source_sentence", "inputs.sentences", a, e);
}

static bool read_encoding(struct pooled_request *r, struct api_error *e)
{
    r->base64 = str_is(r->encoding_format, "base64");
    return r->base64 || !r->encoding_format.n || str_is(r->encoding_format, "float") || api_error_field(e, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
}

bool pooled_read(enum pooled_route route, const struct json *body, struct arena *a, struct pooled_request *r, struct api_error *e)
{
    bool single;
    *r = (struct pooled_request){.route = route, .normalize = -1, .activation = -1, .return_documents = -1, .truncate = r->truncate};
    if (!(pooled_is_tei(route) ? fields_read_known(tables[route].fields, tables[route].count, "", body, r, a, r->unknown, sizeof r->unknown, e)
                               : fields_read(tables[route].fields, tables[route].count, "", body, r, a, e)))
        return false;
    switch (route) {
    case POOLED_EMBEDDINGS: case POOLED_POOLING: return read_encoding(r, e) && pooled_read_list(r->input, "input", true, a, &r->first, &r->first_count, &r->single, e);
    case POOLED_CLASSIFY: return pooled_read_list(r->input, "input", true, a, &r->first, &r->first_count, &single, e);
    case POOLED_TEI_EMBED: case POOLED_TEI_EMBED_ALL: case POOLED_TEI_EMBED_SPARSE: return pooled_read_list(r->input, "inputs", true, a, &r->first, &r->first_count, &r->single, e);
    case POOLED_TEI_PREDICT: return read_predict(r, a, e);
    case POOLED_TEI_SIMILARITY: return read_similarity(r, a, e);
    case POOLED_SCORE:
        if (!json_is_null(json_get(body, "text_1")) && !json_is_null(json_get(body, "queries"))) return api_error_field(e, "queries", "queries and text_1 are two names of one field: send one of them");
        if (!json_is_null(json_get(body, "text_2")) && !json_is_null(json_get(body, "documents"))) return api_error_field(e, "documents", "documents and text_2 are two names of one field: send one of them");
        return read_pairs(r, "text_1", "text_2", a, e);
    default:
        if (r->query && r->query->type == JSON_ARRAY) return api_error_field(e, "query", "query must be a string");
        return read_pairs(r, "query", route == POOLED_RERANK ? "documents" : "texts", a, e);
    }
}
