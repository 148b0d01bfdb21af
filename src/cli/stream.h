/* One request from submission to its final event, with Ctrl-C as cancellation. */
#ifndef ROSE_CLI_STREAM_H
#define ROSE_CLI_STREAM_H

#include "cli/cli.h"

/* Gives every event to `on_event`; false from it cancels the request (the final event still comes). *interrupted (may be NULL): Ctrl-C
 * ended it. A request that ends with an error is this call's error. */
enum rose_status cli_stream(struct rose_engine *engine, const struct rose_request *request, bool (*on_event)(void *user, const struct rose_event *event), void *user,
                            bool *interrupted, struct rose_error *err);
/* Bytes to standard output at once; false when it is closed. */
bool cli_put(const char *bytes, size_t n);

#endif
