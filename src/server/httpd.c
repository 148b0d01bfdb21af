#define _GNU_SOURCE
#include "server/httpd.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "server/coding.h"
#include "server/listen.h"

double httpd_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct MHD_Daemon;
struct httpd_connection {
    int fd;
    bool peer_closed;        /* the peer closed its sending side, or all of it */
    double since_s;          /* accepted, or the last request ended */
    struct httpd_request *request;
    struct httpd_connection *next, *previous;
};

struct httpd {
    struct MHD_Daemon *daemon;
    const struct server_options *options;
    struct httpd_handler handler;
    int epoll_fd, listen_fd;
    bool draining;
    char address[256];
    char *tls_cert, *tls_key;
    struct httpd_connection *connections, *graves; /* closed ones that events of this round may still name */
    int connections_count, requests_count;
    struct httpd_request *dirty;
    uint64_t id_high, id_count;
};

/* --- answers --------------------------------------------------------------------------------------------------------------------- */

static void mark_dirty(struct httpd_request *r)
{
    if (r->dirty || !r->http) return; /* without a connection: a batch looks for itself */
    r->dirty = true;
    r->dirty_next = r->http->dirty;
    r->http->dirty = r;
}

void httpd_add_header(struct httpd_request *r, const char *name, const char *value)
{
    if (r->headers_count == HTTP_MAX_HEADERS) return;
    r->headers[r->headers_count].name = name;
    r->headers[r->headers_count++].value = value;
}

void httpd_reply(struct httpd_request *r, int status, const char *type, struct str body)
{
    r->status = status;
    r->type = type;
    r->out.n = r->out_at = 0;
    strbuf_add(&r->out, body.p, body.n);
    r->ended = true;
    mark_dirty(r);
}

void httpd_reply_written(struct httpd_request *r, int status, const char *type)
{
    r->status = status;
    r->type = type;
    r->ended = true;
    mark_dirty(r);
}

void httpd_reply_coded(struct httpd_request *r, int status, const char *type)
{
    enum coding coding = coding_accepted(httpd_header(r, "Accept-Encoding"));
    if (coding_encode(coding, &r->out)) {
        httpd_add_header(r, "Content-Encoding", coding_name(coding));
        httpd_add_header(r, "Vary", "Accept-Encoding");
    }
    httpd_reply_written(r, status, type);
}

void httpd_stream_begin(struct httpd_request *r, int status, const char *type)
{
    r->status = status;
    r->type = type;
    r->stream = true;
    r->wrote_s = httpd_now();
    mark_dirty(r);
}

/* The client has left or is too slow: whoever answers stops, and libmicrohttpd ends the connection when it asks for more. */
static void leave(struct httpd_request *r)
{
    if (r->gone) return;
    r->gone = true;
    void (*tell)(struct httpd_request *) = r->on_gone;
    r->on_gone = NULL;
    if (tell) tell(r);
    mark_dirty(r);
}

void httpd_stream_flush(struct httpd_request *r)
{
    mark_dirty(r);
    if (!r->http) return; /* whoever answers without a connection looks for itself */
    if (!r->out.failed && httpd_pending(r) <= r->http->options->output_limit) return;
    shutdown(r->connection->fd, SHUT_RDWR);
    leave(r);
}

void httpd_stream_end(struct httpd_request *r)
{
    r->ended = true;
    mark_dirty(r);
}

#ifdef ROSE_HAVE_MICROHTTPD
#include <microhttpd.h>

const char *httpd_header(const struct httpd_request *r, const char *name) { return MHD_lookup_connection_value(r->handle, MHD_HEADER_KIND, name); }

const char *httpd_argument(const struct httpd_request *r, const char *name) { return MHD_lookup_connection_value(r->handle, MHD_GET_ARGUMENT_KIND, name); }

