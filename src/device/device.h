/* Device: where memory lives and programs run. One small vtable; cpu.c and cuda.c implement it.
 *
 * Work is asynchronous and in order: device_submit queues a program, device_wait waits for what was queued. The CPU runs
 * queued programs inside device_wait, on the calling thread and its workers, so that the host can plan the next step
 * between submit and wait on every device alike.
 */
#ifndef ROSE_DEVICE_DEVICE_H
#define ROSE_DEVICE_DEVICE_H

#include "base/status.h"
#include "base/worker.h"
#include "tensor/extent.h"

struct program;
struct jit;
struct cuda_blas;

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

enum device_memory {
    DEVICE_MEMORY_LOCAL, /* what kernels read and write fastest; on CUDA not addressable by the host */
    DEVICE_MEMORY_HOST,  /* host memory that the device reaches too (pinned on CUDA) */
};

struct device_options {
    enum device_kind kind;
    int index;            /* which GPU */
    int threads;          /* CPU workers, 0: one a core */
    size_t scratch_bytes; /* per CPU worker */
    bool pin;             /* bind CPU workers to cores */
    bool debug_sync;      /* wait after every launch, so that an error names its kernel */
    const char *isa;      /* CPU: "auto", "portable", "avx2", "avx512", "amx" (kernels/cpu interprets it) */
    const char *driver;   /* CUDA: path of libcuda, NULL: the usual places */
};

/* What planners may depend on. */
struct device_info {
    enum device_kind kind;
    char name[96];          /* "NVIDIA H200", or the CPU's brand */
    char arch[16];          /* "sm_90a", "x86-64", "aarch64" */
    size_t memory_total;    /* bytes; on the CPU what this process may use (cgroup) */
    size_t memory_free;     /* when opened */
    int units;              /* SMs, or workers */
    size_t l2_bytes;
    size_t shared_per_block, shared_per_unit; /* opt-in maximum; 0 on the CPU */
    double bandwidth;       /* bytes/s, estimated from the device's own properties; 0: unknown */
    int warp, max_threads_per_unit, max_threads_per_block;
    bool cooperative, clusters, dependent_launch;
};

struct device;
struct device_event;

struct device_vtable {
    void (*close)(struct device *device);
    void *(*alloc)(struct device *device, size_t bytes, enum device_memory kind, struct rose_error *err);
    void (*free)(struct device *device, void *memory, size_t bytes, enum device_memory kind);
    enum rose_status (*copy)(struct device *device, void *dst, const void *src, size_t bytes, struct rose_error *err);
    enum rose_status (*submit)(struct device *device, struct program *program, const struct extents *extents, struct rose_error *err);
    enum rose_status (*record)(struct device *device, struct device_event *event, struct rose_error *err);
    enum rose_status (*wait)(struct device *device, struct device_event *event, struct rose_error *err);
    enum rose_status (*program_ready)(struct device *device, struct program *program, struct rose_error *err);
    void (*program_gone)(struct device *device, struct program *program);
    enum rose_status (*prepare)(struct device *device, struct program *program, const struct extents *extents, struct rose_error *err); /* NULL: nothing to do */
    size_t (*memory_free)(struct device *device); /* now; NULL: info.memory_free stands */
};

/* Implementations put this first in their own struct. */
struct device {
    const struct device_vtable *vtable;
    struct device_info info;
    struct workers *workers; /* the CPU's team; on CUDA NULL */
    struct jit *jit;         /* CUDA: what compiles its kernels; whoever opened both sets it and closes it after the device's programs */
    struct cuda_blas *blas;  /* CUDA: a library of products (cuda_blas.h), set and closed like jit; NULL: own kernels serve */
    bool planning;           /* no GPU is behind it (planning.c): its programs are recorded as drafts and never run */
    bool keeps_plans;        /* CUDA: launches recorded from now on keep their plans (program_launch.plan) */
    uint64_t packed_limit;          /* bytes of all of them together; 0: a tenth of the file system */
    const char *packed_dir;         /* CPU: where packed weights are kept for later starts, the owner's text; NULL: nowhere */
    bool traced; /* device_mark records (CUDA: cuda_trace_start) */
    struct device_profile *profile; /* set by the owner while nothing runs: entries are timed (CUDA: one by one, between events); NULL: off */
};

