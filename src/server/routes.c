#define _GNU_SOURCE
/* Which path leads where, and what holds for all: methods, keys, cross-origin requests, errors. */
#include "server/kserve.h"
#include "server/pooled.h"

#include <stdio.h>
#include <string.h>

/* No key needed to GET it; the path goes on; errors in Anthropic's form; not logged; KServe's paths and errors; TEI's errors. */
enum { OPEN = 1, PREFIX = 2, ANTHROPIC = 4, QUIET = 8, KSERVE = 16, TEI = 32 };

static void chat(struct server *s, struct httpd_request *r) { generation_start(&s->models, r, API_CHAT); }
static void completion(struct server *s, struct httpd_request *r) { generation_start(&s->models, r, API_COMPLETION); }
static void messages(struct server *s, struct httpd_request *r) { generation_start(&s->models, r, API_MESSAGES); }

#define POOLED(name, route)                                                                                                                          \
    static void name(struct server *s, struct httpd_request *r) { pooled_start(s, r, route); }
POOLED(embeddings, POOLED_EMBEDDINGS)
POOLED(rerank, POOLED_RERANK)
POOLED(score, POOLED_SCORE)
POOLED(classify, POOLED_CLASSIFY)
POOLED(pooling, POOLED_POOLING)
POOLED(tei_embed, POOLED_TEI_EMBED)
POOLED(tei_embed_all, POOLED_TEI_EMBED_ALL)
POOLED(tei_embed_sparse, POOLED_TEI_EMBED_SPARSE)
POOLED(tei_predict, POOLED_TEI_PREDICT)
POOLED(tei_similarity, POOLED_TEI_SIMILARITY)

static void root(struct server *s, struct httpd_request *r)
{
    if (!strcmp(r->method, "POST")) pooled_root(s, r);
    else page_serve(s, r);
}

static const struct route {
    const char *method, *path;
    int flags;
    void (*handle)(struct server *s, struct httpd_request *r);
} routes[] = {
    {"POST", "/v1/chat/completions", 0, chat},
    {"POST", "/v1/completions", 0, completion},
    {"POST", "/v1/messages/count_tokens", ANTHROPIC, ops_count_tokens},
    {"POST", "/v1/messages", ANTHROPIC, messages},
    {"GET", "/v1/models", 0, ops_models},
    {"GET", "/v1/models/", PREFIX, ops_model},
    {"POST", "/tokenize", 0, pooled_tokenize_either},
    {"POST", "/detokenize", 0, ops_detokenize},
    {"POST", "/v1/tokenize", 0, ops_tokenize},
    {"POST", "/v1/detokenize", 0, ops_detokenize},
    {"POST", "/v1/embeddings", 0, embeddings},
    {"POST", "/embeddings", 0, embeddings},
    {"POST", "/v1/rerank", 0, rerank},
    {"POST", "/v2/rerank", 0, rerank},
    {"POST", "/rerank", TEI, pooled_rerank_either},
    {"POST", "/v1/score", 0, score},
    {"POST", "/score", 0, score},
    {"POST", "/v1/classify", 0, classify},
    {"POST", "/classify", 0, classify},
    {"POST", "/v1/pooling", 0, pooling},
    {"POST", "/pooling", 0, pooling},
    {"POST", "/embed", TEI, tei_embed},
    {"POST", "/embed_all", TEI, tei_embed_all},
    {"POST", "/embed_sparse", TEI, tei_embed_sparse},
    {"POST", "/predict", TEI, tei_predict},
    {"POST", "/similarity", TEI, tei_similarity},
    {"POST", "/decode", TEI, pooled_decode},
    {"GET", "/info", TEI, pooled_info},
    {"GET", "/v1/rose/stats", QUIET, ops_stats},
    {"GET", "/health", OPEN | QUIET, ops_health},
    {"GET", "/ping", OPEN | QUIET, ops_health},
    {"POST", "/invocations", TEI, pooled_root},
    {"GET", "/metrics", OPEN | QUIET, ops_metrics},
    {"GET", "/version", OPEN | QUIET, ops_version},
    {"GET", "/v2/health/", OPEN | QUIET | PREFIX | KSERVE, kserve_route},
    {"GET", "/v2/", PREFIX | KSERVE, kserve_route},
    {"GET", "/v2", KSERVE, kserve_route},
    {"GET, POST", "/", OPEN | TEI, root},
};

const char *routes_name(int index) { return index < (int)ROSE_COUNT(routes) ? routes[index].path : NULL; }

