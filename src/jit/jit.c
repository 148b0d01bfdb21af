#define _GNU_SOURCE
#include "jit/jit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/worker.h"
#include "device/cuda.h"
#include "jit/jit_cache.h"
#include "jit/jit_nvrtc.h"
#include "jit/jit_worker.h"

enum { MAX_BUNDLES = 16, MAX_COMPILERS = 16, MAX_OPTIONS = JIT_MAX_CONSTANTS + 16, LOCK_SECONDS = 120 };

struct closure_node {
    struct closure_node *next;
    struct jit_closure closure;
};

struct jit_kernel {
    struct jit_kernel *next;
    char *kernel, *arch;
    char name[160]; /* kernel.<hash>, of the compiler that made it */
    char compiler[48];
    char *defines[JIT_MAX_CONSTANTS];         /* "-DA=1", sorted */
    const char *constants[JIT_MAX_CONSTANTS]; /* the same without -D */
    int count;
    const struct jit_closure *closure;
    struct strbuf key;

    enum jit_origin origin;
    enum rose_status status;
    struct rose_error error;
    struct jit_cache_entry entry;
    double compile_ms, ready_ms;
    struct jit_entry entries[JIT_MAX_ENTRIES];
    int entries_count;
};

enum { SEEN = 2048, SEEN_PROBES = 8 };

struct jit {
    pthread_mutex_t lock; /* library, closures, kernels, nvrtc's loading, messages */
    struct arena arena;   /* option strings */
    struct jit_options options;
    struct jit_library library;
    struct jit_nvrtc nvrtc;
    struct closure_node *closures;
    struct jit_kernel *kernels, **last;
    /* Requests that came before, by 128 bits of hash: a model's programs ask for the same few kernels tens of thousands of times. */
    struct seen {
        uint64_t a, b;
        struct jit_kernel *kernel;
    } seen[SEEN];
    bool said_unwritable;
    pthread_mutex_t compile_lock; /* one jit_compile_all at a time */
};

static double now_ms(void) { return clock_seconds() * 1e3; }

/* ---- opening ---- */

static const char *copied(struct jit *jit, const char *text, bool *ok)
{
    if (!text || !*text) return NULL;
    const char *copy = arena_strndup(&jit->arena, text, strlen(text));
    if (!copy) *ok = false;
    return copy;
}

enum rose_status jit_open(const struct jit_options *o, struct jit **out, struct rose_error *err)
{
    if (o->bundles_count < 0 || o->bundles_count > MAX_BUNDLES)
        return status_set(err, ROSE_INVALID, "at most %d directories of exported kernels", MAX_BUNDLES);
    struct jit *jit = calloc(1, sizeof *jit);
    if (!jit) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    bool ok = true;
    arena_init(&jit->arena, 0);
    pthread_mutex_init(&jit->lock, NULL);
    pthread_mutex_init(&jit->compile_lock, NULL);
    jit->last = &jit->kernels;
    jit->options = *o;
    jit->options.cache_dir = copied(jit, o->cache_dir, &ok);
    jit->options.override_dir = copied(jit, o->override_dir, &ok);
    const char **bundles = ARENA_ARRAY(&jit->arena, const char *, MAX_BUNDLES);
    for (int i = 0; bundles && i < o->bundles_count; i++) bundles[i] = copied(jit, o->bundles[i], &ok);
    jit->options.bundles = bundles;
    jit_source_init(&jit->library, jit->options.override_dir);
    struct jit_places places = {o->nvrtc_path, o->cuda_home, o->venv, o->home};
    enum rose_status s = ok && bundles ? jit_nvrtc_find(&places, &jit->nvrtc, err)
                                       : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s != ROSE_OK) {
        jit_close(jit);
        return s;
    }
    *out = jit;
    return ROSE_OK;
}

static void kernel_free(struct jit_kernel *k)
{
    for (int i = 0; i < k->count; i++) free(k->defines[i]);
    jit_cache_entry_free(&k->entry);
    strbuf_free(&k->key);
    free(k->kernel);
    free(k->arch);
    free(k);
}

