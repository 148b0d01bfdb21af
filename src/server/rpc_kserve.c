/* ModelInfer and ModelStreamInfer: protobuf to kserve_call and back. */
#ifdef ROSE_HAVE_GRPC
#include <stdio.h>
#include <stdlib.h>

#include "inference.pb-c.h"
#include "server/rpc_api.h"

typedef Inference__ModelInferRequest infer_request;
typedef Inference__InferParameter infer_parameter;

/* --- requests ----------------------------------------------------------------------------------------------------------------------------- */

static struct json parameter_value(const infer_parameter *p)
{
    struct json v = {.type = JSON_NULL};
    switch (p ? p->parameter_choice_case : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM: v.type = p->bool_param ? JSON_TRUE : JSON_FALSE; break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        v = (struct json){.type = JSON_NUMBER, .is_integer = true};
        v.integer = p->int64_param;
        v.number = (double)v.integer;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        v = (struct json){.type = JSON_NUMBER, .is_integer = p->uint64_param <= INT64_MAX};
        v.integer = (int64_t)ROSE_MIN(p->uint64_param, (uint64_t)INT64_MAX);
        v.number = (double)p->uint64_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        v.type = JSON_NUMBER;
        v.number = p->double_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM: v = (struct json){.type = JSON_STRING, .string = str_of(p->string_param)}; break;
    default: break;
    }
    return v;
}

/* A map's entries as a JSON object; the entry types are the same but for their names. */
struct entry { ProtobufCMessage base; char *key; infer_parameter *value; };
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__ParametersEntry), "a map's entry is a key and a value");
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__InferInputTensor__ParametersEntry), "a map's entry is a key and a value");
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry), "a map's entry is a key and a value");

static const struct json *object_of(void *entries, size_t n, struct arena *a)
{
    struct entry **e = entries;
    struct json *o = ARENA_NEW(a, struct json);
    if (!o || !(o->members = ARENA_ARRAY(a, struct json_member, n + 1))) return NULL;
    o->type = JSON_OBJECT;
    o->count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) o->members[i] = (struct json_member){str_of(e[i]->key), parameter_value(e[i]->value)};
    return o;
}

static bool wrong(struct api_error *e, const char *fmt, ...) ROSE_PRINTF(2, 3);
static bool wrong(struct api_error *e, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return api_error_field(e, NULL, "%s", text);
}

static bool no_memory(struct api_error *e) { return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's tensors are too large"); }

/* Typed contents as raw ones. 8- and 16-bit integers travel as 32-bit ones. */
static bool read_contents(const Inference__InferTensorContents *c, struct kserve_tensor *t, struct arena *a, struct api_error *e)
{
    size_t n = 0, bytes = 0, width = kserve_type_bytes(t->type);
    switch (t->type) {
    case KSERVE_BOOL: n = c->n_bool_contents; break;
    case KSERVE_INT8: case KSERVE_INT16: case KSERVE_INT32: n = c->n_int_contents; break;
    case KSERVE_INT64: n = c->n_int64_contents; break;
    case KSERVE_UINT8: case KSERVE_UINT16: case KSERVE_UINT32: n = c->n_uint_contents; break;
    case KSERVE_UINT64: n = c->n_uint64_contents; break;
    case KSERVE_FP32: n = c->n_fp32_contents; break;
    case KSERVE_FP64: n = c->n_fp64_contents; break;
    case KSERVE_BYTES: n = c->n_bytes_contents; break;
    default: return wrong(e, "input '%s': datatype %s needs raw_input_contents", t->name.p, kserve_type_name(t->type));
    }
    if (n != t->elements) return wrong(e, "input '%s': %zu values came, and its shape wants %zu", t->name.p, n, t->elements);
    for (size_t i = 0; i < n; i++) bytes += t->type == KSERVE_BYTES ? 4 + c->bytes_contents[i].len : width;
    char *to = arena_alloc(a, bytes + 8);
    if (!to) return no_memory(e);
    t->data = (struct str){to, bytes};
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;
        if (t->type == KSERVE_BYTES) {
            uint32_t length = (uint32_t)c->bytes_contents[i].len;
            memcpy(to, &length, 4);
            if (length) memcpy(to + 4, c->bytes_contents[i].data, length);
            to += 4 + (size_t)length;
            continue;
        }
        int32_t small = 0;
        bool narrow = width < 4;
        switch (t->type) {
        case KSERVE_BOOL: v = c->bool_contents[i] != 0; break;
        case KSERVE_INT8: case KSERVE_INT16: case KSERVE_INT32:
            small = c->int_contents[i];
            if (narrow && (small < -(1 << (8 * width - 1)) || small >= 1 << (8 * width - 1))) return wrong(e, "input '%s': %d is outside of datatype %s", t->name.p, small, kserve_type_name(t->type));
            v = (uint64_t)(int64_t)small;
            break;
        case KSERVE_UINT8: case KSERVE_UINT16: case KSERVE_UINT32:
            v = c->uint_contents[i];
            if (narrow && v >> 8 * width) return wrong(e, "input '%s': %u is outside of datatype %s", t->name.p, c->uint_contents[i], kserve_type_name(t->type));
            break;
        case KSERVE_INT64: v = (uint64_t)c->int64_contents[i]; break;
        case KSERVE_UINT64: v = c->uint64_contents[i]; break;
        case KSERVE_FP32: memcpy(&v, &c->fp32_contents[i], 4); break;
        default: memcpy(&v, &c->fp64_contents[i], 8); break;
        }
        memcpy(to, &v, width);
        to += width;
    }
    return true;
}

