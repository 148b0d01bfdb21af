/* rose bench --trace FILE. */
#ifndef ROSE_CLI_BENCH_TRACE_H
#define ROSE_CLI_BENCH_TRACE_H

#include "rose.h"

/* The trace that rose_device_trace(device, marks) has taken. */
enum rose_status bench_trace_write(struct rose_device *device, const char *path, int marks, struct rose_error *err);

#endif
