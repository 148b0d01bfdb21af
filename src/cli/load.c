#define _GNU_SOURCE
#include "cli/load.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/tls.h"

enum rose_status load_target_read(const char *url, struct load_target *out, struct rose_error *err)
{
    struct str s = str_of(url);
    bool secure = str_starts(s, STR("https://"));
    if (!secure && !str_starts(s, STR("http://"))) return status_set(err, ROSE_INVALID, "--url %s: write http://HOST:PORT or https://HOST:PORT", url);
    *out = (struct load_target){.secure = secure};
    snprintf(out->port, sizeof out->port, "%s", secure ? "443" : "80");
    s.p += secure ? 8 : 7;
    s.n -= secure ? 8 : 7;
    ptrdiff_t slash = str_find(s, STR("/"), 0);
    struct str place = {s.p, slash < 0 ? s.n : (size_t)slash}, path = slash < 0 ? STR("") : (struct str){s.p + slash, s.n - (size_t)slash};
    while (path.n && path.p[path.n - 1] == '/') path.n--;
    size_t host = place.n;
    for (size_t i = place.n; i-- > 0 && place.p[i] != ']';)
        if (place.p[i] == ':') {
            snprintf(out->port, sizeof out->port, "%.*s", (int)ROSE_MIN(place.n - i - 1, (size_t)15), place.p + i + 1);
            host = i;
            break;
        }
    if (host > 1 && place.p[0] == '[' && place.p[host - 1] == ']') place.p++, host -= 2;
    if (!host || host >= sizeof out->host || path.n >= sizeof out->path) return status_set(err, ROSE_INVALID, "--url %s: write http://HOST:PORT or https://HOST:PORT", url);
    memcpy(out->host, place.p, host);
    snprintf(out->path, sizeof out->path, "%.*s", path.n ? (int)path.n : 3, path.n ? path.p : "/v1");
    return ROSE_OK;
}

/* --- one connection ------------------------------------------------------------------------------------------------------------------ */

enum stage { STAGE_CONNECT, STAGE_SEND, STAGE_HEAD, STAGE_BODY };

struct connection {
    int fd, index; /* index: which request */
    struct tls_link *link; /* NULL: plain */
    enum stage stage;
    struct strbuf out, in;
    size_t out_at;
    double due, last;
    bool chunked, used;
    size_t length; /* of a whole answer's body */
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END } chunk;
    size_t chunk_left;
};

struct run {
    const struct load_options *o;
    struct load_report *report;
    struct addrinfo *address;
    struct tls *tls; /* NULL: plain */
    struct connection *connections;
    int room, open, next, done, epoll_fd;
    size_t gaps_cap;
    double began;
    uint64_t random;
};

static double uniform(struct run *r)
{
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(r->random >> 11) + 0.5) / 9007199254740992.0;
}

static void add_gap(struct run *r, double gap)
{
    struct load_report *p = r->report;
    if (p->gaps_count == r->gaps_cap) {
        size_t cap = r->gaps_cap ? r->gaps_cap * 2 : 4096;
        double *more = realloc(p->gaps, cap * sizeof *more);
        if (!more) return;
        p->gaps = more;
        r->gaps_cap = cap;
    }
    p->gaps[p->gaps_count++] = gap;
}

static void on_writable(struct run *r, struct connection *c);
static void write_request(const struct load_options *o, int index, struct strbuf *out);

/* The next request over the same connection. False: there is none, or it may not begin yet. */
static bool go_on(struct run *r, struct connection *c)
{
    if (!r->o->whole || r->o->rate > 0 || r->next == r->o->requests) return false;
    c->index = r->next++;
    c->due = clock_seconds() - r->began;
    r->report->results[c->index].due_s = c->due;
    c->out.n = c->out_at = c->in.n = 0;
    c->stage = STAGE_SEND;
    write_request(r->o, c->index, &c->out);
    on_writable(r, c);
    return true;
}

/* Why the first request that was refused was: OpenAI's, KServe's or TEI's error, else the bytes. */
static void keep_reason(struct load_report *p, int status, struct str body)
{
    struct arena a;
    const struct json *j;
    struct str why = {body.p, ROSE_MIN(body.n, (size_t)200)};
    if (p->reason[0] || !body.n) return;
    arena_init(&a, (size_t)16 << 20);
    if (json_parse(&a, NULL, body, &j, NULL) == ROSE_OK) {
        const struct json *error = json_get(j, "error");
        if (json_is(json_get(error, "message"), JSON_STRING)) why = json_get(error, "message")->string;
        else if (json_is(error, JSON_STRING)) why = error->string;
    }
    p->reason_status = status;
    snprintf(p->reason, sizeof p->reason, STR_FMT, STR_ARG(why));
    for (char *q = p->reason; *q; q++)
        if ((unsigned char)*q < ' ' || *q == 127) *q = ' '; /* it goes to a terminal */
    arena_free(&a);
}