static ssize_t on_read(void *user, uint64_t at, char *to, size_t room)
{
    struct httpd_request *r = user;
    (void)at;
    size_t n = ROSE_MIN(httpd_pending(r), room);
    if (r->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n) {
        memcpy(to, r->out.p + r->out_at, n);
        r->out_at += n;
        r->sent += n;
        r->wrote_s = httpd_now();
        if (r->out_at == r->out.n) r->out_at = r->out.n = 0;
        return (ssize_t)n;
    }
    if (r->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    r->suspended = true;
    MHD_suspend_connection(r->handle);
    return 0;
}

static enum MHD_Result queue_response(struct MHD_Connection *handle, unsigned status, struct MHD_Response *m)
{
    static enum MHD_Result (*queue)(struct MHD_Connection *, unsigned, struct MHD_Response *);
    if (!queue) *(void **)&queue = dlsym(RTLD_NEXT, "MHD_queue_response");
    return queue ? queue(handle, status, m) : MHD_NO;
}

static enum MHD_Result send_answer(struct httpd_request *r)
{
    r->phase = HTTP_REPLY;
    struct MHD_Response *m = r->stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, on_read, r, NULL)
                                       : MHD_create_response_from_buffer(r->out.n, r->out.p ? r->out.p : (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!m) return MHD_NO;
    if (!r->stream) r->sent = r->out.n;
    if (r->type) MHD_add_response_header(m, "Content-Type", r->type);
    MHD_add_response_header(m, "X-Request-Id", r->id);
    if (!strncmp(r->path, "/v1/messages", 12)) MHD_add_response_header(m, "request-id", r->id); /* where Anthropic's clients look for it */
    if (r->stream) {
        MHD_add_response_header(m, "Cache-Control", "no-cache");
        MHD_add_response_header(m, "X-Accel-Buffering", "no");
    }
    if (r->http->options->cors_origin) {
        MHD_add_response_header(m, "Access-Control-Allow-Origin", r->http->options->cors_origin);
        MHD_add_response_header(m, "Access-Control-Expose-Headers", "X-Request-Id, request-id, Retry-After, Inference-Header-Content-Length");
        if (strcmp(r->http->options->cors_origin, "*")) MHD_add_response_header(m, "Vary", "Origin");
    }
    for (int i = 0; i < r->headers_count; i++) MHD_add_response_header(m, r->headers[i].name, r->headers[i].value);
    if (r->close || r->http->draining) MHD_add_response_header(m, "Connection", "close");
    enum MHD_Result ok = queue_response(r->handle, (unsigned)r->status, m);
    MHD_destroy_response(m);
    return ok;
}

/* --- what a request's headers must look like ------------------------------------------------------------------------------------------ */

struct header_check {
    const char *wrong;
    int length_count, coding_count, host_count;
    const char *length, *coding;
};

static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c <= ' ' || c >= 127 || strchr("\"(),/:;<=>?@[\\]{}", c)) return false;
    }
    return n > 0;
}

static enum MHD_Result check_header(void *user, enum MHD_ValueKind kind, const char *name, size_t name_bytes, const char *value, size_t value_bytes)
{
    struct header_check *c = user;
    (void)kind;
    if (!is_token(name, name_bytes)) c->wrong = "a header's name has a character that no name may have";
    for (size_t i = 0; i < value_bytes; i++)
        if (((unsigned char)value[i] < 32 && value[i] != '\t') || value[i] == 127) c->wrong = "a header's value has a control character";
    if (!strcasecmp(name, "Content-Length")) c->length_count++, c->length = value ? value : "";
    if (!strcasecmp(name, "Transfer-Encoding")) c->coding_count++, c->coding = value ? value : "";
    if (!strcasecmp(name, "Host")) c->host_count++;
    return MHD_YES;
}

/* RFC 9112, 6.3: what two readers of one message could understand differently is refused, and the connection closed. */
static const char *wrong_framing(struct header_check *c, const char *version)
{
    if (c->wrong) return c->wrong;
    if (c->length_count > 1) return "Content-Length is given more than once";
    if (c->coding_count > 1) return "Transfer-Encoding is given more than once";
    if (c->length_count && c->coding_count) return "both Content-Length and Transfer-Encoding are given";
    if (c->length && (!*c->length || strspn(c->length, "0123456789") != strlen(c->length) || strlen(c->length) > 18)) return "Content-Length is no number";
    if (c->coding && strcasecmp(c->coding, "chunked")) return "Transfer-Encoding is not \"chunked\"";
    if (c->coding && strcmp(version, "HTTP/1.1")) return "Transfer-Encoding needs HTTP/1.1";
    if (c->host_count > 1 || (!c->host_count && !strcmp(version, "HTTP/1.1"))) return "there must be one Host header";
    return NULL;
}

static void refuse(struct httpd_request *r, int status, const char *why)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}", why);
    r->close = r->refused = true;
    httpd_reply(r, status, "application/json", strbuf_str(&b));
    strbuf_free(&b);
}

