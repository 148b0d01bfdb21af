#define _GNU_SOURCE
#include "server/rpc.h"

#ifdef ROSE_HAVE_GRPC
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/file.h"
#include "server/rpc_accept.h"
#include "server/rpc_api.h"

enum { IN_FLIGHT_MOST = 256 }; /* inferences of one stream; beyond, nothing more is read from it */

struct rpc_message {
    grpc_byte_buffer *buffer;
    size_t bytes;
    struct rpc_message *next;
};

const struct rpc_method rpc_methods[] = {
#define X(name) {"/inference.GRPCInferenceService/" #name, false, false, rpc_##name},
    RPC_INFO_METHODS(X)
#undef X
    {"/inference.GRPCInferenceService/ModelInfer", false, false, rpc_model_infer},
    {"/inference.GRPCInferenceService/ModelStreamInfer", true, false, rpc_stream_infer},
    {"/grpc.health.v1.Health/Check", false, true, rpc_health_check},
    {"/grpc.health.v1.Health/Watch", true, true, rpc_health_watch},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true, false, rpc_reflect},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true, false, rpc_reflect},
};
const int rpc_methods_count = (int)ROSE_COUNT(rpc_methods);

static void pump(struct rpc *r);
static void settle_memory(struct rpc *r);
static void request_call(struct rpc_server *g);

int rpc_status(int http)
{
    switch (http) {
    case 400: return GRPC_STATUS_INVALID_ARGUMENT;
    case 401: return GRPC_STATUS_UNAUTHENTICATED;
    case 404: return GRPC_STATUS_NOT_FOUND;
    case 413: case 429: return GRPC_STATUS_RESOURCE_EXHAUSTED;
    case 501: return GRPC_STATUS_UNIMPLEMENTED;
    case 503: return GRPC_STATUS_UNAVAILABLE;
    default: return http < 500 ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_INTERNAL;
    }
}

static void drop_infers(struct rpc *r)
{
    while (r->infers) rpc_infer_drop(r->infers, true);
}

/* --- what goes out -------------------------------------------------------------------------------------------------------------------- */

void rpc_finish(struct rpc *r, int status, const char *text)
{
    if (r->want_status) return;
    r->want_status = true;
    r->status = status;
    snprintf(r->status_text, sizeof r->status_text, "%.590s", text);
    rpc_wire_clean(r->status_text);
    if (status != GRPC_STATUS_OK) drop_infers(r); /* nobody would hear of them any more */
    pump(r);
}

void rpc_fail(struct rpc *r, const struct api_error *e) { rpc_finish(r, rpc_status(e->status), e->message); }

static void drop_queue(struct rpc *r)
{
    for (struct rpc_message *m = r->out_first, *next; m; m = next) {
        next = m->next;
        rpc_api.grpc_byte_buffer_destroy(m->buffer);
        free(m);
    }
    r->out_first = r->out_last = NULL;
    r->out_bytes = 0;
}

/* The client has left, or reads too slowly. */
static void give_up(struct rpc *r, bool cancel)
{
    r->cancelled = true;
    drop_queue(r);
    drop_infers(r);
    rpc_load_gone(r);
    if (cancel) rpc_api.grpc_call_cancel(r->call, NULL);
}

void rpc_send(struct rpc *r, const ProtobufCMessage *message)
{
    if (r->cancelled || r->want_status || r->too_slow) return;
    size_t n = protobuf_c_message_get_packed_size(message);
    const struct server_options *o = r->server->s->options;
    struct rpc_message *m = calloc(1, sizeof *m);
    if (!m || (r->out_first && r->out_bytes + n > o->output_limit + o->body_limit)) {
        /* Whoever answers is in the middle of it: the end comes with on_closed. */
        free(m);
        r->too_slow = true;
        rpc_api.grpc_call_cancel(r->call, NULL);
        return;
    }
    grpc_slice slice = rpc_api.grpc_slice_malloc(n);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    m->buffer = rpc_api.grpc_raw_byte_buffer_create(&slice, 1);
    m->bytes = n;
    rpc_api.grpc_slice_unref(slice);
    if (r->out_last) r->out_last->next = m;
    else r->out_first = m;
    r->out_last = m;
    r->out_bytes += n;
    r->server->s->bytes_sent += n;
    if (r->method && r->method->stream) pump(r); /* others go out with their status */
}

static void batch(struct rpc *r, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
    r->pending++;
    if (rpc_api.grpc_call_start_batch(r->call, ops, n, tag, NULL) == GRPC_CALL_OK) return;
    /* It never completes: as if it had failed. Only a mistake of ours leads here. */
    r->pending--;
    if (tag == &r->sent) r->sending = false, r->status_sent = true;
    if (tag == &r->received) r->receiving = false;
}

