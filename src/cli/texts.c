#define _GNU_SOURCE
#include "cli/texts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 4096 }; /* texts under way */
/* Bytes of answers that wait for an earlier one before no more texts are submitted (with --tokens one has megabytes); and what a slot may keep. */
enum { MOST_HELD = 256 << 20, KEPT = 64 << 10 };

static volatile sig_atomic_t interrupts;
static void on_interrupt(int signal)
{
    (void)signal;
    interrupts++;
}

struct run {
    const struct texts_job *job;
    struct strbuf slot[WINDOW]; /* answers that wait for their turn; text i in slot i % WINDOW */
    bool ready[WINDOW];
    size_t submitted, emitted, under_way, held;
    bool failed; /* nothing more is submitted */
    struct rose_error *err;
    enum rose_status status;
};

static void fail(struct run *r, enum rose_status s)
{
    if (r->status == ROSE_OK) r->status = s;
    r->failed = true;
}

static size_t line_of(const struct texts_job *j, size_t i) { return (j->line ? j->line(j->arg, i) : i) + 1; }

static void submit_some(struct run *r)
{
    const struct texts_job *j = r->job;
    while (!r->failed && !interrupts && r->submitted < j->count && r->submitted - r->emitted < WINDOW && (r->held < MOST_HELD || !r->under_way)) {
        struct rose_request request;
        struct rose_error err = {0};
        uint64_t id;
        rose_request_init(&request);
        enum rose_status s = j->request(j->arg, r->submitted, &request, &err);
        request.user = r->submitted;
        request.group = 1;
        if (s == ROSE_OK) s = rose_submit(j->engine, &request, &id, &err);
        if (s == ROSE_BUSY && r->under_way) return;
        if (s != ROSE_OK) {
            s = status_set(r->err, s, "line %zu: %s", line_of(j, r->submitted), err.message);
            fail(r, s);
            return;
        }
        r->submitted++;
        r->under_way++;
    }
}

static void take(struct run *r, const struct rose_event *e)
{
    size_t i = (size_t)e->user;
    if (e->kind != ROSE_EVENT_FINAL) return;
    r->under_way--;
    if (r->failed && i >= r->submitted) return;
    if (e->finish != ROSE_FINISH_STOP) {
        fail(r, status_set(r->err, e->status ? e->status : ROSE_CANCELLED, "line %zu: %s", line_of(r->job, i), e->message ? e->message : "cancelled"));
        return;
    }
    struct strbuf *slot = &r->slot[i % WINDOW];
    slot->n = 0;
    enum rose_status s = r->job->answer(r->job->arg, i, e, slot, r->err);
    if (s == ROSE_OK && slot->failed) s = status_set(r->err, ROSE_NO_MEMORY, "out of memory");
    if (s != ROSE_OK) fail(r, s);
    else r->ready[i % WINDOW] = true, r->held += slot->n;
}

static void emit_ready(struct run *r)
{
    while (r->emitted < r->submitted && r->ready[r->emitted % WINDOW]) {
        struct strbuf *slot = &r->slot[r->emitted % WINDOW];
        r->ready[r->emitted % WINDOW] = false;
        r->held -= slot->n;
        if (!r->job->emit(r->job->arg, r->emitted, strbuf_str(slot))) {
            fail(r, status_set(r->err, ROSE_IO, "the output cannot be written: %s", strerror(errno)));
            return;
        }
        if (slot->cap > KEPT) strbuf_free(slot);
        r->emitted++;
    }
}

enum rose_status texts_run(const struct texts_job *job, bool *interrupted, struct rose_error *err)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    *r = (struct run){.job = job, .submitted = job->first, .emitted = job->first, .err = err};
    struct sigaction act = {.sa_handler = on_interrupt}, before;
    struct rose_event events[64];
    struct cli_progress progress;
    cli_progress_begin(&progress);
    interrupts = 0;
    sigaction(SIGINT, &act, &before);
    for (submit_some(r); r->under_way; submit_some(r)) {
        size_t n = rose_events(job->engine, events, ROSE_COUNT(events), 200);
        for (size_t i = 0; i < n; i++) take(r, &events[i]);
        if (!r->failed || r->status != ROSE_IO) emit_ready(r);
        cli_progress_show(&progress, job->what, r->emitted, job->count);
    }
    sigaction(SIGINT, &before, NULL);
    cli_progress_end(&progress);
    for (size_t i = 0; i < WINDOW; i++) strbuf_free(&r->slot[i]);
    *interrupted = interrupts != 0;
    enum rose_status s = r->status;
    free(r);
    return s;
}

enum rose_status texts_read(const char *path, struct texts_lines *out, struct rose_error *err)
{
    *out = (struct texts_lines){0};
    ROSE_TRY(cli_read(path, (size_t)1 << 32, &out->all, err));
    const char *p = out->all.p, *end = p + out->all.n;
    for (const char *q = p; q < end; q++) out->count += *q == '\n';
    if (out->all.n && end[-1] != '\n') out->count++;
    out->line = calloc(out->count + 1, sizeof *out->line);
    if (!out->line) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < out->count; i++) {
        const char *q = memchr(p, '\n', (size_t)(end - p));
        if (!q) q = end;
        size_t n = (size_t)(q - p);
        out->line[i] = (struct str){p, n && p[n - 1] == '\r' ? n - 1 : n};
        p = q + 1;
    }
    return ROSE_OK;
}

