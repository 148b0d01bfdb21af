#define _GNU_SOURCE
#include "cli/tls.h"

#include "base/clock.h"
#include "cli/http.h"

#ifndef ROSE_HAVE_CURL

enum rose_status tls_open(struct tls **out, const struct tls_options *options, struct rose_error *err)
{
    (void)options;
    *out = NULL;
    return http_library(NULL, 0, err);
}
void tls_close(struct tls *t) { (void)t; }
struct tls_link *tls_begin(struct tls *t, void *user) { return (void)t, (void)user, NULL; }
void tls_advance(struct tls *t) { (void)t; }
int tls_fd(const struct tls *t) { return (void)t, -1; }
int tls_wait_ms(const struct tls *t, int most) { return (void)t, most; }
struct tls_link *tls_next(struct tls *t, const char **why) { return (void)t, (void)why, NULL; }
void tls_end(struct tls_link *link) { (void)link; }
enum rose_status tls_connect(struct tls *t, struct tls_link **out, struct rose_error *err)
{
    (void)t, *out = NULL;
    return http_library(NULL, 0, err);
}
void *tls_user(const struct tls_link *link) { return (void)link, NULL; }
int tls_socket(const struct tls_link *link) { return (void)link, -1; }
ssize_t tls_send(struct tls_link *link, const void *bytes, size_t n) { return (void)link, (void)bytes, (void)n, -1; }
ssize_t tls_recv(struct tls_link *link, void *bytes, size_t room) { return (void)link, (void)bytes, (void)room, -1; }

#else

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
/* Their macros would hide the members of the same name below. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

struct tls {
    const struct tls_options *options;
    CURLM *multi;
    int epoll_fd;  /* sockets of handshakes under way */
    double due;    /* when libcurl wants to be called; < 0: only for its sockets */
    char url[320];
    struct sigaction pipe_before;
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *easy);
    CURLcode (*setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*getinfo)(CURL *easy, CURLINFO info, ...);
    CURLcode (*send)(CURL *easy, const void *bytes, size_t n, size_t *sent);
    CURLcode (*recv)(CURL *easy, void *bytes, size_t room, size_t *got);
    const char *(*strerror)(CURLcode code);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *multi);
    CURLMcode (*multi_setopt)(CURLM *multi, CURLMoption option, ...);
    CURLMcode (*multi_add)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_remove)(CURLM *multi, CURL *easy);
    CURLMcode (*multi_action)(CURLM *multi, curl_socket_t fd, int events, int *running);
    CURLMsg *(*multi_read)(CURLM *multi, int *left);
};

struct tls_link {
    struct tls *tls;
    CURL *easy;
    void *user;
    int fd;
    char detail[CURL_ERROR_SIZE];
};

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
    struct tls *t = user;
    struct epoll_event e = {.data.fd = fd};
    (void)easy, (void)known;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, fd, &e)) epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &e);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *user)
{
    (void)multi;
    ((struct tls *)user)->due = ms < 0 ? -1 : clock_seconds() + (double)ms * 1e-3;
    return 0;
}

enum rose_status tls_open(struct tls **out, const struct tls_options *o, struct rose_error *err)
{
    struct tls *t = *out = calloc(1, sizeof *t);
    if (!t) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    struct http_symbol symbols[] = {{"curl_global_init", &t->global_init},     {"curl_easy_init", &t->easy_init},        {"curl_easy_cleanup", &t->easy_cleanup},
                                    {"curl_easy_setopt", &t->setopt},          {"curl_easy_getinfo", &t->getinfo},       {"curl_easy_send", &t->send},
                                    {"curl_easy_recv", &t->recv},              {"curl_easy_strerror", &t->strerror},     {"curl_multi_init", &t->multi_init},
                                    {"curl_multi_cleanup", &t->multi_cleanup}, {"curl_multi_setopt", &t->multi_setopt},  {"curl_multi_add_handle", &t->multi_add},
                                    {"curl_multi_remove_handle", &t->multi_remove}, {"curl_multi_socket_action", &t->multi_action}, {"curl_multi_info_read", &t->multi_read}};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &t->pipe_before);
    t->options = o;
    t->due = -1;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bool bare6 = strchr(o->host, ':') != NULL;
    snprintf(t->url, sizeof t->url, "https://%s%s%s:%s/", bare6 ? "[" : "", o->host, bare6 ? "]" : "", o->port);
    enum rose_status s = http_library(symbols, ROSE_COUNT(symbols), err);
    if (s == ROSE_OK && (t->epoll_fd < 0 || t->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(t->multi = t->multi_init()))) s = status_set(err, ROSE_NO_MEMORY, "libcurl does not start");
    if (s != ROSE_OK) {
        tls_close(t);
        *out = NULL;
        return s;
    }
    t->multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    t->multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t);
    t->multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    t->multi_setopt(t->multi, CURLMOPT_TIMERDATA, t);
    return ROSE_OK;
}

