/* rose pull ORG/NAME: which files a repository has, which of them a model needs, and one after the other into the cache. */
#define _GNU_SOURCE
#include "cli/pull.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/json.h"
#include "cli/commands.h"

enum { MAX_LISTING = 64 << 20, MAX_FILES = 100000 };

static struct {
    const char *revision, *endpoint, *token;
    struct option_list files;
    bool all, quiet;
} o;

static const struct option options[] = {
    {"revision", 0, OPTION_TEXT, NULL, "REV", NULL, "main", 0, 0, "branch, tag or commit", &o.revision},
    {"file", 'f', OPTION_LIST, NULL, "PATTERN", NULL, NULL, 0, 0, "only files that match, such as '*Q4_K_M.gguf'; may be repeated", &o.files},
    {"all", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "every file, also what Rose does not read", &o.all},
    {"endpoint", 0, OPTION_TEXT, "HF_ENDPOINT", "URL", NULL, "https://huggingface.co", 0, 0, "the hub", &o.endpoint},
    {"token", 0, OPTION_TEXT, "HF_TOKEN", "TOKEN", NULL, NULL, 0, 0, "for private and gated models; better set in the environment", &o.token},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "no progress", &o.quiet},
};

size_t cli_pull_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

const char *pull_url(struct pull *p, const char *prefix, struct str path, bool slashes)
{
    struct strbuf b = {.limit = 8192};
    strbuf_printf(&b, "%s%s", p->endpoint, prefix);
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("-_.~", c)) || (slashes && c == '/');
        if (plain) strbuf_addc(&b, (char)c);
        else strbuf_printf(&b, "%%%02X", c);
    }
    const char *url = b.failed ? NULL : arena_strndup(&p->arena, b.p, b.n);
    strbuf_free(&b);
    return url;
}

/* --- progress ---------------------------------------------------------------------------------------------------------------------- */

void pull_progress(struct pull *p, const struct pull_file *file, int64_t done)
{
    if (p->quiet) return;
    double t = clock_seconds();
    int64_t sum = p->done + done;
    bool end = sum >= p->total;
    if (!p->shown) p->began = t, p->began_done = sum;
    if (p->shown && t - p->shown < 0.1 && !end) return;
    p->shown = t;
    double share = p->total > 0 ? (double)sum / (double)p->total : 1, rate = t - p->began > 0.2 ? (double)(sum - p->began_done) / (t - p->began) : 0;
    int filled = (int)(24 * share);
    char left[32] = "";
    if (rate > 0 && !end) snprintf(left, sizeof left, ", %.0f s left", (double)(p->total - sum) / rate);
    fprintf(stderr, "\r[%.*s%*s] %3.0f%% of %.1f MB, %.1f MB/s%s  %.*s\033[K", filled, "########################", 24 - filled, "", 100 * share, (double)p->total / 1e6, rate / 1e6,
            left, (int)ROSE_MIN(file->path.n, 40), file->path.p);
    if (end) fputc('\n', stderr);
}

/* --- the listing ------------------------------------------------------------------------------------------------------------------- */

static bool take_listing(void *user, long status, const void *bytes, size_t n)
{
    (void)status;
    return strbuf_add(user, bytes, n);
}

static enum rose_status refused(const struct pull *p, long status, struct rose_error *err)
{
    switch (status) {
    case 401:
    case 403:
        return status_set(err, ROSE_NOT_FOUND, "the hub gives " STR_FMT "/" STR_FMT " not to everybody or does not have it (HTTP %ld); %s", STR_ARG(p->org), STR_ARG(p->name), status,
                          p->token ? "HF_TOKEN may lack the right, or the model's terms wait to be accepted on its page" : "set HF_TOKEN when it is private or gated");
    case 404:
        return status_set(err, ROSE_NOT_FOUND, "the hub has no " STR_FMT "/" STR_FMT " with a revision " STR_FMT, STR_ARG(p->org), STR_ARG(p->name), STR_ARG(p->revision));
    default: return status_set(err, ROSE_IO, "the hub at %s answered with HTTP %ld", p->endpoint, status);
    }
}