static const struct route *find(const char *path)
{
    for (size_t i = 0; i < ROSE_COUNT(routes); i++)
        if (routes[i].flags & PREFIX ? !strncmp(path, routes[i].path, strlen(routes[i].path)) && path[strlen(routes[i].path)] : !strcmp(path, routes[i].path)) return &routes[i];
    return NULL;
}

void route_error(struct httpd_request *r, const struct api_error *e)
{
    const struct route *route = find(r->path);
    if (route && route->flags & KSERVE) {
        kserve_refuse(r, e);
        return;
    }
    if (route && route->flags & TEI) {
        pooled_refuse(r, true, e);
        return;
    }
    generation_refuse(r, route && route->flags & ANTHROPIC ? &anthropic_writer : &openai_chat_writer, e);
}

static bool has_key(const struct server *s, const struct httpd_request *r)
{
    const char *bearer = httpd_header(r, "Authorization"), *plain = httpd_header(r, "X-Api-Key");
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) return keys_match(&s->keys, str_of(bearer + 7));
    return plain && keys_match(&s->keys, str_of(plain));
}

static const char *allowed(const char *methods)
{
    if (methods && !strcmp(methods, "GET, POST")) return "GET, HEAD, POST, OPTIONS";
    return methods && !strcmp(methods, "POST") ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

/* A list of header names and nothing else. */
static bool are_tokens(const char *list)
{
    for (; *list; list++)
        if (!((*list >= 'a' && *list <= 'z') || (*list >= 'A' && *list <= 'Z') || (*list >= '0' && *list <= '9') || strchr("!#$%&'*+-.^_`|~, \t", *list))) return false;
    return true;
}

/* OPTIONS: what a browser asks before a cross-origin request. Whatever headers it means to send it may: those of SDKs (x-stainless-*, anthropic-version,
 * Inference-Header-Content-Length) are many, and none means anything here but what these routes read. */
static void preflight(struct server *s, struct httpd_request *r, const char *methods)
{
    static const char usual[] = "Authorization, Content-Type, X-Api-Key, X-Request-Id, Anthropic-Version, Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access, Inference-Header-Content-Length";
    httpd_add_header(r, "Allow", allowed(methods));
    if (s->options->cors_origin) {
        httpd_add_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
        const char *wanted = httpd_header(r, "Access-Control-Request-Headers");
        char *copy = wanted ? arena_strndup(&r->arena, wanted, strlen(wanted)) : NULL;
        httpd_add_header(r, "Access-Control-Allow-Headers", copy && are_tokens(copy) ? copy : usual);
        httpd_add_header(r, "Access-Control-Max-Age", "600");
    }
    httpd_reply(r, 204, NULL, (struct str){"", 0});
}

void routes_headers(void *server, struct httpd_request *r)
{
    struct server *s = server;
    const struct route *route = find(r->path);
    struct api_error e = {0};
    bool is_post = !strcmp(r->method, "POST"), is_get = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
    const char *methods = !route ? NULL : route->flags & KSERVE ? kserve_methods(r->path) : route->method;
    if (!methods) route = NULL;
    if (!strcmp(r->method, "OPTIONS")) {
        preflight(s, r, methods);
        return;
    }
    if (!route) api_error_set(&e, 404, "not_found_error", "not_found", NULL, "there is nothing at %.200s", r->path);
    else if (!(is_post && strstr(methods, "POST")) && !(is_get && strstr(methods, "GET"))) {
        httpd_add_header(r, "Allow", allowed(methods));
        api_error_set(&e, 405, "invalid_request_error", "method_not_allowed", NULL, "%.200s takes %s, not %.40s", r->path, methods, r->method);
    } else if (s->keys.count && !(route->flags & OPEN && is_get) && !has_key(s, r)) {
        httpd_add_header(r, "WWW-Authenticate", "Bearer");
        api_error_set(&e, 401, "authentication_error", "invalid_api_key", NULL, "no valid API key was sent (Authorization: Bearer KEY, or X-Api-Key: KEY)");
    }
    if (!e.status) return;
    r->close = is_post || !is_get; /* a body may be on its way, which nobody will read */
    route_error(r, &e);
}

void routes_request(void *server, struct httpd_request *r) { find(r->path)->handle(server, r); }

void routes_completed(void *server, const struct httpd_request *r)
{
    struct server *s = server;
    const struct route *route = find(r->path);
    int hundred = r->status / 100, row = route ? (int)(route - routes) : ROUTES_MAX - 1;
    s->answers[row][hundred >= 1 && hundred <= 5 ? hundred : 0]++;
    s->bytes_sent += r->sent;
    s->clients_gone += r->gone;
    if (s->options->log_requests && s->settings.info && !(route && route->flags & QUIET && r->status < 400)) log_request(s, r);
}