static int64_t number_after(struct str s, struct str key)
{
    ptrdiff_t at = str_find(s, key, 0);
    return at < 0 ? -1 : strtoll(s.p + at + key.n, NULL, 10);
}

static void finish(struct run *r, struct connection *c, bool ok)
{
    struct load_result *result = &r->report->results[c->index];
    if (!ok && c->stage == STAGE_BODY && result->status != 200) keep_reason(r->report, result->status, strbuf_str(&c->in));
    result->total_s = clock_seconds() - r->began - c->due;
    if (r->o->whole && ok) {
        result->ttft_s = result->total_s;
        result->prompt_tokens = (int)ROSE_MAX(number_after(strbuf_str(&c->in), STR("\"prompt_tokens\":")), 0); /* KServe's answers do not say */
    }
    result->ok = ok && result->status == 200 && result->ttft_s > 0;
    r->done++;
    if (r->o->progress) r->o->progress(r->o->user, r->done, r->o->requests);
    if (result->ok && go_on(r, c)) return;
    if (c->link) tls_end(c->link); /* closes the socket */
    else close(c->fd);
    strbuf_free(&c->out);
    strbuf_free(&c->in);
    c->used = false;
    r->open--;
}

/* A piece of text, or usage; other data is looked over. */
static void take_data(struct run *r, struct connection *c, struct str data)
{
    struct load_result *result = &r->report->results[c->index];
    ptrdiff_t at = str_find(data, STR("\"text\":\""), 0);
    size_t skip = 8;
    if (at < 0) at = str_find(data, STR("\"content\":\""), 0), skip = 11;
    if (at >= 0 && data.p[(size_t)at + skip] != '"') {
        double t = clock_seconds() - r->began;
        if (!result->ttft_s) result->ttft_s = t - c->due;
        else add_gap(r, t - c->last);
        c->last = t;
        result->tokens++;
    }
    if (str_find(data, STR("\"usage\":{"), 0) < 0) return;
    int64_t tokens = number_after(data, STR("\"completion_tokens\":")), prompt = number_after(data, STR("\"prompt_tokens\":"));
    if (tokens > 0) result->tokens = (int)tokens;
    if (prompt > 0) result->prompt_tokens = (int)prompt;
}

/* Bytes of the body, out of their chunks (RFC 9112, 7.1). True: the last chunk came. */
static bool take_chunks(struct connection *c, struct str bytes)
{
    for (size_t i = 0; i < bytes.n;) {
        char d = bytes.p[i];
        if (c->chunk == CHUNK_DATA) {
            size_t n = ROSE_MIN(c->chunk_left, bytes.n - i);
            strbuf_add(&c->in, bytes.p + i, n);
            i += n;
            if (!(c->chunk_left -= n)) c->chunk = CHUNK_END;
            continue;
        }
        i++;
        if (d == '\r') continue;
        if (d == '\n') {
            if (c->chunk == CHUNK_SIZE && !c->chunk_left) return true;
            c->chunk = c->chunk == CHUNK_SIZE ? CHUNK_DATA : CHUNK_SIZE;
        } else if (c->chunk == CHUNK_SIZE) {
            int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : 0;
            c->chunk_left = c->chunk_left << 4 | (size_t)v;
        }
    }
    return false;
}

/* Whole lines that are there. True: [DONE] came. */
static bool take_lines(struct run *r, struct connection *c)
{
    size_t at = 0;
    bool done = false;
    while (c->in.n > at) {
        char *begin = c->in.p + at, *end = memchr(begin, '\n', c->in.n - at);
        if (!end) break;
        *end = '\0';
        struct str line = {begin, (size_t)(end - begin)};
        if (str_starts(line, STR("data: [DONE]"))) done = true;
        else if (str_starts(line, STR("data: "))) take_data(r, c, line);
        at = (size_t)(end - c->in.p) + 1;
    }
    if (at) memmove(c->in.p, c->in.p + at, c->in.n - at);
    c->in.n -= at;
    return done;
}

