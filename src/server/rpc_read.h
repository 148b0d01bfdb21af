/* An inference request of KServe v2 as it comes over gRPC. */
#ifndef ROSE_SERVER_RPC_READ_H
#define ROSE_SERVER_RPC_READ_H

#include "server/kserve.h"

/* The bytes of a ModelInferRequest as a message; NULL: they are none. The names live as long as the message. */
void *rpc_read_unpack(struct str data, struct str *model, struct str *version);
void rpc_read_free(void *message);
/* As kserve_read; tensors point into the message. */
bool rpc_read(const void *message, struct arena *a, struct regions *regions, struct kserve_request *q, struct api_error *e);

#endif
