/* HTTP/1.1 by libmicrohttpd: connections and their limits, requests with whole bodies, replies and streams.
 *
 * Why libmicrohttpd: it refuses before a body is read, bounds memory a connection, tells of every connection's beginning and end, and runs
 * inside our own epoll loop. What it does not see, a peer that leaves while its connection is suspended, comes from EPOLLRDHUP on the same
 * socket. A peer that closes its sending side counts as gone: TCP cannot tell it from one that left.
 *
 * A request's life:  BODY -> handler -> WAIT (suspended) -> REPLY (whole, or a stream that sleeps suspended while it has nothing to send)
 */
#ifndef ROSE_SERVER_HTTPD_H
#define ROSE_SERVER_HTTPD_H

#include "base/arena.h"
#include "base/str.h"
#include "server/server.h"

struct httpd;
struct httpd_connection;
struct MHD_Connection;

enum httpd_phase { HTTP_BODY, HTTP_WAIT, HTTP_REPLY };
enum { HTTP_MAX_HEADERS = 16, HTTP_ID_BYTES = 64 };

struct httpd_request {
    struct httpd *http;
    struct httpd_connection *connection;
    struct MHD_Connection *handle;
    struct arena arena;       /* for the handler; ends with the request */
    const char *method, *path;
    struct strbuf body;
    char id[HTTP_ID_BYTES + 1]; /* X-Request-Id: the client's or a fresh one */
    double began_s;
    enum httpd_phase phase;
    /* The answer. */
    int status; /* 0: none yet */
    const char *type;
    struct { const char *name, *value; } headers[HTTP_MAX_HEADERS]; /* static or in the arena */
    int headers_count;
    struct strbuf out;
    size_t out_at, sent;
    bool stream, ended, close, suspended, gone, dirty, refused;
    double wrote_s;           /* when bytes were last taken off or put into an empty `out` */
    struct httpd_request *dirty_next;
    /* Whoever answers later. on_gone is called once when the client has left before the end; the request is freed soon after. */
    void *owner;
    void (*on_gone)(struct httpd_request *r);
    void (*on_idle)(struct httpd_request *r); /* nothing was sent for a while; NULL: that is nothing to do about */
    /* For the log. */
    const char *log_model, *log_finish;
    int log_prompt, log_completion, log_cached;
};

struct httpd_handler {
    void *user;
    /* Headers are there: refuse by httpd_reply before the body is read, or leave it. */
    void (*headers)(void *user, struct httpd_request *r);
    /* The body is there: answer now or later. */
    void (*request)(void *user, struct httpd_request *r);
    void (*completed)(void *user, const struct httpd_request *r);
};

enum rose_status httpd_open(const struct server_options *options, int epoll_fd, const struct httpd_handler *handler, struct httpd **out, struct rose_error *err);
void httpd_close(struct httpd *h);
/* Where it listens, as a URL. */
const char *httpd_address(const struct httpd *h);

/* A request header, or NULL. */
const char *httpd_header(const struct httpd_request *r, const char *name);
/* A value of the URL's query, or NULL. */
const char *httpd_argument(const struct httpd_request *r, const char *name);
void httpd_add_header(struct httpd_request *r, const char *name, const char *value);
/* Answer at once with a whole body (copied). */
void httpd_reply(struct httpd_request *r, int status, const char *type, struct str body);
/* The same with what has been written to httpd_stream: nothing is copied. */
void httpd_reply_written(struct httpd_request *r, int status, const char *type);
/* The same, compressed where the client says that it takes that. */
void httpd_reply_coded(struct httpd_request *r, int status, const char *type);
/* Answer in pieces. */
void httpd_stream_begin(struct httpd_request *r, int status, const char *type);
/* Where to append; call httpd_stream_flush after it. */
static inline struct strbuf *httpd_stream(struct httpd_request *r) { return &r->out; }
void httpd_stream_flush(struct httpd_request *r);
void httpd_stream_end(struct httpd_request *r);
/* Bytes the client has not taken yet. */
static inline size_t httpd_pending(const struct httpd_request *r) { return r->out.n - r->out_at; }

/* For the loop: handle an epoll event whose data is a connection's; run what is due; wake what has something to send; enforce times. */
void httpd_event(struct httpd *h, void *data, unsigned events);
void httpd_run(struct httpd *h);
void httpd_flush(struct httpd *h);
/* Once a second: close what is too slow; call `idle` for streams that have sent nothing for ping_s. */
void httpd_sweep(struct httpd *h, void (*idle)(void *user, struct httpd_request *r), void *user);
/* Milliseconds until httpd_run must run; -1: none. */
int httpd_timeout(const struct httpd *h);
int httpd_connections(const struct httpd *h);
int httpd_requests(const struct httpd *h);
/* Refuse new connections; end requests' connections after their answers. */
void httpd_drain(struct httpd *h);
/* Every open request, for the end of draining. */
void httpd_each(struct httpd *h, void (*visit)(void *user, struct httpd_request *r), void *user);

double httpd_now(void);

#endif
