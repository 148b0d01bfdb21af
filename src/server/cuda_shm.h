/* CUDA shared memory of KServe (Triton's extension): memory of the models' GPU that a client on this machine exports by cudaIpcGetMemHandle.
 * It is opened for copies, stays open until it is unregistered, and then is the client's alone again. Regions are those of regions.h. */
#ifndef ROSE_SERVER_CUDA_SHM_H
#define ROSE_SERVER_CUDA_SHM_H

#include "server/regions.h"

struct rose_device;

/* handle: the 64 bytes of a cudaIpcMemHandle_t. device NULL, or a CPU: refused as Triton without GPUs does. */
bool cuda_shm_add(struct regions *r, struct rose_device *device, struct str name, struct str handle, int64_t gpu, uint64_t bytes, struct api_error *e);
/* The same from the body of an HTTP request: {"raw_handle": {"b64": ...}, "device_id", "byte_size"}. */
bool cuda_shm_add_json(struct regions *r, struct rose_device *device, struct str name, const struct json *body, struct api_error *e);
/* [{"name", "device_id", "byte_size"}, ...] of all, or of one; false: there is none of that name. */
bool cuda_shm_status(const struct regions *r, struct str name, struct strbuf *b);

#endif
