/* The CPU as a device: memory is mapped and untouched, queued programs run inside wait on the caller and its workers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "device/program.h"

enum { QUEUE = 64, DEFAULT_SCRATCH = 4 << 20 };

struct queued {
    struct program *program; /* NULL: a copy */
    struct extents extents;
    void *dst;
    const void *src;
    size_t bytes;
};

/* Several engines share a device, and with it one queue and one team of workers: whoever waits runs what stands before its own work too, so
 * that engines take turns in the order of their submissions. `queue_lock` is held for moments, `run_lock` while programs run. */
struct cpu_device {
    struct device base;
    pthread_mutex_t queue_lock, run_lock;
    atomic_size_t taken; /* bytes of cpu_alloc: what a second model's plan must leave alone */
    struct queued queue[QUEUE]; /* [done % QUEUE, submitted % QUEUE) */
    uint64_t submitted, done;
};

static void *cpu_alloc(struct device *device, size_t bytes, enum device_memory kind, struct rose_error *err)
{
    (void)kind;
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        status_set(err, ROSE_NO_MEMORY, "the system refused %zu bytes of memory", bytes);
        return NULL;
    }
    /* Weights and cache come in pages of 2 MB where the system gives them: a 135M model then has 4,000 page faults before its first
     * token instead of 20,000. What is smaller stays exact. */
    if (bytes >= (size_t)32 << 20) madvise(p, bytes, MADV_HUGEPAGE);
    atomic_fetch_add(&((struct cpu_device *)device)->taken, bytes);
    return p;
}

static void cpu_free(struct device *device, void *memory, size_t bytes, enum device_memory kind)
{
    (void)kind;
    munmap(memory, bytes ? bytes : 1);
    atomic_fetch_sub(&((struct cpu_device *)device)->taken, bytes);
}

static size_t cpu_memory_free(struct device *device)
{
    size_t taken = atomic_load(&((struct cpu_device *)device)->taken), all = device->info.memory_free;
    return all > taken ? all - taken : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct run_arg {
    const struct queued *q;
    struct device_profile *profile;
};

static void run_entries(void *arg, struct worker *w)
{
    const struct run_arg *a = arg;
    const struct queued *q = a->q;
    struct device_profile *profile = w->index == 0 ? a->profile : NULL;
    double from = profile ? now() : 0;
    for (int i = 0; i < q->program->count; i++) {
        const struct program_launch *l = &q->program->entries[i].launch;
        l->cpu(l->params, &q->extents, w);
        worker_barrier(w);
        if (!profile) continue;
        double to = now();
        device_profile_add(profile, l, &q->extents, to - from);
        from = to;
    }
}

/* The next entry below `ticket`; false: it has been done. */
static bool next_queued(struct cpu_device *d, uint64_t ticket, bool finished, struct queued *out)
{
    pthread_mutex_lock(&d->queue_lock);
    d->done += finished;
    bool more = d->done < ticket;
    if (more) *out = d->queue[d->done % QUEUE];
    pthread_mutex_unlock(&d->queue_lock);
    return more;
}

static void run_until(struct cpu_device *d, uint64_t ticket)
{
    struct queued q;
    pthread_mutex_lock(&d->run_lock);
    for (bool finished = false; next_queued(d, ticket, finished, &q); finished = true) {
        if (q.program) workers_run(d->base.workers, run_entries, &(struct run_arg){&q, d->base.profile});
        else memcpy(q.dst, q.src, q.bytes);
    }
    pthread_mutex_unlock(&d->run_lock);
}

static enum rose_status enqueue(struct cpu_device *d, struct queued q)
{
    pthread_mutex_lock(&d->queue_lock);
    while (d->submitted - d->done == QUEUE) {
        uint64_t first = d->done + 1;
        pthread_mutex_unlock(&d->queue_lock);
        run_until(d, first);
        pthread_mutex_lock(&d->queue_lock);
    }
    d->queue[d->submitted++ % QUEUE] = q;
    pthread_mutex_unlock(&d->queue_lock);
    return ROSE_OK;
}

static enum rose_status cpu_copy(struct device *device, void *dst, const void *src, size_t bytes, struct rose_error *err)
{
    (void)err;
    return enqueue((struct cpu_device *)device, (struct queued){.dst = dst, .src = src, .bytes = bytes});
}

static enum rose_status cpu_submit(struct device *device, struct program *program, const struct extents *extents, struct rose_error *err)
{
    (void)err;
    return enqueue((struct cpu_device *)device, (struct queued){.program = program, .extents = *extents});
}

static enum rose_status cpu_record(struct device *device, struct device_event *event, struct rose_error *err)
{
    struct cpu_device *d = (struct cpu_device *)device;
    (void)err;
    pthread_mutex_lock(&d->queue_lock);
    event->ticket = d->submitted;
    pthread_mutex_unlock(&d->queue_lock);
    return ROSE_OK;
}

static enum rose_status cpu_wait(struct device *device, struct device_event *event, struct rose_error *err)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct device_event all;
    if (!event) ROSE_TRY(cpu_record(device, event = &all, err));
    run_until(d, event->ticket);
    return ROSE_OK;
}