static enum rose_status malformed(const struct pull *p, const char *what, struct rose_error *err)
{
    return status_set(err, ROSE_FORMAT, "the answer of %s is not a hub's: %s", p->endpoint, what);
}

static enum rose_status read_entry(struct pull *p, const struct json *j, struct pull_file *f, struct rose_error *err)
{
    f->path = json_str(json_get(j, "rfilename"), "");
    f->size = json_int(json_get(j, "size"), -1);
    if (!hub_safe_path(f->path)) return malformed(p, "it names a file that would lie outside of its directory", err);
    const struct json *lfs = json_get(j, "lfs");
    struct str name = json_str(json_get(lfs, "sha256"), "");
    if (!name.n) name = json_str(json_get(lfs, "oid"), "");
    if (str_starts(name, STR("sha256:"))) name.p += 7, name.n -= 7;
    if (json_is(lfs, JSON_OBJECT)) f->size = json_int(json_get(lfs, "size"), f->size);
    else if (!name.n) name = json_str(json_get(j, "blobId"), "");
    if (name.n && (!hub_is_hash(name) || (name.n != 64 && name.n != 40))) return malformed(p, "a file's hash is none", err);
    if (f->size < -1) return malformed(p, "a file's size is negative", err);
    snprintf(f->name, sizeof f->name, STR_FMT, STR_ARG(name));
    return ROSE_OK;
}

static enum rose_status read_listing(struct pull *p, struct str text, struct rose_error *err)
{
    const struct json *j, *files;
    if (json_parse(&p->arena, NULL, text, &j, err) != ROSE_OK) return malformed(p, "no JSON", err);
    struct str commit = json_str(json_get(j, "sha"), "");
    if (!hub_is_hash(commit)) return malformed(p, "it names no commit", err);
    snprintf(p->commit, sizeof p->commit, STR_FMT, STR_ARG(commit));
    files = json_get(j, "siblings");
    if (!json_is(files, JSON_ARRAY) || files->count > MAX_FILES) return malformed(p, "it lists no files", err);
    p->files = ARENA_ARRAY(&p->arena, struct pull_file, files->count + 1);
    if (!p->files) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (p->count = 0; p->count < files->count; p->count++) ROSE_TRY(read_entry(p, json_at(files, p->count), &p->files[p->count], err));
    return ROSE_OK;
}

