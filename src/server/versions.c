#include "server/versions.h"

#include <stdio.h>

#include "server/models.h"

static enum rose_status add_version(struct version_policy *p, int64_t v, struct rose_error *err)
{
    if (v < 1 || v > INT32_MAX) return status_set(err, ROSE_INVALID, "version_policy: a version must be a number from 1 on");
    if (p->count == VERSIONS_MOST) return status_set(err, ROSE_LIMIT, "version_policy: at most %d versions are taken", VERSIONS_MOST);
    p->list[p->count++] = (int32_t)v;
    return ROSE_OK;
}

static enum rose_status set_count(struct version_policy *p, int64_t n, struct rose_error *err)
{
    if (n < 1 || n > INT32_MAX) return status_set(err, ROSE_INVALID, "version_policy: num_versions must be a number from 1 on");
    p->count = (int)n;
    return ROSE_OK;
}

static bool kind_of(struct str name, enum versions_kind *kind)
{
    static const char *const names[] = {"latest", "all", "specific"};
    for (int i = 0; i < 3; i++)
        if (str_is(name, names[i])) return *kind = (enum versions_kind)i, true;
    return false;
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------------------------ */

static enum rose_status read_policy(const struct json *j, struct version_policy *out, struct rose_error *err)
{
    struct version_policy p = {0};
    if (!json_is(j, JSON_OBJECT) || j->count != 1 || !kind_of(json_member(j, 0)->key, &p.kind) || json_member(j, 0)->value.type != JSON_OBJECT)
        return status_set(err, ROSE_INVALID, "version_policy must be an object with one of latest, all, specific, each an object");
    const struct json *v = &json_member(j, 0)->value, *list = json_get(v, "versions"), *n = json_get(v, "num_versions");
    if (p.kind == VERSIONS_LATEST && n) ROSE_TRY(set_count(&p, json_int(n, 0), err));
    if (p.kind == VERSIONS_SPECIFIC && !json_is(list, JSON_ARRAY)) return status_set(err, ROSE_INVALID, "version_policy: specific wants a list of versions");
    for (uint32_t i = 0; p.kind == VERSIONS_SPECIFIC && i < list->count; i++) {
        int64_t version = json_int(json_at(list, i), 0); /* protobuf's JSON writes 64-bit numbers as texts */
        if (json_at(list, i)->type == JSON_STRING && !str_to_i64(json_at(list, i)->string, &version)) version = 0;
        ROSE_TRY(add_version(&p, version, err));
    }
    *out = p;
    return ROSE_OK;
}

enum rose_status versions_read_json(const struct json *config, const char *name, struct version_policy *out, struct rose_error *err)
{
    if (!json_is(config, JSON_OBJECT)) return status_set(err, ROSE_INVALID, "config must be the JSON text of an object");
    for (uint32_t i = 0; i < config->count; i++) {
        const struct json_member *m = json_member(config, i);
        if (str_is(m->key, "name") && m->value.type == JSON_STRING && str_is(m->value.string, name)) continue;
        if (!str_is(m->key, "version_policy"))
            return status_set(err, ROSE_UNSUPPORTED, "config: %.*s cannot be set by a load: but for version_policy a configuration follows from the model's files and rose serve's options",
                              (int)ROSE_MIN(m->key.n, 60), m->key.p);
    }
    if (!json_get(config, "version_policy")) return status_set(err, ROSE_UNSUPPORTED, "config has no version_policy, and nothing else can be set by a load");
    return read_policy(json_get(config, "version_policy"), out, err);
}

void versions_add(const struct version_policy *p, struct strbuf *b)
{
    if (p->kind == VERSIONS_LATEST) strbuf_printf(b, "{\"latest\":{\"num_versions\":%d}}", ROSE_MAX(p->count, 1));
    if (p->kind == VERSIONS_ALL) strbuf_adds(b, "{\"all\":{}}");
    if (p->kind != VERSIONS_SPECIFIC) return;
    strbuf_adds(b, "{\"specific\":{\"versions\":[");
    for (int i = 0; i < p->count; i++) strbuf_printf(b, "%s%d", i ? "," : "", (int)p->list[i]);
    strbuf_adds(b, "]}}");
}

/* --- of the models that there are --------------------------------------------------------------------------------------------------------------- */

bool versions_wanted(const struct models *m, const struct model *model)
{
    const struct version_policy *p = &model->policy;
    int above = 0;
    if (model->empty) return false;
    if (!model->repository || p->kind == VERSIONS_ALL) return true;
    for (int i = 0; p->kind == VERSIONS_SPECIFIC && i < p->count; i++)
        if (p->list[i] == model->version) return true;
    if (p->kind == VERSIONS_SPECIFIC) return false;
    for (int i = 0; i < m->count; i++) above += !m->models[i].empty && !strcmp(m->models[i].name, model->name) && m->models[i].version > model->version;
    return above < ROSE_MAX(p->count, 1);
}

struct model *versions_next(struct models *m, struct str name)
{
    struct model *best = NULL;
    for (int i = 0; i < m->count; i++) {
        struct model *c = &m->models[i];
        if (!str_is(name, c->name) || !versions_wanted(m, c)) continue;
        bool waits = c->state != MODEL_READY, best_waits = best && best->state != MODEL_READY;
        if (!best || waits > best_waits || (waits == best_waits && c->version > best->version)) best = c;
    }
    return best;
}
