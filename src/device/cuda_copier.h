/* Copies onto a CUDA device from a thread of its own, beside the device's queue and beside whoever uses the device meanwhile: a stream and events
 * that nobody else sees. Errors are told, but the device is not marked lost here: its own next call finds out. */
#ifndef ROSE_DEVICE_CUDA_COPIER_H
#define ROSE_DEVICE_CUDA_COPIER_H

#include "device/device.h"

struct cuda_copier;

/* events: marks numbered from 0. One thread uses a copier; any may open and close it. */
enum rose_status cuda_copier_open(struct device *device, int events, struct cuda_copier **out, struct rose_error *err);
/* Queued; host memory must stay valid until a mark behind it has passed. */
enum rose_status cuda_copier_copy(struct cuda_copier *copier, void *dst, const void *src, size_t bytes, struct rose_error *err);
enum rose_status cuda_copier_mark(struct cuda_copier *copier, int event, struct rose_error *err);
/* Until all before the mark has been copied. */
enum rose_status cuda_copier_wait(struct cuda_copier *copier, int event, struct rose_error *err);
/* Waits for what is queued. */
void cuda_copier_close(struct cuda_copier *copier);

#endif
