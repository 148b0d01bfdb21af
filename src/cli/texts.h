/* Many texts through one engine: a window of requests under way, answers taken in the order of the texts. */
#ifndef ROSE_CLI_TEXTS_H
#define ROSE_CLI_TEXTS_H

#include <stdio.h>

#include "base/resume.h"
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

/* What answers in a file were made of (base/resume.h), and whether they stay. */
struct texts_made {
    struct resume resume;
    char fingerprint[65];
    const char *input; /* the path, or "-" */
    bool restart;      /* what is there goes */
};
/* Of the common options those that answers depend on; the command's own follow by resume_option. */
enum rose_status texts_made(struct texts_made *m, const char *made_by, const char *model, const char *input, const char *output, bool restart, struct rose_error *err);
/* The output, to read and write; made when it is not there. *size: bytes that are there; -1: it keeps nothing, a pipe or a device, which is only
 * written, from the first answer on. */
enum rose_status texts_open(const struct texts_made *m, FILE **out, long *size, struct rose_error *err);
/* `there` whole answers were found in `size` bytes: are they of these lines, this model and these options? Says how many are kept. From here on the
 * output may be written. Anything else is left as it is, and an error. */
enum rose_status texts_settle(const struct texts_made *m, const struct texts_lines *lines, size_t there, long size, struct rose_error *err);
/* Both for answers of a line each, where a line cut in half goes; *out stands behind the whole ones. */
enum rose_status texts_resume(const struct texts_made *m, const struct texts_lines *lines, FILE **out, size_t *there, struct rose_error *err);

#endif
