/* Connections of gRPC's library: at most so many, and no end of listening when descriptors run out. */
#ifndef ROSE_SERVER_RPC_ACCEPT_H
#define ROSE_SERVER_RPC_ACCEPT_H

#include <stdbool.h>

/* From now on for whatever listens on this port; limit > 0. False: out of memory. */
bool rpc_accept_watch(int port, int limit);
void rpc_accept_end(void);

#endif