/* Time spent in each entry of the programs that ran, added up by name (device_profile). */
struct device_profile_entry {
    const char *name;
    uint64_t calls;
    double seconds, bytes, ops; /* bytes and operations as the launches declare them */
};
enum { DEVICE_PROFILE_NAMES = 64 };
struct device_profile {
    struct device_profile_entry entries[DEVICE_PROFILE_NAMES];
    int count;
};

/* A point in the device's order of work. Zero-initialise; cuda.c keeps a CUevent in handle. */
struct device_event {
    uint64_t ticket;
    void *handle;
};

enum rose_status device_open(const struct device_options *options, struct device **out, struct rose_error *err);
static inline void device_close(struct device *d)
{
    if (d) d->vtable->close(d);
}

/* Memory aligned to 256; on the CPU reserved and untouched (zero when first read). NULL with *err filled. */
static inline void *device_alloc(struct device *d, size_t bytes, enum device_memory kind, struct rose_error *err)
{
    return d->vtable->alloc(d, bytes, kind, err);
}
static inline void device_free(struct device *d, void *memory, size_t bytes, enum device_memory kind)
{
    if (memory) d->vtable->free(d, memory, bytes, kind);
}
/* Bytes that could be taken now. */
static inline size_t device_memory_free(struct device *d)
{
    return d->vtable->memory_free ? d->vtable->memory_free(d) : d->info.memory_free;
}
/* Queue a copy between any two memories. Host memory must stay valid until the copy has run. */
static inline enum rose_status device_copy(struct device *d, void *dst, const void *src, size_t bytes, struct rose_error *err)
{
    return d->vtable->copy(d, dst, src, bytes, err);
}
/* Queue a finished program with the step's extents. */
static inline enum rose_status device_submit(struct device *d, struct program *p, const struct extents *e, struct rose_error *err)
{
    return d->vtable->submit(d, p, e, err);
}
/* Before the loop: what makes later submits with exactly these extents cheap (CUDA: a graph, captured and uploaded). */
static inline enum rose_status device_prepare(struct device *d, struct program *p, const struct extents *e, struct rose_error *err)
{
    return d->vtable->prepare ? d->vtable->prepare(d, p, e, err) : ROSE_OK;
}
/* What device_prepare made is dropped: the program's launches were changed. */
static inline enum rose_status device_unprepare(struct device *d, struct program *p, struct rose_error *err)
{
    if (!d->vtable->prepare) return ROSE_OK;
    d->vtable->program_gone(d, p);
    return d->vtable->program_ready(d, p, err);
}
/* What was queued since the last mark gets this name in the trace; NULL: a step begins. Nothing when no trace runs. */
enum rose_status cuda_trace_mark(struct device *device, const char *name, struct rose_error *err);
static inline enum rose_status device_mark(struct device *d, const char *name, struct rose_error *err)
{
    return d->traced ? cuda_trace_mark(d, name, err) : ROSE_OK;
}
/* Mark the current end of the queue; wait until all before the mark has run (event NULL: everything). */
static inline enum rose_status device_record(struct device *d, struct device_event *event, struct rose_error *err)
{
    return d->vtable->record(d, event, err);
}
static inline enum rose_status device_wait(struct device *d, struct device_event *event, struct rose_error *err)
{
    return d->vtable->wait(d, event, err);
}

/* A part of a step between two marks of a trace. */
struct device_span {
    const char *name;
    int step;               /* from 1 */
    double begin_s, seconds; /* since the trace's first mark */
};

/* What a launch took, added to the entry of its name. */
struct program_launch;
void device_profile_add(struct device_profile *profile, const struct program_launch *launch, const struct extents *extents, double seconds);

/* Constructors of the kinds, used by device_open. */
enum rose_status device_cpu_open(const struct device_options *options, struct device **out, struct rose_error *err);
enum rose_status device_cuda_open(const struct device_options *options, struct device **out, struct rose_error *err);
/* A CUDA device of this architecture ("sm_100a") as planners see it, without one: memory is addresses, copies and submits do
 * nothing. For `rose kernels` on machines without a GPU. Its properties are those of the usual card of the architecture. */
enum rose_status device_planning_open(const char *arch, struct device **out, struct rose_error *err);

#endif
