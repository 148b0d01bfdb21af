/* Programs: what a forward records. A flat list of entries in an arena; nothing runs while recording.
 *
 *     record: program_buffer / program_external, program_add for every launch, in order
 *     finish: buffers get their places (two whose lives do not overlap share memory), pointers are written into the params
 *     run:    device_submit(program, extents), any number of times
 *
 * An entry's params are a plain struct from kernels/params. Each of its pointers into a program buffer is declared as a use;
 * uses give liveness and dependences, and where to write the address. Weights and other fixed memory are plain pointers.
 */
#ifndef ROSE_DEVICE_PROGRAM_H
#define ROSE_DEVICE_PROGRAM_H

#include "base/arena.h"
#include "device/device.h"

enum { PROGRAM_MAX_USES = 16 };

enum program_mode { PROGRAM_READ = 1, PROGRAM_WRITE = 2, PROGRAM_UPDATE = 3 };

/* A buffer of a program; 0 is none. */
typedef uint16_t program_buffer_id;

struct program_use {
    program_buffer_id buffer;
    uint8_t mode;         /* enum program_mode */
    uint16_t param;       /* offsetof the pointer in params */
    uint32_t byte_offset; /* added to the buffer's address */
};

/* Bytes that must move and operations that must be done: fixed + sum over extents of per[e] * extents[e]. */
struct program_cost {
    double bytes, bytes_per[EXTENT_COUNT];
    double ops, ops_per[EXTENT_COUNT];
};

/* blocks along one grid axis = times * ceil(extents[extent] / per) (per 0 means 1). */
struct program_dim {
    enum extent extent;
    int32_t times, per;
};

typedef void program_cpu_fn(const void *params, const struct extents *extents, struct worker *w);
/* Queues a library's work on a CUDA stream; runs on the host at each submit, and once while a graph is captured. */
typedef enum rose_status program_host_fn(void *stream, const void *params, struct rose_error *err);

struct program_launch {
    const char *name; /* static: the op, as `rose kernels` and traces print it */
    int layer;        /* -1: none */
    const void *params;
    uint32_t params_bytes;
    struct program_use uses[PROGRAM_MAX_USES];
    int uses_count;
    struct program_cost cost;
    /* CPU: called by every worker; a barrier follows each entry. */
    program_cpu_fn *cpu;
    /* CUDA: a library's product (kernel and geometry are unused then), or a function that jit/ gave, and its geometry. */
    program_host_fn *host;
    void *kernel;
    struct program_dim grid[3];
    uint32_t block[3], cluster, shared_bytes;
    uint16_t rows_param;      /* 1 + offset of a u32 in params that is the count of rows_extent at each launch; 0: none */
    enum extent rows_extent;
    /* Called once when the addresses are in params: what follows from them (TMA descriptors). NULL: nothing. */
    enum rose_status (*ready)(struct device *device, void *params, struct rose_error *err);
    bool cooperative, dependent; /* dependent: may start before its predecessor ends (programmatic dependent launch) */
    bool side, join; /* program_side, program_join */
    const void *plan; /* struct planned of ops/plan.h where device.keeps_plans; NULL: none */
};

struct program_entry {
    struct program_launch launch; /* params point into the program's arena */
};

struct program_buffer_info {
    const char *name;
    size_t bytes;
    void *address;    /* known after finish; externals: always */
    int first, last;  /* entries that use it first and last, -1 before any */
    bool external, output; /* output: keeps its memory to the end, so that somebody may read it afterwards */
};

struct program {
    struct device *device;
    struct arena arena;
    struct program_entry *entries;
    int count, capacity;
    struct program_buffer_info *buffers; /* [0] is unused */
    int buffers_count, buffers_capacity;
    void *memory; /* where the internal buffers live */
    struct program_zeroed { struct program_zeroed *next; char *base; size_t used, bytes; } *zeroed;
    size_t memory_bytes;
    bool shared_memory; /* memory belongs to somebody else */
    bool failed;  /* out of memory while recording; finish reports it */
    bool side, join; /* of the next entries */
    struct extents expect; /* what the plans of its launches are made for (any extents run); 0: 1 */
    bool draft;   /* recorded only to learn which kernels it needs: nothing is compiled, and it is never finished */
    bool eager;   /* CUDA: runs launch by launch; graphs come from device_prepare alone */
    void *backend; /* the device's own (a CUDA graph) */
};

enum rose_status program_open(struct device *device, struct program **out, struct rose_error *err);
void program_close(struct program *program);

/* An intermediate of at most `bytes`. name is static. */
program_buffer_id program_buffer(struct program *program, const char *name, size_t bytes);
/* Memory that exists already (step inputs, cache pool, logits). */
program_buffer_id program_external(struct program *program, const char *name, void *address, size_t bytes);
/* Device memory that is zero when the program is finished and stays its own from run to run (barrier counters, tickets). 0 with the
 * program failed when there is none. */
program_buffer_id program_counters(struct program *program, const char *name, size_t bytes);
/* Keep a buffer's contents until the next run. */
void program_keep(struct program *program, program_buffer_id buffer);

/* Append a launch; params are copied. */
void program_add(struct program *program, const struct program_launch *launch);
/* Entries added while `side` is set may run beside those that follow them (a second branch of a CUDA graph), until program_join: the next entry
 * waits for both. Neither may read what the other writes meanwhile, and a second branch begins behind a join. Everywhere else they run in order. */
void program_side(struct program *program, bool side);
void program_join(struct program *program);
/* Declare a pointer: program_use(&launch, buffer, PROGRAM_READ, offsetof(struct x_params, x)). */
void program_use(struct program_launch *launch, program_buffer_id buffer, enum program_mode mode, size_t param_offset);

/* Place buffers and write pointers. memory: NULL to let the program allocate, or `bytes` of device memory shared with
 * programs that never run at the same time. */
enum rose_status program_finish(struct program *program, void *memory, size_t bytes, struct rose_error *err);
/* Bytes the internal buffers need together, after all launches are recorded. */
size_t program_memory_bytes(struct program *program);
void *program_address(const struct program *program, program_buffer_id buffer);

/* Lines of "index name layer reads writes bytes ops" for one step's extents. */
struct strbuf;
void program_print(const struct program *program, const struct extents *extents, struct strbuf *out);

#endif