void texts_free(struct texts_lines *lines)
{
    strbuf_free(&lines->all);
    free(lines->line);
    *lines = (struct texts_lines){0};
}

static enum rose_status cannot_write(const char *path, struct rose_error *err)
{
    return status_at(err, ROSE_IO, path, -1, "cannot write %s: %s", path, strerror(errno));
}

enum rose_status texts_made(struct texts_made *m, const char *made_by, const char *model, const char *input, const char *output, bool restart, struct rose_error *err)
{
    *m = (struct texts_made){.input = input, .restart = restart};
    ROSE_TRY(rose_fingerprint(model, m->fingerprint, err));
    m->resume = (struct resume){.made_by = made_by, .output = output, .model = model, .fingerprint = m->fingerprint};
    resume_option(&m->resume, "weights", cli_common.weights);
    resume_option(&m->resume, "deterministic", cli_common.deterministic ? "on" : "off");
    return ROSE_OK;
}

static bool is_input(const struct texts_made *m, const struct stat *output)
{
    struct stat in;
    return (strcmp(m->input, "-") ? stat(m->input, &in) : fstat(0, &in)) == 0 && in.st_dev == output->st_dev && in.st_ino == output->st_ino;
}

enum rose_status texts_open(const struct texts_made *m, FILE **out, long *size, struct rose_error *err)
{
    const char *path = m->resume.output;
    struct stat st;
    bool there = stat(path, &st) == 0, keeps = !there || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
    if (there && keeps && is_input(m, &st)) return status_at(err, ROSE_INVALID, path, -1, "%s is the input and is left as it is: name another output", path);
    *size = !keeps ? -1 : there && S_ISREG(st.st_mode) ? (long)st.st_size : 0;
    *out = fopen(path, !keeps ? "wbe" : there ? "r+be" : "w+be");
    if (*out && keeps && m->restart && *size) {
        if (ftruncate(fileno(*out), 0)) return cannot_write(path, err);
        *size = 0;
    }
    return *out ? ROSE_OK : cannot_write(path, err);
}

/* The first `there` lines are those that were answered? */
static enum rose_status check_lines(const struct texts_made *m, const struct resume_marks *now, size_t there, size_t count, struct rose_error *err)
{
    struct resume_marks was;
    const struct resume *r = &m->resume;
    ROSE_TRY(resume_read(r, &was, err));
    enum rose_status s = ROSE_OK;
    if (there > was.count) s = resume_refuse(r, err, "%s holds %zu answers, more than %s.resume knows of", r->output, there, r->output);
    else if (there > count) s = resume_refuse(r, err, "%s holds %zu answers and the input has %zu lines: it belongs to another input", r->output, there, count);
    for (size_t i = 0; s == ROSE_OK && i < there; i++)
        if (was.mark[i].asked != now->mark[i].asked) s = resume_refuse(r, err, "line %zu of the input is another than the one that %s holds an answer to: it belongs to another input", i + 1, r->output);
    resume_marks_free(&was);
    return s;
}

enum rose_status texts_settle(const struct texts_made *m, const struct texts_lines *lines, size_t there, long size, struct rose_error *err)
{
    struct resume_marks now = {0};
    enum rose_status s = ROSE_OK;
    for (size_t i = 0; s == ROSE_OK && i < lines->count; i++)
        if (!resume_marks_add(&now, (struct resume_mark){0, resume_hash(lines->line[i].p, lines->line[i].n)})) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK && size > 0) s = check_lines(m, &now, there, lines->count, err);
    if (s == ROSE_OK) s = resume_write(&m->resume, &now, err);
    resume_marks_free(&now);
    if (s != ROSE_OK || !there || cli_common.quiet) return s;
    char line[120];
    if (there == lines->count) snprintf(line, sizeof line, "%zu answer%s kept, and no line is without one", there, there == 1 ? "" : "s");
    else snprintf(line, sizeof line, "%zu answer%s kept, going on at line %zu", there, there == 1 ? "" : "s", there + 1);
    cli_say(line);
    return s;
}

/* Every line begins with its index, also the last one that may be cut in half. *whole: bytes of whole lines. */
static bool are_answers(FILE *f, size_t *lines, long *whole)
{
    char want[32];
    int n = 0, column = 0;
    long at = 0;
    *lines = 0;
    *whole = 0;
    for (int c; (c = getc(f)) != EOF; column++) {
        at++;
        if (!column) n = snprintf(want, sizeof want, "{\"index\":%zu,", *lines);
        if (column < n && c != want[column]) return false;
        if (c != '\n') continue;
        ++*lines;
        *whole = at;
        column = -1;
    }
    return !ferror(f);
}

enum rose_status texts_resume(const struct texts_made *m, const struct texts_lines *lines, FILE **out, size_t *there, struct rose_error *err)
{
    const char *path = m->resume.output;
    long whole, size;
    *there = 0;
    ROSE_TRY(texts_open(m, out, &size, err));
    if (size < 0) return ROSE_OK;
    if (!are_answers(*out, there, &whole)) return resume_refuse(&m->resume, err, "%s holds something else than this command's answers", path);
    ROSE_TRY(texts_settle(m, lines, *there, size, err));
    return fflush(*out) || ftruncate(fileno(*out), whole) || fseek(*out, whole, SEEK_SET) ? cannot_write(path, err) : ROSE_OK;
}