/* What is taken is told (RFC 7694). */
static void refuse_coding(struct httpd_request *r)
{
    bool some = coding_find("gzip") == CODING_GZIP;
    httpd_add_header(r, "Accept-Encoding", some ? "gzip, deflate" : "identity");
    refuse(r, 415, some ? "Content-Encoding must be gzip or deflate: send the body so, or as it is" : "Content-Encoding is not supported: send the body as it is");
}

/* The whole body is there: undo its coding. */
static void decode_body(struct httpd_request *r)
{
    if (!r->body.n) return;
    switch (coding_decode(coding_find(httpd_header(r, "Content-Encoding")), &r->body)) {
    case CODING_OK: return;
    case CODING_TOO_LARGE: refuse(r, 413, "the request's body, uncompressed, is larger than the limit (--max-body)"); return;
    case CODING_NO_MEMORY: refuse(r, 503, "out of memory"); return;
    default: refuse(r, 400, "the request's body is not what Content-Encoding says"); return;
    }
}

static void check_request(struct httpd_request *r, const char *version)
{
    struct header_check c = {0};
    MHD_get_connection_values_n(r->handle, MHD_HEADER_KIND, check_header, &c);
    const char *wrong = wrong_framing(&c, version), *coding = httpd_header(r, "Content-Encoding");
    if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0")) refuse(r, 505, "HTTP/1.1 is spoken here");
    else if (wrong) refuse(r, 400, wrong);
    else if (c.length && strtoull(c.length, NULL, 10) > r->http->options->body_limit) refuse(r, 413, "the request's body is larger than the limit (--max-body)");
    else if (coding_find(coding) == CODING_UNKNOWN) refuse_coding(r);
}

/* --- requests ---------------------------------------------------------------------------------------------------------------------------- */

static bool usable_id(const char *id)
{
    size_t n = id ? strlen(id) : 0;
    if (n == 0 || n > HTTP_ID_BYTES) return false;
    for (size_t i = 0; i < n; i++)
        if (!((id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'z') || (id[i] >= 'A' && id[i] <= 'Z') || strchr("-_.:", id[i]))) return false;
    return true;
}

static void choose_id(struct httpd *h, struct MHD_Connection *handle, char *to, size_t room)
{
    const char *id = MHD_lookup_connection_value(handle, MHD_HEADER_KIND, "X-Request-Id");
    if (usable_id(id)) snprintf(to, room, "%s", id);
    else snprintf(to, room, "%016llx%08llx", (unsigned long long)h->id_high, (unsigned long long)++h->id_count);
}

static struct httpd_request *request_open(struct httpd *h, struct MHD_Connection *handle, const char *method, const char *url)
{
    struct httpd_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    arena_init(&r->arena, 4 * h->options->body_limit + ((size_t)16 << 20)); /* values of a body take more room than its bytes */
    r->http = h;
    r->handle = handle;
    r->connection = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    r->method = arena_strndup(&r->arena, method, strlen(method));
    r->path = arena_strndup(&r->arena, url, strlen(url));
    r->body.limit = h->options->body_limit;
    r->began_s = httpd_now();
    if (!r->method || !r->path || !r->connection) {
        arena_free(&r->arena);
        free(r);
        return NULL;
    }
    choose_id(h, handle, r->id, sizeof r->id);
    r->connection->request = r;
    h->requests_count++;
    return r;
}

static enum MHD_Result on_access(void *user, struct MHD_Connection *handle, const char *url, const char *method, const char *version, const char *data,
                                 size_t *bytes, void **context)
{
    struct httpd *h = user;
    struct httpd_request *r = *context;
    if (!r) {
        r = *context = request_open(h, handle, method, url);
        if (!r) return MHD_NO;
        check_request(r, version);
        if (!r->status) h->handler.headers(h->handler.user, r);
        return r->status ? send_answer(r) : MHD_YES;
    }
    if (*bytes) {
        /* Beyond the limit (chunked: it was not known before) the rest is dropped, so that the answer can be read. */
        bool endless = r->body.failed && (r->sent += *bytes) > 4 * h->options->body_limit;
        strbuf_add(&r->body, data, *bytes);
        *bytes = 0;
        return endless ? MHD_NO : MHD_YES;
    }
    if (r->phase == HTTP_BODY) {
        r->phase = HTTP_WAIT;
        r->sent = 0;
        if (r->body.failed) refuse(r, 413, "the request's body is larger than the limit (--max-body)");
        else decode_body(r);
        if (!r->status) h->handler.request(h->handler.user, r);
        if (r->connection->peer_closed && !(r->status && r->ended)) leave(r);
    }
    if (r->gone) return MHD_NO;
    if (r->status) return send_answer(r);
    r->suspended = true;
    MHD_suspend_connection(handle);
    return MHD_YES;
}

