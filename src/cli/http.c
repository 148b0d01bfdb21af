#include "cli/http.h"

#include "base/str.h"

#ifndef ROSE_HAVE_CURL

enum rose_status http_library(const struct http_symbol *symbols, size_t n, struct rose_error *err)
{
    (void)symbols, (void)n;
    return status_set(err, ROSE_UNSUPPORTED, "this rose was built without libcurl: it cannot fetch, nor speak TLS; install libcurl4-openssl-dev and build it again");
}
enum rose_status http_open(struct http **out, struct rose_error *err)
{
    *out = NULL;
    return http_library(NULL, 0, err);
}
void http_close(struct http *h) { (void)h; }
enum rose_status http_get(struct http *h, const struct http_request *request, struct http_answer *answer, struct rose_error *err)
{
    (void)h, (void)request, (void)answer;
    return status_set(err, ROSE_UNSUPPORTED, "no libcurl");
}

#else

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
/* Their macros would hide the members of the same name below. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

struct http {
    CURL *easy;
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *easy);
    void (*easy_reset)(CURL *easy);
    CURLcode (*setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*getinfo)(CURL *easy, CURLINFO info, ...);
    CURLcode (*perform)(CURL *easy);
    const char *(*strerror)(CURLcode code);
};

enum rose_status http_library(const struct http_symbol *symbols, size_t n, struct rose_error *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; !library && i < ROSE_COUNT(names); i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return status_set(err, ROSE_UNSUPPORTED, "libcurl is not installed (Debian, Ubuntu: apt-get install libcurl4)");
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) return status_set(err, ROSE_UNSUPPORTED, "libcurl has no %s: a newer one is needed", symbols[i].name);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    return ROSE_OK;
}

static enum rose_status load(struct http *h, struct rose_error *err)
{
    struct http_symbol symbols[] = {{"curl_global_init", &h->global_init}, {"curl_easy_init", &h->easy_init},       {"curl_easy_cleanup", &h->easy_cleanup}, {"curl_easy_reset", &h->easy_reset},
                   {"curl_easy_setopt", &h->setopt},      {"curl_easy_getinfo", &h->getinfo},      {"curl_easy_perform", &h->perform},      {"curl_easy_strerror", &h->strerror}};
    return http_library(symbols, ROSE_COUNT(symbols), err);
}

enum rose_status http_open(struct http **out, struct rose_error *err)
{
    struct http *h = *out = calloc(1, sizeof *h);
    if (!h) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = load(h, err);
    if (s == ROSE_OK && (h->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(h->easy = h->easy_init()))) s = status_set(err, ROSE_NO_MEMORY, "libcurl does not start");
    if (s == ROSE_OK) return ROSE_OK;
    http_close(h);
    *out = NULL;
    return s;
}

/* The library stays loaded: its TLS code may have left handlers behind. */
void http_close(struct http *h)
{
    if (!h) return;
    if (h->easy) h->easy_cleanup(h->easy);
    free(h);
}

struct transfer {
    struct http *http;
    const struct http_request *request;
    struct http_answer *answer;
    bool linked_etag, stopped;
};

/* The value of "name: value"; false when the line is another header. */
static bool header(struct str line, const char *name, struct str *value)
{
    size_t n = strlen(name);
    if (line.n <= n || line.p[n] != ':' || strncasecmp(line.p, name, n)) return false;
    struct str v = {line.p + n + 1, line.n - n - 1};
    while (v.n && (v.p[0] == ' ' || v.p[0] == '\t')) v.p++, v.n--;
    while (v.n && (unsigned char)v.p[v.n - 1] <= ' ') v.n--;
    *value = v;
    return true;
}