static void pump(struct rpc *r)
{
    grpc_op ops[3];
    size_t n = 0;
    struct rpc_message *m = r->out_first;
    if (!r->call || r->sending || r->status_sent || r->cancelled || (!m && !r->want_status)) return;
    memset(ops, 0, sizeof ops);
    if (!r->head_sent) ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
    r->head_sent = true;
    if (m) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = r->outgoing = m->buffer;
        r->out_first = m->next;
        if (!m->next) r->out_last = NULL;
        r->out_bytes -= m->bytes;
        free(m);
    }
    grpc_slice text = {0};
    if (!r->out_first && r->want_status) {
        text = rpc_api.grpc_slice_from_copied_buffer(r->status_text, strlen(r->status_text));
        ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        ops[n].data.send_status_from_server.status = (grpc_status_code)r->status;
        ops[n++].data.send_status_from_server.status_details = &text;
        r->status_sent = true;
    }
    r->sending = true;
    r->sending_s = httpd_now();
    batch(r, ops, n, &r->sent);
    if (r->status_sent) rpc_api.grpc_slice_unref(text);
}

static void on_sent(struct rpc *r, bool ok)
{
    r->sending = false;
    if (r->outgoing) rpc_api.grpc_byte_buffer_destroy(r->outgoing);
    r->outgoing = NULL;
    if (!ok && !r->cancelled) give_up(r, false);
    pump(r);
    rpc_settle(r);
}

/* --- what comes in -------------------------------------------------------------------------------------------------------------------- */

static void receive(struct rpc *r)
{
    grpc_op op;
    if (r->receiving || r->half_closed || r->cancelled || r->want_status) return;
    if (r->in_flight >= IN_FLIGHT_MOST) return;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &r->incoming;
    r->receiving = true;
    batch(r, &op, 1, &r->received);
}

void rpc_settle(struct rpc *r)
{
    if (!r->call || !r->method || !r->method->stream || r->cancelled) return;
    if (r->half_closed && !r->in_flight && !r->out_first && !r->sending && !r->watches_health) rpc_finish(r, GRPC_STATUS_OK, "");
    else if (r->server->draining && !r->in_flight && !r->out_first && !r->sending) rpc_finish(r, GRPC_STATUS_UNAVAILABLE, "the server is shutting down");
    else receive(r);
}

static void on_received(struct rpc *r, bool ok)
{
    grpc_byte_buffer *b = r->incoming;
    grpc_byte_buffer_reader reader;
    r->receiving = false;
    r->incoming = NULL;
    if (!ok || !b || r->cancelled || r->want_status) {
        r->half_closed = true;
        if (b) rpc_api.grpc_byte_buffer_destroy(b);
        if (r->cancelled) return;
        if (!r->method->stream && !r->want_status) rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "no message came before the client closed its side");
        rpc_settle(r);
        return;
    }
    if (rpc_api.grpc_byte_buffer_reader_init(&reader, b)) {
        grpc_slice all = rpc_api.grpc_byte_buffer_reader_readall(&reader);
        r->method->message(r, (struct str){(const char *)GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all)});
        rpc_api.grpc_slice_unref(all);
        rpc_api.grpc_byte_buffer_reader_destroy(&reader);
    } else {
        rpc_finish(r, GRPC_STATUS_INTERNAL, "the message could not be read");
    }
    rpc_api.grpc_byte_buffer_destroy(b);
    rpc_settle(r);
}

static void on_closed(struct rpc *r, bool ok)
{
    (void)ok;
    if (r->cancelled_flag && !r->cancelled) give_up(r, false);
    if (r->cancelled_flag && !r->status_sent) r->server->s->clients_gone++;
}

static bool slice_is(grpc_slice s, const char *text)
{
    return GRPC_SLICE_LENGTH(s) == strlen(text) && !memcmp(GRPC_SLICE_START_PTR(s), text, strlen(text));
}

static struct str metadata_value(const struct rpc *r, const char *name)
{
    for (size_t i = 0; i < r->metadata.count; i++)
        if (slice_is(r->metadata.metadata[i].key, name))
            return (struct str){(const char *)GRPC_SLICE_START_PTR(r->metadata.metadata[i].value), GRPC_SLICE_LENGTH(r->metadata.metadata[i].value)};
    return (struct str){0};
}

