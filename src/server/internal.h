/* What the files of the server share: the server itself and its routes. */
#ifndef ROSE_SERVER_INTERNAL_H
#define ROSE_SERVER_INTERNAL_H

#include "base/status.h"
#include "server/generation.h"
#include "server/httpd.h"
#include "server/keys.h"
#include "server/models.h"
#include "server/regions.h"
#include "server/te_metrics.h"

enum { ROUTES_MAX = 64, ROUTE_CODES = 600 };

/* What KServe's logging and trace/setting routes keep. */
struct kserve_settings {
    bool info, warning, error;
    int verbose;
    char format[16];      /* "default" or "ISO8601" */
    char rate[24], count[24], frequency[24];
};

struct rpc_server;
struct server {
    const struct server_options *options;
    const char *device;
    struct models models;
    struct httpd *http;
    struct keys keys;
    struct regions regions;
    struct kserve_settings settings;
    struct rpc_server *grpc; /* NULL: none */
    bool draining;
    double started_s;
    uint64_t answers[ROUTES_MAX][6]; /* by route and hundreds of the status; [5] of the last row: without route */
    uint64_t bytes_sent, clients_gone;
    struct te_metrics te;
};

/* routes.c */
void routes_headers(void *server, struct httpd_request *r);
void routes_request(void *server, struct httpd_request *r);
void routes_completed(void *server, const struct httpd_request *r);
/* The path a route is counted under; NULL behind the last. */
const char *routes_name(int index);
void route_error(struct httpd_request *r, const struct api_error *e);

/* ops.c */
void ops_health(struct server *s, struct httpd_request *r);
void ops_version(struct server *s, struct httpd_request *r);
void ops_metrics(struct server *s, struct httpd_request *r);
void ops_models(struct server *s, struct httpd_request *r);
void ops_model(struct server *s, struct httpd_request *r);
void ops_stats(struct server *s, struct httpd_request *r);
void ops_tokenize(struct server *s, struct httpd_request *r);
void ops_detokenize(struct server *s, struct httpd_request *r);
void ops_count_tokens(struct server *s, struct httpd_request *r);

/* page.c */
void page_serve(struct server *s, struct httpd_request *r);

/* log.c: one line on standard error, plain or JSON. */
void log_request(const struct server *s, const struct httpd_request *r);
void log_line(const struct server_options *o, const char *level, const char *fmt, ...) ROSE_PRINTF(3, 4);

/* metrics.c */
void metrics_write(struct server *s, struct strbuf *b);

#endif
