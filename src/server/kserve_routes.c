/* The paths of KServe v2. Names of models may have slashes: what a path ends with is looked for from its end. */
#include <stdio.h>
#include <stdlib.h>

#include "server/cuda_shm.h"
#include "server/kserve.h"
#include "server/loader.h"

enum verb {
    V_NONE, V_SERVER, V_LIVE, V_READY, V_MODEL, V_MODEL_READY, V_CONFIG, V_STATS, V_ALL_STATS, V_INFER, V_GENERATE, V_GENERATE_STREAM, V_INDEX, V_LOAD, V_UNLOAD, V_LOGGING, V_TRACE,
    V_SHM_STATUS, V_SHM_REGISTER, V_SHM_UNREGISTER,
};
struct path {
    enum verb verb;
    struct str name, version;
    bool cuda;
};

static bool cut_start(struct str *s, const char *prefix)
{
    if (!str_starts(*s, str_of(prefix))) return false;
    *s = (struct str){s->p + strlen(prefix), s->n - strlen(prefix)};
    return true;
}

static bool cut_end(struct str *s, const char *suffix)
{
    if (!str_ends(*s, str_of(suffix))) return false;
    s->n -= strlen(suffix);
    return true;
}

/* "NAME" or "NAME/versions/N" */
static void cut_version(struct path *p)
{
    ptrdiff_t at = -1;
    for (ptrdiff_t next = 0; (next = str_find(p->name, STR("/versions/"), (size_t)next)) >= 0; next++) at = next;
    if (at < 0 || memchr(p->name.p + at + 10, '/', p->name.n - (size_t)at - 10)) return;
    p->version = (struct str){p->name.p + at + 10, p->name.n - (size_t)at - 10};
    p->name.n = (size_t)at;
}

static struct path model_path(struct str rest)
{
    static const struct { const char *end; enum verb verb; } ends[] = {{"/infer", V_INFER}, {"/generate_stream", V_GENERATE_STREAM}, {"/generate", V_GENERATE}, {"/ready", V_MODEL_READY},
                                                                       {"/config", V_CONFIG}, {"/stats", V_STATS}, {"/trace/setting", V_TRACE}};
    struct path p = {.verb = V_MODEL, .name = rest};
    for (size_t i = 0; i < ROSE_COUNT(ends); i++)
        if (cut_end(&p.name, ends[i].end)) {
            p.verb = ends[i].verb;
            break;
        }
    cut_version(&p);
    if (!p.name.n) p.verb = V_NONE;
    return p;
}

static struct path memory_path(struct str rest, bool cuda)
{
    static const struct { const char *end; enum verb verb; } ends[] = {{"/status", V_SHM_STATUS}, {"/register", V_SHM_REGISTER}, {"/unregister", V_SHM_UNREGISTER}};
    struct path p = {.cuda = cuda};
    for (size_t i = 0; i < ROSE_COUNT(ends); i++) {
        struct str name = rest;
        if (!cut_end(&name, ends[i].end)) continue;
        bool named = cut_start(&name, "/region/");
        if (!named && name.n) return p;
        if (named && !name.n) return p;
        if (!named && ends[i].verb == V_SHM_REGISTER) return p;
        p.verb = ends[i].verb;
        p.name = name;
        return p;
    }
    return p;
}

static struct path read_path(const char *text)
{
    static const struct { const char *path; enum verb verb; } whole[] = {{"", V_SERVER}, {"/", V_SERVER}, {"/health/live", V_LIVE}, {"/health/ready", V_READY}, {"/models/stats", V_ALL_STATS},
                                                                         {"/repository/index", V_INDEX}, {"/logging", V_LOGGING}, {"/trace/setting", V_TRACE}};
    struct str rest = str_of(text);
    if (!cut_start(&rest, "/v2")) return (struct path){0};
    for (size_t i = 0; i < ROSE_COUNT(whole); i++)
        if (str_is(rest, whole[i].path)) return (struct path){.verb = whole[i].verb};
    if (cut_start(&rest, "/models/")) return model_path(rest);
    if (cut_start(&rest, "/systemsharedmemory")) return memory_path(rest, false);
    if (cut_start(&rest, "/cudasharedmemory")) return memory_path(rest, true);
    if (!cut_start(&rest, "/repository/models/")) return (struct path){0};
    struct path p = {.name = rest};
    if (cut_end(&p.name, "/unload")) p.verb = V_UNLOAD;
    else if (cut_end(&p.name, "/load")) p.verb = V_LOAD;
    if (!p.name.n) p.verb = V_NONE;
    return p;
}