void jit_close(struct jit *jit)
{
    if (!jit) return;
    for (struct jit_kernel *k = jit->kernels, *next; k; k = next) next = k->next, kernel_free(k);
    for (struct closure_node *c = jit->closures, *next; c; c = next) next = c->next, free(c);
    jit_nvrtc_unload(&jit->nvrtc);
    jit_source_free(&jit->library);
    arena_free(&jit->arena);
    pthread_mutex_destroy(&jit->lock);
    pthread_mutex_destroy(&jit->compile_lock);
    free(jit);
}

/* ---- requests ---- */

static bool word(const char *text, const char *also)
{
    if (!*text) return false;
    for (; *text; text++)
        if (!(*text >= 'a' && *text <= 'z') && !(*text >= 'A' && *text <= 'Z') &&
            !(*text >= '0' && *text <= '9') && *text != '_' && !strchr(also, *text))
            return false;
    return true;
}

static enum rose_status add_define(struct jit_kernel *k, const struct jit_constant *c, struct rose_error *err)
{
    if (!c->name || !word(c->name, "") || (c->name[0] >= '0' && c->name[0] <= '9') ||
        (c->text && !word(c->text, ".+-()")))
        return status_set(err, ROSE_INVALID, "kernel %s: the constant %s=%s is no -D option", k->kernel,
                          c->name ? c->name : "(null)", c->text ? c->text : "…");
    char *text = NULL;
    int n = c->text ? asprintf(&text, "-D%s=%s", c->name, c->text)
                    : asprintf(&text, "-D%s=%lld", c->name, (long long)c->value);
    if (n < 0) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    /* Sorted, so that the order of a request does not matter; equal names become neighbours. */
    int at = k->count++;
    for (; at > 0 && strcmp(text, k->defines[at - 1]) < 0; at--) k->defines[at] = k->defines[at - 1];
    k->defines[at] = text;
    size_t name = strlen(c->name) + 3;
    if ((at > 0 && !strncmp(k->defines[at - 1], text, name)) ||
        (at + 1 < k->count && !strncmp(k->defines[at + 1], text, name)))
        return status_set(err, ROSE_INVALID, "kernel %s: the constant %s is given twice", k->kernel, c->name);
    return ROSE_OK;
}

/* Everything the code depends on, as text, and the name it hashes to. */
static enum rose_status make_key(const struct jit_kernel *k, const char *compiler, struct strbuf *key,
                                 char name[160], struct rose_error *err)
{
    uint8_t digest[32];
    char hex[65];
    struct sha256 h;
    key->n = 0;
    strbuf_printf(key, "rose-jit 1\ncompiler %s\narch %s\nkernel %s\n", compiler, k->arch, k->kernel);
    for (size_t i = 0; i < jit_nvrtc_flags_count; i++) strbuf_printf(key, "flag %s\n", jit_nvrtc_flags[i]);
    for (int i = 0; i < k->count; i++) strbuf_printf(key, "define %s\n", k->defines[i] + 2);
    for (int i = 0; i < k->closure->files; i++)
        strbuf_printf(key, "file %s %s\n", k->closure->file[i]->sha256, k->closure->file[i]->path);
    if (key->failed) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    sha256_init(&h);
    sha256_add(&h, key->p, key->n);
    sha256_end(&h, digest);
    sha256_hex(digest, hex);
    snprintf(name, 160, "%.100s.%.32s", k->kernel, hex);
    for (char *p = name; *p; p++)
        if (*p == '/') *p = '-';
    return ROSE_OK;
}

static enum rose_status find_closure(struct jit *jit, const char *kernel, const struct jit_closure **out,
                                     struct rose_error *err)
{
    char path[160];
    snprintf(path, sizeof path, "kernels/cuda/%s.cu", kernel);
    for (struct closure_node *c = jit->closures; c; c = c->next)
        if (!strcmp(c->closure.main->path, path)) {
            *out = &c->closure;
            return ROSE_OK;
        }
    struct closure_node *c = calloc(1, sizeof *c);
    if (!c) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = jit_source_closure(&jit->library, kernel, &c->closure, err);
    if (s != ROSE_OK) {
        free(c);
        return s;
    }
    c->next = jit->closures;
    jit->closures = c;
    *out = &c->closure;
    return ROSE_OK;
}