static bool has_contents(const Inference__InferTensorContents *c)
{
    return c && (c->n_bool_contents || c->n_int_contents || c->n_int64_contents || c->n_uint_contents || c->n_uint64_contents || c->n_fp32_contents || c->n_fp64_contents || c->n_bytes_contents);
}

static bool read_input(const infer_request *m, size_t index, size_t *raw, struct arena *a, struct regions *regions, struct kserve_tensor *t, struct api_error *e)
{
    const Inference__ModelInferRequest__InferInputTensor *in = m->inputs[index];
    struct kserve_wanted from = {.type = -1};
    static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    t->name = str_of(in->name);
    int type = kserve_type_find(str_of(in->datatype));
    if (!t->name.n) return wrong(e, "an input has no name");
    if (type < 0) return wrong(e, "input '%.64s': datatype must be BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16 or BYTES", in->name);
    t->type = (enum kserve_type)type;
    if (in->n_shape > KSERVE_RANK) return wrong(e, "input '%.64s' has %zu dimensions; at most %d are taken", in->name, in->n_shape, KSERVE_RANK);
    t->rank = (int)in->n_shape;
    for (int i = 0; i < t->rank; i++) t->shape[i] = in->shape[i];
    if (!kserve_elements(t->shape, t->rank, &t->elements)) return wrong(e, "input '%.64s': its shape has a negative dimension or more than %d elements", in->name, KSERVE_ELEMENTS);
    const struct json *parameters = object_of(in->parameters, in->n_parameters, a);
    if (!parameters) return no_memory(e);
    if (!kserve_read_wanted_parameters(parameters, true, &from, e)) return false;
    if (from.region.n) {
        if (has_contents(in->contents)) return wrong(e, "input '%.64s' has its values in shared memory and in contents", in->name);
        return kserve_read_region(regions, &from, t, a, e) && kserve_check(t, e);
    }
    if (m->n_raw_input_contents) {
        if (has_contents(in->contents)) return wrong(e, "contents field must not be specified when using raw_input_contents for '%.64s'", in->name);
        if (*raw >= m->n_raw_input_contents) return wrong(e, "expected raw_input_contents for input '%.64s': there are only %zu", in->name, m->n_raw_input_contents);
        const ProtobufCBinaryData *d = &m->raw_input_contents[(*raw)++];
        t->data = (struct str){d->data ? (const char *)d->data : "", d->len};
        return kserve_check(t, e);
    }
    return read_contents(in->contents ? in->contents : &none, t, a, e);
}