static void on_completed(void *user, struct MHD_Connection *handle, void **context, enum MHD_RequestTerminationCode code)
{
    struct httpd *h = user;
    struct httpd_request *r = *context;
    (void)handle;
    if (!r) return;
    *context = NULL;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) r->gone = r->gone || !(r->status && r->ended);
    void (*tell)(struct httpd_request *) = r->on_gone;
    r->on_gone = NULL;
    if (tell) tell(r);
    h->handler.completed(h->handler.user, r);
    for (struct httpd_request **p = &h->dirty; r->dirty && *p; p = &(*p)->dirty_next)
        if (*p == r) {
            *p = r->dirty_next;
            break;
        }
    r->connection->request = NULL;
    r->connection->since_s = httpd_now();
    h->requests_count--;
    strbuf_free(&r->body);
    strbuf_free(&r->out);
    arena_free(&r->arena);
    free(r);
}

/* --- what libmicrohttpd refuses by itself ---------------------------------------------------------------------------------------------- */

static struct httpd *the_httpd; /* there is one server a process */

static const char *refusal_text(unsigned status)
{
    switch (status) {
    case 400: return "the request's line, headers or framing are not valid HTTP/1.1; it needs one Host header and a right Content-Length";
    case 413: return "the request's body does not fit into the memory of a connection (--max-headers)";
    case 414: return "the request's line is too long for the memory of a connection (--max-headers)";
    case 431: return "the request's headers are too large for the memory of a connection (--max-headers)";
    case 505: return "HTTP/1.1 is spoken here";
    default: return status < 500 ? "the request is not valid HTTP/1.1" : "the server could not take the request";
    }
}

/* A few hundred bytes into an empty send buffer. What has come and is not read would turn the close into a reset, which can overtake them. */
static bool send_last(int fd, struct str text)
{
    char waste[4096];
    ssize_t sent = send(fd, text.p, text.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    for (int i = 0; i < 256 && recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0; i++) {}
    return sent == (ssize_t)text.n;
}

/* The same through the connection's TLS session, by the library that libmicrohttpd has loaded for it; without one the answer is only the close. */
static bool send_last_tls(struct MHD_Connection *handle, struct str text)
{
    static ssize_t (*put)(void *, const void *, size_t), (*get)(void *, void *, size_t);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    char waste[4096];
    if (!put) *(void **)&put = dlsym(RTLD_DEFAULT, "gnutls_record_send");
    if (!get) *(void **)&get = dlsym(RTLD_DEFAULT, "gnutls_record_recv");
    if (!info || !info->tls_session || !put || !get) return false;
    ssize_t sent = put(info->tls_session, text.p, text.n);
    for (int i = 0; i < 256 && get(info->tls_session, waste, sizeof waste) > 0; i++) {}
    return sent == (ssize_t)text.n;
}

static void send_refusal(struct httpd *h, struct MHD_Connection *handle, int fd, unsigned status)
{
    struct strbuf b = {0}, body = {0};
    struct httpd_request r = {.http = h, .method = "-", .path = "-", .status = (int)status, .began_s = httpd_now()};
    choose_id(h, handle, r.id, sizeof r.id);
    strbuf_printf(&body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}", refusal_text(status), status < 500 || status == 505 ? "invalid_request_error" : "server_error");
    strbuf_printf(&b, "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\n", status, MHD_get_reason_phrase_for(status), r.id);
    if (h->options->cors_origin) strbuf_printf(&b, "Access-Control-Allow-Origin: %s\r\n", h->options->cors_origin);
    strbuf_printf(&b, "Connection: close\r\nContent-Length: %zu\r\n\r\n%s", body.n, body.p ? body.p : "");
    bool sent = !b.failed && (h->tls_cert ? send_last_tls(handle, strbuf_str(&b)) : send_last(fd, strbuf_str(&b)));
    r.sent = sent ? body.n : 0;
    h->handler.completed(h->handler.user, &r);
    strbuf_free(&b);
    strbuf_free(&body);
}

/* The library answers what it cannot parse in HTML and without an id, has no hook for that, and when it does so while it looks at headers writes the
 * answer's head twice. It queues these answers by this function of its own, which a program may define in its place: the answer is written here, and
 * MHD_NO makes the library close the connection. Our own answers go to its function directly. */
__attribute__((visibility("default"))) enum MHD_Result MHD_queue_response(struct MHD_Connection *handle, unsigned status, struct MHD_Response *m)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!the_httpd || !info) return queue_response(handle, status, m);
    send_refusal(the_httpd, handle, info->connect_fd, status);
    return MHD_NO;
}

