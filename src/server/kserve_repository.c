/* Loading, settings and readiness: what KServe's transports do alike. */
#include <stdio.h>

#include "server/kserve.h"
#include "server/loader.h"

void kserve_rescan(struct server *s)
{
    struct rose_error err;
    for (int i = 0; i < s->options->repositories_count; i++)
        if (repository_scan(&s->models, s->options->repositories[i], &err) != ROSE_OK) log_line(s->options, "warning", "%s", err.message);
}

static bool refused(enum rose_status s, const struct rose_error *err, struct api_error *e)
{
    int status = s == ROSE_BUSY || s == ROSE_CANCELLED || s == ROSE_NO_MEMORY ? 503 : s == ROSE_NOT_FOUND ? 404 : 400;
    return api_error_set(e, status, "server_error", NULL, NULL, "%s", err->message);
}

/* The policy that a load brings, or none: then the directory's own counts again. */
static bool bring_policy(struct server *s, struct str name, const struct json *parameters, struct arena *arena, struct api_error *e)
{
    struct rose_error err = {0};
    struct version_policy p = {0};
    const struct json *config = json_get(parameters, "config"), *read;
    char text[MODEL_NAME_MAX + 1];
    snprintf(text, sizeof text, "%.*s", (int)ROSE_MIN(name.n, MODEL_NAME_MAX), name.p);
    if (!json_is_null(parameters) && parameters->type != JSON_OBJECT) return api_error_field(e, "parameters", "parameters must be an object");
    for (uint32_t i = 0; parameters && i < parameters->count; i++)
        if (!str_is(json_member(parameters, i)->key, "config"))
            return api_error_set(e, 501, "invalid_request_error", "unsupported_parameter", NULL, "load parameter '%.*s': files are not taken from requests, they are those of the model's directory; 'config' can bring a version_policy",
                                 (int)ROSE_MIN(json_member(parameters, i)->key.n, 64), json_member(parameters, i)->key.p);
    if (config && (config->type != JSON_STRING || json_parse(arena, NULL, config->string, &read, &err) != ROSE_OK))
        return api_error_field(e, "config", "load parameter 'config' must be the JSON text of a model configuration%s%.200s", err.message[0] ? ": " : "", err.message);
    enum rose_status st = config ? versions_read_json(read, text, &p, &err) : ROSE_OK;
    if (st != ROSE_OK) return api_error_set(e, st == ROSE_UNSUPPORTED ? 501 : 400, "invalid_request_error", "unsupported_parameter", "config", "load parameter '%.480s'", err.message);
    for (int i = 0; i < s->models.count; i++) {
        struct model *m = &s->models.models[i];
        if (!str_is(name, m->name) || !m->repository) continue;
        m->policy_brought = config != NULL;
        if (config) m->policy = p;
    }
    return true;
}

bool kserve_load(struct server *s, struct str name, const struct json *parameters, struct arena *arena, struct model_wait *wait, struct model **model, struct api_error *e)
{
    struct rose_error err = {0};
    kserve_rescan(s); /* first: a policy is for all that is there */
    if (!bring_policy(s, name, parameters, arena, e)) return false;
    if (!json_get(parameters, "config")) kserve_rescan(s);
    *model = versions_next(&s->models, name);
    const struct model *known = *model ? NULL : models_lookup(&s->models, name, 0);
    if (known && known->empty) return api_error_set(e, 400, "server_error", NULL, NULL, "failed to load '%s': %s", known->name, known->reason);
    if (known)
        return api_error_set(e, 400, "not_found_error", "model_not_found", NULL, "failed to load '%.*s': its version_policy names no version that is there", (int)ROSE_MIN(name.n, 200), name.p);
    if (!*model) return api_error_set(e, 404, "not_found_error", "model_not_found", NULL, "failed to load '%.*s', no such model in the repository", (int)ROSE_MIN(name.n, 200), name.p);
    if ((*model)->state == MODEL_READY) loader_retire(&s->models, *model);
    enum rose_status st = loader_load(&s->models, *model, wait, &err);
    return st == ROSE_OK || refused(st, &err, e);
}

bool kserve_load_more(struct server *s, struct model_wait *wait, struct model **model, enum rose_status *status, struct rose_error *err)
{
    struct model *next = *status == ROSE_OK ? versions_next(&s->models, str_of((*model)->name)) : NULL;
    if (!next || next->state == MODEL_READY) return false;
    *model = next;
    *status = loader_load(&s->models, next, wait, err);
    return *status == ROSE_OK;
}

bool kserve_unload(struct server *s, struct str name, struct api_error *e)
{
    bool known = false;
    struct rose_error err = {0};
    for (int i = 0; i < s->models.count; i++) {
        struct model *m = &s->models.models[i];
        if (!str_is(name, m->name)) continue;
        known = true;
        enum rose_status st = loader_unload(&s->models, m, &err);
        if (st != ROSE_OK) return refused(st, &err, e);
    }
    return known || api_error_set(e, 404, "not_found_error", "model_not_found", NULL, "failed to unload '%.*s', no such model", (int)ROSE_MIN(name.n, 200), name.p);
}