const char *kserve_methods(const char *path)
{
    switch (read_path(path).verb) {
    case V_NONE: return NULL;
    case V_LOGGING: case V_TRACE: return "GET, POST";
    case V_INFER: case V_GENERATE: case V_GENERATE_STREAM: case V_INDEX: case V_LOAD: case V_UNLOAD: case V_SHM_REGISTER: case V_SHM_UNREGISTER: return "POST";
    default: return "GET";
    }
}

/* --- answers -------------------------------------------------------------------------------------------------------------------------- */

static void reply(struct httpd_request *r, struct strbuf *b)
{
    struct api_error e;
    if (b->failed && !api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory")) kserve_refuse(r, &e);
    else httpd_reply(r, 200, b->n ? "application/json" : NULL, strbuf_str(b));
    strbuf_free(b);
}

static void reply_empty(struct httpd_request *r, int status) { httpd_reply(r, status, NULL, (struct str){"", 0}); }

/* The body as an object; an empty body is an empty object. */
static bool read_body(struct httpd_request *r, const struct json **out, struct api_error *e)
{
    static const struct json empty = {.type = JSON_OBJECT};
    struct rose_error err = {0};
    *out = &empty;
    if (!r->body.n) return true;
    enum rose_status s = json_parse(&r->arena, NULL, strbuf_str(&r->body), out, &err);
    if (s == ROSE_NO_MEMORY) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values");
    if (s != ROSE_OK) return api_error_set(e, 400, "invalid_request_error", "invalid_json", NULL, "failed to parse the request JSON buffer: %.400s", err.message);
    return (*out)->type == JSON_OBJECT || api_error_field(e, NULL, "the request must be a JSON object");
}

static void infer(struct server *s, struct httpd_request *r, const struct path *p)
{
    const char *header = httpd_header(r, "Inference-Header-Content-Length");
    struct api_error e = {0};
    int64_t n = -1;
    struct kserve_call *c = ARENA_NEW(&r->arena, struct kserve_call);
    if (!c) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
    } else if (header && (!str_to_i64(str_of(header), &n) || n < 0)) {
        api_error_field(&e, NULL, "Inference-Header-Content-Length is no length");
    } else if (kserve_read(strbuf_str(&r->body), header ? (size_t)n : SIZE_MAX, &r->arena, &s->regions, &c->request, &e)) {
        c->s = s;
        c->http = r;
        c->transport = &kserve_http;
        kserve_infer(c, p->name, p->version);
        return;
    }
    kserve_refuse(r, &e);
}

static void index_models(struct server *s, struct httpd_request *r)
{
    const struct json *body;
    struct api_error e = {0};
    struct strbuf b = {0};
    if (!read_body(r, &body, &e)) {
        kserve_refuse(r, &e);
        return;
    }
    bool ready_only = json_bool(json_get(body, "ready"), false), first = true;
    kserve_rescan(s);
    strbuf_addc(&b, '[');
    for (int i = 0; i < s->models.count; i++) {
        const struct model *m = &s->models.models[i];
        if (ready_only && m->state != MODEL_READY) continue;
        strbuf_adds(&b, first ? "{\"name\":" : ",{\"name\":");
        first = false;
        json_add_str(&b, str_of(m->name));
        strbuf_printf(&b, ",\"version\":\"%d\",\"state\":\"%s\",\"reason\":", m->version, model_state_name(m->state));
        json_add_str(&b, str_of(m->reason));
        strbuf_addc(&b, '}');
    }
    strbuf_addc(&b, ']');
    reply(r, &b);
}