static bool read_request(const infer_request *m, struct arena *a, struct regions *regions, struct kserve_request *q, struct api_error *e)
{
    size_t raw = 0;
    const struct json *parameters = object_of(m->parameters, m->n_parameters, a);
    *q = (struct kserve_request){.type = -1};
    q->id = str_of(m->id);
    if (!parameters) return no_memory(e);
    if (!kserve_read_parameters(parameters, q, e)) return false;
    if (m->n_inputs > KSERVE_TENSORS || m->n_outputs > KSERVE_TENSORS) return wrong(e, "at most %d inputs and outputs are taken", KSERVE_TENSORS);
    q->inputs_count = (int)m->n_inputs;
    q->wanted_count = (int)m->n_outputs;
    q->inputs = ARENA_ARRAY(a, struct kserve_tensor, m->n_inputs + 1);
    q->wanted = ARENA_ARRAY(a, struct kserve_wanted, m->n_outputs + 1);
    if (!q->inputs || !q->wanted) return no_memory(e);
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!read_input(m, i, &raw, a, regions, &q->inputs[i], e)) return false;
    if (raw != m->n_raw_input_contents) return wrong(e, "%zu raw_input_contents came, and the inputs want %zu", m->n_raw_input_contents, raw);
    for (size_t i = 0; i < m->n_outputs; i++) {
        q->wanted[i] = (struct kserve_wanted){.name = str_of(m->outputs[i]->name), .binary = true, .type = -1};
        const struct json *p = object_of(m->outputs[i]->parameters, m->outputs[i]->n_parameters, a);
        if (!p) return no_memory(e);
        if (!kserve_read_wanted_parameters(p, false, &q->wanted[i], e)) return false;
    }
    return true;
}

/* --- answers ------------------------------------------------------------------------------------------------------------------------------ */

struct output_memory {
    Inference__ModelInferResponse__InferOutputTensor tensor;
    Inference__ModelInferResponse__InferOutputTensor__ParametersEntry entries[3], *list[3];
    infer_parameter values[3];
};

static void add_memory_parameters(struct output_memory *o, const struct kserve_wanted *w, size_t bytes, char *region)
{
    static const char *const keys[] = {"shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"};
    for (int i = 0; i < 3; i++) {
        inference__infer_parameter__init(&o->values[i]);
        inference__model_infer_response__infer_output_tensor__parameters_entry__init(&o->entries[i]);
        o->entries[i].key = (char *)(uintptr_t)keys[i];
        o->entries[i].value = &o->values[i];
        o->list[i] = &o->entries[i];
        o->values[i].parameter_choice_case = i ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    }
    o->values[0].string_param = region;
    o->values[1].int64_param = (int64_t)bytes;
    o->values[2].int64_param = (int64_t)w->offset;
    o->tensor.parameters = o->list;
    o->tensor.n_parameters = 3;
}

static void send_response(struct rpc_infer *i, Inference__ModelInferResponse *m, bool final, const char *error)
{
    Inference__ModelInferResponse__ParametersEntry entry = INFERENCE__MODEL_INFER_RESPONSE__PARAMETERS_ENTRY__INIT, *list[] = {&entry};
    infer_parameter value = INFERENCE__INFER_PARAMETER__INIT;
    Inference__ModelStreamInferResponse outer = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    if (!i->rpc->method->stream) {
        rpc_send(i->rpc, &m->base);
        return;
    }
    value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    value.bool_param = final;
    entry.key = (char *)"triton_final_response";
    entry.value = &value;
    m->parameters = list;
    m->n_parameters = 1;
    outer.infer_response = m;
    if (error) outer.error_message = (char *)(uintptr_t)error;
    rpc_send(i->rpc, &outer.base);
}

