/* Inside the stand-in driver. One lock over everything. */
#ifndef ROSE_SIMT_DRIVER_INTERNAL_H
#define ROSE_SIMT_DRIVER_INTERNAL_H

#include "device/cuda_api.h"
#include "driver.h"
#include "simt_internal.h"

#define API SIMT_EXPORT cu_result
#ifdef SIMT_DRIVER_CHECKED
#define SIMT_DRIVER_MODE 'c'
#else
#define SIMT_DRIVER_MODE 'f'
#endif

enum {
    CU_ERROR_INVALID = 1,
    CU_ERROR_DEINITIALISED = 4,
    CU_ERROR_NOT_FOUND = 500,
    CU_ERROR_CONTEXT = 201,
    CU_ERROR_GRAPH_UPDATE = 910,
    CU_ERROR_COOPERATIVE = 720,
    CU_ERROR_NOT_SUPPORTED = 801,
    CU_ERROR_CAPTURE = 900,
    CU_ERROR_UNJOINED = 904
};

struct driver_device {
    const char *name, *arch; /* "sm_90a" */
    int major, minor, shared_block, shared_unit, threads_unit, l2_mb, clock_khz, bus_bits;
    int refs, broken;
    size_t used;
};
extern struct driver_device driver_devices[SIMT_DRIVER_DEVICES];
extern char driver_message[1200]; /* why the last launch failed */
extern uint64_t driver_seed;
extern size_t driver_memory;
extern struct simt_driver_counts driver_counts;

struct driver_allocation {
    struct driver_allocation *next;
    void *p;
    size_t bytes;
    int device;    /* -1: host */
    int fd;        /* -1: not shared with other processes */
    bool imported; /* another process's */
};

struct cu_context_st {
    int device;
};

struct cu_function_st {
    struct cu_function_st *next;
    const struct simt_kernel *kernel;
    int dynamic_shared;
    uint64_t launches;
    double seconds;
};
struct cu_module_st {
    char *so;
    uint32_t arch;
    struct cu_function_st *functions;
    struct cu_module_st *next;
};

enum driver_kind {
    DRIVER_LAUNCH,
    DRIVER_COPY,
    DRIVER_FILL,
    DRIVER_HOST,
    DRIVER_RECORD,
    DRIVER_AFTER,
    DRIVER_GRAPH
};

struct driver_op {
    struct driver_op *next;
    enum driver_kind kind;
    struct simt_launch launch; /* LAUNCH; kernel from function */
    struct cu_function_st *function;
    void *params; /* owned, 64-byte aligned */
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    int byte, width; /* FILL: a pattern of width bytes */
    void (*host)(void *);
    void *user;
    struct cu_event_st *event; /* RECORD, AFTER: holds a reference */
    uint64_t ticket;
    struct cu_graph_st *graph; /* GRAPH: holds a reference */
};
struct cu_stream_st {
    struct cu_stream_st *next;
    int device;
    struct driver_op *first, **last;
    struct cu_graph_st *capture;
    bool side; /* joined another's capture by waiting for its event */
};
struct cu_event_st {
    struct cu_graph_st *capture;  /* recorded while that was captured, by captured_by */
    struct cu_stream_st *captured_by;
    struct cu_stream_st *stream; /* of the last record; NULL: none, or destroyed */
    uint64_t recorded, done;
    double time;
    int refs;
};
struct cu_graph_st {
    struct driver_op *first, **last;
    struct driver_op *side, **side_last, **fork; /* a second branch that has not joined yet, and where it left the first */
    int count, refs;
};
struct cu_graph_exec_st {
    struct cu_graph_st *graph;
};

/* driver_cuda.c, under the lock: memory; imported: to be laid over another process's, and counted there. */
cu_result driver_allocate(void **out, size_t bytes, bool host, bool imported);
cu_result driver_give_back(void *p, bool host);
struct driver_allocation *driver_allocation_of(const void *p); /* that holds this byte; NULL */
int driver_lock(void);                                         /* the current device, -1: none, or a broken one */
void driver_unlock(void);

/* driver_queue.c */
cu_result driver_add(struct cu_stream_st *s,
                     const struct driver_op *op); /* copies op; takes its references and params */
cu_result driver_run_stream(struct cu_stream_st *s);
cu_result driver_run_event(struct cu_event_st *e);
cu_result driver_run_all(int device);
/* Waiting for an event while capturing: a stream becomes the second branch, or the branch joins. */
cu_result driver_capture_after(struct cu_stream_st *s, struct cu_event_st *e);
void driver_event_drop(struct cu_event_st *e);
void driver_graph_drop(struct cu_graph_st *g);
struct cu_graph_st *driver_graph_new(void);
cu_result driver_stream_new(int device, struct cu_stream_st **out);
void driver_stream_gone(struct cu_stream_st *s);
double driver_now(void);
cu_result driver_broken(int device, cu_result code, const char *why);

/* driver_cubin.c: the image that "NVRTC" gives.
 * write: *out malloc'ed; entries are the kernels of the shared object. */
bool driver_cubin_write(uint32_t arch, const char *hash, const unsigned char *so, size_t n,
                        unsigned char **out, size_t *out_n, char *why, size_t why_size);
bool driver_cubin_read(const void *image, uint32_t *arch, char hash[40], const unsigned char **so, size_t *n);
/* Where the shared object of a hash lies below the cache. */
void driver_cache_path(const char *hash, char *out, size_t size);
bool driver_cache_write(const char *path, const unsigned char *bytes, size_t n);

cu_result driver_tensor_map(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                            const uint64_t *stride, const uint32_t *box, int interleave, int swizzle);

#endif
