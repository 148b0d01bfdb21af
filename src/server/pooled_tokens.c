/* TEI's /tokenize and /decode: texts to tokens with their places, and back. */
#include <stdlib.h>

#include "base/utf8.h"
#include "server/pooled.h"

enum { TEXT_MOST = 256 << 10 }; /* bytes of a call: the event loop does it */

struct tokens_request {
    struct str model, prompt_name;
    const struct json *inputs, *ids;
    bool add_special, skip_special;
};

#define ROW(name, kind, member) {name, kind, offsetof(struct tokens_request, member), 0, 0, NULL, NULL}
static const struct field tokenize_fields[] = {ROW("inputs", FIELD_ANY, inputs), ROW("add_special_tokens", FIELD_BOOL, add_special), ROW("prompt_name", FIELD_TEXT, prompt_name),
                                               ROW("model", FIELD_TEXT, model)};
static const struct field decode_fields[] = {ROW("ids", FIELD_ANY, ids), ROW("skip_special_tokens", FIELD_BOOL, skip_special), ROW("model", FIELD_TEXT, model)};

static bool no_memory(struct api_error *e) { return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory"); }

static struct model *find(struct server *s, struct str name, struct api_error *e)
{
    struct model *m = models_find(&s->models, name, ~(unsigned)ROSE_CAN_GENERATE);
    if (!m) api_error_set(e, 404, "not_found_error", "model_not_found", "model", "there is no model \"%.*s\" here; see /v1/models", (int)ROSE_MIN(name.n, 200), name.p);
    return m;
}

/* What the prompt of that name puts before a text. */
static bool find_prompt(const struct model *m, struct str name, struct str *out, struct api_error *e)
{
    *out = (struct str){"", 0};
    for (int i = 0; name.n && i < m->info.prompts_count; i++)
        if (str_is(name, m->info.prompts[i])) return *out = str_of(m->info.prompt_texts[i]), true;
    return !name.n || api_error_field(e, "prompt_name", "the model has no prompt \"%.*s\"", (int)ROSE_MIN(name.n, 100), name.p);
}

/* --- tokenize ------------------------------------------------------------------------------------------------------------------------------ */

/* Places in characters, as TEI counts them, of places in bytes that never go back. */
struct counter {
    struct str text;
    size_t at, characters;
};

static size_t characters_to(struct counter *c, int64_t byte)
{
    uint32_t cp;
    if (byte < (int64_t)c->at) c->at = c->characters = 0;
    for (; (int64_t)c->at < byte; c->characters++) c->at += utf8_decode((struct str){c->text.p + c->at, c->text.n - c->at}, &cp);
    return c->characters;
}

static void add_tokens(const struct model *m, struct str text, const int32_t *ids, const struct rose_token_span *spans, size_t n, struct strbuf *b)
{
    struct counter c = {text, 0, 0};
    strbuf_addc(b, '[');
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *name = rose_token_text(m->engine, ids[i], &bytes);
        strbuf_printf(b, "%s{\"id\":%d,\"text\":", i ? "," : "", ids[i]);
        if (spans[i].start < 0) {
            json_add_str(b, (struct str){name ? name : "", bytes});
            strbuf_adds(b, ",\"special\":true,\"start\":null,\"stop\":null}");
            continue;
        }
        json_add_str(b, (struct str){text.p + spans[i].start, (size_t)(spans[i].stop - spans[i].start)});
        size_t start = characters_to(&c, spans[i].start);
        struct counter ahead = c; /* the next token may share letters with this one */
        strbuf_printf(b, ",\"special\":false,\"start\":%zu,\"stop\":%zu}", start, characters_to(&ahead, spans[i].stop));
    }
    strbuf_addc(b, ']');
}

static bool tokenize_one(const struct model *m, struct str text, bool add_special, struct strbuf *b, struct api_error *e)
{
    int flags = add_special ? 0 : ROSE_TOKENIZE_NO_SPECIAL;
    size_t room = text.n + 64, count; /* no token is shorter than a byte, but for a few special ones */
    struct rose_error err = {0};
    int32_t *ids = malloc(room * sizeof *ids);
    struct rose_token_span *spans = malloc(room * sizeof *spans);
    enum rose_status st = ids && spans ? rose_tokenize(m->engine, text.p, text.n, flags, ids, room, &count, &err) : status_set(&err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK && count > room) st = status_set(&err, ROSE_UNSUPPORTED, "the tokenizer makes more tokens of a text than it has bytes");
    if (st == ROSE_OK) st = rose_token_spans(m->engine, text.p, text.n, flags, ids, count, spans, &err);
    if (st == ROSE_OK) add_tokens(m, text, ids, spans, count, b);
    free(ids);
    free(spans);
    return st == ROSE_OK || api_error_rose(e, st, &err);
}

