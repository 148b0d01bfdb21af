/* Text generation through KServe v2: a request's tensors or JSON become the fields of a completion, pieces of text become answers.
 *
 * Names are those of Triton's own text backends: text_input, stream, sampling_parameters (JSON in a text), max_tokens, temperature, ...;
 * text_output. As there, the prompt stands before the answer unless exclude_input_in_output says no or the answer is streamed.
 */
#include <stdio.h>

#include "server/kserve.h"

struct text_call {
    struct kserve_call call; /* first: generate has one without a transport */
    bool stream, echo_known, finish_reason, input_tokens, output_tokens;
};

/* --- what came, as the fields of a completion ------------------------------------------------------------------------------------- */

struct members {
    struct json object;
    struct arena *arena;
    struct text_call *t;
    uint32_t room;
    bool echo;
};

static bool put(struct members *m, const char *name, struct json value, struct api_error *e)
{
    if (m->object.count == m->room) return api_error_field(e, name, "the request has more than %u parameters", m->room);
    m->object.members[m->object.count++] = (struct json_member){str_of(name), value};
    return true;
}

static bool flag(const struct json *v, const char *name, bool *out, struct api_error *e)
{
    if (v->type != JSON_TRUE && v->type != JSON_FALSE) return api_error_field(e, name, "%s must be true or false", name);
    *out = v->type == JSON_TRUE;
    return true;
}

static bool put_object(struct members *m, const struct json *object, int depth, struct api_error *e);

/* {"temperature": 0.5, ...} as a text. */
static bool put_sampling(struct members *m, const struct json *v, struct api_error *e)
{
    const struct json *object = v;
    struct rose_error err = {0};
    if (v->type == JSON_STRING && json_parse(m->arena, NULL, v->string, &object, &err) != ROSE_OK)
        return api_error_field(e, "sampling_parameters", "sampling_parameters is no JSON: %.300s", err.message);
    if (object->type != JSON_OBJECT) return api_error_field(e, "sampling_parameters", "sampling_parameters must be a JSON object");
    return put_object(m, object, 1, e);
}

static bool put_one(struct members *m, struct str key, const struct json *v, int depth, struct api_error *e)
{
    static const struct { const char *from, *to; } names[] = {{"text_input", "prompt"}, {"stop_words", "stop"}, {"random_seed", "seed"}};
    static const char *const ignored[] = {"id", "priority", "timeout", "sequence_id", "sequence_start", "sequence_end", "binary_data_output",
                                          "triton_enable_empty_final_response", "output_datatype"};
    struct text_call *t = m->t;
    if (v->type == JSON_NULL) return true;
    for (size_t i = 0; i < ROSE_COUNT(ignored); i++)
        if (str_is(key, ignored[i])) return true; /* read elsewhere */
    if ((str_is(key, "bad_words") || str_is(key, "stop_words")) && v->type == JSON_STRING && !v->string.n) return true; /* TensorRT-LLM's clients: none */
    if (str_is(key, "stream")) return flag(v, "stream", &t->stream, e);
    if (str_is(key, "return_finish_reason")) return flag(v, "return_finish_reason", &t->finish_reason, e);
    if (str_is(key, "return_num_input_tokens")) return flag(v, "return_num_input_tokens", &t->input_tokens, e);
    if (str_is(key, "return_num_output_tokens")) return flag(v, "return_num_output_tokens", &t->output_tokens, e);
    if (str_is(key, "exclude_input_in_output")) {
        bool exclude = false;
        t->echo_known = true;
        if (!flag(v, "exclude_input_in_output", &exclude, e)) return false;
        m->echo = !exclude;
        return true;
    }
    if (depth == 0 && str_is(key, "parameters")) {
        if (v->type != JSON_OBJECT) return api_error_field(e, "parameters", "parameters must be an object");
        return put_object(m, v, 1, e);
    }
    if (depth == 0 && str_is(key, "sampling_parameters")) return put_sampling(m, v, e);
    if (str_is(key, "model") || str_is(key, "prompt") || str_is(key, "echo") || str_is(key, "logprobs") || str_is(key, "prompt_logprobs") || str_is(key, "stream_options"))
        return api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", NULL, "%.*s is not supported here", STR_ARG(key));
    for (size_t i = 0; i < ROSE_COUNT(names); i++)
        if (str_is(key, names[i].from)) return put(m, names[i].to, *v, e);
    char *name = arena_strndup(m->arena, key.p, key.n);
    return name ? put(m, name, *v, e) : api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
}

