/* A model that costs nothing: every answer is the same word over and over, as fast as it is read. What then takes time is the server:
 * HTTP, JSON, tokenising, streaming. For measuring (rose serve --null-model), not for serving.
 */
#ifndef ROSE_SERVER_NULL_MODEL_H
#define ROSE_SERVER_NULL_MODEL_H

#include "rose.h"

struct null_model;

/* The engine is open for tokenising only; prompts go through it as they would. */
struct null_model *null_model_open(struct rose_engine *engine);
void null_model_close(struct null_model *n);
enum rose_status null_model_submit(struct null_model *n, const struct rose_request *request, uint64_t *id, struct rose_error *err);
void null_model_cancel(struct null_model *n, uint64_t id);
/* As rose_events with time-out 0: one token for each running choice a call. A request for which `full` is true waits. */
size_t null_model_events(struct null_model *n, struct rose_event *events, size_t room, bool (*full)(void *user, uint64_t handle), void *user);
/* Readable while requests run. */
int null_model_fd(const struct null_model *n);
void null_model_stats(const struct null_model *n, struct rose_stats *out);

#endif
