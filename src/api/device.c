/* rose_device: which device, and what compiles its kernels. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/file.h"
#include "base/option.h"
#include "device/cuda.h"
#include "device/cuda_blas.h"
#include "jit/jit.h"
#include "ops/isa.h"

static void say(const struct rose_device_options *o, enum rose_message_level level, const char *line)
{
    if (o->message) o->message(o->message_user, level, line);
}

static void on_jit_message(void *user, const char *line)
{
    struct rose_device *d = user;
    if (d->message) d->message(d->message_user, ROSE_MESSAGE_INFO, line);
}

/* Kernels are compiled while weights travel: one call at a time. */
void device_progress(const struct rose_engine_options *o, const char *what, size_t done, size_t total)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!o || !o->progress) return;
    pthread_mutex_lock(&lock);
    o->progress(o->progress_user, what, done, total);
    pthread_mutex_unlock(&lock);
}

/* The engine that is being opened shows it. */
static void on_jit_progress(void *user, const struct jit_progress *p)
{
    struct rose_device *d = user;
    device_progress(d->opening, "compiling kernels", (size_t)p->done, (size_t)p->total);
}

/* $XDG_CACHE_HOME/rose or $HOME/.cache/rose; NULL: compiled kernels live in memory only. */
const char *device_cache_dir(struct arena *a)
{
    const char *cache = option_env("XDG_CACHE_HOME"), *home = option_env("HOME");
    if (cache) return file_join(a, cache, "rose");
    return home ? file_join(a, home, ".cache/rose") : NULL;
}

static const char *device_venv(void)
{
    const char *venv = option_env("VIRTUAL_ENV");
    return venv ? venv : option_env("CONDA_PREFIX");
}

/* A directory that a variable names: one that is not there would silently change nothing. */
static enum rose_status named_directory(const char *variable, const char **out, struct rose_error *err)
{
    *out = option_env(variable);
    return !*out || file_is_dir(*out) ? ROSE_OK : status_set(err, ROSE_NOT_FOUND, "%s names %.300s, which is no directory", variable, *out);
}

enum rose_status device_open_jit(struct rose_device *d, const struct rose_device_options *o, struct rose_error *err)
{
    struct arena a;
    const char *home = option_env("CUDA_HOME"), *exported, *sources;
    ROSE_TRY(named_directory("ROSE_KERNELS", &exported, err));
    ROSE_TRY(named_directory("ROSE_KERNEL_SOURCES", &sources, err));
    arena_init(&a, 0);
    struct jit_options options = {.cache_dir = o->cache_dir ? o->cache_dir : device_cache_dir(&a), .override_dir = sources, .bundles = &exported,
                                  .bundles_count = exported != NULL, .nvrtc_path = o->nvrtc, .cuda_home = home ? home : option_env("CUDA_PATH"), .venv = device_venv(),
                                  .home = option_env("HOME"), .message = on_jit_message, .progress = on_jit_progress, .user = d};
    enum rose_status s = jit_open(&options, &d->jit, err);
    arena_free(&a);
    d->device->jit = d->jit;
    return s;
}

/* Products of many rows by cuBLASLt where it is installed; own kernels otherwise. */
static void open_blas(struct rose_device *d, const struct rose_device_options *o)
{
    const char *home = option_env("CUDA_HOME");
    struct arena a;
    arena_init(&a, 0);
    struct cuda_blas_places places = {.cuda_home = home ? home : option_env("CUDA_PATH"), .venv = device_venv(), .home = option_env("HOME"),
                                      .cache_dir = o->cache_dir ? o->cache_dir : device_cache_dir(&a)};
    struct rose_error why = {0};
    struct strbuf line = {0};
    if (cuda_blas_open(d->device, &places, &d->device->blas, &why) != ROSE_OK)
        say(o, ROSE_MESSAGE_INFO, why.message);
    else if (cuda_blas_print(d->device->blas, &line), line.p)
        say(o, ROSE_MESSAGE_DEBUG, line.p);
    strbuf_free(&line);
    arena_free(&a);
}

static enum rose_status open_cuda(struct rose_device *d, const struct rose_device_options *o, int index, struct rose_error *err)
{
    struct device_options options = {.kind = DEVICE_CUDA, .index = index, .debug_sync = o->debug_sync, .driver = o->driver};
    ROSE_TRY(device_open(&options, &d->device, err));
    ROSE_TRY(device_open_jit(d, o, err));
    if (!o->driver) open_blas(d, o); /* the library brings its own way to NVIDIA's driver, and knows no other */
    snprintf(d->name, sizeof d->name, "%.90s, %s", d->device->info.name, d->device->info.arch);
    return ROSE_OK;
}

static enum rose_status open_cpu(struct rose_device *d, const struct rose_device_options *o, struct rose_error *err)
{
    struct device_options options = {.kind = DEVICE_CPU, .threads = o->threads, .pin = !o->no_pin};
    ROSE_TRY(device_open(&options, &d->device, err));
    struct arena a;
    arena_init(&a, 0);
    const char *dir = o->cache_dir ? o->cache_dir : device_cache_dir(&a);
    d->device->packed_limit = (uint64_t)ROSE_MAX(o->packed_cache_bytes, (int64_t)0);
    if (dir && !o->no_packed_cache) d->device->packed_dir = d->packed_dir = strdup(dir);
    arena_free(&a);
    snprintf(d->name, sizeof d->name, "%.90s, %d threads, %s", d->device->info.name, d->device->info.units, op_isa_name());
    return ROSE_OK;
}

