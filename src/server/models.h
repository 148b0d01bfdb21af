/* The models served, and the table that leads from an engine's event to the answer it belongs to.
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

struct generation;

struct model {
    const char *name;
    struct rose_engine *engine;
    struct null_model *null; /* answers instead of the engine; NULL */
    struct rose_model_info info;
    bool reasoning;          /* its chat template speaks of <think> */
    int64_t created;
};

struct models {
    struct model *models;
    int count;
    bool draining, any_name; /* any_name: whatever a request says, it is the first */
    struct slot *slots;
    uint32_t slots_count, slots_free; /* free: first of the list, UINT32_MAX: none */
    uint64_t handles_open;
};

enum rose_status models_open(struct models *m, const struct server_options *options, const struct server_model *list, int count, struct rose_error *err);
void models_close(struct models *m);
/* By name; an empty name is the first model. NULL: none. */
struct model *models_find(struct models *m, struct str name);

uint64_t models_handle(struct models *m, struct generation *g, int part); /* 0: out of memory */
void models_release(struct models *m, uint64_t handle);

enum rose_status model_submit(struct model *m, const struct rose_request *request, uint64_t *id, struct rose_error *err);
void model_cancel(struct model *m, uint64_t id);
/* Bytes of text a request may have. Tokenising happens between two events of all clients: a text that no context could hold (one endless word is
 * the slowest) must not keep them waiting. 16 bytes a token is far above any text's average; short contexts get a mebibyte all the same. */
size_t model_text_limit(const struct model *m);
int model_event_fd(struct model *m);
void model_stats(const struct model *m, struct rose_stats *out);
/* Hand out what waits; true: there may be more. */
bool models_pump(struct models *m, struct model *model);
void models_drain(struct models *m);

#endif