/* --- connections ------------------------------------------------------------------------------------------------------------------------- */

static void on_connection(void *user, struct MHD_Connection *handle, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct httpd *h = user;
    struct httpd_connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = c = calloc(1, sizeof *c);
        if (!c) return; /* request_open refuses requests of a connection without context */
        c->fd = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->since_s = httpd_now();
        c->next = h->connections;
        if (c->next) c->next->previous = c;
        h->connections = c;
        h->connections_count++;
        struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
        epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
        return;
    }
    if (!c) return;
    *context = NULL;
    epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->previous) c->previous->next = c->next;
    else h->connections = c->next;
    if (c->next) c->next->previous = c->previous;
    h->connections_count--;
    c->fd = -1;
    c->next = h->graves;
    h->graves = c;
}

void httpd_event(struct httpd *h, void *data, unsigned events)
{
    struct httpd_connection *c = data;
    (void)h;
    if (c->fd < 0 || !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    c->peer_closed = true;
    struct httpd_request *r = c->request;
    if (r && r->phase != HTTP_BODY && !(r->status && r->ended && !r->stream)) leave(r);
}

void httpd_flush(struct httpd *h)
{
    for (struct httpd_request *r = h->dirty, *next; r; r = next) {
        next = r->dirty_next;
        r->dirty = false;
        if (!r->suspended || !(r->status || r->gone)) continue;
        r->suspended = false;
        MHD_resume_connection(r->handle);
    }
    h->dirty = NULL;
}

void httpd_run(struct httpd *h)
{
    int before = h->connections_count;
    MHD_run(h->daemon);
    /* At its limit of connections or descriptors the daemon stops to listen, and looks whether it may listen again only when it begins to run. */
    if (h->connections_count < before) MHD_run(h->daemon);
    while (h->graves) {
        struct httpd_connection *next = h->graves->next;
        free(h->graves);
        h->graves = next;
    }
}

void httpd_sweep(struct httpd *h, void (*idle)(void *, struct httpd_request *), void *user)
{
    const struct server_options *o = h->options;
    double now = httpd_now();
    for (struct httpd_connection *c = h->connections; c; c = c->next) {
        struct httpd_request *r = c->request;
        bool late = !r ? now - c->since_s > o->idle_s
                       : r->phase == HTTP_BODY ? now - r->began_s > o->read_s : r->stream && httpd_pending(r) && now - r->wrote_s > o->write_s;
        if (late) {
            shutdown(c->fd, SHUT_RDWR);
            if (r && r->phase != HTTP_BODY) leave(r);
        } else if (r && r->phase != HTTP_BODY && !r->ended && !r->gone && now - ROSE_MAX(r->wrote_s, r->began_s) > o->ping_s) {
            r->wrote_s = now;
            idle(user, r);
        }
    }
}

int httpd_timeout(const struct httpd *h)
{
    unsigned long long ms;
    if (MHD_get_timeout(h->daemon, &ms) != MHD_YES) return -1;
    return ms > 60000 ? 60000 : (int)ms;
}

int httpd_connections(const struct httpd *h) { return h->connections_count; }
int httpd_requests(const struct httpd *h) { return h->requests_count; }
const char *httpd_address(const struct httpd *h) { return h->address; }
void httpd_drain(struct httpd *h) { h->draining = true; }

void httpd_each(struct httpd *h, void (*visit)(void *, struct httpd_request *), void *user)
{
    for (struct httpd_connection *c = h->connections; c; c = c->next)
        if (c->request) visit(user, c->request);
}

/* --- open and close --------------------------------------------------------------------------------------------------------------------- */

static void on_log(void *user, const char *format, va_list args)
{
    /* Peers' mistakes are no news; debuggers set a breakpoint here. */
    (void)user, (void)format, (void)args;
}

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

static enum rose_status start(struct httpd *h, struct rose_error *err)
{
    const struct server_options *o = h->options;
    if (!o->tls_cert != !o->tls_key) return status_set(err, ROSE_INVALID, "--tls-cert and --tls-key go together");
    if (o->tls_cert) ROSE_TRY(read_pem(o->tls_cert, &h->tls_cert, err));
    if (o->tls_key) ROSE_TRY(read_pem(o->tls_key, &h->tls_key, err));
    if (o->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) return status_set(err, ROSE_UNSUPPORTED, "this libmicrohttpd has no TLS");
    ROSE_TRY(listen_open(o, &h->listen_fd, h->address, sizeof h->address, err));
    struct MHD_OptionItem tls[] = {{h->tls_cert ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, h->tls_cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, h->tls_key},
                                   {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (h->tls_cert ? (unsigned)MHD_USE_TLS : 0u);
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)o->connections_per_address,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(o->idle_s + 1), MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->header_limit,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (!h->daemon) return status_set(err, ROSE_IO, "libmicrohttpd did not start%s", o->tls_cert ? ": are --tls-cert and --tls-key a matching pair of PEM files?" : "");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = h};
    if (!info || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &e)) return status_set(err, ROSE_IO, "cannot watch the server's sockets");
    return ROSE_OK;
}