static enum rose_status fill_kernel(struct jit *jit, struct jit_kernel *k, const char *kernel,
                                    const char *arch, const struct jit_constant *constants, int n,
                                    struct rose_error *err)
{
    k->kernel = strdup(kernel);
    k->arch = strdup(arch);
    if (!k->kernel || !k->arch) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) ROSE_TRY(add_define(k, &constants[i], err));
    for (int i = 0; i < n; i++) k->constants[i] = k->defines[i] + 2;
    ROSE_TRY(find_closure(jit, kernel, &k->closure, err));
    ROSE_TRY(jit_source_check_arch(k->closure->main, arch, err));
    snprintf(k->compiler, sizeof k->compiler, "%s", *jit->nvrtc.id ? jit->nvrtc.id : "nvrtc-none");
    return make_key(k, k->compiler, &k->key, k->name, err);
}

/* Two hashes of everything a request says; texts end with their zero. */
static void hash_text(struct seen *h, const char *text)
{
    do {
        h->a = (h->a ^ (uint8_t)*text) * 0x100000001B3ull;
        h->b = (h->b + (uint8_t)*text) * 0x9E3779B97F4A7C15ull;
        h->b ^= h->b >> 29;
    } while (*text++);
}

static struct seen hash_request(const char *kernel, const char *arch, const struct jit_constant *constants, int n)
{
    struct seen h = {0xCBF29CE484222325ull, 0x2545F4914F6CDD1Dull, NULL};
    char number[24];
    hash_text(&h, kernel);
    hash_text(&h, arch);
    for (int i = 0; i < n; i++) {
        hash_text(&h, constants[i].name ? constants[i].name : "");
        if (!constants[i].text) snprintf(number, sizeof number, "%lld", (long long)constants[i].value);
        hash_text(&h, constants[i].text ? constants[i].text : number);
    }
    return h;
}

/* The place of a request: its own, a free one, or NULL where neither is near. */
static struct seen *seen_place(struct jit *jit, const struct seen *h)
{
    for (uint64_t i = 0; i < SEEN_PROBES; i++) {
        struct seen *s = &jit->seen[(h->a + i) % SEEN];
        if (!s->kernel || (s->a == h->a && s->b == h->b)) return s;
    }
    return NULL;
}

enum rose_status jit_request(struct jit *jit, const char *kernel, const char *arch,
                             const struct jit_constant *constants, int n, const struct jit_kernel **out,
                             struct rose_error *err)
{
    if (!word(kernel, "/") || strlen(kernel) > 100 || strstr(kernel, "//") || kernel[0] == '/' ||
        !word(arch, "") || strlen(arch) > 15)
        return status_set(err, ROSE_INVALID, "'%.100s' for '%.20s' is no kernel's name", kernel, arch);
    if (n < 0 || n > JIT_MAX_CONSTANTS)
        return status_set(err, ROSE_INVALID, "kernel %s: %d constants, at most %d are possible", kernel, n,
                          JIT_MAX_CONSTANTS);
    struct seen hash = hash_request(kernel, arch, constants, n);
    pthread_mutex_lock(&jit->lock);
    struct seen *place = seen_place(jit, &hash);
    *out = place ? place->kernel : NULL;
    pthread_mutex_unlock(&jit->lock);
    if (*out) return ROSE_OK;
    struct jit_kernel *k = calloc(1, sizeof *k);
    if (!k) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&jit->lock);
    enum rose_status s = fill_kernel(jit, k, kernel, arch, constants, n, err);
    struct jit_kernel *old = s == ROSE_OK ? jit->kernels : NULL;
    for (; old; old = old->next) {
        bool same = !strcmp(old->kernel, kernel) && !strcmp(old->arch, arch) && old->count == k->count;
        for (int i = 0; same && i < k->count; i++) same = !strcmp(old->defines[i], k->defines[i]);
        if (same) break;
    }
    if (s == ROSE_OK && !old) *jit->last = k, jit->last = &k->next;
    place = s == ROSE_OK ? seen_place(jit, &hash) : NULL;
    if (place && !place->kernel) *place = (struct seen){hash.a, hash.b, old ? old : k};
    pthread_mutex_unlock(&jit->lock);
    if (s != ROSE_OK || old) kernel_free(k);
    if (s == ROSE_OK) *out = old ? old : k;
    return s;
}