static void copy_etag(struct str v, char *to, size_t room)
{
    if (str_starts(v, STR("W/"))) v.p += 2, v.n -= 2;
    if (v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"') v.p++, v.n -= 2;
    snprintf(to, room, STR_FMT, STR_ARG(v));
}

static size_t on_header(char *bytes, size_t size, size_t n, void *user)
{
    struct transfer *t = user;
    struct http_answer *a = t->answer;
    struct str line = {bytes, size * n}, v;
    if (str_starts(line, STR("HTTP/"))) {
        a->length = -1;
        if (!t->linked_etag && !a->commit[0]) a->etag[0] = '\0';
    } else if (header(line, "x-linked-etag", &v)) {
        copy_etag(v, a->etag, sizeof a->etag);
        t->linked_etag = true;
    } else if (header(line, "etag", &v)) {
        if (!t->linked_etag && !a->etag[0]) copy_etag(v, a->etag, sizeof a->etag);
    } else if (header(line, "x-linked-size", &v)) {
        str_to_i64(v, &a->linked_size);
    } else if (header(line, "content-length", &v)) {
        str_to_i64(v, &a->length);
    } else if (header(line, "x-repo-commit", &v)) {
        snprintf(a->commit, sizeof a->commit, STR_FMT, STR_ARG(v));
    }
    return size * n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct transfer *t = user;
    long status = 0;
    t->http->getinfo(t->http->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299 || !t->request->take) return size * n; /* error pages are nobody's business */
    if (t->request->take(t->request->user, status, bytes, size * n)) return size * n;
    t->stopped = true;
    return 0;
}

/* What to look at when a transfer fails. */
static const char *advice(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY: return "; look at https_proxy";
    case CURLE_COULDNT_RESOLVE_HOST: return "; is there network? HF_ENDPOINT names another hub, https_proxy a way through a firewall";
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: return "; is the hub reachable from here? HF_ENDPOINT names another one, https_proxy a way through a firewall; what has come is kept";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return "; is the clock right, and are the certificates installed (ca-certificates)?";
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE: return "; the connection broke: run the command again, it goes on where it stopped";
    default: return "";
    }
}

enum rose_status http_get(struct http *h, const struct http_request *r, struct http_answer *a, struct rose_error *err)
{
    struct transfer t = {.http = h, .request = r, .answer = a};
    CURL *c = h->easy;
    char range[40], detail[CURL_ERROR_SIZE] = "";
    *a = (struct http_answer){.length = -1, .linked_size = -1};
    h->easy_reset(c);
    bool secure = !strncasecmp(r->url, "https:", 6);
    h->setopt(c, CURLOPT_URL, r->url);
    h->setopt(c, CURLOPT_USERAGENT, "rose/" ROSE_VERSION);
    h->setopt(c, CURLOPT_NOSIGNAL, 1L);
    h->setopt(c, CURLOPT_ERRORBUFFER, detail);
    h->setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    h->setopt(c, CURLOPT_HEADERDATA, &t);
    h->setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    h->setopt(c, CURLOPT_WRITEDATA, &t);
    h->setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    /* A connection that gives nothing for a minute is dead. */
    h->setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    h->setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    h->setopt(c, CURLOPT_FOLLOWLOCATION, r->head ? 0L : 1L);
    h->setopt(c, CURLOPT_MAXREDIRS, 8L);
#if LIBCURL_VERSION_NUM >= 0x075500
    h->setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    h->setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    h->setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    h->setopt(c, CURLOPT_REDIR_PROTOCOLS, secure ? (long)CURLPROTO_HTTPS : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (r->head) h->setopt(c, CURLOPT_NOBODY, 1L);
    if (r->bearer) {
        h->setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        h->setopt(c, CURLOPT_XOAUTH2_BEARER, r->bearer);
    }
    if (r->from > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)r->from);
        h->setopt(c, CURLOPT_RANGE, range);
    }
    CURLcode code = h->perform(c);
    h->getinfo(c, CURLINFO_RESPONSE_CODE, &a->status);
    if (code == CURLE_OK || t.stopped) return ROSE_OK;
    a->network = code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_URL_MALFORMAT && code != CURLE_PEER_FAILED_VERIFICATION;
    return status_set(err, ROSE_IO, "%s: %s%s", r->url, detail[0] ? detail : h->strerror(code), advice(code));
}

#endif
