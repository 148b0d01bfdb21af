/* rose serve: models behind HTTP. One thread runs everything here (connections, parsing, tokenising, writing); the engines have
 * threads of their own and talk to it through rose_events.
 */
#ifndef ROSE_SERVER_SERVER_H
#define ROSE_SERVER_SERVER_H

#include "rose.h"

struct server_model {
    const char *name;           /* what "model" in a request says */
    struct rose_engine *engine; /* with --null-model: opened for tokenising only */
    const char *task;           /* rose_engine_options.task, likewise; static */
    const char *path;           /* to load it again after it was unloaded; NULL: that is not possible */
    bool owned;                 /* the server closes the engine */
};

struct server_options {
    const char *host; /* numeric address or name; NULL: 127.0.0.1 */
    int port;         /* 0: any free one, which is printed */
    int grpc_port;    /* gRPC on the same host; 0: any free one, -1: none */
    const char *unix_path; /* listen here instead of host and port; NULL */
    const char *tls_cert, *tls_key; /* PEM files; NULL: no TLS */
    const char *api_keys;           /* a file with one key a line; NULL: none needed */
    const char *cors_origin;        /* "*" or an origin; NULL: no CORS headers */
    const char *notify_socket;      /* systemd's NOTIFY_SOCKET; NULL */
    size_t body_limit, header_limit, output_limit; /* bytes; output: unread bytes of one answer before its client counts as gone */
    int connections, connections_per_address;      /* 0 for the latter: no limit */
    double idle_s, read_s, write_s; /* until a request's headers are whole, until its body is, without progress of a reader */
    double ping_s, drain_s;
    double stall_s; /* work without a step for so long means that an engine is stuck, and /health says so */
    bool log_json, log_requests, log_debug;
    /* Model repositories: what is in these directories is served under its own name, and loaded and unloaded by KServe's routes. */
    const char *const *repositories;
    int repositories_count;
    struct rose_device *rose_device;          /* models are loaded on it, */
    const struct rose_engine_options *engine; /* with these options; NULL: none is loaded */
    bool any_model;        /* a request (not KServe's, whose path names it) for a model that is not here goes to the one it would get without a name */
    bool auto_truncate;    /* texts to embed, rank, score or classify that are too long are cut off at their end unless the request says otherwise (not KServe's) */
    bool parse_special;    /* control tokens spelt out in texts to embed, rank, score or classify are those tokens */
    bool no_shared_memory; /* KServe's clients may not register any */
    bool null_model; /* answers come from a generator that costs nothing: what remains is the server's own work */
};
void server_options_init(struct server_options *options);

/* Block the signals that the server reads from a descriptor. Call it before any thread starts. */
void server_block_signals(void);
/* Serve until a signal and the drain behind it. Engines that are not `owned` stay the caller's. */
enum rose_status server_run(const struct server_options *options, const struct server_model *models, int count, const char *device, struct rose_error *err);

#endif
