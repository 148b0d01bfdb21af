/* The models served, and the table that leads from an engine's event to whoever waits for it.
 *
 * An event's `user` is a handle: the slot's index in its low half, the slot's use count in its high half. A client that leaves gives its handles
 * back at once; events that still come for them find another count, and are dropped.
 */
#ifndef ROSE_SERVER_MODELS_H
#define ROSE_SERVER_MODELS_H

#include "base/str.h"
#include "rose.h"
#include "server/null_model.h"
#include "server/server.h"
#include "server/versions.h"

/* Whoever waits for the events of engine requests. */
struct event_sink {
    void (*take)(struct event_sink *sink, int part, const struct rose_event *event);
    bool (*is_full)(const struct event_sink *sink); /* its reader is behind; NULL: never */
};

/* KServe's names; a model that is not READY takes no new requests. */
enum model_state { MODEL_UNAVAILABLE, MODEL_LOADING, MODEL_READY, MODEL_UNLOADING };
enum { MODELS_MAX = 256, MODEL_NAME_MAX = 200, MODEL_LABEL_MAX = MODEL_NAME_MAX + 32 };

/* What has come of its requests, as Triton counts them: a call of several texts is one request of so many inferences. Nanoseconds from a request's
 * beginning to its end; of them until the first of it was computed; and the rest. */
struct model_counts {
    uint64_t success, fail, inferences, success_ns, fail_ns, queue_ns, compute_ns;
    int64_t last_ms; /* of the latest end, since 1970 */
};

struct model_config;
struct kserve_map;
struct model {
    char name[MODEL_NAME_MAX + 1];
    int version;             /* 1 where nothing says otherwise */
    char *path;              /* where it is loaded from; NULL: it cannot be loaded again */
    const char *task;        /* rose_engine_options.task, when it is loaded again; static */
    const char *repository;  /* the directory it was found in; NULL: named on the command line */
    struct version_policy policy; /* of its name */
    bool empty;              /* its directory holds nothing to load: `reason` says so */
    bool policy_brought;     /* by a load: the directory's file does not count */
    struct model_config *config; /* of its directory's config.pbtxt, as of its loading; NULL: none */
    struct kserve_map *map;  /* what that calls its tensors; NULL: as the engine does */
    enum model_state state;
    char reason[600];        /* why it is unavailable */
    bool owned;              /* the engine is closed with it */
    int open;                /* handles of its requests */
    struct rose_engine *engine; /* NULL: not loaded */
    struct null_model *null; /* answers instead of the engine; NULL */
    struct rose_model_info info;
    bool reasoning;          /* its chat template speaks of <think> */
    int64_t created;
    struct model_counts counts;
    struct model_wait *waits;
    bool again;              /* unloading, and asked for meanwhile: it is loaded when that is done */
};

struct loader;
struct beside;
struct models {
    struct model *models; /* [MODELS_MAX]: they stay where they are */
    int count;
    bool draining;
    struct slot *slots;
    uint32_t slots_count, slots_free; /* free: first of the list, UINT32_MAX: none */
    uint64_t handles_open;
    const struct server_options *options;
    int epoll_fd;          /* watches their events; -1: nobody does */
    struct loader *loader; /* loader.c */
    struct beside *beside; /* beside.c; NULL: everything is tokenised where it is submitted */
};

enum rose_status models_open(struct models *m, const struct server_options *options, const struct server_model *list, int count, struct rose_error *err);
void models_close(struct models *m);
/* One more, not loaded. NULL: *err says why. */
struct model *models_add(struct models *m, const char *name, int version, const char *path, const char *repository, struct rose_error *err);
/* It is there, or there again. On failure the engine is still the caller's. */
enum rose_status model_attach(struct models *m, struct model *model, struct rose_engine *engine, struct rose_error *err);
/* Take the engine away; no handle is out. */
struct rose_engine *model_detach(struct models *m, struct model *model);
/* A ready one by name, of the highest version. An empty name is the first ready one that can do something of `can` (ROSE_CAN_* bits; 0: whatever), else
 * the first, whose engine says what it does instead. NULL: none. */
struct model *models_find(struct models *m, struct str name, unsigned can);
/* Why models_find had none: 503 while the model of that name (of none: any) is being loaded or unloaded, else 404. False. */
struct api_error;
bool models_missing(struct models *m, struct str name, struct api_error *e);
/* Any state; version 0: the highest ready, else the highest. */
struct model *models_lookup(struct models *m, struct str name, int version);
/* What names this version among all that are up: the name, and of versions that do not answer to it NAME/versions/N, in `to` [MODEL_LABEL_MAX]. */
const char *models_label(struct models *m, const struct model *model, char *to);
/* It has an engine: requests may still run. */
static inline bool model_is_up(const struct model *m) { return m->engine && (m->state == MODEL_READY || m->state == MODEL_UNLOADING); }
const char *model_state_name(enum model_state state);

/* Events of requests that carry the handle go to the sink. 0: out of memory. */
uint64_t models_handle(struct models *m, struct model *model, struct event_sink *sink, int part);
void models_release(struct models *m, uint64_t handle);
/* From now on its events go there. */
void models_redirect(struct models *m, uint64_t handle, struct event_sink *sink);

enum rose_status model_submit(struct model *m, const struct rose_request *request, uint64_t *id, struct rose_error *err);
void model_cancel(struct model *m, uint64_t id);
/* A request has ended. Those of models that generate are counted by their engine's events. */
void model_count(struct model *m, bool ok, double queued_s, double computed_s);
/* Bytes of text a request may have: what no context could hold is not tokenised (one endless word is the slowest). 16 bytes a token is far above any text's average; short contexts get a mebibyte all the same. */
size_t model_text_limit(const struct model *m);
int model_event_fd(struct model *m);
void model_stats(const struct model *m, struct rose_stats *out);
/* Hand out what waits; true: there may be more. */
bool models_pump(struct models *m, struct model *model);
void models_drain(struct models *m);

#endif
