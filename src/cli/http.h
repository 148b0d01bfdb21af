/* HTTP for rose pull (and, by cli/tls.h, TLS for rose bench): libcurl, loaded when it is needed, so that starting Rose does not pay for it. */
#ifndef ROSE_CLI_HTTP_H
#define ROSE_CLI_HTTP_H

#include "base/status.h"

struct http;

/* A function of libcurl's and where its address goes. */
struct http_symbol {
    const char *name;
    void *to;
};
/* Loads libcurl. ROSE_UNSUPPORTED when there is none, or the build is without it. */
enum rose_status http_library(const struct http_symbol *symbols, size_t n, struct rose_error *err);

/* What a server said, of the last answer of a chain of redirects; etag, commit and size also of those before it where only they name it. */
struct http_answer {
    long status;
    int64_t length;      /* Content-Length, -1: unknown */
    int64_t linked_size; /* X-Linked-Size, -1 */
    char etag[160];      /* X-Linked-Etag, else ETag; without W/ and quotes */
    char commit[72];     /* X-Repo-Commit */
    bool network;        /* the request failed below HTTP and may be tried again */
};

struct http_request {
    const char *url, *bearer; /* bearer NULL: none; it goes to the url's own host only */
    int64_t from;             /* > 0: the bytes from there on (Range) */
    bool head;                /* headers only, of the first answer: no redirect is followed */
    /* Bytes of a 2xx answer. status tells 200 from 206. false: stop. */
    bool (*take)(void *user, long status, const void *bytes, size_t n);
    void *user;
};

/* ROSE_UNSUPPORTED when there is no libcurl. */
enum rose_status http_open(struct http **out, struct rose_error *err);
void http_close(struct http *h);
/* ROSE_OK: the server answered, with whatever status. https stays https through redirects. */
enum rose_status http_get(struct http *h, const struct http_request *request, struct http_answer *answer, struct rose_error *err);

#endif