static bool put_object(struct members *m, const struct json *object, int depth, struct api_error *e)
{
    for (uint32_t i = 0; i < object->count; i++)
        if (!put_one(m, json_member(object, i)->key, &json_member(object, i)->value, depth, e)) return false;
    return true;
}

static struct json tensor_value(const struct kserve_tensor *t, struct str *rest, size_t i)
{
    struct json v = {.type = JSON_NUMBER};
    if (t->type == KSERVE_BYTES) return (struct json){.type = JSON_STRING, .string = kserve_next_bytes(rest)};
    if (t->type == KSERVE_BOOL) return (struct json){.type = t->data.p[i] ? JSON_TRUE : JSON_FALSE};
    double x = kserve_number(t, i);
    v.number = x;
    if (t->type >= KSERVE_FP16) return v;
    v.is_integer = true;
    int64_t whole = 0;
    memcpy(&whole, t->data.p + i * kserve_type_bytes(t->type), kserve_type_bytes(t->type));
    v.integer = t->type == KSERVE_UINT64 || t->type == KSERVE_INT64 ? whole : (int64_t)x;
    v.number = (double)v.integer;
    return v;
}

static bool put_tensor(struct members *m, const struct kserve_tensor *t, struct api_error *e)
{
    struct str rest = t->data;
    bool list = str_is(t->name, "stop_words") || str_is(t->name, "stop");
    struct json v = {.type = JSON_ARRAY};
    if (!list) {
        v = tensor_value(t, &rest, 0);
    } else {
        v.count = (uint32_t)t->elements;
        v.items = ARENA_ARRAY(m->arena, struct json, t->elements + 1);
        if (!v.items) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory");
        for (size_t i = 0; i < t->elements; i++) v.items[i] = tensor_value(t, &rest, i);
    }
    return put_one(m, t->name, &v, 0, e);
}

/* Triton's generate takes a value or a list of one. */
static void unwrap(struct members *m)
{
    for (uint32_t i = 0; i < m->object.count; i++) {
        struct json *v = &m->object.members[i].value;
        if (v->type == JSON_ARRAY && v->count == 1 && !str_is(m->object.members[i].key, "stop")) *v = *json_at(v, 0);
    }
}

static void rename_field(struct api_error *e)
{
    char rest[1000];
    if (strcmp(e->param, "prompt")) return;
    snprintf(e->param, sizeof e->param, "text_input");
    if (strncmp(e->message, "prompt ", 7)) return;
    snprintf(rest, sizeof rest, "%s", e->message + 7);
    snprintf(e->message, sizeof e->message, "text_input %s", rest);
}

/* The completion that the members describe. */
static struct api_request *finish_request(struct members *m, const struct model *model, const struct kserve_request *q, struct api_error *e)
{
    struct text_call *t = m->t;
    struct api_request *r = ARENA_NEW(m->arena, struct api_request);
    unwrap(m);
    const struct json *prompt = json_get(&m->object, "prompt");
    if (!prompt || prompt->type != JSON_STRING) return api_error_field(e, "text_input", "text_input is missing: it must be one text"), NULL;
    bool echo = t->echo_known ? m->echo : !t->stream;
    if (!r) return api_error_set(e, 503, "server_error", NULL, NULL, "out of memory"), NULL;
    if (!put(m, "echo", (struct json){.type = echo ? JSON_TRUE : JSON_FALSE}, e) || !put(m, "stream", (struct json){.type = t->stream ? JSON_TRUE : JSON_FALSE}, e)) return NULL;
    if (!openai_completion_read(&m->object, m->arena, r, e)) return rename_field(e), NULL;
    if (t->stream && r->n > 1) return api_error_field(e, "n", "n must be 1 where the answer is streamed"), NULL;
    r->rose.priority = kserve_map_priority(model, q->priority);
    r->rose.deadline_ms = q->timeout_us ? q->timeout_us / 1000 + 1 : 0;
    return r;
}