/* ---- what the compiler's log says ---- */

/* The number before `what` in a line, or fallback. */
static int64_t number_before(const char *line, const char *end, const char *what, int64_t fallback)
{
    const char *at = memmem(line, (size_t)(end - line), what, strlen(what));
    if (!at) return fallback;
    const char *digits = at;
    while (digits > line && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    return digits == at ? fallback : strtoll(digits, NULL, 10);
}

static void read_log(struct jit_kernel *k)
{
    struct jit_entry *e = NULL;
    static const char compiling[] = "Compiling entry function '", properties[] = "Function properties for ";
    if (!strncmp(k->entry.log, "compiled in ", 12)) k->compile_ms = strtod(k->entry.log + 12, NULL);
    for (const char *line = k->entry.log; *line;) {
        const char *end = strchrnul(line, '\n');
        const char *name = memmem(line, (size_t)(end - line), compiling, sizeof compiling - 1);
        if (name) name += sizeof compiling - 1;
        if (!name && (name = memmem(line, (size_t)(end - line), properties, sizeof properties - 1)))
            name += sizeof properties - 1;
        if (name) {
            size_t n = strcspn(name, "'\n ");
            e = NULL;
            for (int i = 0; i < k->entries_count; i++)
                if (strlen(k->entries[i].name) == n && !memcmp(k->entries[i].name, name, n))
                    e = &k->entries[i];
        } else if (e) {
            e->stack_bytes = number_before(line, end, " bytes stack frame", e->stack_bytes);
            e->spill_stores = number_before(line, end, " bytes spill stores", e->spill_stores);
            e->spill_loads = number_before(line, end, " bytes spill loads", e->spill_loads);
            int64_t registers = number_before(line, end, " registers", -1);
            if (registers >= 0)
                e->registers = (int)registers, e->shared_bytes = number_before(line, end, " bytes smem", 0);
        }
        line = *end ? end + 1 : end;
    }
}

/* ---- getting one kernel ready ---- */

static void say(struct jit *jit, const char *line)
{
    if (jit->options.message) jit->options.message(jit->options.user, line);
}

static void say_unwritable(struct jit *jit, const char *why)
{
    char line[1400];
    pthread_mutex_lock(&jit->lock);
    bool first = !jit->said_unwritable;
    jit->said_unwritable = true;
    pthread_mutex_unlock(&jit->lock);
    snprintf(line, sizeof line,
             "the kernel cache %s cannot be written, so kernels are compiled again at every start: %s",
             jit->options.cache_dir, why);
    if (first) say(jit, line);
}

static struct jit_cache_id id_of(const struct jit_kernel *k)
{
    return (struct jit_cache_id){k->compiler, k->arch, k->name, strbuf_str(&k->key)};
}

static bool from_cache(struct jit *jit, struct jit_kernel *k)
{
    struct jit_cache_id id = id_of(k);
    if (!jit->options.cache_dir || !jit_cache_load(jit->options.cache_dir, &id, &k->entry)) return false;
    k->origin = JIT_FROM_CACHE;
    return true;
}

/* Entries of any compiler will do: the text and the constants are the same. */
static bool from_tree(struct jit_kernel *k, const char *root)
{
    char *compilers[MAX_COMPILERS], name[160];
    struct strbuf key = {0};
    int n = jit_cache_compilers(root, compilers, MAX_COMPILERS);
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (!found && make_key(k, compilers[i], &key, name, NULL) == ROSE_OK) {
            struct jit_cache_id id = {compilers[i], k->arch, name, strbuf_str(&key)};
            found = jit_cache_load(root, &id, &k->entry);
            if (found) {
                snprintf(k->compiler, sizeof k->compiler, "%s", compilers[i]);
                memcpy(k->name, name, sizeof k->name);
                strbuf_free(&k->key);
                k->key = key;
                key = (struct strbuf){0};
                k->origin = JIT_FROM_BUNDLE;
            }
        }
        free(compilers[i]);
    }
    strbuf_free(&key);
    return found;
}