enum rose_status httpd_open(const struct server_options *options, int epoll_fd, const struct httpd_handler *handler, struct httpd **out, struct rose_error *err)
{
    struct httpd *h = calloc(1, sizeof *h);
    if (!h) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    h->options = options;
    h->handler = *handler;
    h->epoll_fd = epoll_fd;
    h->listen_fd = -1;
    if (getrandom(&h->id_high, sizeof h->id_high, 0) != sizeof h->id_high) h->id_high = (uint64_t)(httpd_now() * 1e9);
    *out = the_httpd = h;
    return start(h, err);
}

void httpd_close(struct httpd *h)
{
    if (!h) return;
    /* Suspended connections must be awake when the daemon stops. */
    for (struct httpd_connection *c = h->connections; c; c = c->next)
        if (c->request) leave(c->request);
    httpd_flush(h);
    if (h->daemon) {
        MHD_run(h->daemon);
        MHD_stop_daemon(h->daemon);
    } else if (h->listen_fd >= 0) {
        close(h->listen_fd);
    }
    while (h->graves) {
        struct httpd_connection *next = h->graves->next;
        free(h->graves);
        h->graves = next;
    }
    if (h->options->unix_path && h->daemon) unlink(h->options->unix_path);
    the_httpd = NULL;
    free(h->tls_cert);
    free(h->tls_key);
    free(h);
}
#else
enum rose_status httpd_open(const struct server_options *options, int epoll_fd, const struct httpd_handler *handler, struct httpd **out, struct rose_error *err)
{
    (void)options, (void)epoll_fd, (void)handler, (void)out;
    return status_set(err, ROSE_UNSUPPORTED, "this build has no HTTP server: install libmicrohttpd's development files and build again");
}
void httpd_close(struct httpd *h) { (void)h; }
const char *httpd_address(const struct httpd *h) { return (void)h, ""; }
const char *httpd_header(const struct httpd_request *r, const char *name) { return (void)r, (void)name, NULL; }
const char *httpd_argument(const struct httpd_request *r, const char *name) { return (void)r, (void)name, NULL; }
void httpd_event(struct httpd *h, void *data, unsigned events) { (void)h, (void)data, (void)events; }
void httpd_run(struct httpd *h) { (void)h; }
void httpd_flush(struct httpd *h) { (void)h; }
void httpd_sweep(struct httpd *h, void (*idle)(void *, struct httpd_request *), void *user) { (void)h, (void)idle, (void)user; }
int httpd_timeout(const struct httpd *h) { return (void)h, -1; }
int httpd_connections(const struct httpd *h) { return (void)h, 0; }
int httpd_requests(const struct httpd *h) { return (void)h, 0; }
void httpd_drain(struct httpd *h) { (void)h; }
void httpd_each(struct httpd *h, void (*visit)(void *, struct httpd_request *), void *user) { (void)h, (void)visit, (void)user; }
#endif
