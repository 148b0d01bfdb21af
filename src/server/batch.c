#define _GNU_SOURCE
#include "server/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/map.h"
#include "server/generation.h"

enum { MAX_LINE = 64 << 20 };

/* One request under way: an answer without a connection. */
struct job {
    struct httpd_request request;
    struct str custom_id; /* in the request's arena */
    bool used;
};

struct batch {
    const struct batch_options *o;
    struct batch_report *report;
    struct models models;
    struct arena ids; /* owns the keys of `answered` */
    struct map answered;
    struct job *jobs;
    int under_way;
    struct resume_marks was, now; /* of requests, by custom_id: when the output was begun (sorted), and in this input */
    FILE *in;
    int out;
    long whole; /* bytes of whole answers in the output */
    char *line;
    size_t line_room;
    int line_number;
};

static struct str trimmed(const char *p, ssize_t n)
{
    while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r' || p[n - 1] == ' ')) n--;
    return (struct str){p, (size_t)n};
}

/* --- what is there already ------------------------------------------------------------------------------------------------------------- */

static enum rose_status remember(struct batch *b, struct str line, struct rose_error *err)
{
    struct arena a;
    const struct json *json;
    arena_init(&a, 0);
    enum rose_status s = json_parse(&a, b->o->output, line, &json, err);
    struct str id = s == ROSE_OK ? json_str(json_get(json, "custom_id"), "") : (struct str){"", 0};
    char *copy = arena_strndup(&b->ids, id.p, id.n);
    if (s == ROSE_OK && (!copy || !map_put(&b->answered, (struct str){copy, id.n}, 1))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    arena_free(&a);
    return s;
}

static int by_name(const void *a, const void *b)
{
    const struct resume_mark *x = a, *y = b;
    return x->name < y->name ? -1 : x->name > y->name;
}

static const struct resume_mark *mark_of(const struct resume_marks *m, uint64_t name)
{
    return m->count ? bsearch(&(struct resume_mark){name, 0}, m->mark, m->count, sizeof *m->mark, by_name) : NULL;
}

static enum rose_status read_answers(struct batch *b, FILE *f, struct rose_error *err)
{
    static const char begin[] = "{\"";
    for (ssize_t n; (n = getline(&b->line, &b->line_room, f)) > 0; b->whole += n) {
        bool cut = b->line[n - 1] != '\n';
        if (cut && !memcmp(b->line, begin, ROSE_MIN((size_t)n, sizeof begin - 1))) break; /* half an answer: it goes */
        struct str line = trimmed(b->line, n);
        enum rose_status s = cut ? status_set(err, ROSE_INVALID, "its last line has no end and is no half of an answer") : line.n ? remember(b, line, err) : ROSE_OK;
        if (s != ROSE_OK) return status_wrap(err, s, "%s holds something else than answers", b->o->output);
    }
    return ROSE_OK;
}

static enum rose_status read_output(struct batch *b, struct rose_error *err)
{
    struct stat st, in;
    if (stat(b->o->output, &st) != 0) return ROSE_OK;
    if (!S_ISREG(st.st_mode)) /* a device may have no end, and a pipe is not gone on with */
        return status_at(err, ROSE_INVALID, b->o->output, -1, "%s is not a regular file: answers that are there are read first", b->o->output);
    if (stat(b->o->input, &in) == 0 && in.st_dev == st.st_dev && in.st_ino == st.st_ino)
        return status_at(err, ROSE_INVALID, b->o->output, -1, "input and output are the same file");
    if (!st.st_size || b->o->restart) return ROSE_OK;
    FILE *f = fopen(b->o->output, "re");
    if (!f) return status_at(err, ROSE_IO, b->o->output, -1, "cannot open %s: %s", b->o->output, strerror(errno));
    enum rose_status s = read_answers(b, f, err);
    fclose(f);
    if (s == ROSE_OK) s = resume_read(b->o->resume, &b->was, err);
    if (s == ROSE_OK && b->was.count) qsort(b->was.mark, b->was.count, sizeof *b->was.mark, by_name);
    return s;
}

/* Everything that is there and asked for fits: what was asked is kept beside the output, then it may be written. */
static enum rose_status open_output(struct batch *b, struct rose_error *err)
{
    if (b->now.count) qsort(b->now.mark, b->now.count, sizeof *b->now.mark, by_name);
    size_t here = b->now.count;
    for (size_t i = 0; i < b->was.count; i++) /* answers whose requests are not in this input stay too */
        if (!mark_of(&(struct resume_marks){b->now.mark, here, 0}, b->was.mark[i].name) && !resume_marks_add(&b->now, b->was.mark[i])) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (b->o->restart && truncate(b->o->output, 0) && errno != ENOENT) return status_at(err, ROSE_IO, b->o->output, -1, "cannot write %s: %s", b->o->output, strerror(errno));
    ROSE_TRY(resume_write(b->o->resume, &b->now, err));
    b->out = open(b->o->output, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (b->out < 0 || ftruncate(b->out, b->whole) || lseek(b->out, b->whole, SEEK_SET) < 0) return status_at(err, ROSE_IO, b->o->output, -1, "cannot write %s: %s", b->o->output, strerror(errno));
    return ROSE_OK;
}

/* A request that has its answer already: was it this one? */
static enum rose_status check_request(struct batch *b, struct str id, struct str url, const struct json *body, int number, struct rose_error *err)
{
    struct strbuf asked = {0};
    uint32_t there;
    strbuf_add(&asked, url.p, url.n);
    strbuf_addc(&asked, '\0');
    json_add_value(&asked, body);
    struct resume_mark m = {resume_hash(id.p, id.n), resume_hash(asked.p, asked.n)};
    bool good = !asked.failed && resume_marks_add(&b->now, m);
    strbuf_free(&asked);
    if (!good) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (!map_get(&b->answered, id, &there)) return ROSE_OK;
    b->report->skipped++;
    const struct resume_mark *was = mark_of(&b->was, m.name);
    if (was && was->asked == m.asked) return ROSE_OK;
    return resume_refuse(b->o->resume, err, "line %d asks something else by the custom_id \"%.*s\" than %s holds an answer to", number, (int)ROSE_MIN(id.n, (size_t)80), id.p, b->o->output);
}

/* Every line of the input must be usable before the first one runs. */
static enum rose_status check_line(struct batch *b, struct str line, int number, struct map *seen, struct arena *ids, struct rose_error *err)
{
    struct arena a;
    const struct json *json;
    uint32_t other;
    arena_init(&a, (size_t)1 << 30);
    enum rose_status s = json_parse(&a, b->o->input, line, &json, err);
    if (s != ROSE_OK) s = status_wrap(err, s, "line %d", number);
    struct str id = s == ROSE_OK ? json_str(json_get(json, "custom_id"), "") : (struct str){"", 0}, url = s == ROSE_OK ? json_str(json_get(json, "url"), "") : id;
    if (s == ROSE_OK && !id.n) s = status_at_line(err, ROSE_INVALID, b->o->input, number, 1, "line %d has no custom_id", number);
    if (s == ROSE_OK && map_get(seen, id, &other)) s = status_at_line(err, ROSE_INVALID, b->o->input, number, 1, "line %d repeats the custom_id of line %u", number, other);
    if (s == ROSE_OK && !str_is(url, "/v1/chat/completions") && !str_is(url, "/v1/completions"))
        s = status_at_line(err, ROSE_INVALID, b->o->input, number, 1, "line %d: url must be /v1/chat/completions or /v1/completions", number);
    if (s == ROSE_OK && !json_is(json_get(json, "body"), JSON_OBJECT)) s = status_at_line(err, ROSE_INVALID, b->o->input, number, 1, "line %d has no body", number);
    char *copy = s == ROSE_OK ? arena_strndup(ids, id.p, id.n) : NULL;
    if (s == ROSE_OK && (!copy || !map_put(seen, (struct str){copy, id.n}, (uint32_t)number))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    b->report->total += s == ROSE_OK;
    if (s == ROSE_OK) s = check_request(b, id, url, json_get(json, "body"), number, err);
    arena_free(&a);
    return s;
}

static enum rose_status check_input(struct batch *b, struct rose_error *err)
{
    struct map seen = {0};
    struct arena ids;
    enum rose_status s = ROSE_OK;
    arena_init(&ids, 0);
    b->in = fopen(b->o->input, "re");
    if (!b->in) return status_at(err, ROSE_IO, b->o->input, -1, "cannot open %s: %s", b->o->input, strerror(errno));
    int number = 1;
    for (ssize_t n; s == ROSE_OK && (n = getline(&b->line, &b->line_room, b->in)) > 0; number++) {
        struct str line = trimmed(b->line, n);
        if (n > MAX_LINE) s = status_at_line(err, ROSE_LIMIT, b->o->input, number, 1, "line %d has more than %d bytes", number, MAX_LINE);
        else if (line.n) s = check_line(b, line, number, &seen, &ids, err);
    }
    rewind(b->in);
    map_free(&seen);
    arena_free(&ids);
    return s;
}

/* --- jobs -------------------------------------------------------------------------------------------------------------------------------- */

static void close_job(struct batch *b, struct job *j)
{
    struct httpd_request *r = &j->request;
    void (*leave)(struct httpd_request *) = r->on_gone;
    r->on_gone = NULL;
    if (leave) leave(r);
    strbuf_free(&r->body);
    strbuf_free(&r->out);
    arena_free(&r->arena);
    j->used = false;
    b->under_way--;
}

static void start_job(struct batch *b, const struct json *json)
{
    struct job *j = b->jobs;
    while (j->used) j++;
    *j = (struct job){.used = true};
    b->under_way++;
    struct httpd_request *r = &j->request;
    arena_init(&r->arena, (size_t)512 << 20);
    snprintf(r->id, sizeof r->id, "batch%08x", (unsigned)b->line_number);
    struct str id = json_str(json_get(json, "custom_id"), "");
    j->custom_id = (struct str){arena_strndup(&r->arena, id.p, id.n), id.n};
    const struct json *body = json_get(json, "body");
    json_add_value(&r->body, body);
    if (json_bool(json_get(body, "stream"), false)) {
        struct api_error e;
        api_error_field(&e, "stream", "a batch has no streams");
        generation_refuse(r, &openai_chat_writer, &e);
        return;
    }
    generation_start(&b->models, r, str_is(json_str(json_get(json, "url"), ""), "/v1/completions") ? API_COMPLETION : API_CHAT);
}

/* The next line that has no answer yet. False: there is none. */
static bool start_next(struct batch *b)
{
    for (ssize_t n; (n = getline(&b->line, &b->line_room, b->in)) > 0;) {
        struct arena a;
        const struct json *json;
        uint32_t there;
        struct str line = trimmed(b->line, n);
        b->line_number++;
        if (!line.n) continue;
        arena_init(&a, (size_t)1 << 30);
        bool run = json_parse(&a, b->o->input, line, &json, NULL) == ROSE_OK && !map_get(&b->answered, json_str(json_get(json, "custom_id"), ""), &there);
        if (run) start_job(b, json);
        arena_free(&a);
        if (run) return true;
    }
    return false;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static enum rose_status finish_job(struct batch *b, struct job *j, struct rose_error *err)
{
    struct httpd_request *r = &j->request;
    struct strbuf line = {0};
    strbuf_printf(&line, "{\"id\":\"batch_req_%s\",\"custom_id\":", r->id);
    json_add_str(&line, j->custom_id);
    strbuf_printf(&line, ",\"response\":{\"status_code\":%d,\"request_id\":\"%s\",\"body\":", r->status, r->id);
    strbuf_add(&line, r->out.p, r->out.n);
    strbuf_adds(&line, "},\"error\":null}\n");
    b->report->done++;
    b->report->failed += r->status >= 400;
    b->report->prompt_tokens += r->log_prompt;
    b->report->completion_tokens += r->log_completion;
    bool ok = !line.failed && !r->out.failed && write_all(b->out, line.p, line.n);
    strbuf_free(&line);
    close_job(b, j);
    return ok ? ROSE_OK : status_at(err, ROSE_IO, b->o->output, -1, "cannot write %s: %s", b->o->output, strerror(errno));
}

static enum rose_status loop(struct batch *b, struct rose_error *err)
{
    struct model *m = &b->models.models[0];
    bool more = true;
    for (;;) {
        /* A full queue is no answer: such a job waits for its turn by not being started. */
        while (more && b->under_way < b->o->at_once) more = start_next(b);
        if (!b->under_way) return ROSE_OK;
        for (int i = 0; i < b->o->at_once; i++)
            if (b->jobs[i].used && b->jobs[i].request.status && b->jobs[i].request.ended) {
                ROSE_TRY(finish_job(b, &b->jobs[i], err));
                if (b->o->progress && !b->o->progress(b->o->user, b->report->skipped + b->report->done, b->report->total, b->report->failed))
                    return status_set(err, ROSE_CANCELLED, "stopped; the same command goes on where it was");
            }
        if (!b->under_way || (more && b->under_way < b->o->at_once)) continue;
        struct pollfd p = {model_event_fd(m), POLLIN, 0};
        if (poll(&p, 1, 200) == 0 && b->o->progress && !b->o->progress(b->o->user, b->report->skipped + b->report->done, b->report->total, b->report->failed))
            return status_set(err, ROSE_CANCELLED, "stopped; the same command goes on where it was");
        while (models_pump(&b->models, m)) {}
    }
}

enum rose_status batch_run(const struct batch_options *o, const struct server_model *model, struct batch_report *report, struct rose_error *err)
{
    struct batch b = {.o = o, .report = report, .out = -1, .jobs = calloc((size_t)o->at_once, sizeof *b.jobs)};
    struct server_options server;
    *report = (struct batch_report){0};
    server_options_init(&server);
    server.any_model = o->any_name;
    arena_init(&b.ids, 0);
    enum rose_status s = b.jobs ? models_open(&b.models, &server, model, 1, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) s = read_output(&b, err);
    if (s == ROSE_OK) s = check_input(&b, err);
    if (s == ROSE_OK) s = open_output(&b, err);
    if (s == ROSE_OK) s = loop(&b, err);
    for (int i = 0; b.jobs && i < o->at_once; i++)
        if (b.jobs[i].used) close_job(&b, &b.jobs[i]);
    if (b.in) fclose(b.in);
    if (b.out >= 0 && close(b.out) && s == ROSE_OK) s = status_at(err, ROSE_IO, o->output, -1, "cannot write %s: %s", o->output, strerror(errno));
    map_free(&b.answered);
    resume_marks_free(&b.was);
    resume_marks_free(&b.now);
    arena_free(&b.ids);
    models_close(&b.models);
    free(b.jobs);
    free(b.line);
    return s;
}