static bool from_bundles(struct jit *jit, struct jit_kernel *k)
{
    for (int i = 0; i < jit->options.bundles_count; i++)
        if (jit->options.bundles[i] && from_tree(k, jit->options.bundles[i])) return true;
    return !*jit->nvrtc.path && jit->options.cache_dir && from_tree(k, jit->options.cache_dir);
}

/* With NVRTC loaded. Takes no lock of ours: it also runs in a forked child. */
static enum rose_status compile_raw(struct jit *jit, const struct jit_kernel *k, bool ptx, char **out,
                                    size_t *n, char **log, struct rose_error *err)
{
    const char *options[MAX_OPTIONS];
    char arch[64];
    int count = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", k->arch);
    options[count++] = arch;
    for (size_t i = 0; i < jit_nvrtc_flags_count; i++) options[count++] = jit_nvrtc_flags[i];
    for (int i = 0; i < k->count; i++) options[count++] = k->defines[i];
    return jit_nvrtc_compile(&jit->nvrtc, k->closure, options, count, ptx, out, n, log, err);
}

static enum rose_status load_compiler(struct jit *jit, struct rose_error *err)
{
    pthread_mutex_lock(&jit->lock);
    enum rose_status s = jit_nvrtc_load(&jit->nvrtc, err);
    pthread_mutex_unlock(&jit->lock);
    if (s == ROSE_OK || !jit->options.bundles_count || !jit->options.bundles[0]) return s;
    return status_wrap(err, s, "%s lacks kernels: it is of another build of rose, another model or other options, or damaged", jit->options.bundles[0]);
}

/* NVRTC is busy in this process: nobody may fork, or the child would wait for its lock for ever. */
static pthread_mutex_t in_process = PTHREAD_MUTEX_INITIALIZER;

static enum rose_status compile_here(struct jit *jit, const struct jit_kernel *k, bool ptx, char **out,
                                     size_t *n, char **log, struct rose_error *err)
{
    *out = *log = NULL;
    ROSE_TRY(load_compiler(jit, err));
    pthread_mutex_lock(&in_process);
    enum rose_status s = compile_raw(jit, k, ptx, out, n, log, err);
    pthread_mutex_unlock(&in_process);
    return s;
}

enum rose_status jit_print_source(const struct jit_kernel *k, struct strbuf *out, struct rose_error *err)
{
    for (int i = 0; i < k->closure->files; i++) {
        const struct jit_file *f = k->closure->file[i];
        strbuf_printf(out, "#line 1 \"src/%s\"\n", f->path);
        strbuf_add(out, f->text.p, f->text.n);
        if (f->text.n && f->text.p[f->text.n - 1] != '\n') strbuf_addc(out, '\n');
    }
    return out->failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : ROSE_OK;
}

static enum rose_status store(const char *root, const struct jit_kernel *k, struct rose_error *err)
{
    struct strbuf source = {0};
    struct jit_cache_id id = id_of(k);
    enum rose_status s = jit_print_source(k, &source, err);
    if (s == ROSE_OK) s = jit_cache_store(root, &id, strbuf_str(&source), &k->entry, err);
    strbuf_free(&source);
    return s;
}

static enum rose_status compile_kernel(struct jit *jit, struct jit_kernel *k, int number,
                                       struct jit_worker *worker)
{
    struct jit_result r = {0};
    struct strbuf full = {0};
    double from = now_ms();
    if (worker && worker->fd >= 0)
        jit_worker_call(worker, number, &r);
    else
        r.status = compile_here(jit, k, false, &r.cubin, &r.cubin_n, &r.log, &r.error);
    if (r.status == ROSE_OK) {
        strbuf_printf(&full, "compiled in %.1f ms\n%s", now_ms() - from, r.log ? r.log : "");
        if (full.failed) r.status = status_set(&r.error, ROSE_NO_MEMORY, "out of memory");
    }
    free(r.log);
    k->error = r.error;
    k->entry = (struct jit_cache_entry){r.cubin, r.cubin_n, full.p, full.n};
    if (r.status == ROSE_OK)
        k->origin = JIT_COMPILED;
    else
        jit_cache_entry_free(&k->entry);
    return r.status;
}

struct waiting {
    struct jit *jit;
    struct jit_kernel *kernel;
};
static bool published(void *arg)
{
    struct waiting *w = arg;
    return from_cache(w->jit, w->kernel);
}