/* All that should serve does: the highest version of every name, but for what was unloaded on purpose. */
bool kserve_ready(const struct server *s)
{
    bool any = false;
    for (int i = 0; i < s->models.count; i++) {
        const struct model *m = &s->models.models[i];
        if (m->state == MODEL_LOADING) return false;
        any |= m->state == MODEL_READY;
    }
    return any && !s->draining;
}

/* --- settings ------------------------------------------------------------------------------------------------------------------------- */

static bool refuse(struct api_error *e, struct str key, const char *why)
{
    return api_error_set(e, 400, "invalid_request_error", "unsupported_parameter", NULL, "setting %.*s: %s", (int)ROSE_MIN(key.n, 64), key.p, why);
}

static bool change_log(struct server *s, struct str key, const struct json *v, struct api_error *e)
{
    struct kserve_settings *k = &s->settings;
    bool *to = str_is(key, "log_info") ? &k->info : str_is(key, "log_warning") ? &k->warning : str_is(key, "log_error") ? &k->error : NULL;
    if (to) {
        if (v->type != JSON_TRUE && v->type != JSON_FALSE) return refuse(e, key, "it must be true or false");
        *to = v->type == JSON_TRUE;
        return true;
    }
    if (str_is(key, "log_verbose_level")) {
        if (json_int(v, -1) < 0 || json_int(v, -1) > 100) return refuse(e, key, "it must be an integer from 0 to 100");
        k->verbose = (int)json_int(v, 0);
        return true;
    }
    if (str_is(key, "log_format")) {
        struct str f = json_str(v, "");
        if (!str_is(f, "default") && !str_is(f, "ISO8601")) return refuse(e, key, "it must be \"default\" or \"ISO8601\"");
        snprintf(k->format, sizeof k->format, "%.*s", STR_ARG(f));
        return true;
    }
    if (str_is(key, "log_file")) return json_str(v, "x").n == 0 || refuse(e, key, "lines go to standard error; whoever starts the server chooses where that leads");
    return refuse(e, key, "it is unknown");
}

static bool change_trace(struct server *s, struct str key, const struct json *v, struct api_error *e)
{
    struct kserve_settings *k = &s->settings;
    const struct json *first = v->type == JSON_ARRAY && v->count == 1 ? json_at(v, 0) : v; /* a value or a list of one */
    struct { const char *name; char *to; const char *fallback; } numbers[] = {{"trace_rate", k->rate, "1000"}, {"trace_count", k->count, "-1"}, {"log_frequency", k->frequency, "0"}};
    for (size_t i = 0; i < ROSE_COUNT(numbers); i++) {
        int64_t n;
        if (!str_is(key, numbers[i].name)) continue;
        if (first->type == JSON_NULL) return snprintf(numbers[i].to, 24, "%s", numbers[i].fallback), true;
        if (first->type == JSON_NUMBER && first->is_integer) n = first->integer;
        else if (!str_to_i64(json_str(first, "x"), &n)) return refuse(e, key, "it must be an integer");
        if (n < -1) return refuse(e, key, "it must be -1 or more");
        return snprintf(numbers[i].to, 24, "%lld", (long long)n), true;
    }
    if (str_is(key, "trace_level")) {
        if (v->type == JSON_NULL || str_is(json_str(first, ""), "OFF")) return true;
        return refuse(e, key, "only OFF is possible: there are no traces; log lines and /metrics have times");
    }
    if (str_is(key, "trace_file") || str_is(key, "trace_mode")) return v->type == JSON_NULL || refuse(e, key, "there are no traces");
    return refuse(e, key, "it is unknown");
}

bool kserve_settings_change(struct server *s, bool log, const struct json *settings, struct api_error *e)
{
    struct kserve_settings before = s->settings;
    if (!json_is_null(settings) && settings->type != JSON_OBJECT) return api_error_field(e, NULL, "the request must be a JSON object");
    for (uint32_t i = 0; settings && i < settings->count; i++) {
        const struct json_member *m = json_member(settings, i);
        if (log ? change_log(s, m->key, &m->value, e) : change_trace(s, m->key, &m->value, e)) continue;
        s->settings = before; /* all or nothing */
        return false;
    }
    return true;
}

void kserve_add_settings(const struct server *s, bool log, struct strbuf *b)
{
    const struct kserve_settings *k = &s->settings;
    if (log)
        strbuf_printf(b, "{\"log_file\":\"\",\"log_info\":%s,\"log_warning\":%s,\"log_error\":%s,\"log_verbose_level\":%d,\"log_format\":\"%s\"}", k->info ? "true" : "false",
                      k->warning ? "true" : "false", k->error ? "true" : "false", k->verbose, k->format);
    else
        strbuf_printf(b, "{\"trace_level\":[\"OFF\"],\"trace_rate\":\"%s\",\"trace_count\":\"%s\",\"log_frequency\":\"%s\",\"trace_file\":\"\",\"trace_mode\":\"triton\"}", k->rate, k->count,
                      k->frequency);
}