static bool members_init(struct members *m, struct arena *arena, struct text_call *t, uint32_t room)
{
    *m = (struct members){.object = {.type = JSON_OBJECT}, .arena = arena, .t = t, .room = room};
    m->object.members = ARENA_ARRAY(arena, struct json_member, room);
    return m->object.members != NULL;
}

/* --- answers as tensors ------------------------------------------------------------------------------------------------------------- */

static void add_bytes(struct strbuf *b, struct str s)
{
    uint32_t n = (uint32_t)s.n;
    strbuf_add(b, &n, 4); /* little-endian, as the machine is */
    strbuf_add(b, s.p, s.n);
}

static bool named(const struct kserve_request *q, const char *name)
{
    for (int i = 0; i < q->wanted_count; i++)
        if (str_is(q->wanted[i].name, name)) return true;
    return false;
}

static const char *reason_name(enum rose_finish f) { return f == ROSE_FINISH_STOP ? "stop" : "length"; }

/* text NULL: each choice's own. finished: with why and how much. */
static void deliver_text(struct generation *g, const struct str *text, bool finished, bool final)
{
    struct text_call *t = g->user;
    struct arena *a = &g->http->arena;
    struct kserve_tensor out[4], *o = out;
    struct strbuf texts = {0}, reasons = {0};
    struct usage u = generation_usage(g);
    int n = text ? 1 : g->choices_count;
    for (int i = 0; i < n; i++) {
        add_bytes(&texts, text ? *text : strbuf_str(&g->choices[i].text));
        add_bytes(&reasons, str_of(finished ? reason_name(g->choices[i].finish) : ""));
    }
    char *copy = texts.failed ? NULL : arena_strndup(a, texts.p, texts.n), *copy2 = reasons.failed ? NULL : arena_strndup(a, reasons.p, reasons.n);
    uint32_t *counts = arena_alloc(a, 8);
    struct api_error e;
    if (!copy || !copy2 || !counts) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
        t->call.transport->fail(&t->call, &e);
    } else {
        counts[0] = (uint32_t)u.prompt;
        counts[1] = (uint32_t)(u.completion ? u.completion : g->choices[0].completion_tokens);
        *o++ = (struct kserve_tensor){STR("text_output"), KSERVE_BYTES, 1, {n}, (size_t)n, {copy, texts.n}};
        if (t->finish_reason) *o++ = (struct kserve_tensor){STR("finish_reason"), KSERVE_BYTES, 1, {n}, (size_t)n, {copy2, reasons.n}};
        if (t->input_tokens) *o++ = (struct kserve_tensor){STR("num_input_tokens"), KSERVE_UINT32, 1, {1}, 1, {(char *)counts, 4}};
        if (t->output_tokens) *o++ = (struct kserve_tensor){STR("num_output_tokens"), KSERVE_UINT32, 1, {1}, 1, {(char *)(counts + 1), 4}};
        kserve_deliver(&t->call, out, (int)(o - out), final);
    }
    strbuf_free(&texts);
    strbuf_free(&reasons);
}

static void tensor_reply(struct generation *g) { deliver_text(g, NULL, true, true); }
static void tensor_fail(struct generation *g, const struct api_error *e)
{
    struct kserve_call *c = g->user;
    c->transport->fail(c, e);
}
static void tensor_piece(struct generation *g, int choice)
{
    struct str text = strbuf_str(&g->choices[choice].text);
    deliver_text(g, &text, false, false);
}
static void nothing(struct generation *g, int choice) { (void)g, (void)choice; }
static void no_ping(struct generation *g) { (void)g; }
static void tensor_finish(struct generation *g)
{
    struct text_call *t = g->user;
    if (t->finish_reason || t->input_tokens || t->output_tokens) deliver_text(g, &(struct str){"", 0}, true, !t->call.request.empty_final);
    if (!g->http) return;
    t->call.transport->answer(&t->call, &(struct kserve_answer){.final = true, .empty = true});
}
static void refusal(const struct api_error *e, const char *id, struct strbuf *out)
{
    (void)id;
    kserve_add_error(e, out);
}
static const struct writer tensor_writer = {.piece = tensor_piece, .finish_choice = nothing, .finish = tensor_finish, .error = tensor_fail, .ping = no_ping, .reply = tensor_reply,
                                            .fail = tensor_fail, .refusal = refusal};

