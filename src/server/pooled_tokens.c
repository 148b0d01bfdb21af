/* TEI's /tokenize and /decode: texts to tokens with their places, and back. */
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "base/utf8.h"
#include "server/beside.h"
#include "server/pooled.h"

enum { TEXT_MOST = 256 << 10 }; /* bytes of a call: each token is an object in the answer */

struct tokens_request {
    struct str model, prompt_name;
    const struct json *inputs, *ids;
    bool add_special, skip_special;
    char unknown[200];
};

#define ROW(name, kind, member) {name, kind, offsetof(struct tokens_request, member), 0, 0, NULL, NULL}
static const struct field tokenize_fields[] = {ROW("inputs", FIELD_ANY, inputs), ROW("add_special_tokens", FIELD_BOOL, add_special), ROW("prompt_name", FIELD_TEXT, prompt_name),
                                               ROW("model", FIELD_TEXT, model)};
static const struct field decode_fields[] = {ROW("ids", FIELD_ANY, ids), ROW("skip_special_tokens", FIELD_BOOL, skip_special), ROW("model", FIELD_TEXT, model)};

static bool no_memory(struct api_error *e) { return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory"); }

static struct model *find(struct server *s, struct str name, struct api_error *e)
{
    struct model *m = models_find(&s->models, name, ~(unsigned)ROSE_CAN_GENERATE);
    if (!m) models_missing(&s->models, name, e);
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

/* --- one text ------------------------------------------------------------------------------------------------------------------------------ */

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

static void add_tokens(const struct rose_engine *engine, struct str text, const int32_t *ids, const struct rose_token_span *spans, size_t n, struct strbuf *b)
{
    struct counter c = {text, 0, 0};
    strbuf_addc(b, '[');
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *name = rose_token_text(engine, ids[i], &bytes);
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

static enum rose_status tokenize_one(const struct rose_engine *engine, struct str text, int flags, struct strbuf *b, struct rose_error *err)
{
    size_t room = text.n + 64, count; /* no token is shorter than a byte, but for a few special ones */
    int32_t *ids = malloc(room * sizeof *ids);
    struct rose_token_span *spans = malloc(room * sizeof *spans);
    enum rose_status st = ids && spans ? rose_tokenize(engine, text.p, text.n, flags, ids, room, &count, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK && count > room) st = status_set(err, ROSE_UNSUPPORTED, "the tokenizer makes more tokens of a text than it has bytes");
    if (st == ROSE_OK) st = rose_token_spans(engine, text.p, text.n, flags, ids, count, spans, err);
    if (st == ROSE_OK) add_tokens(engine, text, ids, spans, count, b);
    free(ids);
    free(spans);
    return st;
}

static enum rose_status decode_one(const struct rose_engine *engine, const struct text_input *t, int flags, struct strbuf *b, struct rose_error *err)
{
    struct strbuf text = {0};
    size_t n = 0;
    enum rose_status st = rose_detokenize(engine, t->tokens, t->tokens_count, flags, NULL, 0, &n, err);
    if (st == ROSE_OK && !strbuf_reserve(&text, n + 1)) st = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK) st = rose_detokenize(engine, t->tokens, t->tokens_count, flags, text.p, n, &text.n, err);
    if (st == ROSE_OK) json_add_str(b, strbuf_str(&text));
    strbuf_free(&text);
    return st;
}

/* --- a call ---------------------------------------------------------------------------------------------------------------------------------- */

/* All that the work reads and writes: a thread may be at it when the request is gone. */
struct call {
    struct arena memory;
    struct text_input *inputs; /* texts, or ids */
    int count, flags;
    bool decodes;
    struct strbuf out;
};

static enum rose_status work(void *state, const struct rose_engine *engine, struct rose_error *err)
{
    struct call *c = state;
    enum rose_status st = ROSE_OK;
    strbuf_addc(&c->out, '[');
    for (int i = 0; i < c->count && st == ROSE_OK; i++) {
        if (i) strbuf_addc(&c->out, ',');
        if (stop_asked()) return status_set(err, ROSE_CANCELLED, "nobody waits for it");
        st = c->decodes ? decode_one(engine, &c->inputs[i], c->flags, &c->out, err) : tokenize_one(engine, c->inputs[i].text, c->flags, &c->out, err);
    }
    strbuf_addc(&c->out, ']');
    return st == ROSE_OK && c->out.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : st;
}

static void release(void *state)
{
    struct call *c = state;
    if (!c) return;
    strbuf_free(&c->out);
    arena_free(&c->memory);
    free(c);
}

static struct call *new_call(bool decodes, int flags, int count)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    arena_init(&c->memory, 0);
    c->decodes = decodes;
    c->flags = flags;
    c->count = count;
    if (!(c->inputs = ARENA_ARRAY(&c->memory, struct text_input, (size_t)count + 1))) release(c), c = NULL;
    return c;
}

/* The texts behind the prompt, in the call's own memory. */
static struct call *read_texts(struct server *s, struct httpd_request *http, const struct json *body, struct model **model, size_t *cost, struct api_error *e)
{
    struct tokens_request r = {.add_special = true};
    struct text_input *texts;
    struct str prompt;
    bool single;
    int count;
    if (!fields_read_known(tokenize_fields, ROSE_COUNT(tokenize_fields), "", body, &r, &http->arena, r.unknown, sizeof r.unknown, e)) return NULL;
    pooled_say_unknown(s, http, r.unknown);
    if (!(*model = find(s, r.model, e)) || !find_prompt(*model, r.prompt_name, &prompt, e) || !pooled_read_list(r.inputs, "inputs", false, &http->arena, &texts, &count, &single, e)) return NULL;
    for (int i = 0; i < count; i++) *cost += prompt.n + texts[i].text.n;
    if (*cost > TEXT_MOST) return api_error_set(e, 413, "invalid_request_error", "too_large", "inputs", "inputs have %zu bytes of text; at most %d are taken at once", *cost, TEXT_MOST), NULL;
    struct call *c = new_call(false, (r.add_special ? 0 : ROSE_TOKENIZE_NO_SPECIAL) | (s->options->parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0), count);
    for (int i = 0; c && i < count; i++) {
        struct str t = texts[i].text;
        char *whole = arena_alloc(&c->memory, prompt.n + t.n + 1);
        if (!whole) return release(c), no_memory(e), NULL;
        if (prompt.n) memcpy(whole, prompt.p, prompt.n);
        if (t.n) memcpy(whole + prompt.n, t.p, t.n);
        c->inputs[i] = (struct text_input){.text = {whole, prompt.n + t.n}};
    }
    if (!c) no_memory(e);
    return c;
}

static struct call *read_ids(struct server *s, struct httpd_request *http, const struct json *body, struct model **model, size_t *cost, struct api_error *e)
{
    struct tokens_request r = {.skip_special = true};
    struct text_input *lists;
    bool single;
    int count;
    if (!fields_read_known(decode_fields, ROSE_COUNT(decode_fields), "", body, &r, &http->arena, r.unknown, sizeof r.unknown, e)) return NULL;
    pooled_say_unknown(s, http, r.unknown);
    if (!(*model = find(s, r.model, e))) return NULL;
    if (r.ids && r.ids->type != JSON_ARRAY) return api_error_field(e, "ids", "ids must be a list of token ids, or a list of such lists"), NULL;
    if (!pooled_read_list(r.ids, "ids", true, &http->arena, &lists, &count, &single, e)) return NULL;
    struct call *c = new_call(true, r.skip_special ? ROSE_DETOKENIZE_SKIP_SPECIAL : 0, count);
    if (!c) return no_memory(e), NULL;
    for (int i = 0; i < count; i++) {
        size_t n = lists[i].tokens_count;
        if (!lists[i].tokens) return release(c), api_error_field(e, "ids", "ids must be a list of token ids, or a list of such lists"), NULL;
        int32_t *ids = ARENA_ARRAY(&c->memory, int32_t, n + 1);
        if (!ids) return release(c), no_memory(e), NULL;
        if (n) memcpy(ids, lists[i].tokens, n * sizeof *ids);
        c->inputs[i] = (struct text_input){.tokens = ids, .tokens_count = n};
        *cost += 4 * (n + 4); /* about as many bytes of text, and a list is work too */
    }
    return c;
}

/* --- routes ---------------------------------------------------------------------------------------------------------------------------------- */

/* A request whose call is under way beside the loop; in the request's arena. */
struct waiting {
    struct httpd_request *http;
    struct call *call;
    struct beside_job *job;
};

static void done(void *user, int part, const struct beside_result *result)
{
    struct waiting *w = user;
    struct api_error e = {0};
    (void)part;
    w->http->on_gone = NULL;
    if (result->status == ROSE_OK) httpd_reply(w->http, 200, "application/json", strbuf_str(&w->call->out));
    else if (!api_error_rose(&e, result->status, result->err)) pooled_refuse(w->http, true, &e);
}

static void gone(struct httpd_request *r) { beside_drop(((struct waiting *)r->owner)->job); }

typedef struct call *reader(struct server *s, struct httpd_request *http, const struct json *body, struct model **model, size_t *cost, struct api_error *e);

static void answer(struct server *s, struct httpd_request *http, const struct json *body, reader *read, struct api_error *e)
{
    struct model *m = NULL;
    size_t cost = 0;
    struct waiting *w = ARENA_NEW(&http->arena, struct waiting);
    struct call *c = !body ? NULL : w ? read(s, http, body, &m, &cost, e) : (no_memory(e), NULL);
    if (m) http->log_model = m->name;
    if (!c) {
        pooled_refuse(http, true, e);
        return;
    }
    *w = (struct waiting){.http = http, .call = c};
    http->owner = w;
    if (cost >= BESIDE_BYTES && (w->job = beside_do(&s->models, m, cost, work, c, release, done, w)) != NULL) {
        http->on_gone = gone;
        return;
    }
    struct beside_result result = {0};
    struct rose_error err = {0};
    result.status = work(c, m->engine, &err);
    result.err = &err;
    done(w, 0, &result);
    release(c);
}

void pooled_tokenize_either(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    const struct json *body = pooled_body(http, &e);
    if (json_get(body, "inputs")) answer(s, http, body, read_texts, &e);
    else ops_tokenize(s, http); /* which reads it again: its own form, and its own errors */
}

void pooled_decode(struct server *s, struct httpd_request *http)
{
    struct api_error e = {0};
    answer(s, http, pooled_body(http, &e), read_ids, &e);
}