static bool tokenize(struct server *s, struct httpd_request *http, const struct json *body, struct strbuf *b, struct api_error *e)
{
    struct tokens_request r = {.add_special = true};
    struct text_input *texts;
    struct str prompt, whole;
    bool single;
    int count;
    size_t bytes = 0;
    if (!fields_read(tokenize_fields, ROSE_COUNT(tokenize_fields), "", body, &r, &http->arena, e)) return false;
    struct model *m = find(s, r.model, e);
    if (!m || !find_prompt(m, r.prompt_name, &prompt, e) || !pooled_read_list(r.inputs, "inputs", false, &http->arena, &texts, &count, &single, e)) return false;
    http->log_model = m->name;
    for (int i = 0; i < count; i++) bytes += prompt.n + texts[i].text.n;
    if (bytes > TEXT_MOST) return api_error_set(e, 413, "invalid_request_error", "too_large", "inputs", "inputs have %zu bytes of text; at most %d are taken at once", bytes, TEXT_MOST);
    strbuf_addc(b, '[');
    for (int i = 0; i < count; i++) {
        whole = texts[i].text;
        char *joined = prompt.n ? arena_printf(&http->arena, "%.*s%.*s", STR_ARG(prompt), STR_ARG(texts[i].text)) : NULL;
        if (prompt.n && !joined) return no_memory(e);
        if (joined) whole = str_of(joined);
        if (i) strbuf_addc(b, ',');
        if (!tokenize_one(m, whole, r.add_special, b, e)) return false;
    }
    strbuf_addc(b, ']');
    return !b->failed || no_memory(e);
}

/* --- decode ---------------------------------------------------------------------------------------------------------------------------------- */

static bool decode_one(const struct model *m, const struct text_input *t, int flags, struct strbuf *b, struct api_error *e)
{
    struct rose_error err = {0};
    struct strbuf text = {0};
    size_t n = 0;
    enum rose_status st = rose_detokenize(m->engine, t->tokens, t->tokens_count, flags, NULL, 0, &n, &err);
    if (st == ROSE_OK && !strbuf_reserve(&text, n + 1)) st = status_set(&err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK) st = rose_detokenize(m->engine, t->tokens, t->tokens_count, flags, text.p, n, &text.n, &err);
    if (st == ROSE_OK) json_add_str(b, strbuf_str(&text));
    strbuf_free(&text);
    return st == ROSE_OK || api_error_rose(e, st, &err);
}

static bool decode(struct server *s, struct httpd_request *http, const struct json *body, struct strbuf *b, struct api_error *e)
{
    struct tokens_request r = {.skip_special = true};
    struct text_input *lists;
    bool single;
    int count;
    if (!fields_read(decode_fields, ROSE_COUNT(decode_fields), "", body, &r, &http->arena, e)) return false;
    struct model *m = find(s, r.model, e);
    if (!m || !pooled_read_list(r.ids, "ids", true, &http->arena, &lists, &count, &single, e)) return false;
    http->log_model = m->name;
    strbuf_addc(b, '[');
    for (int i = 0; i < count; i++) {
        if (!lists[i].tokens) return api_error_field(e, "ids", "ids must be a list of token ids, or a list of such lists");
        if (i) strbuf_addc(b, ',');
        if (!decode_one(m, &lists[i], r.skip_special ? ROSE_DETOKENIZE_SKIP_SPECIAL : 0, b, e)) return false;
    }
    strbuf_addc(b, ']');
    return !b->failed || no_memory(e);
}

/* --- routes ---------------------------------------------------------------------------------------------------------------------------------- */

static void answer(struct server *s, struct httpd_request *http, const struct json *body, bool (*work)(struct server *, struct httpd_request *, const struct json *, struct strbuf *, struct api_error *),
                   struct api_error *e)
{
    struct strbuf b = {0};
    if (body && work(s, http, body, &b, e)) httpd_reply(http, 200, "application/json", strbuf_str(&b));
    else pooled_refuse(http, true, e);
    strbuf_free(&b);
}

void pooled_tokenize_either(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    const struct json *body = pooled_body(http, &e);
    if (json_get(body, "inputs")) answer(s, http, body, tokenize, &e);
    else ops_tokenize(s, http); /* which reads it again: its own form, and its own errors */
}

void pooled_decode(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    answer(s, http, pooled_body(http, &e), decode, &e);
}