void kserve_text_infer(struct kserve_call *c)
{
    struct text_call *t = ARENA_NEW(&c->http->arena, struct text_call);
    struct members m;
    struct api_error e = {0};
    const struct kserve_request *q = &c->request;
    struct api_request *r = NULL;
    uint32_t room = (uint32_t)q->inputs_count + (q->parameters ? q->parameters->count : 0) + 80;
    if (!t || !members_init(&m, &c->http->arena, t, room)) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
        c->transport->fail(c, &e);
        return;
    }
    t->call = *c;
    bool ok = !q->parameters || put_object(&m, q->parameters, 1, &e);
    for (int i = 0; ok && i < q->inputs_count; i++) ok = put_tensor(&m, &q->inputs[i], &e);
    t->finish_reason |= named(q, "finish_reason");
    t->input_tokens |= named(q, "num_input_tokens");
    t->output_tokens |= named(q, "num_output_tokens");
    if (ok) r = finish_request(&m, c->model, q, &e);
    if (r && t->stream && !c->streams) {
        api_error_set(&e, 400, "invalid_request_error", "unsupported_parameter", "stream",
                      "an answer in pieces has no place in infer: use generate_stream, or ModelStreamInfer over gRPC, or leave stream out");
        r = NULL;
    }
    if (r) generation_submit(&c->s->models, c->http, c->model, r, &tensor_writer, t);
    else c->transport->fail(c, &e);
}

/* --- generate, generate_stream -------------------------------------------------------------------------------------------------------- */

static void add_head(const struct generation *g, struct strbuf *b)
{
    const struct text_call *t = g->user;
    strbuf_adds(b, "{");
    if (t->call.request.id.n) {
        strbuf_adds(b, "\"id\":");
        json_add_str(b, t->call.request.id);
        strbuf_addc(b, ',');
    }
    strbuf_adds(b, "\"model_name\":");
    json_add_str(b, str_of(g->model->name));
    strbuf_printf(b, ",\"model_version\":\"%d\"", g->model->version);
}

/* An output's name and a colon. */
static void add_key(const struct generation *g, const char *output, struct strbuf *b)
{
    strbuf_addc(b, ',');
    json_add_str(b, str_of(kserve_map_name(g->model, output)));
    strbuf_addc(b, ':');
}

static void add_facts(const struct generation *g, struct strbuf *b)
{
    const struct text_call *t = g->user;
    struct usage u = generation_usage(g);
    if (t->finish_reason) add_key(g, "finish_reason", b), json_add_str(b, str_of(reason_name(g->choices[0].finish)));
    if (t->input_tokens) add_key(g, "num_input_tokens", b), strbuf_printf(b, "%d", u.prompt);
    if (t->output_tokens) add_key(g, "num_output_tokens", b), strbuf_printf(b, "%d", u.completion);
}

static void generate_whole(struct generation *g, struct strbuf *b)
{
    add_head(g, b);
    add_key(g, "text_output", b);
    if (g->choices_count > 1) strbuf_addc(b, '[');
    for (int i = 0; i < g->choices_count; i++) {
        if (i) strbuf_addc(b, ',');
        json_add_str(b, strbuf_str(&g->choices[i].text));
    }
    if (g->choices_count > 1) strbuf_addc(b, ']');
    add_facts(g, b);
    strbuf_addc(b, '}');
}