static bool take_head(struct run *r, struct connection *c)
{
    ptrdiff_t end = str_find(strbuf_str(&c->in), STR("\r\n\r\n"), 0);
    if (end < 0) return false;
    sscanf(c->in.p, "HTTP/%*d.%*d %d", &r->report->results[c->index].status);
    struct str head = {c->in.p, (size_t)end + 2};
    c->chunked = str_find(head, STR("chunked\r\n"), 0) >= 0;
    int64_t length = number_after(head, STR("\r\nContent-Length: ")); /* not KServe's Inference-Header-Content-Length */
    c->length = length > 0 ? (size_t)length : 0;
    memmove(c->in.p, c->in.p + end + 4, c->in.n - (size_t)end - 4);
    c->in.n -= (size_t)end + 4;
    c->stage = STAGE_BODY;
    return true;
}

/* An answer that is no 200: its body says why. The connection's end ends it too. */
enum { MOST_REFUSAL = 1 << 16 };
static void take_refusal(struct run *r, struct connection *c, struct str bytes)
{
    bool end = c->chunked && take_chunks(c, bytes);
    if (!c->chunked) strbuf_add(&c->in, bytes.p, bytes.n);
    if (end || c->in.failed || (!c->chunked && c->in.n >= c->length)) finish(r, c, false);
}

static void take_piece(struct run *r, struct connection *c, const char *piece, size_t n)
{
    bool end = false;
    if (c->stage == STAGE_BODY && r->report->results[c->index].status != 200) {
        take_refusal(r, c, (struct str){piece, n});
        return;
    }
    if (r->o->whole && c->stage == STAGE_BODY) {
        strbuf_add(&c->in, piece, n);
        if (c->in.n >= c->length) finish(r, c, !c->in.failed);
        return;
    }
    if (c->stage == STAGE_HEAD) {
        strbuf_add(&c->in, piece, n);
        if (!take_head(r, c)) return;
        if (r->report->results[c->index].status != 200) {
            struct strbuf rest = c->in;
            c->in = (struct strbuf){.limit = MOST_REFUSAL};
            take_refusal(r, c, strbuf_str(&rest));
            strbuf_free(&rest);
            return;
        }
        if (r->o->whole) {
            if (c->in.n >= c->length) finish(r, c, true);
            return;
        }
        /* What came behind the head is body: through the chunks with it. */
        struct strbuf rest = c->in;
        if (c->chunked) {
            c->in = (struct strbuf){0};
            end = take_chunks(c, strbuf_str(&rest));
            strbuf_free(&rest);
        }
    } else if (c->chunked) {
        end = take_chunks(c, (struct str){piece, n});
    } else {
        strbuf_add(&c->in, piece, n);
    }
    if (c->in.failed) finish(r, c, false);
    else if (take_lines(r, c) || end) finish(r, c, true);
}

static void on_readable(struct run *r, struct connection *c)
{
    char piece[32768];
    do {
        ssize_t n = c->link ? tls_recv(c->link, piece, sizeof piece) : recv(c->fd, piece, sizeof piece, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) finish(r, c, false);
        else take_piece(r, c, piece, (size_t)n);
    } while (c->used && c->link && c->stage != STAGE_SEND); /* TLS may hold bytes that the socket no longer shows */
}

static void on_writable(struct run *r, struct connection *c)
{
    while (c->out_at < c->out.n) {
        const char *p = c->out.p + c->out_at;
        size_t left = c->out.n - c->out_at;
        ssize_t n = c->link ? tls_send(c->link, p, left) : send(c->fd, p, left, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) { /* a connection that goes on was last read from */
            struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
            epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
            return;
        }
        if (n < 0) {
            finish(r, c, false);
            return;
        }
        c->out_at += (size_t)n;
    }
    c->stage = STAGE_HEAD;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void write_request(const struct load_options *o, int index, struct strbuf *out)
{
    struct strbuf body = {0};
    o->body(o->user, index, &body);
    strbuf_printf(out, "POST %s%s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n%s", o->target.path, o->route, o->target.host, o->target.port,
                  o->whole ? "" : "Connection: close\r\n");
    if (o->key) strbuf_printf(out, "Authorization: Bearer %s\r\n", o->key);
    strbuf_printf(out, "Content-Length: %zu\r\n\r\n", body.n);
    strbuf_add(out, body.p, body.n);
    strbuf_free(&body);
}

static int open_socket(const struct addrinfo *a, bool wait)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!connect(fd, a->ai_addr, a->ai_addrlen) || errno == EINPROGRESS) return fd;
    close(fd);
    return -1;
}