static bool has_key(const struct rpc *r)
{
    const struct keys *k = &r->server->s->keys;
    struct str bearer = metadata_value(r, "authorization"), plain = metadata_value(r, "x-api-key");
    if (bearer.n > 7 && !strncasecmp(bearer.p, "Bearer ", 7)) return keys_match(k, (struct str){bearer.p + 7, bearer.n - 7});
    return plain.n && keys_match(k, plain);
}

static void take_id(struct rpc *r)
{
    struct str id = metadata_value(r, "x-request-id");
    bool ok = id.n && id.n <= HTTP_ID_BYTES;
    for (size_t i = 0; ok && i < id.n; i++) ok = id.p[i] > ' ' && id.p[i] < 127 && id.p[i] != '"' && id.p[i] != '\\';
    if (ok) snprintf(r->id, sizeof r->id, "%.*s", STR_ARG(id));
    else snprintf(r->id, sizeof r->id, "grpc%012llx", (unsigned long long)++r->server->ids);
}

static void on_arrived(struct rpc *r, bool ok)
{
    struct rpc_server *g = r->server;
    grpc_op op;
    g->waiting = NULL;
    if (!ok) return; /* shut down: settle_memory frees it */
    request_call(g);
    g->count++;
    r->next = g->calls;
    if (r->next) r->next->previous = r;
    g->calls = r;
    r->began_s = httpd_now();
    take_id(r);
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &r->cancelled_flag;
    batch(r, &op, 1, &r->closed);
    for (int i = 0; i < rpc_methods_count && !r->method; i++)
        if (slice_is(r->details.method, rpc_methods[i].path)) r->method = &rpc_methods[i];
    if (!r->method) rpc_finish(r, GRPC_STATUS_UNIMPLEMENTED, "there is no such method here");
    else if (g->s->keys.count && !r->method->open && !has_key(r)) rpc_finish(r, GRPC_STATUS_UNAUTHENTICATED, "no valid API key was sent (metadata authorization: Bearer KEY, or x-api-key: KEY)");
    else if (g->count > g->s->options->connections && (r->method->stream || !r->method->open)) rpc_finish(r, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many calls are under way (--max-connections)");
    else if (g->draining && !r->method->open) rpc_finish(r, GRPC_STATUS_UNAVAILABLE, "the server is shutting down");
    else receive(r);
}

/* --- calls -------------------------------------------------------------------------------------------------------------------------------- */

static void log_call(const struct rpc *r)
{
    const struct server *s = r->server->s;
    char path[160];
    if (!r->call || !s->options->log_requests || !s->settings.info || (r->method && r->method->open)) return;
    snprintf(path, sizeof path, "%.*s", (int)ROSE_MIN(GRPC_SLICE_LENGTH(r->details.method), sizeof path - 1), (const char *)GRPC_SLICE_START_PTR(r->details.method));
    struct httpd_request line = {.method = "gRPC", .path = path, .status = r->status, .gone = r->cancelled, .began_s = r->began_s};
    memcpy(line.id, r->id, sizeof line.id);
    log_request(s, &line);
}

/* Free it when nothing is out any more. */
static void settle_memory(struct rpc *r)
{
    struct rpc_server *g = r->server;
    if (r->pending || r->infers || r->load_wait) return;
    log_call(r);
    drop_queue(r);
    if (r->call) {
        if (r->next) r->next->previous = r->previous;
        if (r->previous) r->previous->next = r->next;
        else g->calls = r->next;
        g->count--;
        rpc_api.grpc_call_unref(r->call);
    }
    rpc_api.grpc_call_details_destroy(&r->details);
    rpc_api.grpc_metadata_array_destroy(&r->metadata);
    free(r);
}

static void request_call(struct rpc_server *g)
{
    if (g->draining || g->waiting) return;
    struct rpc *r = calloc(1, sizeof *r);
    if (!r) return; /* looked at again by rpc_run */
    r->server = g;
    r->arrived = (struct rpc_tag){on_arrived, r, false, NULL};
    r->received = (struct rpc_tag){on_received, r, false, NULL};
    r->sent = (struct rpc_tag){on_sent, r, false, NULL};
    r->closed = (struct rpc_tag){on_closed, r, false, NULL};
    rpc_api.grpc_call_details_init(&r->details);
    rpc_api.grpc_metadata_array_init(&r->metadata);
    r->pending = 1;
    g->waiting = r;
    if (rpc_api.grpc_server_request_call(g->server, &r->call, &r->details, &r->metadata, g->cq, g->cq, &r->arrived) == GRPC_CALL_OK) return;
    g->waiting = NULL;
    r->pending = 0;
    settle_memory(r);
}

/* --- the thread and the loop ------------------------------------------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    struct rpc_server *g = arg;
    for (;;) {
        grpc_event e = rpc_api.grpc_completion_queue_next(g->cq, rpc_api.gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (e.type != GRPC_OP_COMPLETE) continue;
        struct rpc_tag *t = e.tag;
        uint64_t one = 1;
        t->ok = e.success;
        t->next = NULL;
        pthread_mutex_lock(&g->lock);
        bool first = !g->done_first;
        if (g->done_last) g->done_last->next = t;
        else g->done_first = t;
        g->done_last = t;
        pthread_mutex_unlock(&g->lock);
        if (first && write(g->fd, &one, sizeof one) < 0) continue; /* full: it is readable already */
    }
}