static void event_piece(struct generation *g, int choice)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_adds(b, "data: ");
    add_head(g, b);
    add_key(g, "text_output", b);
    json_add_str(b, strbuf_str(&g->choices[choice].text));
    strbuf_adds(b, "}\n\n");
}

static void event_finish(struct generation *g)
{
    struct text_call *t = g->user;
    struct strbuf *b = httpd_stream(g->http);
    if (!t->finish_reason && !t->input_tokens && !t->output_tokens) return;
    strbuf_adds(b, "data: ");
    add_head(g, b);
    add_key(g, "text_output", b);
    strbuf_adds(b, "\"\"");
    add_facts(g, b);
    strbuf_adds(b, "}\n\n");
}

static void event_error(struct generation *g, const struct api_error *e)
{
    struct strbuf *b = httpd_stream(g->http);
    strbuf_adds(b, "data: ");
    kserve_add_error(e, b);
    strbuf_adds(b, "\n\n");
}

static void event_ping(struct generation *g) { strbuf_adds(httpd_stream(g->http), ": ping\n\n"); }

/* A stream of one event: what was not asked to come in pieces. */
static void event_reply(struct generation *g)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "data: ");
    generate_whole(g, &b);
    strbuf_adds(&b, "\n\n");
    httpd_reply(g->http, 200, "text/event-stream; charset=utf-8", strbuf_str(&b));
    strbuf_free(&b);
}

static const struct writer generate_writer = {.whole = generate_whole, .refusal = refusal};
static const struct writer event_writer = {.piece = event_piece, .finish_choice = nothing, .finish = event_finish, .error = event_error, .ping = event_ping, .reply = event_reply,
                                           .refusal = refusal};

static struct api_request *read_generate(struct text_call *t, const struct model *model, struct httpd_request *http, bool stream, struct api_error *e)
{
    const struct json *body;
    struct rose_error err = {0};
    struct members m;
    enum rose_status s = json_parse(&http->arena, NULL, strbuf_str(&http->body), &body, &err);
    if (s != ROSE_OK) return api_error_set(e, s == ROSE_NO_MEMORY ? 413 : 400, "invalid_request_error", "invalid_json", NULL, "failed to parse the request JSON buffer: %.400s", err.message), NULL;
    if (body->type != JSON_OBJECT) return api_error_field(e, NULL, "the request must be a JSON object"), NULL;
    const struct json *id = json_get(body, "id"), *parameters = json_get(body, "parameters");
    if (!json_is_null(id) && id->type != JSON_STRING) return api_error_field(e, "id", "id must be a string"), NULL;
    if (!members_init(&m, &http->arena, t, body->count + (json_is(parameters, JSON_OBJECT) ? parameters->count : 0) + 80))
        return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values"), NULL;
    t->stream = stream;
    if (!kserve_read_parameters(json_is(parameters, JSON_OBJECT) ? parameters : NULL, &t->call.request, e)) return NULL;
    t->call.request.id = json_str(id, "");
    for (uint32_t i = 0; i < body->count; i++) { /* keys are names of tensors */
        struct str key = kserve_map_input(model, json_member(body, i)->key);
        if (key.p && !put_one(&m, key, &json_member(body, i)->value, 0, e)) return NULL;
    }
    if (t->stream && !stream) return api_error_field(e, "stream", "generate gives one answer: use generate_stream for one in pieces"), NULL;
    return finish_request(&m, model, &t->call.request, e);
}

void kserve_generate(struct server *s, struct httpd_request *http, struct str name, struct str version, bool stream)
{
    struct api_error e = {0};
    struct model *model = kserve_find(s, name, version, &e);
    struct text_call *t = ARENA_NEW(&http->arena, struct text_call);
    struct api_request *r = NULL;
    if (model && !t) api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
    else if (model && kserve_kind(model) != KSERVE_TEXT)
        api_error_set(&e, 400, "invalid_request_error", NULL, NULL, "model '%s' generates no text: use infer", model->name);
    else if (model) r = read_generate(t, model, http, stream, &e);
    if (r) generation_submit(&s->models, http, model, r, stream ? &event_writer : &generate_writer, t);
    else kserve_refuse(http, &e);
}
