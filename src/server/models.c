#include "server/models.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "server/generation.h"

struct slot {
    struct generation *generation; /* NULL: free */
    int part;
    uint32_t count; /* uses so far, never 0 */
    uint32_t next;
};

static enum rose_status model_open(struct model *m, const struct server_options *o, const struct server_model *from, struct rose_error *err)
{
    *m = (struct model){.name = from->name, .engine = from->engine, .created = (int64_t)time(NULL)};
    rose_engine_info(m->engine, &m->info);
    m->reasoning = m->info.chat_template && strstr(m->info.chat_template, "<think>");
    if (o->null_model && !(m->null = null_model_open(m->engine))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return ROSE_OK;
}

enum rose_status models_open(struct models *m, const struct server_options *o, const struct server_model *list, int count, struct rose_error *err)
{
    *m = (struct models){.slots_free = UINT32_MAX, .models = calloc((size_t)count, sizeof *m->models)};
    if (!m->models) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < count; i++) {
        if (models_find(m, str_of(list[i].name))) return status_set(err, ROSE_INVALID, "two models are called \"%s\": name them apart with --alias", list[i].name);
        ROSE_TRY(model_open(&m->models[i], o, &list[i], err));
        m->count++;
    }
    return ROSE_OK;
}

void models_close(struct models *m)
{
    for (int i = 0; i < m->count; i++) null_model_close(m->models[i].null);
    free(m->models);
    free(m->slots);
}

struct model *models_find(struct models *m, struct str name)
{
    for (int i = 0; i < m->count; i++)
        if (!name.n || m->any_name || str_is(name, m->models[i].name)) return &m->models[i];
    return NULL;
}

uint64_t models_handle(struct models *m, struct generation *g, int part)
{
    if (m->slots_free == UINT32_MAX) {
        uint32_t more = m->slots_count ? m->slots_count * 2 : 256;
        struct slot *slots = realloc(m->slots, more * sizeof *slots);
        if (!slots) return 0;
        for (uint32_t i = m->slots_count; i < more; i++) slots[i] = (struct slot){.count = 1, .next = i + 1 < more ? i + 1 : UINT32_MAX};
        m->slots_free = m->slots_count;
        m->slots = slots;
        m->slots_count = more;
    }
    uint32_t i = m->slots_free;
    struct slot *s = &m->slots[i];
    m->slots_free = s->next;
    s->generation = g;
    s->part = part;
    m->handles_open++;
    return (uint64_t)s->count << 32 | i;
}

static struct slot *find_slot(struct models *m, uint64_t handle)
{
    uint32_t i = (uint32_t)handle;
    if (!handle || i >= m->slots_count || m->slots[i].count != handle >> 32 || !m->slots[i].generation) return NULL;
    return &m->slots[i];
}

void models_release(struct models *m, uint64_t handle)
{
    struct slot *s = find_slot(m, handle);
    if (!s) return;
    s->generation = NULL;
    if (++s->count == 0) s->count = 1;
    s->next = m->slots_free;
    m->slots_free = (uint32_t)handle;
    m->handles_open--;
}

enum rose_status model_submit(struct model *m, const struct rose_request *r, uint64_t *id, struct rose_error *err)
{
    return m->null ? null_model_submit(m->null, r, id, err) : rose_submit(m->engine, r, id, err);
}

void model_cancel(struct model *m, uint64_t id)
{
    if (m->null) null_model_cancel(m->null, id);
    else rose_cancel(m->engine, id);
}

size_t model_text_limit(const struct model *m) { return ROSE_MAX((size_t)1 << 20, (size_t)m->info.context * 16); }

int model_event_fd(struct model *m) { return m->null ? null_model_fd(m->null) : rose_event_fd(m->engine); }

void model_stats(const struct model *m, struct rose_stats *out)
{
    if (m->null) null_model_stats(m->null, out);
    else rose_engine_stats(m->engine, out);
}

/* The null model is as fast as its reader, not faster. */
static bool reader_is_behind(void *user, uint64_t handle)
{
    struct slot *s = find_slot(user, handle);
    return s && s->generation->http && httpd_pending(s->generation->http) > 16384;
}

bool models_pump(struct models *m, struct model *model)
{
    static struct rose_event events[512];
    size_t n = model->null ? null_model_events(model->null, events, ROSE_COUNT(events), reader_is_behind, m) : rose_events(model->engine, events, ROSE_COUNT(events), 0);
    for (size_t i = 0; i < n; i++) {
        struct slot *s = find_slot(m, events[i].user);
        if (s) generation_event(s->generation, s->part, &events[i]);
    }
    return n == ROSE_COUNT(events);
}

void models_drain(struct models *m)
{
    m->draining = true;
    for (int i = 0; i < m->count; i++)
        if (!m->models[i].null) rose_engine_drain(m->models[i].engine);
}