static enum rose_status list(struct pull *p, struct rose_error *err)
{
    struct strbuf text = {.limit = MAX_LISTING};
    struct http_answer answer;
    const char *prefix = arena_printf(&p->arena, "/api/models/" STR_FMT "/" STR_FMT "/revision/", STR_ARG(p->org), STR_ARG(p->name));
    const char *base = prefix ? pull_url(p, prefix, p->revision, false) : NULL, *url = base ? arena_printf(&p->arena, "%s?blobs=true", base) : NULL;
    if (!url) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    struct http_request request = {.url = url, .bearer = p->token, .take = take_listing, .user = &text};
    enum rose_status s = http_get(p->http, &request, &answer, err);
    if (s == ROSE_OK && answer.status != 200) s = refused(p, answer.status, err);
    if (s == ROSE_OK && text.failed) s = malformed(p, "it does not end", err);
    /* Nodes point into the text, so it moves into the arena. */
    char *kept = s == ROSE_OK ? arena_strndup(&p->arena, text.p ? text.p : "", text.n) : NULL;
    if (s == ROSE_OK) s = kept ? read_listing(p, (struct str){kept, text.n}, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    strbuf_free(&text);
    return s;
}

/* --- which files -------------------------------------------------------------------------------------------------------------------- */

static bool matches(const struct pull_file *f, const char *pattern)
{
    char path[1024];
    snprintf(path, sizeof path, STR_FMT, STR_ARG(f->path));
    return fnmatch(pattern, path, 0) == 0;
}

static enum rose_status several_gguf(const struct pull *p, struct rose_error *err)
{
    struct strbuf names = {.limit = 700};
    for (size_t i = 0; i < p->count; i++)
        if (str_ends(p->files[i].path, STR(".gguf")))
            strbuf_printf(&names, "\n  " STR_FMT " (%.2f GB)", STR_ARG(p->files[i].path), (double)ROSE_MAX(p->files[i].size, 0) / 1e9);
    status_set(err, ROSE_INVALID, "there are several GGUF files; choose with --file '*Q4_K_M*' for example:%s", names.p ? names.p : "");
    strbuf_free(&names);
    return ROSE_INVALID;
}

static enum rose_status choose(struct pull *p, struct rose_error *err)
{
    static const char *const needed[] = {"*.json", "*.jinja", "*.model", "*.txt", "*.safetensors"};
    bool safetensors = false;
    size_t gguf = 0, wanted = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct str path = p->files[i].path;
        safetensors |= str_ends(path, STR(".safetensors"));
        /* The parts of one split model count as one. */
        gguf += str_ends(path, STR(".gguf")) && (str_find(path, STR("-of-"), 0) < 0 || str_find(path, STR("-00001-of-"), 0) >= 0);
    }
    if (!o.all && !o.files.count && !safetensors && gguf > 1) return several_gguf(p, err);
    for (size_t i = 0; i < p->count; i++) {
        struct pull_file *f = &p->files[i];
        f->wanted = o.all || (!o.files.count && !safetensors && str_ends(f->path, STR(".gguf")));
        for (int k = 0; k < o.files.count; k++) f->wanted |= matches(f, o.files.items[k]);
        for (size_t k = 0; !o.files.count && k < ROSE_COUNT(needed); k++) f->wanted |= matches(f, needed[k]);
        wanted += f->wanted;
        if (f->wanted && f->size > 0 && __builtin_add_overflow(p->total, f->size, &p->total)) return malformed(p, "sizes overflow", err);
    }
    if (!wanted) return status_set(err, ROSE_NOT_FOUND, "no file of the repository (%zu files) matches", p->count);
    return ROSE_OK;
}

static enum rose_status check_space(struct pull *p, struct rose_error *err)
{
    struct statvfs fs;
    int64_t missing = p->total;
    for (size_t i = 0; i < p->count; i++) {
        const char *blob = p->files[i].name[0] ? arena_printf(&p->arena, "%s/blobs/%s", p->repo_dir, p->files[i].name) : NULL;
        if (p->files[i].wanted && p->files[i].size > 0 && blob && file_exists(blob)) missing -= p->files[i].size;
    }
    if (statvfs(p->repo_dir, &fs) != 0 || (double)fs.f_bavail * (double)fs.f_frsize >= (double)missing) return ROSE_OK;
    return status_set(err, ROSE_IO, "%.2f GB are to be fetched and the disk of %s has %.2f GB left", (double)missing / 1e9, p->repo_dir, (double)fs.f_bavail * (double)fs.f_frsize / 1e9);
}

static enum rose_status fetch_all(struct pull *p, struct rose_error *err)
{
    ROSE_TRY(list(p, err));
    ROSE_TRY(choose(p, err));
    ROSE_TRY(file_make_dirs(arena_printf(&p->arena, "%s/blobs", p->repo_dir), err));
    ROSE_TRY(file_make_dirs(p->lock_dir, err));
    ROSE_TRY(check_space(p, err));
    for (size_t i = 0; i < p->count; i++)
        if (p->files[i].wanted) ROSE_TRY(pull_blob(p, &p->files[i], err));
    /* The reference comes last: who finds it finds all files. A revision that is the commit itself needs none. */
    if (str_is(p->revision, p->commit)) return ROSE_OK;
    const char *ref = arena_printf(&p->arena, "%s/refs/" STR_FMT, p->repo_dir, STR_ARG(p->revision));
    const char *slash = ref ? strrchr(ref, '/') : NULL, *dir = slash ? arena_strndup(&p->arena, ref, (size_t)(slash - ref)) : NULL;
    if (!dir) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    ROSE_TRY(file_make_dirs(dir, err));
    return file_write_atomic(ref, str_of(p->commit), err);
}