/* A request that waits for a model to be loaded. */
struct load_wait {
    struct model_wait wait; /* first */
    struct server *s;
    struct httpd_request *http;
    struct model *model;
};

static void load_done(struct model_wait *w, struct model *model, enum rose_status status, const struct rose_error *err)
{
    struct load_wait *l = (struct load_wait *)w;
    struct api_error e;
    struct rose_error why = {0};
    if (err) why = *err;
    l->model = model;
    if (kserve_load_more(l->s, w, &l->model, &status, &why)) return;
    l->http->on_gone = NULL;
    if (status == ROSE_OK) {
        reply_empty(l->http, 200);
        return;
    }
    api_error_set(&e, 400, "server_error", NULL, NULL, "failed to load '%s': %s", l->model->name, why.message);
    kserve_refuse(l->http, &e);
}

static void load_gone(struct httpd_request *r)
{
    struct load_wait *l = r->owner;
    loader_forget(l->model, &l->wait);
}

static void load(struct server *s, struct httpd_request *r, const struct path *p)
{
    const struct json *body;
    struct api_error e = {0};
    struct load_wait *l = ARENA_NEW(&r->arena, struct load_wait);
    if (!l) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
    } else if (read_body(r, &body, &e)) {
        *l = (struct load_wait){.wait = {.done = load_done}, .s = s, .http = r};
        if (kserve_load(s, p->name, json_get(body, "parameters"), &r->arena, &l->wait, &l->model, &e)) {
            if (r->status) return;
            r->owner = l;
            r->on_gone = load_gone;
            return;
        }
    }
    kserve_refuse(r, &e);
}

static void settings(struct server *s, struct httpd_request *r, const struct path *p, bool log)
{
    const struct json *body;
    struct api_error e = {0};
    struct strbuf b = {0};
    if (p->name.n && !kserve_find(s, p->name, p->version, &e)) {
        kserve_refuse(r, &e);
        return;
    }
    if (!strcmp(r->method, "POST") && !(read_body(r, &body, &e) && kserve_settings_change(s, log, body, &e))) {
        kserve_refuse(r, &e);
        return;
    }
    kserve_add_settings(s, log, &b);
    reply(r, &b);
}

static void memory_status(struct server *s, struct httpd_request *r, const struct path *p)
{
    struct strbuf b = {0};
    struct api_error e;
    bool first = true;
    strbuf_addc(&b, '[');
    for (int i = 0; i < s->regions.count; i++) {
        const struct region *g = s->regions.all[i];
        if (g->memory || (p->name.n && !str_is(p->name, g->name))) continue;
        strbuf_adds(&b, first ? "{\"name\":" : ",{\"name\":");
        first = false;
        json_add_str(&b, str_of(g->name));
        strbuf_adds(&b, ",\"key\":");
        json_add_str(&b, str_of(g->key));
        strbuf_printf(&b, ",\"offset\":%zu,\"byte_size\":%zu}", g->offset, g->bytes);
    }
    strbuf_addc(&b, ']');
    if (p->cuda) {
        strbuf_free(&b);
        first = !cuda_shm_status(&s->regions, p->name, &b);
    }
    if (p->name.n && first) {
        strbuf_free(&b);
        api_error_set(&e, 404, "not_found_error", NULL, NULL, "unable to find %s shared memory region: '%.*s'", p->cuda ? "CUDA" : "system", (int)ROSE_MIN(p->name.n, 100), p->name.p);
        kserve_refuse(r, &e);
        return;
    }
    reply(r, &b);
}