/* The library stays loaded: its TLS code may have left handlers behind. */
void tls_close(struct tls *t)
{
    if (!t) return;
    if (t->multi) t->multi_cleanup(t->multi);
    if (t->epoll_fd >= 0) close(t->epoll_fd);
    sigaction(SIGPIPE, &t->pipe_before, NULL);
    free(t);
}

struct tls_link *tls_begin(struct tls *t, void *user)
{
    struct tls_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (struct tls_link){.tls = t, .user = user, .fd = -1};
    CURL *c = l->easy = t->easy_init();
    if (!c) {
        free(l);
        return NULL;
    }
    t->setopt(c, CURLOPT_URL, t->url);
    t->setopt(c, CURLOPT_PRIVATE, l);
    t->setopt(c, CURLOPT_ERRORBUFFER, l->detail);
    t->setopt(c, CURLOPT_NOSIGNAL, 1L);
    t->setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    t->setopt(c, CURLOPT_CONNECT_ONLY, 1L);
    t->setopt(c, CURLOPT_PROXY, ""); /* the server is measured, not what stands before it */
    /* What is asked for by ALPN is what is spoken above. */
    t->setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (t->options->cacert) t->setopt(c, CURLOPT_CAINFO, t->options->cacert);
    if (t->options->insecure) {
        t->setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        t->setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (t->multi_add(t->multi, c) == CURLM_OK) return l;
    t->easy_cleanup(c);
    free(l);
    return NULL;
}

void tls_advance(struct tls *t)
{
    struct epoll_event events[64];
    int running, n = epoll_wait(t->epoll_fd, events, (int)ROSE_COUNT(events), 0);
    for (int i = 0; i < n; i++) {
        uint32_t e = events[i].events;
        int what = (e & EPOLLIN ? CURL_CSELECT_IN : 0) | (e & EPOLLOUT ? CURL_CSELECT_OUT : 0) | (e & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        t->multi_action(t->multi, events[i].data.fd, what, &running);
    }
    if (t->due < 0 || t->due > clock_seconds()) return;
    t->due = -1;
    t->multi_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

int tls_fd(const struct tls *t) { return t->epoll_fd; }

int tls_wait_ms(const struct tls *t, int most)
{
    if (t->due < 0) return most;
    double ms = (t->due - clock_seconds()) * 1e3;
    return ms <= 0 ? 0 : ms >= most ? most : (int)ms + 1;
}

struct tls_link *tls_next(struct tls *t, const char **why)
{
    CURLMsg *m;
    int left;
    *why = NULL;
    while ((m = t->multi_read(t->multi, &left))) {
        if (m->msg != CURLMSG_DONE) continue;
        struct tls_link *l = NULL;
        curl_socket_t fd = CURL_SOCKET_BAD;
        CURLcode code = m->data.result;
        t->getinfo(m->easy_handle, CURLINFO_PRIVATE, &l);
        if (code == CURLE_OK) t->getinfo(l->easy, CURLINFO_ACTIVESOCKET, &fd);
        l->fd = fd;
        if (fd < 0) *why = l->detail[0] ? l->detail : t->strerror(code);
        return l;
    }
    return NULL;
}

/* The handle stays in the set while the connection lives: libcurl closes the connection with it. */
void tls_end(struct tls_link *l)
{
    if (!l) return;
    l->tls->multi_remove(l->tls->multi, l->easy);
    l->tls->easy_cleanup(l->easy);
    free(l);
}

enum rose_status tls_connect(struct tls *t, struct tls_link **out, struct rose_error *err)
{
    const char *why = NULL;
    struct tls_link *l = tls_begin(t, NULL);
    if (!l) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    do { /* ends by CURLOPT_CONNECTTIMEOUT */
        struct pollfd p = {t->epoll_fd, POLLIN, 0};
        poll(&p, 1, tls_wait_ms(t, 1000));
        tls_advance(t);
    } while (!tls_next(t, &why));
    if (!why) {
        *out = l;
        return ROSE_OK;
    }
    enum rose_status s = status_set(err, ROSE_IO, "%s: %s%s", t->url, why,
                                    t->options->insecure || !strstr(why, "ertificate") ? "" : "; --cacert FILE names the certificates to trust, --insecure trusts any");
    tls_end(l);
    return s;
}

void *tls_user(const struct tls_link *l) { return l->user; }
int tls_socket(const struct tls_link *l) { return l->fd; }

static ssize_t result(CURLcode code, size_t n)
{
    if (code == CURLE_OK) return (ssize_t)n;
    errno = code == CURLE_AGAIN ? EAGAIN : EIO;
    return -1;
}

ssize_t tls_send(struct tls_link *l, const void *bytes, size_t n)
{
    size_t sent = 0;
    CURLcode code = l->tls->send(l->easy, bytes, n, &sent);
    return result(code, sent);
}

ssize_t tls_recv(struct tls_link *l, void *bytes, size_t room)
{
    size_t got = 0;
    CURLcode code = l->tls->recv(l->easy, bytes, room, &got);
    return result(code, got);
}

#endif