/* Not found anywhere: compile, or wait for the process that does. */
static enum rose_status make_ready(struct jit *jit, struct jit_kernel *k, int number,
                                   struct jit_worker *worker)
{
    struct rose_error why;
    struct jit_cache_id id = id_of(k);
    const char *root = jit->options.cache_dir;
    int fd = -1;
    if (!root || !*jit->nvrtc.path) return compile_kernel(jit, k, number, worker);
    jit_cache_lock(root, &id, LOCK_SECONDS, published, &(struct waiting){jit, k}, &fd);
    enum rose_status s = ROSE_OK;
    if (k->origin == JIT_NOT_READY && !from_cache(jit, k)) {
        s = compile_kernel(jit, k, number, worker);
        if (s == ROSE_OK) {
            jit_cache_sweep(root, &id);
            if (store(root, k, &why) != ROSE_OK) say_unwritable(jit, why.message);
        }
    }
    jit_cache_unlock(root, &id, fd);
    return s;
}

/* ---- all of them ----
 *
 * Twice over the list, with threads: first what the caches have, then the rest by compile processes, one a
 * thread. */

struct batch {
    struct jit *jit;
    struct jit_kernel **kernels;
    int total, next, done, compiled;
    bool compiling; /* the second time */
    double started;
    pthread_mutex_t lock;
};

struct batch_thread {
    pthread_t thread;
    struct batch *batch;
    struct jit_worker worker;
};

static void finished(struct batch *b, struct jit_kernel *k)
{
    if (k->status == ROSE_OK) {
        k->entries_count = jit_elf_entries((const uint8_t *)k->entry.cubin, k->entry.cubin_n, k->entries);
        read_log(k);
    } else {
        k->origin = JIT_FAILED;
    }
    pthread_mutex_lock(&b->lock);
    b->done++;
    b->compiled += k->origin == JIT_COMPILED;
    struct jit_progress p = {b->done, b->total, b->compiled, (now_ms() - b->started) * 1e-3, k};
    if (b->jit->options.progress) b->jit->options.progress(b->jit->options.user, &p);
    pthread_mutex_unlock(&b->lock);
}

static void *work(void *arg)
{
    struct batch_thread *t = arg;
    struct batch *b = t->batch;
    for (;;) {
        pthread_mutex_lock(&b->lock);
        int i = b->next < b->total ? b->next++ : -1;
        pthread_mutex_unlock(&b->lock);
        if (i < 0) return NULL;
        struct jit_kernel *k = b->kernels[i];
        if (k->origin != JIT_NOT_READY) continue;
        double from = now_ms();
        if (b->compiling)
            k->status = make_ready(b->jit, k, i, &t->worker);
        else
            k->status = from_cache(b->jit, k) || from_bundles(b->jit, k) ? ROSE_OK : ROSE_BUSY;
        k->ready_ms += now_ms() - from;
        if (k->status != ROSE_BUSY || b->compiling) finished(b, k);
    }
}

static void job(void *arg, int number, struct jit_result *r)
{
    struct batch *b = arg;
    r->status = compile_raw(b->jit, b->kernels[number], false, &r->cubin, &r->cubin_n, &r->log, &r->error);
}

static void start_workers(struct batch *b, struct batch_thread *threads, int n)
{
    struct rose_error why;
    if (load_compiler(b->jit, &why) != ROSE_OK) return; /* every kernel will say so */
    pthread_mutex_lock(&in_process);
    for (int i = 0; i < n; i++) jit_worker_start(&threads[i].worker, job, b);
    pthread_mutex_unlock(&in_process);
}

static void run_threads(struct batch *b, struct batch_thread *threads, int n)
{
    int started = 1;
    b->next = 0;
    /* This thread works too; threads that do not start are no loss but time. */
    while (started < n && pthread_create(&threads[started].thread, NULL, work, &threads[started]) == 0)
        started++;
    work(&threads[0]);
    for (int i = 1; i < started; i++) pthread_join(threads[i].thread, NULL);
}