static void begin_request(struct run *r, double due)
{
    struct connection *c = r->connections;
    while (c->used) c++;
    *c = (struct connection){.fd = r->tls ? -1 : open_socket(r->address, false), .stage = r->tls ? STAGE_CONNECT : STAGE_SEND, .index = r->next++, .due = due, .used = true};
    r->open++;
    r->report->results[c->index].due_s = due;
    write_request(r->o, c->index, &c->out);
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
    if (r->tls && !c->out.failed && (c->link = tls_begin(r->tls, c))) return; /* take_links goes on */
    if (c->fd < 0 || c->out.failed || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) finish(r, c, false);
}

/* Connections whose handshake is done: their requests go out. */
static void take_links(struct run *r)
{
    const char *why;
    struct tls_link *link;
    tls_advance(r->tls);
    while ((link = tls_next(r->tls, &why))) {
        struct connection *c = tls_user(link);
        c->fd = tls_socket(link);
        struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
        if (why) keep_reason(r->report, 0, str_of(why));
        if (why || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) finish(r, c, false);
        else c->stage = STAGE_SEND, on_writable(r, c);
    }
}

/* --- the run ------------------------------------------------------------------------------------------------------------------------------ */

static void expire(struct run *r)
{
    double t = clock_seconds() - r->began;
    for (int i = 0; i < r->room; i++)
        if (r->connections[i].used && t - r->connections[i].due > r->o->timeout_s) finish(r, &r->connections[i], false);
}

static void loop(struct run *r)
{
    const struct load_options *o = r->o;
    struct epoll_event events[256];
    double due = 0, checked = 0;
    while (r->done < o->requests) {
        double t = clock_seconds() - r->began;
        if (o->rate > 0) {
            for (; r->next < o->requests && due <= t && r->open < r->room; due += -log(uniform(r)) / o->rate) begin_request(r, due);
        } else {
            while (r->next < o->requests && r->open < o->concurrency) begin_request(r, clock_seconds() - r->began);
        }
        int ms = 1000;
        if (o->rate > 0 && r->next < o->requests && r->open < r->room) ms = (int)ROSE_MAX(0, ROSE_MIN(1000, ceil((due - (clock_seconds() - r->began)) * 1e3)));
        if (r->tls) ms = tls_wait_ms(r->tls, ms);
        int n = epoll_wait(r->epoll_fd, events, (int)ROSE_COUNT(events), ms);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c || !c->used) continue; /* NULL: tls_fd */
            if (c->stage == STAGE_SEND) on_writable(r, c);
            else on_readable(r, c);
        }
        if (r->tls) take_links(r);
        if (t - checked > 1) checked = t, expire(r);
    }
}

static enum rose_status resolve(const struct load_target *t, struct addrinfo **out, struct rose_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int failed = getaddrinfo(t->host, t->port, &hints, out);
    if (failed) return status_set(err, ROSE_NOT_FOUND, "%s: %s", t->host, gai_strerror(failed));
    for (struct addrinfo *a = *out; a; a = a->ai_next) { /* the first that answers */
        int fd = open_socket(a, true);
        if (fd < 0) continue;
        close(fd);
        struct addrinfo *first = *out;
        if (a != first) { /* move it to the front: only one is used */
            struct sockaddr *address = first->ai_addr;
            socklen_t n = first->ai_addrlen;
            int family = first->ai_family;
            first->ai_addr = a->ai_addr, first->ai_addrlen = a->ai_addrlen, first->ai_family = a->ai_family;
            a->ai_addr = address, a->ai_addrlen = n, a->ai_family = family;
        }
        return ROSE_OK;
    }
    freeaddrinfo(*out);
    *out = NULL;
    return status_set(err, ROSE_IO, "nobody answers at %s port %s: %s", t->host, t->port, strerror(errno));
}

static struct tls_options trust(const struct load_target *t) { return (struct tls_options){t->host, t->port, t->cacert, t->insecure}; }

/* One connection before the clock starts: a certificate that is not trusted is one error, and not one a request. */
static enum rose_status open_tls(struct run *r, const struct tls_options *options, struct rose_error *err)
{
    struct tls_link *link;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    ROSE_TRY(tls_open(&r->tls, options, err));
    ROSE_TRY(tls_connect(r->tls, &link, err));
    tls_end(link);
    if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, tls_fd(r->tls), &e)) return status_set(err, ROSE_IO, "epoll: %s", strerror(errno));
    return ROSE_OK;
}

