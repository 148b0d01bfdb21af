#include "base/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

enum { VERSION = 1, DIGITS = 16 };

void resume_option(struct resume *r, const char *name, const char *value)
{
    if (r->options == RESUME_OPTIONS) return;
    r->option[r->options].name = name;
    r->option[r->options++].value = value ? value : "";
}

uint64_t resume_hash(const void *bytes, size_t n)
{
    struct sha256 h;
    uint8_t digest[32];
    uint64_t v = 0;
    sha256_init(&h);
    sha256_add(&h, bytes, n);
    sha256_end(&h, digest);
    for (int i = 0; i < 8; i++) v = v << 8 | digest[i];
    return v ? v : 1;
}

bool resume_marks_add(struct resume_marks *m, struct resume_mark mark)
{
    if (m->count == m->room) {
        size_t room = m->room ? m->room * 2 : 1024;
        struct resume_mark *more = realloc(m->mark, room * sizeof *more);
        if (!more) return false;
        m->mark = more;
        m->room = room;
    }
    m->mark[m->count++] = mark;
    return true;
}

void resume_marks_free(struct resume_marks *m)
{
    free(m->mark);
    *m = (struct resume_marks){0};
}

enum rose_status resume_refuse(const struct resume *r, struct rose_error *err, const char *fmt, ...)
{
    struct strbuf b = {.limit = 2000};
    va_list args;
    va_start(args, fmt);
    strbuf_vprintf(&b, fmt, args);
    va_end(args);
    enum rose_status s = status_at(err, ROSE_INVALID, r->output, -1, "%s; it is left as it is: name another output, or write it anew with --restart", b.p ? b.p : "");
    strbuf_free(&b);
    return s;
}

static enum rose_status foreign(const struct resume *r, struct rose_error *err) { return resume_refuse(r, err, "%s.resume is cut short, or was not written by this version of %s", r->output, r->made_by); }

/* The first line: the same command, model and options? */
static enum rose_status check_head(const struct resume *r, struct arena *a, struct str head, struct rose_error *err)
{
    const struct json *j;
    if (json_parse(a, NULL, head, &j, NULL) != ROSE_OK || json_int(json_get(j, "version"), 0) != VERSION) return foreign(r, err);
    struct str by = json_str(json_get(j, "made_by"), ""), model = json_str(json_get(j, "model"), "");
    if (!str_is(by, r->made_by)) return resume_refuse(r, err, "%s holds answers of " STR_FMT ", not of %s", r->output, STR_ARG(by), r->made_by);
    const struct json *options = json_get(j, "options");
    if (!str_is(json_str(json_get(j, "fingerprint"), ""), r->fingerprint))
        return resume_refuse(r, err, str_is(model, r->model) ? "%s holds answers of " STR_FMT " as it was with other files" : "%s holds answers of another model, " STR_FMT, r->output, STR_ARG(model));
    for (int i = 0; i < r->options; i++) {
        const struct json *was = json_get(options, r->option[i].name);
        struct str text = json_str(was, "");
        if (!was || !str_is(text, r->option[i].value))
            return resume_refuse(r, err, "%s holds answers made with --%s \"%.60s\", and now it is \"%.60s\"", r->output, r->option[i].name,
                                 text.n ? arena_strndup(a, text.p, text.n) : "", r->option[i].value);
    }
    return json_is(options, JSON_OBJECT) && (int)options->count == r->options ? ROSE_OK : foreign(r, err);
}

static bool digits(struct str *line, uint64_t *v)
{
    *v = 0;
    if (line->n < DIGITS) return false;
    for (int i = 0; i < DIGITS; i++) {
        char c = line->p[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
        *v = *v << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    line->p += DIGITS;
    line->n -= DIGITS;
    return true;
}

static bool read_mark(struct str line, struct resume_mark *m)
{
    *m = (struct resume_mark){0};
    if (!digits(&line, &m->asked)) return false;
    if (!line.n) return true;
    m->name = m->asked;
    line.p++;
    line.n--;
    return line.p[-1] == ' ' && digits(&line, &m->asked) && !line.n;
}

static enum rose_status read_marks(const struct resume *r, struct str rest, struct resume_marks *out, struct rose_error *err)
{
    while (rest.n) {
        const char *end = memchr(rest.p, '\n', rest.n);
        struct resume_mark m;
        if (!end || !read_mark((struct str){rest.p, (size_t)(end - rest.p)}, &m)) return foreign(r, err);
        if (!resume_marks_add(out, m)) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        rest.n -= (size_t)(end + 1 - rest.p);
        rest.p = end + 1;
    }
    return ROSE_OK;
}

/* FILE.resume, in the arena. */
static const char *beside(struct arena *a, const struct resume *r) { return arena_printf(a, "%s.resume", r->output); }

enum rose_status resume_read(const struct resume *r, struct resume_marks *out, struct rose_error *err)
{
    struct file_map map;
    struct arena a;
    *out = (struct resume_marks){0};
    arena_init(&a, 16 << 20);
    const char *path = beside(&a, r);
    enum rose_status s = path ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK && !file_exists(path)) s = resume_refuse(r, err, "%s holds something already, and %s, which would say what it was made of, is not there", r->output, path);
    else if (s == ROSE_OK) {
        s = file_map_open(&map, path, err);
        if (s == ROSE_OK) {
            struct str all = {(const char *)map.data, map.size};
            const char *end = all.n ? memchr(all.p, '\n', all.n) : NULL;
            s = end ? check_head(r, &a, (struct str){all.p, (size_t)(end - all.p)}, err) : foreign(r, err);
            if (s == ROSE_OK) s = read_marks(r, (struct str){end + 1, all.n - (size_t)(end + 1 - all.p)}, out, err);
            file_map_close(&map);
        }
    }
    arena_free(&a);
    if (s != ROSE_OK) resume_marks_free(out);
    return s;
}

enum rose_status resume_write(const struct resume *r, const struct resume_marks *marks, struct rose_error *err)
{
    struct strbuf b = {0};
    struct arena a;
    arena_init(&a, 1 << 20);
    const char *path = beside(&a, r);
    strbuf_adds(&b, "{\"made_by\":");
    json_add_str(&b, str_of(r->made_by));
    strbuf_printf(&b, ",\"version\":%d,\"model\":", VERSION);
    json_add_str(&b, str_of(r->model));
    strbuf_adds(&b, ",\"fingerprint\":");
    json_add_str(&b, str_of(r->fingerprint));
    strbuf_adds(&b, ",\"options\":{");
    for (int i = 0; i < r->options; i++) {
        if (i) strbuf_addc(&b, ',');
        json_add_str(&b, str_of(r->option[i].name));
        strbuf_addc(&b, ':');
        json_add_str(&b, str_of(r->option[i].value));
    }
    strbuf_adds(&b, "}}\n");
    for (size_t i = 0; i < marks->count; i++) {
        if (marks->mark[i].name) strbuf_printf(&b, "%016llx ", (unsigned long long)marks->mark[i].name);
        strbuf_printf(&b, "%016llx\n", (unsigned long long)marks->mark[i].asked);
    }
    enum rose_status s = b.failed || !path ? status_set(err, ROSE_NO_MEMORY, "out of memory") : file_write_atomic(path, strbuf_str(&b), err);
    strbuf_free(&b);
    arena_free(&a);
    return s;
}