void device_close_parts(struct rose_device *d)
{
    if (d->device) {
        free(d->device->profile);
        cuda_blas_close(d->device->blas);
        device_close(d->device);
    }
    jit_close(d->jit);
    free(d->packed_dir);
    d->packed_dir = NULL;
    d->device = NULL;
    d->jit = NULL;
}

/* The first GPU, if it is there and its kernels can be: compiled, or ROSE_KERNELS names them. That a machine has none is usual; one that
 * is there and stays unused, or a driver that was named and does not work, is not. */
static bool try_cuda(struct rose_device *d, const struct rose_device_options *o)
{
    struct rose_error err = {0};
    struct strbuf compiler = {0}, line = {.limit = 1500};
    const enum rose_status opened = open_cuda(d, o, 0, &err);
    bool ok = opened == ROSE_OK, there = d->device != NULL || (!ok && opened != ROSE_NOT_FOUND); /* too old, or out of order */
    if (!ok) strbuf_printf(&line, "no GPU is used: %s", err.message);
    if (ok && !option_env("ROSE_KERNELS")) {
        jit_print_compiler(d->jit, &compiler);
        ok = compiler.p && strncmp(compiler.p, "none", 4);
        if (!ok) strbuf_printf(&line, "%s is not used: no NVRTC to compile its kernels (%s), and ROSE_KERNELS names none that are", d->device->info.name, compiler.p ? compiler.p : "?");
    }
    if (line.p) say(o, there || o->driver ? ROSE_MESSAGE_WARNING : ROSE_MESSAGE_DEBUG, line.p);
    if (!ok) device_close_parts(d);
    strbuf_free(&compiler);
    strbuf_free(&line);
    return ok;
}

enum rose_status rose_device_open(const struct rose_device_options *o, struct rose_device **out, struct rose_error *err)
{
    const char *kind = o->kind ? o->kind : "auto";
    int64_t index = 0;
    bool cuda = !strncmp(kind, "cuda", 4) && (!kind[4] || kind[4] == ':'), automatic = !strcmp(kind, "auto");
    if (cuda && kind[4] == ':' && (!str_to_i64(str_of(kind + 5), &index) || index < 0 || index > 1023))
        return status_set(err, ROSE_INVALID, "device \"%s\": write cuda or cuda:0", kind);
    if (!cuda && !automatic && strcmp(kind, "cpu")) return status_set(err, ROSE_INVALID, "device \"%s\" is none of auto, cpu, cuda, cuda:N", kind);
    ROSE_TRY(op_isa_select(o->isa, err));
    struct rose_device *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    d->message = o->message;
    d->message_user = o->message_user;
    enum rose_status s = ROSE_OK;
    if (cuda) s = open_cuda(d, o, (int)index, err);
    else if (!automatic || !try_cuda(d, o)) s = open_cpu(d, o, err);
    if (s != ROSE_OK) {
        device_close_parts(d);
        free(d);
        return s;
    }
    if (automatic && d->jit) say(o, ROSE_MESSAGE_INFO, d->name);
    *out = d;
    return ROSE_OK;
}

void rose_device_close(struct rose_device *d)
{
    if (!d) return;
    device_close_parts(d);
    free(d);
}

void device_say(const struct rose_device *d, enum rose_message_level level, const char *line)
{
    if (d->message) d->message(d->message_user, level, line);
}

enum rose_status rose_device_profile(struct rose_device *d, bool on, struct rose_error *err)
{
    free(d->device->profile);
    d->device->profile = on ? calloc(1, sizeof *d->device->profile) : NULL;
    return on && !d->device->profile ? status_set(err, ROSE_NO_MEMORY, "out of memory") : ROSE_OK;
}

size_t rose_device_profile_read(const struct rose_device *d, struct rose_profile_entry *entries, size_t n)
{
    const struct device_profile *p = d->device->profile;
    size_t count = p ? ROSE_MIN((size_t)p->count, n) : 0;
    for (size_t i = 0; i < count; i++) {
        const struct device_profile_entry *e = &p->entries[i];
        entries[i] = (struct rose_profile_entry){e->name, e->calls, e->seconds, e->bytes, e->ops};
    }
    return count;
}

enum rose_status rose_device_trace(struct rose_device *d, int marks, struct rose_error *err)
{
    if (d->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "only GPUs have a trace; --profile shows a CPU's launches");
    d->device->traced = false;
    ROSE_TRY(cuda_trace_start(d->device, marks, err));
    d->device->traced = marks > 0;
    return ROSE_OK;
}

enum rose_status rose_device_trace_read(struct rose_device *d, struct rose_span *spans, int n, int *count, struct rose_error *err)
{
    struct device_span *own = calloc((size_t)n + 1, sizeof *own);
    if (!own) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = cuda_trace_read(d->device, own, n, count, err);
    for (int i = 0; s == ROSE_OK && i < *count; i++) spans[i] = (struct rose_span){own[i].name, own[i].step, own[i].begin_s, own[i].seconds};
    free(own);
    return s;
}

const char *rose_device_name(const struct rose_device *d) { return d->name; }
