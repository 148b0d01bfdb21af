#include "jit/jit_source.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"

enum { MAX_FILE_BYTES = 4 << 20, ARCH_LINES = 40 };

void jit_source_init(struct jit_library *library, const char *override_dir)
{
    *library = (struct jit_library){.override_dir = override_dir};
    arena_init(&library->arena, 0);
}

void jit_source_free(struct jit_library *library)
{
    free(library->files);
    arena_free(&library->arena);
}

static struct str embedded_text(struct str path)
{
    for (size_t i = 0; i < jit_source_embedded_count; i++) {
        const struct jit_embedded *e = &jit_source_embedded[i];
        if (str_is(path, e->path)) return (struct str){e->begin, (size_t)(e->end - e->begin)};
    }
    return (struct str){0};
}

static enum rose_status remember(struct jit_library *l, struct jit_file *f, const struct jit_file **out,
                                 struct rose_error *err)
{
    if (l->count == l->capacity) {
        size_t cap = l->capacity ? l->capacity * 2 : 32;
        struct jit_file **more = realloc(l->files, cap * sizeof *more);
        if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        l->files = more, l->capacity = cap;
    }
    f->marked = arena_printf(&l->arena, "#line 1 \"" JIT_VIRTUAL_ROOT "%s\"\n%s", f->path, f->text.p);
    if (!f->marked) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    uint8_t digest[32];
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, f->text.p, f->text.n);
    sha256_end(&h, digest);
    sha256_hex(digest, f->sha256);
    l->files[l->count++] = f;
    *out = f;
    return ROSE_OK;
}

enum rose_status jit_source_file(struct jit_library *l, struct str path, const struct jit_file **out,
                                 struct rose_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < l->count; i++)
        if (str_is(path, l->files[i]->path)) {
            *out = l->files[i];
            return ROSE_OK;
        }
    struct jit_file *f = ARENA_NEW(&l->arena, struct jit_file);
    if (f) f->path = arena_strndup(&l->arena, path.p, path.n);
    char *full = f && f->path && l->override_dir ? file_join(&l->arena, l->override_dir, f->path) : NULL;
    if (!f || !f->path || (l->override_dir && !full)) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (full && file_is_dir(full) && embedded_text(path).p) return status_set(err, ROSE_INVALID, "%s is a directory", full);
    if (full && file_exists(full) && !file_is_dir(full)) {
        ROSE_TRY(file_read(&l->arena, full, MAX_FILE_BYTES, &f->text, err));
        f->overridden = full;
        return remember(l, f, out, err);
    }
    f->text = embedded_text(path);
    return f->text.p ? remember(l, f, out, err) : ROSE_OK;
}

/* ---- includes ---- */

struct include {
    struct str name; /* n 0: the name is computed by macros */
    int line;
};

/* The next #include "name" or <name> at or after *at; false at the end. Comments are not skipped: a file too
 * many does no harm. */
static bool next_include(struct str text, size_t *at, int *line, struct include *out)
{
    while (*at < text.n) {
        size_t i = *at;
        const char *nl = memchr(text.p + i, '\n', text.n - i);
        size_t end = nl ? (size_t)(nl - text.p) : text.n;
        *at = end + 1;
        ++*line;
        while (i < end && (text.p[i] == ' ' || text.p[i] == '\t')) i++;
        if (i == end || text.p[i++] != '#') continue;
        while (i < end && (text.p[i] == ' ' || text.p[i] == '\t')) i++;
        if (end - i < 7 || memcmp(text.p + i, "include", 7)) continue;
        for (i += 7; i < end && (text.p[i] == ' ' || text.p[i] == '\t'); i++) {
        }
        *out = (struct include){.line = *line};
        if (i == end || (text.p[i] != '"' && text.p[i] != '<')) return true;
        char close = text.p[i++] == '"' ? '"' : '>';
        const char *stop = memchr(text.p + i, close, end - i);
        if (stop) out->name = (struct str){text.p + i, (size_t)(stop - text.p) - i};
        return true;
    }
    return false;
}

/* An include means a path below src/, or one beside the including file ("x.cuh"). */
static enum rose_status resolve(struct jit_library *l, const struct jit_file *from, struct str name,
                                const struct jit_file **out, struct rose_error *err)
{
    ROSE_TRY(jit_source_file(l, name, out, err));
    const char *slash = strrchr(from->path, '/');
    if (*out || !slash || memchr(name.p, '/', name.n)) return ROSE_OK;
    char *beside =
        arena_printf(&l->arena, "%.*s" STR_FMT, (int)(slash + 1 - from->path), from->path, STR_ARG(name));
    if (!beside) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return jit_source_file(l, str_of(beside), out, err);
}

