/* gRPC beside HTTP (--grpc-port): KServe v2, health checks and reflection, by gRPC's core library in C and protobuf-c.
 *
 * The library is loaded when it is asked for; nothing else in the process waits for it or is linked with it. A thread waits on its completion
 * queue and hands what has completed to the loop: all work on requests happens there, as for HTTP.
 */
#ifndef ROSE_SERVER_RPC_H
#define ROSE_SERVER_RPC_H

#include "server/internal.h"

/* Listen where server_options say; ROSE_UNSUPPORTED: built without, or the library is not installed. */
enum rose_status rpc_open(struct server *s, struct rose_error *err);
/* Readable when rpc_run has something to do. */
int rpc_fd(const struct server *s);
void rpc_run(struct server *s);
const char *rpc_address(const struct server *s);
/* No new calls; streams without a request under way end. */
void rpc_drain(struct server *s);
/* Once a second while rpc_sweeps: give up clients that do not read, and calls whose message does not come; take connections that there was no room for. */
void rpc_sweep(struct server *s);
bool rpc_sweeps(const struct server *s);
/* Calls under way. */
int rpc_calls(const struct server *s);
void rpc_close(struct server *s);

#endif