void rpc_run(struct server *s)
{
    struct rpc_server *g = s->grpc;
    uint64_t n;
    if (!g || read(g->fd, &n, sizeof n) < 0) n = 0;
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    struct rpc_tag *t = g->done_first;
    g->done_first = g->done_last = NULL;
    pthread_mutex_unlock(&g->lock);
    for (struct rpc_tag *next; t; t = next) {
        next = t->next;
        if (!t->rpc) {
            g->down = true;
            continue;
        }
        struct rpc *r = t->rpc;
        r->pending--;
        t->done(r, t->ok);
        settle_memory(r);
    }
    while (g->dead) {
        struct rpc_infer *i = g->dead;
        g->dead = i->next;
        rpc_infer_free(i);
    }
    bool orphans = g->orphans;
    g->orphans = false;
    for (struct rpc *r = orphans ? g->calls : NULL, *after; r; r = after) {
        after = r->next;
        settle_memory(r);
    }
    rpc_health_look(g);
    if (!g->down) request_call(g);
}

void rpc_sweep(struct server *s)
{
    struct rpc_server *g = s->grpc;
    double now = httpd_now();
    if (g) rpc_accept_again();
    for (struct rpc *r = g ? g->calls : NULL; r; r = r->next) {
        if (r->cancelled) continue;
        if (r->sending && now - r->sending_s > s->options->write_s) give_up(r, true);
        else if (r->receiving && !r->method->stream && now - r->began_s > s->options->read_s) rpc_finish(r, GRPC_STATUS_DEADLINE_EXCEEDED, "no message came in time (--read-timeout)");
    }
}

int rpc_fd(const struct server *s) { return s->grpc->fd; }
const char *rpc_address(const struct server *s) { return s->grpc->address; }
int rpc_calls(const struct server *s) { return s->grpc ? s->grpc->count : 0; }
bool rpc_sweeps(const struct server *s) { return s->grpc && (s->grpc->count || rpc_accept_waiting()); }

void rpc_drain(struct server *s)
{
    struct rpc_server *g = s->grpc;
    if (!g || g->draining) return;
    g->draining = true;
    rpc_api.grpc_server_shutdown_and_notify(g->server, g->cq, &g->shutdown);
    rpc_health_look(g);
    for (struct rpc *r = g->calls, *next; r; r = next) {
        next = r->next;
        rpc_settle(r);
    }
}

/* --- open and close ----------------------------------------------------------------------------------------------------------------------- */