enum rose_status pull_model(const char *model, struct arena *arena, const char **snapshot, struct rose_error *err)
{
    struct pull p = {.quiet = o.quiet || !cli_is_terminal(2), .token = o.token};
    if (!hub_name(model, &p.org, &p.name, &p.revision)) return status_set(err, ROSE_INVALID, "\"%s\" is not ORG/NAME", model);
    if (!p.revision.n) p.revision = str_of(o.revision);
    if (!hub_safe_path(p.revision)) return status_set(err, ROSE_INVALID, "\"" STR_FMT "\" cannot be a revision", STR_ARG(p.revision));
    arena_init(&p.arena, (size_t)1 << 30);
    struct str endpoint = str_of(o.endpoint);
    while (endpoint.n && endpoint.p[endpoint.n - 1] == '/') endpoint.n--;
    p.endpoint = arena_strndup(&p.arena, endpoint.p, endpoint.n);
    const char *cache = hub_cache_dir(&p.arena);
    enum rose_status s = ROSE_OK;
    if (!p.endpoint || (!str_starts(endpoint, STR("https://")) && !str_starts(endpoint, STR("http://"))))
        s = status_set(err, ROSE_INVALID, "the endpoint \"%s\" does not begin with https://", o.endpoint);
    else if (!cache) s = status_set(err, ROSE_INVALID, "there is no place for the cache: set HF_HOME, XDG_CACHE_HOME or HOME");
    if (s == ROSE_OK) {
        p.repo_dir = hub_repo_dir(&p.arena, cache, p.org, p.name);
        p.lock_dir = arena_printf(&p.arena, "%s/.locks/models--" STR_FMT "--" STR_FMT, cache, STR_ARG(p.org), STR_ARG(p.name));
        s = p.repo_dir && p.lock_dir ? http_open(&p.http, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    if (s == ROSE_OK) s = fetch_all(&p, err);
    if (s != ROSE_OK && p.shown) fputc('\n', stderr);
    if (s == ROSE_OK) *snapshot = arena_printf(arena, "%s/snapshots/%s", p.repo_dir, p.commit);
    http_close(p.http);
    arena_free(&p.arena);
    return s;
}

int cli_pull(const struct cli_command *self, int argc, char **argv)
{
    const char *words[1], *snapshot = NULL;
    int count, status;
    struct rose_error err = {0};
    struct arena arena;
    if (!cli_parse(self, argc, argv, words, 1, &count, &status)) return status;
    if (!count) return cli_usage(self, "no ORG/NAME is named");
    arena_init(&arena, 0);
    enum rose_status s = pull_model(words[0], &arena, &snapshot, &err);
    if (s == ROSE_OK) puts(snapshot ? snapshot : "");
    arena_free(&arena);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}

bool cli_pull_offer(const char *model)
{
    struct str org, name, revision;
    struct rose_error err = {0};
    struct arena arena;
    const char *snapshot;
    bool help;
    int rest;
    char line[16];
    char *nothing[] = {(char[]){"pull"}};
    if (!hub_name(model, &org, &name, &revision) || file_exists(model) || !cli_is_terminal(0) || !cli_is_terminal(2)) return false;
    fprintf(stderr, "%s is not in the hub's cache. Fetch it now? [Y/n] ", model);
    if (!fgets(line, sizeof line, stdin) || (line[0] != '\n' && line[0] != 'y' && line[0] != 'Y')) return false;
    /* The command's defaults and environment. */
    enum rose_status s = option_parse(options, ROSE_COUNT(options), 1, nothing, NULL, 0, &rest, &help, &err);
    arena_init(&arena, 0);
    if (s == ROSE_OK) s = pull_model(model, &arena, &snapshot, &err);
    arena_free(&arena);
    if (s != ROSE_OK) cli_error(s, &err);
    return s == ROSE_OK;
}