static enum rose_status add_name(struct jit_library *l, struct jit_closure *c, const struct jit_file *from,
                                 struct str name, const struct jit_file *meant, struct rose_error *err)
{
    for (int i = 0; i < c->names; i++)
        if (str_is(name, c->name[i])) {
            /* The compiler is given one text per name. */
            if (c->meant[i] == meant) return ROSE_OK;
            return status_set(err, ROSE_INVALID,
                              "%s includes \"%s\", which means %s here and %s elsewhere; write its path",
                              from->path, c->name[i], meant->path, c->meant[i]->path);
        }
    if (c->names == JIT_MAX_FILES)
        return status_set(err, ROSE_LIMIT, "%s includes more than %d files", c->main->path, JIT_MAX_FILES);
    char *copy = arena_strndup(&l->arena, name.p, name.n);
    if (!copy) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    c->name[c->names] = copy;
    c->meant[c->names++] = meant;
    return ROSE_OK;
}

static bool add_file(struct jit_closure *c, const struct jit_file *f)
{
    for (int i = 0; i < c->files; i++)
        if (c->file[i] == f) return true;
    if (c->files == JIT_MAX_FILES) return false;
    c->file[c->files++] = f;
    return true;
}

static enum rose_status bad_include(const struct jit_file *from, const struct include *inc,
                                    struct rose_error *err)
{
    char file[200];
    if (from->overridden) snprintf(file, sizeof file, "%s", from->overridden);
    else snprintf(file, sizeof file, "src/%.190s", from->path);
    return status_at_line(err, ROSE_INVALID, file, inc->line, 0,
                          "%s:%d: a kernel includes files below src/ by their plain path, not %s", file,
                          inc->line, inc->name.n ? "absolute paths or .." : "computed names");
}

enum rose_status jit_source_closure(struct jit_library *l, const char *kernel, struct jit_closure *c,
                                    struct rose_error *err)
{
    char *path = arena_printf(&l->arena, "kernels/cuda/%s.cu", kernel);
    *c = (struct jit_closure){0};
    if (!path) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    ROSE_TRY(jit_source_file(l, str_of(path), &c->main, err));
    if (!c->main) return status_set(err, ROSE_NOT_FOUND, "there is no kernel %s (src/%s)", kernel, path);
    add_file(c, c->main);
    /* c->file doubles as the queue: whatever is added is scanned in its turn. */
    for (int i = 0; i < c->files; i++) {
        struct include inc;
        size_t at = 0;
        int line = 0;
        while (next_include(c->file[i]->text, &at, &line, &inc)) {
            const struct jit_file *f;
            /* The compiler would open such a file itself, behind the key's back. */
            if (!inc.name.n || inc.name.p[0] == '/' || str_find(inc.name, STR(".."), 0) >= 0)
                return bad_include(c->file[i], &inc, err);
            ROSE_TRY(resolve(l, c->file[i], inc.name, &f, err));
            if (!f) continue;
            if (!add_file(c, f))
                return status_set(err, ROSE_LIMIT, "%s includes more than %d files", path, JIT_MAX_FILES);
            ROSE_TRY(add_name(l, c, c->file[i], inc.name, f, err));
        }
    }
    for (int i = 1; i < c->files; i++)
        for (int j = i; j > 0 && strcmp(c->file[j]->path, c->file[j - 1]->path) < 0; j--) {
            const struct jit_file *t = c->file[j];
            c->file[j] = c->file[j - 1], c->file[j - 1] = t;
        }
    return ROSE_OK;
}

/* ---- architectures ---- */

struct str jit_source_arches(struct str text)
{
    size_t at = 0;
    for (int line = 0; line < ARCH_LINES && at < text.n; line++) {
        const char *nl = memchr(text.p + at, '\n', text.n - at);
        size_t end = nl ? (size_t)(nl - text.p) : text.n;
        struct str s = {text.p + at, end - at};
        while (s.n && strchr(" \t/*", s.p[0]) && s.p[0]) s.p++, s.n--;
        if (str_starts(s, STR("arch:"))) {
            s.p += 5, s.n -= 5;
            while (s.n && s.p[0] == ' ') s.p++, s.n--;
            while (s.n && strchr(" \t\r*/", s.p[s.n - 1])) s.n--;
            return s;
        }
        at = end + 1;
    }
    return (struct str){0};
}

enum rose_status jit_source_check_arch(const struct jit_file *file, const char *arch, struct rose_error *err)
{
    struct str list = jit_source_arches(file->text);
    size_t n = strlen(arch);
    if (!list.n)
        return status_at_line(
            err, ROSE_INVALID, file->path, 1, 0,
            "%s does not say what it is for: begin it with a line like '// arch: sm_80 sm_90a'", file->path);
    for (size_t i = 0; i < list.n;) {
        size_t end = i;
        while (end < list.n && list.p[end] != ' ' && list.p[end] != ',') end++;
        if (end - i == n && !memcmp(list.p + i, arch, n)) return ROSE_OK;
        i = end + 1;
    }
    return status_set(err, ROSE_UNSUPPORTED, "%s is not written for %s, only for " STR_FMT, file->path, arch,
                      (int)ROSE_MIN(list.n, 200), list.p);
}