static enum rose_status read_pem(const char *path, char **out, struct rose_error *err)
{
    struct arena a;
    struct str text;
    arena_init(&a, 0);
    enum rose_status s = file_read(&a, path, 1 << 20, &text, err);
    if (s == ROSE_OK && !(*out = strndup(text.p, text.n))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    arena_free(&a);
    return s;
}

static enum rose_status listen_on(struct rpc_server *g, struct rose_error *err)
{
    const struct server_options *o = g->s->options;
    grpc_server_credentials *c;
    const char *host = o->host ? o->host : "127.0.0.1";
    if (o->tls_cert) {
        ROSE_TRY(read_pem(o->tls_cert, &g->cert, err));
        ROSE_TRY(read_pem(o->tls_key, &g->key, err));
        grpc_ssl_pem_key_cert_pair pair = {g->key, g->cert};
        c = rpc_api.grpc_ssl_server_credentials_create(NULL, &pair, 1, 0, NULL);
    } else {
        c = rpc_api.grpc_insecure_server_credentials_create();
    }
    snprintf(g->address, sizeof g->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, o->grpc_port);
    int port = c ? rpc_api.grpc_server_add_http2_port(g->server, g->address, c) : 0;
    if (c) rpc_api.grpc_server_credentials_release(c);
    if (!port) return status_set(err, ROSE_IO, "cannot listen on %s for gRPC: the port is in use, or the address is not this machine's%s", g->address, o->tls_cert ? ", or certificate and key do not fit" : "");
    snprintf(g->address, sizeof g->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    if (!rpc_accept_watch(port, o->connections, g->fd)) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return ROSE_OK;
}

static enum rose_status start(struct rpc_server *g, struct rose_error *err)
{
    const struct server_options *o = g->s->options;
    grpc_arg args[] = {{.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.max_receive_message_length", .value.integer = (int)ROSE_MIN(o->body_limit, (size_t)INT32_MAX)},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.max_send_message_length", .value.integer = -1},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.max_concurrent_streams", .value.integer = o->connections},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.max_metadata_size", .value.integer = (int)ROSE_MIN(o->header_limit, (size_t)1 << 20)},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.so_reuseport", .value.integer = 0},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.keepalive_time_ms", .value.integer = 60000},
                       {.type = GRPC_ARG_INTEGER, .key = (char *)"grpc.keepalive_timeout_ms", .value.integer = 20000}};
    grpc_channel_args all = {ROSE_COUNT(args), args};
    g->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->fd < 0) return status_set(err, ROSE_IO, "no descriptors: %s", strerror(errno));
    g->cq = rpc_api.grpc_completion_queue_create_for_next(NULL);
    g->server = rpc_api.grpc_server_create(&all, NULL);
    if (!g->cq || !g->server) return status_set(err, ROSE_NO_MEMORY, "gRPC did not start");
    rpc_api.grpc_server_register_completion_queue(g->server, g->cq, NULL);
    ROSE_TRY(listen_on(g, err));
    rpc_api.grpc_server_start(g->server);
    int failed = pthread_create(&g->thread, NULL, thread_main, g);
    if (failed) return status_set(err, ROSE_IO, "cannot start a thread: %s", strerror(failed));
    g->thread_runs = true;
    request_call(g);
    return ROSE_OK;
}

enum rose_status rpc_open(struct server *s, struct rose_error *err)
{
    ROSE_TRY(rpc_api_load(err));
    struct rpc_server *g = calloc(1, sizeof *g);
    if (!g) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    rpc_api.grpc_init();
    g->s = s;
    g->fd = -1;
    pthread_mutex_init(&g->lock, NULL);
    s->grpc = g;
    return start(g, err);
}

void rpc_close(struct server *s)
{
    struct rpc_server *g = s->grpc;
    if (!g) return;
    if (g->thread_runs) {
        rpc_drain(s);
        for (struct rpc *r = g->calls, *next; r; r = next) {
            next = r->next;
            give_up(r, true);
        }
        rpc_api.grpc_server_cancel_all_calls(g->server);
        for (int i = 0; i < 5000 && (!g->down || g->calls || g->waiting); i++) {
            rpc_run(s);
            usleep(1000);
        }
        rpc_api.grpc_completion_queue_shutdown(g->cq);
        pthread_join(g->thread, NULL);
        rpc_run(s);
    } else if (g->cq && g->server) {
        rpc_api.grpc_server_shutdown_and_notify(g->server, g->cq, &g->shutdown);
        rpc_api.grpc_completion_queue_next(g->cq, rpc_api.gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        rpc_api.grpc_completion_queue_shutdown(g->cq);
        while (rpc_api.grpc_completion_queue_next(g->cq, rpc_api.gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type != GRPC_QUEUE_SHUTDOWN) {}
    }
    if (g->server) rpc_api.grpc_server_destroy(g->server);
    if (g->cq) rpc_api.grpc_completion_queue_destroy(g->cq);
    if (g->fd >= 0) close(g->fd);
    rpc_api.grpc_shutdown();
    rpc_accept_end();
    pthread_mutex_destroy(&g->lock);
    free(g->cert);
    free(g->key);
    free(g);
    s->grpc = NULL;
}
#else
#include "base/status.h"

enum rose_status rpc_open(struct server *s, struct rose_error *err)
{
    (void)s;
    return status_set(err, ROSE_UNSUPPORTED, "this build has no gRPC: install libgrpc-dev, libprotobuf-c-dev and protobuf-c-compiler and build again");
}
int rpc_fd(const struct server *s) { return (void)s, -1; }
void rpc_run(struct server *s) { (void)s; }
void rpc_sweep(struct server *s) { (void)s; }
const char *rpc_address(const struct server *s) { return (void)s, ""; }
void rpc_drain(struct server *s) { (void)s; }
int rpc_calls(const struct server *s) { return (void)s, 0; }
bool rpc_sweeps(const struct server *s) { return (void)s, false; }
void rpc_close(struct server *s) { (void)s; }
#endif