static enum rose_status cpu_program_ready(struct device *device, struct program *program, struct rose_error *err)
{
    (void)device;
    for (int i = 0; i < program->count; i++)
        if (!program->entries[i].launch.cpu)
            return status_set(err, ROSE_UNSUPPORTED, "%s has no CPU kernel", program->entries[i].launch.name);
    return ROSE_OK;
}

static void cpu_close(struct device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    workers_close(device->workers);
    pthread_mutex_destroy(&d->queue_lock);
    pthread_mutex_destroy(&d->run_lock);
    free(d);
}

/* The smaller of the machine's memory and the cgroup's limit; `free` likewise. */
static void read_memory(struct device_info *info)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    info->memory_total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    info->memory_free = info->memory_total;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) info->memory_free = (size_t)kib * 1024;
    if (f) fclose(f);
    unsigned long long limit, used = 0;
    f = fopen("/sys/fs/cgroup/memory.max", "re");
    bool limited = f && fscanf(f, "%llu", &limit) == 1;
    if (f) fclose(f);
    f = limited ? fopen("/sys/fs/cgroup/memory.current", "re") : NULL;
    if (f && fscanf(f, "%llu", &used) != 1) used = 0;
    if (f) fclose(f);
    if (limited && limit < info->memory_total) info->memory_total = limit;
    if (limited && limit > used && limit - used < info->memory_free) info->memory_free = limit - used;
}

static void read_name(struct device_info *info)
{
    char line[256], name[96];
    snprintf(info->name, sizeof info->name, "CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %95[^\n]", name) == 1) {
            memcpy(info->name, name, sizeof name);
            break;
        }
    if (f) fclose(f);
}

enum rose_status device_cpu_open(const struct device_options *options, struct device **out, struct rose_error *err)
{
    static const struct device_vtable vtable = {cpu_close,  cpu_alloc, cpu_free,          cpu_copy, cpu_submit,
                                                cpu_record, cpu_wait,  cpu_program_ready, NULL, NULL, cpu_memory_free};
    struct cpu_device *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    d->base.vtable = &vtable;
    pthread_mutex_init(&d->queue_lock, NULL);
    pthread_mutex_init(&d->run_lock, NULL);
    size_t scratch = options->scratch_bytes ? options->scratch_bytes : DEFAULT_SCRATCH;
    enum rose_status s = workers_open(options->threads, scratch, options->pin, &d->base.workers, err);
    if (s != ROSE_OK) {
        free(d);
        return s;
    }
    d->base.info.kind = DEVICE_CPU;
    d->base.info.units = workers_count(d->base.workers);
    snprintf(d->base.info.arch, sizeof d->base.info.arch, "%s",
#if defined(__x86_64__)
             "x86-64"
#elif defined(__aarch64__)
             "aarch64"
#else
             "cpu"
#endif
    );
    read_memory(&d->base.info);
    read_name(&d->base.info);
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    d->base.info.l2_bytes = l2 > 0 ? (size_t)l2 : 1 << 20;
    *out = &d->base;
    return ROSE_OK;
}