static enum rose_status run_batch(struct batch *b, struct rose_error *err)
{
    int cores = b->jit->options.threads > 0 ? b->jit->options.threads : workers_cores(), left = 0;
    int n = ROSE_MIN(cores, b->total);
    struct batch_thread *threads = calloc((size_t)n, sizeof *threads);
    if (!threads) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) threads[i].batch = b, threads[i].worker.fd = -1;
    run_threads(b, threads, n);
    for (int i = 0; i < b->total; i++) left += b->kernels[i]->origin == JIT_NOT_READY;
    n = ROSE_MIN(cores, left);
    b->compiling = true;
    if (n > 1) start_workers(b, threads, n);
    if (n > 0) run_threads(b, threads, n);
    for (int i = 0; i < n; i++) jit_worker_stop(&threads[i].worker);
    free(threads);
    return ROSE_OK;
}

/* Bytes of a kernel's own files, without what all include: the more, the longer it compiles. */
static size_t own_bytes(const struct jit_kernel *k)
{
    size_t n = 0;
    for (int i = 0; i < k->closure->files; i++)
        if (!strstr(k->closure->file[i]->path, "/common/")) n += k->closure->file[i]->text.n;
    return n;
}
/* The longest first, so that none of them begins when the others have ended: sampling, 1.4 s of the 1.7 that a model's 54 take 16 cores. */
static int by_length(const void *a, const void *b)
{
    const size_t x = own_bytes(*(struct jit_kernel *const *)a), y = own_bytes(*(struct jit_kernel *const *)b);
    return (x < y) - (x > y);
}

enum rose_status jit_compile_all(struct jit *jit, struct rose_error *err)
{
    struct batch b = {.jit = jit, .started = now_ms()};
    int n = 0;
    enum rose_status s = ROSE_OK;
    pthread_mutex_lock(&jit->compile_lock);
    pthread_mutex_lock(&jit->lock);
    for (struct jit_kernel *k = jit->kernels; k; k = k->next) n += k->origin == JIT_NOT_READY;
    b.kernels = calloc((size_t)n + 1, sizeof *b.kernels);
    for (struct jit_kernel *k = jit->kernels; b.kernels && k; k = k->next)
        if (k->origin == JIT_NOT_READY) b.kernels[b.total++] = k;
    pthread_mutex_unlock(&jit->lock);
    if (!b.kernels) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&b.lock, NULL);
    if (s == ROSE_OK && b.total) {
        qsort(b.kernels, (size_t)b.total, sizeof *b.kernels, by_length);
        s = run_batch(&b, err);
    }
    pthread_mutex_destroy(&b.lock);
    free(b.kernels);
    pthread_mutex_lock(&jit->lock);
    for (struct jit_kernel *k = jit->kernels; s == ROSE_OK && k; k = k->next)
        if (k->origin == JIT_FAILED) {
            s = k->status;
            if (err) *err = k->error;
        }
    pthread_mutex_unlock(&jit->lock);
    pthread_mutex_unlock(&jit->compile_lock);
    return s;
}

/* ---- using them ---- */

struct jit_info jit_info(const struct jit_kernel *k)
{
    bool ready = k->origin != JIT_NOT_READY && k->origin != JIT_FAILED;
    return (struct jit_info){
        .kernel = k->kernel,
        .arch = k->arch,
        .name = k->name,
        .constants = k->constants,
        .constants_count = k->count,
        .origin = k->origin,
        .compiler = k->compiler,
        .compile_ms = k->compile_ms,
        .ready_ms = k->ready_ms,
        .cubin = ready ? k->entry.cubin : NULL,
        .cubin_bytes = ready ? k->entry.cubin_n : 0,
        .log = ready ? k->entry.log : NULL,
        .entries = k->entries,
        .entries_count = k->entries_count,
    };
}

enum rose_status jit_function(const struct jit_kernel *k, struct device *device, const char *entry,
                              void **out, struct rose_error *err)
{
    struct cuda_module *module;
    struct cuda_function *function;
    if (device->info.kind != DEVICE_CUDA)
        return status_set(err, ROSE_INVALID, "kernel %s is for a CUDA device", k->kernel);
    if (k->origin == JIT_NOT_READY)
        return status_set(err, ROSE_INVALID, "kernel %s is not compiled yet", k->kernel);
    if (k->origin == JIT_FAILED) {
        if (err) *err = k->error;
        return k->status;
    }
    if (!entry && k->entries_count == 1) entry = k->entries[0].name;
    if (!entry)
        return status_set(err, ROSE_INVALID, "kernel %s has %d functions; name one", k->kernel,
                          k->entries_count);
    ROSE_TRY(cuda_module_load(device, k->name, k->entry.cubin, &module, err));
    ROSE_TRY(cuda_module_function(module, entry, &function, err));
    *out = function;
    return ROSE_OK;
}

