/* Connections of gRPC's library: at most so many, and no end of listening when descriptors run out. */
#ifndef ROSE_SERVER_RPC_ACCEPT_H
#define ROSE_SERVER_RPC_ACCEPT_H

#include <stdbool.h>

/* From now on for whatever listens on this port; limit > 0; wake_fd: an eventfd, written when rpc_accept_waiting becomes true. False: out of memory. */
bool rpc_accept_watch(int port, int limit, int wake_fd);
/* A client waits that could not be taken: call rpc_accept_again now and then. */
bool rpc_accept_waiting(void);
void rpc_accept_again(void);
void rpc_accept_end(void);

#endif
