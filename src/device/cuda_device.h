/* The CUDA device's insides, shared by src/device/cuda*.c only. */
#ifndef ROSE_DEVICE_CUDA_DEVICE_H
#define ROSE_DEVICE_CUDA_DEVICE_H

#include "device/cuda.h"
#include "device/cuda_api.h"

enum { CUDA_FLIGHT = 1024, CUDA_GRAPHS = 32, CUDA_SEEN = 64 };

struct cuda_event_node {
    struct cuda_event_node *next;
    cu_event event;
};

struct cuda_device {
    struct device base; /* first */
    struct cuda_api api;
    cu_device device;
    cu_context context;
    cu_stream stream; /* all work of the device, in order */
    cu_stream side;   /* a second branch of graphs; made when one is captured, with the events between the two */
    cu_event fork, join;
    bool debug_sync;
    struct cuda_event_node *events;
    struct cuda_module *modules;
    cu_event *timers; /* [timers_count], with times: profiles */
    int timers_count;
    struct cuda_trace *trace; /* NULL: off */

    /* What is in flight: launch i's name is flight[i % CUDA_FLIGHT]; launches below `landed` have run. */
    const char *flight[CUDA_FLIGHT];
    uint64_t launched, landed;

    bool lost; /* a sticky error happened: failure says which */
    enum rose_status failure_status;
    struct rose_error failure;
};

struct cuda_function {
    struct cuda_function *next;
    struct cuda_module *module;
    cu_function function;
    char *name;  /* "kernel:entry", owned */
    char *entry; /* points into name */
    int registers, max_threads;
    size_t shared_bytes, local_bytes, dynamic_shared; /* dynamic_shared: the maximum set so far */
    bool wide_cluster;
};

struct cuda_module {
    struct cuda_module *next;
    struct cuda_device *device;
    cu_module module;
    char *name;
    struct cuda_function *functions;
};

/* Make the context current; fails when the device is lost. Every entry point starts with it. */
enum rose_status cuda_enter(struct cuda_device *d, struct rose_error *err);
/* Status of a driver call; on a sticky error the device is marked lost and the message gets the kernels in
 * flight. */
enum rose_status cuda_check(struct cuda_device *d, cu_result code, struct rose_error *err, const char *fmt,
                            ...) ROSE_PRINTF(4, 5);
/* Note a launch in flight, and with debug_sync wait for it. */
enum rose_status cuda_flown(struct cuda_device *d, const char *name, struct rose_error *err);

/* cuda_trace.c */
void cuda_trace_close(struct cuda_device *d);

/* Vtable entries that cuda_launch.c implements. */
enum rose_status cuda_launch_submit(struct device *device, struct program *program,
                                    const struct extents *extents, struct rose_error *err);
enum rose_status cuda_launch_prepare(struct device *device, struct program *program,
                                     const struct extents *extents, struct rose_error *err);
enum rose_status cuda_launch_program_ready(struct device *device, struct program *program,
                                           struct rose_error *err);
void cuda_launch_program_gone(struct device *device, struct program *program);

#endif
