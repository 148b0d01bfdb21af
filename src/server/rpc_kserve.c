/* ModelInfer and ModelStreamInfer: calls and their answers; requests are read by rpc_read.c. */
#ifdef ROSE_HAVE_GRPC
#include <stdio.h>
#include <stdlib.h>

#include "inference.pb-c.h"
#include "server/rpc_api.h"
#include "server/rpc_read.h"

typedef Inference__InferParameter infer_parameter;

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
        char *text = arena_strndup(&i->http.arena, e->message, strlen(e->message));
        if (id) m.id = id;
        if (text) rpc_wire_clean(text);
        send_response(i, &m, true, text ? text : "out of memory");
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
    if (!r->infers && !r->pending) r->server->orphans = true;
    void (*tell)(struct httpd_request *) = i->http.on_gone;
    if (!gone || !tell) return;
    i->http.on_gone = NULL;
    tell(&i->http);
}

void rpc_infer_free(struct rpc_infer *i)
{
    rpc_read_free(i->message);
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
    struct str model, version;
    if (!i || !(i->message = rpc_read_unpack(data, &model, &version))) {
        free(i);
        rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "the message is no ModelInferRequest");
        return;
    }
    arena_init(&i->http.arena, 4 * s->options->body_limit + ((size_t)16 << 20));
    snprintf(i->http.id, sizeof i->http.id, "%s", r->id);
    i->http.method = "gRPC";
    i->http.path = r->method->path;
    i->http.began_s = httpd_now();
    i->rpc = r;
    i->next = r->infers;
    if (i->next) i->next->previous = i;
    r->infers = i;
    r->in_flight++;
    i->call = (struct kserve_call){.s = s, .http = &i->http, .transport = &transport, .streams = r->method->stream, .user = i};
    if (rpc_read(i->message, &i->http.arena, &s->regions, &i->call.request, &e)) kserve_infer(&i->call, model, version);
    else fail(&i->call, &e);
}

void rpc_model_infer(struct rpc *r, struct str data) { start(r, data); }
void rpc_stream_infer(struct rpc *r, struct str data) { start(r, data); }
#else
typedef int rpc_kserve_is_not_built;
#endif
