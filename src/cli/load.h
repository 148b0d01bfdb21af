/* A load generator for servers that speak OpenAI's streams over HTTP, plain or in TLS: one thread, one epoll loop, a connection a request under way. Whole
 * answers (embeddings) come over connections that stay open.
 *
 * Open loop: requests begin at the times of a Poisson process, whatever the server does; times count from when a request was due, so that a
 * slow server cannot hide its queue. Closed loop: so many users, each of whom asks again when the answer is whole.
 */
#ifndef ROSE_CLI_LOAD_H
#define ROSE_CLI_LOAD_H

#include "base/status.h"
#include "base/str.h"

struct load_target {
    char host[256], port[16], path[512]; /* path before /chat/completions: "" or "/v1" */
    bool secure;                         /* https, and then whom to trust: cli/tls.h */
    const char *cacert;
    bool insecure;
};
/* http[s]://HOST[:PORT][/PATH]; without a path: /v1. */
enum rose_status load_target_read(const char *url, struct load_target *out, struct rose_error *err);

struct load_result {
    bool ok;
    int status;               /* 0: no answer */
    double due_s, ttft_s, total_s; /* from the run's beginning; from when it was due */
    int tokens, prompt_tokens;
};

struct load_options {
    struct load_target target;
    const char *route;      /* "/completions" or "/chat/completions" */
    const char *key;        /* NULL: none */
    bool whole;             /* answers are whole, of a stated length: their time is that of their last byte */
    double rate;            /* requests a second, Poisson; 0: closed loop */
    int concurrency;        /* closed loop: users; open loop: connections at most (0: no limit) */
    int requests;
    double timeout_s;
    uint64_t seed;
    /* The body of request i. */
    void (*body)(void *user, int i, struct strbuf *out);
    void (*progress)(void *user, int done, int total);
    void *user;
};

struct load_report {
    struct load_result *results; /* [requests] */
    double *gaps;                /* between two pieces of an answer, all requests; seconds */
    size_t gaps_count;
    double seconds;              /* from the first request to the last answer */
    int reason_status;           /* of the first answer that was no 200, */
    char reason[400];            /* and what the server said in it; "": nothing */
};
enum rose_status load_run(const struct load_options *options, struct load_report *out, struct rose_error *err);
void load_report_free(struct load_report *report);
/* One GET; the body. */
enum rose_status load_get(const struct load_target *target, const char *path, const char *key, struct strbuf *out, struct rose_error *err);

#endif