enum rose_status load_run(const struct load_options *o, struct load_report *out, struct rose_error *err)
{
    struct rlimit limit;
    struct run r = {.o = o, .report = out, .random = o->seed * 2 + 1};
    struct tls_options options = trust(&o->target);
    *out = (struct load_report){0};
    if (!getrlimit(RLIMIT_NOFILE, &limit)) limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    if (!o->target.secure) ROSE_TRY(resolve(&o->target, &r.address, err));
    r.room = o->rate > 0 ? (o->concurrency > 0 ? o->concurrency : ROSE_MIN(o->requests, 20000)) : o->concurrency;
    r.connections = calloc((size_t)r.room, sizeof *r.connections);
    out->results = calloc((size_t)o->requests, sizeof *out->results);
    r.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    enum rose_status s = r.connections && out->results && r.epoll_fd >= 0 ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory or descriptors");
    if (s == ROSE_OK && o->target.secure) s = open_tls(&r, &options, err);
    r.began = clock_seconds();
    if (s == ROSE_OK) loop(&r);
    out->seconds = clock_seconds() - r.began;
    if (r.epoll_fd >= 0) close(r.epoll_fd);
    tls_close(r.tls);
    free(r.connections);
    if (r.address) freeaddrinfo(r.address);
    return s;
}

void load_report_free(struct load_report *p)
{
    free(p->results);
    free(p->gaps);
    *p = (struct load_report){0};
}

/* Whatever the server answers to `head` until it closes. */
static enum rose_status ask_plain(const struct load_target *t, struct str head, struct strbuf *out, struct rose_error *err)
{
    struct addrinfo *address;
    char piece[8192];
    ROSE_TRY(resolve(t, &address, err));
    int fd = open_socket(address, true);
    freeaddrinfo(address);
    if (fd < 0) return status_set(err, ROSE_IO, "nobody answers at %s port %s", t->host, t->port);
    ssize_t n = send(fd, head.p, head.n, MSG_NOSIGNAL);
    while (n > 0 && (n = recv(fd, piece, sizeof piece, 0)) > 0)
        if (!strbuf_add(out, piece, (size_t)n)) break;
    close(fd);
    return ROSE_OK;
}

static enum rose_status ask_secure(const struct load_target *t, struct str head, struct strbuf *out, struct rose_error *err)
{
    struct tls_options options = trust(t);
    struct tls *tls;
    struct tls_link *link = NULL;
    char piece[8192];
    ROSE_TRY(tls_open(&tls, &options, err));
    enum rose_status s = tls_connect(tls, &link, err);
    ssize_t n = s == ROSE_OK ? tls_send(link, head.p, head.n) : 0; /* so little that it goes out whole */
    while (n > 0) {
        struct pollfd p = {tls_socket(link), POLLIN, 0};
        n = tls_recv(link, piece, sizeof piece);
        if (n > 0 && !strbuf_add(out, piece, (size_t)n)) break;
        if (n < 0 && errno == EAGAIN) n = poll(&p, 1, 60000);
    }
    tls_end(link);
    tls_close(tls);
    return s;
}

enum rose_status load_get(const struct load_target *t, const char *path, const char *key, struct strbuf *out, struct rose_error *err)
{
    struct strbuf head = {0};
    *out = (struct strbuf){.limit = 16 << 20};
    strbuf_printf(&head, "GET %s%s HTTP/1.0\r\nHost: %s:%s\r\n", t->path, path, t->host, t->port);
    if (key) strbuf_printf(&head, "Authorization: Bearer %s\r\n", key);
    strbuf_adds(&head, "\r\n");
    enum rose_status s = (t->secure ? ask_secure : ask_plain)(t, strbuf_str(&head), out, err);
    strbuf_free(&head);
    ROSE_TRY(s);
    ptrdiff_t end = str_find(strbuf_str(out), STR("\r\n\r\n"), 0);
    int status = 0;
    if (end < 0 || sscanf(out->p, "HTTP/%*d.%*d %d", &status) != 1 || status != 200)
        return status_set(err, ROSE_IO, "GET %s%s: the server answered with %d", t->path, path, status);
    memmove(out->p, out->p + end + 4, out->n - (size_t)end - 4);
    out->n -= (size_t)end + 4;
    out->p[out->n] = '\0';
    return ROSE_OK;
}
