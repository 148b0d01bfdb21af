/* Many texts through one engine: a window of requests under way, answers taken in the order of the texts. */
#ifndef ROSE_CLI_TEXTS_H
#define ROSE_CLI_TEXTS_H

#include <stdio.h>

#include "cli/cli.h"

struct texts_job {
    struct rose_engine *engine;
    size_t first, count; /* texts [first, count) are asked for; those before are there already */
    const char *what;    /* of the progress line: "embedding" */
    void *arg;
    /* Fill the request of text i (its memory may go when the call of rose_submit is over). */
    enum rose_status (*request)(void *arg, size_t i, struct rose_request *request, struct rose_error *err);
    /* The answer to text i, in any order: format or store it. */
    enum rose_status (*answer)(void *arg, size_t i, const struct rose_event *event, struct strbuf *out, struct rose_error *err);
    /* In order: what answer wrote for text i. false: nobody listens any more. */
    bool (*emit)(void *arg, size_t i, struct str out);
    size_t (*line)(void *arg, size_t i); /* of the input, from 0, for messages; NULL: i */
};

/* Runs all; on an error the texts before the failed one have been emitted. Ctrl-C ends it likewise, *interrupted tells. */
enum rose_status texts_run(const struct texts_job *job, bool *interrupted, struct rose_error *err);

/* Lines of a file or of standard input ("-"), without their ends; empty lines count. */
struct texts_lines {
    struct strbuf all;
    struct str *line;
    size_t count;
};
enum rose_status texts_read(const char *path, struct texts_lines *out, struct rose_error *err);
void texts_free(struct texts_lines *lines);

/* Open path for answers, a line each, behind the whole ones that are there; a line cut in half goes. *there: how many; more than `most` belong to
 * another input, and a file of anything else is left alone: errors. What keeps nothing, a pipe or a device, is written from the first answer on. */
enum rose_status texts_resume(const char *path, size_t most, FILE **out, size_t *there, struct rose_error *err);
/* To read and write; made when it is not there. *keeps: false for a pipe or a device, which are only written. */
enum rose_status texts_open(const char *path, FILE **out, bool *keeps, struct rose_error *err);
enum rose_status texts_foreign(const char *path, size_t there, size_t most, struct rose_error *err);
enum rose_status texts_not_answers(const char *path, struct rose_error *err);

#endif
