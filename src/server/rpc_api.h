/* The functions of gRPC's core library, by dlopen; the calls of rpc*.c as messages and answers. */
#ifndef ROSE_SERVER_RPC_API_H
#define ROSE_SERVER_RPC_API_H

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <protobuf-c/protobuf-c.h>
#include <pthread.h>

#include "server/kserve.h"
#include "server/rpc.h"

#define RPC_FUNCTIONS(X)                                                                                                                             \
    X(grpc_init) X(grpc_shutdown) X(grpc_completion_queue_create_for_next) X(grpc_completion_queue_next) X(grpc_completion_queue_shutdown)           \
    X(grpc_completion_queue_destroy) X(grpc_server_create) X(grpc_server_register_completion_queue) X(grpc_server_add_http2_port)                    \
    X(grpc_server_start) X(grpc_server_request_call) X(grpc_server_shutdown_and_notify) X(grpc_server_cancel_all_calls) X(grpc_server_destroy)       \
    X(grpc_insecure_server_credentials_create) X(grpc_ssl_server_credentials_create) X(grpc_server_credentials_release)                              \
    X(grpc_call_start_batch) X(grpc_call_cancel) X(grpc_call_unref) X(grpc_call_details_init) X(grpc_call_details_destroy)                           \
    X(grpc_metadata_array_init) X(grpc_metadata_array_destroy) X(grpc_raw_byte_buffer_create) X(grpc_byte_buffer_destroy)                            \
    X(grpc_byte_buffer_length) X(grpc_byte_buffer_reader_init) X(grpc_byte_buffer_reader_readall) X(grpc_byte_buffer_reader_destroy)                 \
    X(grpc_slice_malloc) X(grpc_slice_unref) X(grpc_slice_from_copied_buffer) X(gpr_inf_future) X(gpr_set_log_function)

struct rpc_api {
#define X(name) __typeof__(&name) name;
    RPC_FUNCTIONS(X)
#undef X
};
extern struct rpc_api rpc_api;
/* Load the library once. */
enum rose_status rpc_api_load(struct rose_error *err);

struct rpc;
struct rpc_server;

struct rpc_tag {
    void (*done)(struct rpc *r, bool ok);
    struct rpc *rpc;
    bool ok;
    struct rpc_tag *next;
};

struct rpc_method {
    const char *path;
    bool stream, open; /* several messages either way; no API key is needed */
    /* A message has come; data is valid during the call. */
    void (*message)(struct rpc *r, struct str data);
};
extern const struct rpc_method rpc_methods[];
extern const int rpc_methods_count;

/* An inference under way. */
struct rpc_infer {
    struct kserve_call call;
    struct httpd_request http; /* without a connection: its arena, id and on_gone */
    ProtobufCMessage *message; /* the request, which inputs point into */
    struct rpc *rpc;           /* NULL: over */
    struct rpc_infer *next, *previous;
};

struct rpc {
    struct rpc_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    const struct rpc_method *method;
    struct rpc_tag arrived, received, sent, closed;
    int pending; /* tags that are out */
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled_flag;
    bool cancelled, too_slow, half_closed, receiving, sending, head_sent, want_status, status_sent;
    struct rpc_message *out_first, *out_last;
    size_t out_bytes;
    int in_flight; /* inferences */
    struct rpc_infer *infers;
    int status;
    char status_text[600];
    char id[HTTP_ID_BYTES + 1];
    double began_s, sending_s; /* when it came; when what is being sent was begun */
    bool watches_health, watches_known; /* a service that there is */
    struct model_wait *load_wait; /* RepositoryModelLoad: what waits */
    struct model *load_model;
    struct rpc *next, *previous;
};

struct rpc_server {
    struct server *s;
    grpc_server *server;
    grpc_completion_queue *cq;
    pthread_t thread;
    bool thread_runs, draining, down;
    bool was_ready; /* what watchers of health were told last */
    bool orphans;   /* a call may have ended with its last inference: settle them */
    int fd, count;
    pthread_mutex_t lock;
    struct rpc_tag *done_first, *done_last;
    struct rpc_tag shutdown;
    struct rpc *calls, *waiting;
    struct rpc_infer *dead; /* to be freed when nobody's code is in them */
    char address[300];
    char *cert, *key;
    uint64_t ids;
};

/* Queue a message; it is packed now. */
void rpc_send(struct rpc *r, const ProtobufCMessage *m);
/* The end: behind what is queued. */
void rpc_finish(struct rpc *r, int status, const char *text);
void rpc_fail(struct rpc *r, const struct api_error *e);
int rpc_status(int http_status);
/* A stream whose client sends no more and whose answers are all out ends. */
void rpc_settle(struct rpc *r);

/* rpc_wire.c */
/* The texts of a message of kind d that has come: UTF-8 without NUL, or false. */
bool rpc_wire_check(const ProtobufCMessageDescriptor *d, struct str message);
/* What is no UTF-8 (a text of a client's, cut in the middle of a letter) becomes '?': a client that gets it could not read the message. */
void rpc_wire_clean(char *text);
/* rpc_kserve.c */
void rpc_model_infer(struct rpc *r, struct str data);
void rpc_stream_infer(struct rpc *r, struct str data);
void rpc_infer_drop(struct rpc_infer *i, bool gone);
void rpc_infer_free(struct rpc_infer *i);
/* rpc_info.c */
#define RPC_INFO_METHODS(X)                                                                                                                          \
    X(ServerLive) X(ServerReady) X(ModelReady) X(ServerMetadata) X(ModelMetadata) X(ModelConfig) X(ModelStatistics) X(RepositoryIndex)               \
    X(RepositoryModelLoad) X(RepositoryModelUnload) X(SystemSharedMemoryStatus) X(SystemSharedMemoryRegister) X(SystemSharedMemoryUnregister)        \
    X(CudaSharedMemoryStatus) X(CudaSharedMemoryRegister) X(CudaSharedMemoryUnregister) X(TraceSetting) X(LogSettings)
#define X(name) void rpc_##name(struct rpc *r, struct str data);
RPC_INFO_METHODS(X)
#undef X
void rpc_load_gone(struct rpc *r);
/* rpc_health.c */
void rpc_health_check(struct rpc *r, struct str data);
void rpc_health_watch(struct rpc *r, struct str data);
/* Tell those who watch, if something has changed. */
void rpc_health_look(struct rpc_server *g);
void rpc_reflect(struct rpc *r, struct str data);

#endif