static bool read_size(const struct json *body, const char *name, bool needed, uint64_t *out, struct api_error *e)
{
    const struct json *v = json_get(body, name);
    *out = 0;
    if (!v) return !needed || api_error_field(e, name, "%s is missing", name);
    if (v->type != JSON_NUMBER || !v->is_integer || v->integer < 0) return api_error_field(e, name, "%s must be an integer, 0 or more", name);
    *out = (uint64_t)v->integer;
    return true;
}

static void memory_register(struct server *s, struct httpd_request *r, const struct path *p)
{
    const struct json *body;
    struct api_error e = {0};
    uint64_t offset, bytes;
    if (p->cuda) {
        if (read_body(r, &body, &e) && cuda_shm_add_json(&s->regions, s->options->rose_device, p->name, body, &e)) {
            reply_empty(r, 200);
            return;
        }
    } else if (read_body(r, &body, &e) && read_size(body, "offset", false, &offset, &e) && read_size(body, "byte_size", true, &bytes, &e) &&
               regions_add(&s->regions, p->name, json_str(json_get(body, "key"), ""), offset, bytes, &e)) {
        reply_empty(r, 200);
        return;
    }
    kserve_refuse(r, &e);
}

static void about_model(struct server *s, struct httpd_request *r, const struct path *p)
{
    struct api_error e = {0};
    struct strbuf b = {0};
    struct model *m = kserve_find(s, p->name, p->version, &e);
    if (p->verb == V_MODEL_READY) {
        if (m && !s->draining) reply_empty(r, 200);
        else reply_empty(r, 400);
        return;
    }
    if (!m) {
        kserve_refuse(r, &e);
        return;
    }
    if (p->verb == V_CONFIG) {
        kserve_add_config(m, &b);
    } else if (p->verb == V_STATS) {
        strbuf_adds(&b, "{\"model_stats\":[");
        kserve_add_statistics(m, &b);
        strbuf_adds(&b, "]}");
    } else {
        kserve_add_model(s, m, &b);
    }
    reply(r, &b);
}

static void all_statistics(struct server *s, struct httpd_request *r)
{
    struct strbuf b = {0};
    bool first = true;
    strbuf_adds(&b, "{\"model_stats\":[");
    for (int i = 0; i < s->models.count; i++) {
        if (s->models.models[i].state != MODEL_READY) continue;
        if (!first) strbuf_addc(&b, ',');
        first = false;
        kserve_add_statistics(&s->models.models[i], &b);
    }
    strbuf_adds(&b, "]}");
    reply(r, &b);
}

void kserve_route(struct server *s, struct httpd_request *r)
{
    struct path p = read_path(r->path);
    struct api_error e = {0};
    struct strbuf b = {0};
    switch (p.verb) {
    case V_LIVE: reply_empty(r, 200); break;
    case V_READY: reply_empty(r, kserve_ready(s) ? 200 : 400); break;
    case V_MODEL: case V_MODEL_READY: case V_CONFIG: case V_STATS: about_model(s, r, &p); break;
    case V_ALL_STATS: all_statistics(s, r); break;
    case V_INFER: infer(s, r, &p); break;
    case V_GENERATE: kserve_generate(s, r, p.name, p.version, false); break;
    case V_GENERATE_STREAM: kserve_generate(s, r, p.name, p.version, true); break;
    case V_INDEX: index_models(s, r); break;
    case V_LOAD: load(s, r, &p); break;
    case V_UNLOAD:
        if (kserve_unload(s, p.name, &e)) reply_empty(r, 200);
        else kserve_refuse(r, &e);
        break;
    case V_LOGGING: settings(s, r, &p, true); break;
    case V_TRACE: settings(s, r, &p, false); break;
    case V_SHM_STATUS: memory_status(s, r, &p); break;
    case V_SHM_REGISTER: memory_register(s, r, &p); break;
    case V_SHM_UNREGISTER:
        regions_remove(&s->regions, p.name, p.cuda);
        reply_empty(r, 200);
        break;
    default: kserve_add_metadata(s, &b); reply(r, &b); break;
    }
}