static void answer(struct kserve_call *c, const struct kserve_answer *a)
{
    struct rpc_infer *i = c->user;
    struct rpc *r = i->rpc;
    Inference__ModelInferResponse m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    struct arena *arena = &i->http.arena;
    char version[16];
    if (!r) return;
    snprintf(version, sizeof version, "%d", c->model->version);
    m.model_name = c->model->name;
    m.model_version = version;
    m.id = arena_strndup(arena, c->request.id.p ? c->request.id.p : "", c->request.id.n);
    size_t n = (size_t)a->count;
    struct output_memory *o = ARENA_ARRAY(arena, struct output_memory, n + 1);
    Inference__ModelInferResponse__InferOutputTensor **list = ARENA_ARRAY(arena, Inference__ModelInferResponse__InferOutputTensor *, n + 1);
    ProtobufCBinaryData *raw = ARENA_ARRAY(arena, ProtobufCBinaryData, n + 1);
    if (!m.id || !o || !list || !raw) {
        struct api_error e;
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
        c->transport->fail(c, &e);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        struct kserve_tensor *t = &a->outputs[k];
        const struct kserve_wanted *w = a->wanted[k];
        list[k] = &o[k].tensor;
        inference__model_infer_response__infer_output_tensor__init(list[k]);
        list[k]->name = arena_strndup(arena, t->name.p, t->name.n);
        list[k]->datatype = (char *)(uintptr_t)kserve_type_name(t->type);
        list[k]->shape = t->shape;
        list[k]->n_shape = (size_t)t->rank;
        if (w && w->region.n) add_memory_parameters(&o[k], w, t->data.n, arena_strndup(arena, w->region.p, w->region.n));
        else raw[m.n_raw_output_contents++] = (ProtobufCBinaryData){t->data.n, (uint8_t *)(uintptr_t)t->data.p};
    }
    m.outputs = list;
    m.n_outputs = n;
    m.raw_output_contents = raw;
    if (!a->empty || c->request.empty_final) send_response(i, &m, a->final, NULL);
    if (!a->final && r->method->stream && !(a->empty)) return;
    rpc_infer_drop(i, false);
    if (!r->method->stream) rpc_finish(r, GRPC_STATUS_OK, "");
    else rpc_settle(r);
}

static void fail(struct kserve_call *c, const struct api_error *e)
{
    struct rpc_infer *i = c->user;
    struct rpc *r = i->rpc;
    Inference__ModelInferResponse m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    if (!r) return;
    if (r->method->stream) {
        char *id = arena_strndup(&i->http.arena, c->request.id.p ? c->request.id.p : "", c->request.id.n);
        if (id) m.id = id;
        send_response(i, &m, true, e->message);
    }
    rpc_infer_drop(i, false);
    if (!r->method->stream) rpc_fail(r, e);
    else rpc_settle(r);
}

static const struct kserve_transport transport = {answer, fail};

/* --- calls ---------------------------------------------------------------------------------------------------------------------------------- */

/* It is over: gone: its client has left. The memory goes later, when no code runs in it. */
void rpc_infer_drop(struct rpc_infer *i, bool gone)
{
    struct rpc *r = i->rpc;
    if (i->next) i->next->previous = i->previous;
    if (i->previous) i->previous->next = i->next;
    else r->infers = i->next;
    r->in_flight--;
    i->rpc = NULL;
    i->previous = NULL;
    i->next = r->server->dead;
    r->server->dead = i;
    void (*tell)(struct httpd_request *) = i->http.on_gone;
    if (!gone || !tell) return;
    i->http.on_gone = NULL;
    tell(&i->http);
}

void rpc_infer_free(struct rpc_infer *i)
{
    if (i->message) protobuf_c_message_free_unpacked(i->message, NULL);
    strbuf_free(&i->http.out);
    strbuf_free(&i->http.body);
    arena_free(&i->http.arena);
    free(i);
}

static void start(struct rpc *r, struct str data)
{
    struct server *s = r->server->s;
    struct api_error e = {0};
    struct rpc_infer *i = calloc(1, sizeof *i);
    infer_request *m = i ? inference__model_infer_request__unpack(NULL, data.n, (const uint8_t *)data.p) : NULL;
    if (!m) {
        free(i);
        rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "the message is no ModelInferRequest");
        return;
    }
    arena_init(&i->http.arena, 4 * s->options->body_limit + ((size_t)16 << 20));
    snprintf(i->http.id, sizeof i->http.id, "%s", r->id);
    i->http.method = "gRPC";
    i->http.path = r->method->path;
    i->http.began_s = httpd_now();
    i->message = &m->base;
    i->rpc = r;
    i->next = r->infers;
    if (i->next) i->next->previous = i;
    r->infers = i;
    r->in_flight++;
    i->call = (struct kserve_call){.s = s, .http = &i->http, .transport = &transport, .streams = r->method->stream, .user = i};
    if (read_request(m, &i->http.arena, &s->regions, &i->call.request, &e)) kserve_infer(&i->call, str_of(m->model_name), str_of(m->model_version));
    else fail(&i->call, &e);
}

void rpc_model_infer(struct rpc *r, struct str data) { start(r, data); }
void rpc_stream_infer(struct rpc *r, struct str data) { start(r, data); }
#else
typedef int rpc_kserve_is_not_built;
#endif