enum rose_status jit_export(struct jit *jit, const char *dir, int *count, struct rose_error *err)
{
    enum rose_status s = ROSE_OK;
    *count = 0;
    pthread_mutex_lock(&jit->compile_lock);
    for (struct jit_kernel *k = jit->kernels; k && s == ROSE_OK; k = k->next) {
        if (!jit_info(k).cubin) continue;
        s = store(dir, k, err);
        *count += s == ROSE_OK;
    }
    pthread_mutex_unlock(&jit->compile_lock);
    return s;
}

enum rose_status jit_print_ptx(struct jit *jit, const struct jit_kernel *k, struct strbuf *out,
                               struct rose_error *err)
{
    char *text, *log;
    size_t n;
    enum rose_status s = compile_here(jit, k, true, &text, &n, &log, err);
    if (s == ROSE_OK && !strbuf_adds(out, text)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    free(text);
    free(log);
    return s;
}

void jit_print_compiler(const struct jit *jit, struct strbuf *out)
{
    if (*jit->nvrtc.path)
        strbuf_printf(out, "%s (%s)", jit->nvrtc.id, jit->nvrtc.path);
    else
        strbuf_printf(out, "none; looked in %s", jit->nvrtc.looked);
}

void jit_print_kernels(struct jit *jit, struct strbuf *out)
{
    static const char *const origins[] = {"not ready", "compiled", "cache", "bundle", "failed"};
    strbuf_printf(out, "%-20s %-8s %5s %7s %6s %6s %8s %8s  %-9s %s\n", "function", "arch", "regs", "shared",
                  "stack", "spills", "bytes", "compile", "from", "constants");
    pthread_mutex_lock(&jit->compile_lock);
    for (const struct jit_kernel *k = jit->kernels; k; k = k->next) {
        for (int i = 0; i < k->entries_count || i == 0; i++) {
            const struct jit_entry *e = &k->entries[i];
            if (i < k->entries_count)
                strbuf_printf(out, "%-20s %-8s %5d %7lld %6lld %6lld %8zu %6.0fms  ", e->name, k->arch,
                              e->registers, (long long)e->shared_bytes, (long long)e->stack_bytes,
                              (long long)ROSE_MAX(e->spill_stores, e->spill_loads), k->entry.cubin_n,
                              k->compile_ms);
            else
                strbuf_printf(out, "%-20s %-8s %5s %7s %6s %6s %8s %8s  ", k->kernel, k->arch, "", "", "", "",
                              "", "");
            strbuf_printf(out, "%-9s", origins[k->origin]);
            for (int c = 0; c < k->count; c++) strbuf_printf(out, " %s", k->constants[c]);
            strbuf_addc(out, '\n');
        }
    }
    pthread_mutex_unlock(&jit->compile_lock);
}

void jit_print_progress(const struct jit_progress *p, struct strbuf *out)
{
    strbuf_printf(out, "kernels %d/%d, %d compiled, %.1f s: %s", p->done, p->total, p->compiled, p->seconds,
                  p->kernel->kernel);
}

bool jit_list(int i, struct str *kernel, struct str *arches)
{
    static const char below[] = "kernels/cuda/";
    for (size_t f = 0; f < jit_source_embedded_count; f++) {
        const struct jit_embedded *e = &jit_source_embedded[f];
        struct str path = str_of(e->path);
        if (!str_starts(path, ((struct str){below, sizeof below - 1})) || !str_ends(path, STR(".cu")) ||
            i-- > 0)
            continue;
        *kernel = (struct str){path.p + sizeof below - 1, path.n - (sizeof below - 1) - 3};
        *arches = jit_source_arches((struct str){e->begin, (size_t)(e->end - e->begin)});
        return true;
    }
    return false;
}
