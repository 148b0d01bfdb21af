/* rose batch: a file of requests in OpenAI's batch format through the same readers and writers as the server's. */
#ifndef ROSE_SERVER_BATCH_H
#define ROSE_SERVER_BATCH_H

#include "base/resume.h"
#include "server/server.h"

struct batch_options {
    const char *input, *output; /* JSON lines */
    int at_once;                /* requests under way */
    bool any_name;              /* "model" in the requests is not compared */
    const struct resume *resume; /* what answers depend on besides their requests */
    bool restart;               /* answers that are there go */
    /* Called after every answer; false: stop (what is under way is given up). May be NULL. */
    bool (*progress)(void *user, int done, int total, int failed);
    void *user;
};
struct batch_report {
    int total, skipped, done, failed; /* skipped: the output had them already; failed: answers with a status of 400 and more */
    int64_t prompt_tokens, completion_tokens;
};
/* Requests that the output has an answer for are not asked again; a line cut off by a kill is dropped and its request repeated.
 * Answers of another request by the same custom_id, or made with another model or other options, are an error (base/resume.h). */
enum rose_status batch_run(const struct batch_options *options, const struct server_model *model, struct batch_report *report, struct rose_error *err);

#endif
