/* KServe v2, the inference protocol of Triton: what its transports (HTTP here, gRPC in grpc*.c) share.
 *
 *     HTTP body ---- kserve_read ----.                                   .---- kserve_write ---- HTTP answer
 *                                     > kserve_call -> kserve_infer ... <
 *     protobuf ----- grpc_kserve ----'   (texts or a generation)         '---- grpc_kserve ----- protobuf
 */
#ifndef ROSE_SERVER_KSERVE_H
#define ROSE_SERVER_KSERVE_H

#include "server/internal.h"

enum kserve_type {
    KSERVE_BOOL, KSERVE_UINT8, KSERVE_UINT16, KSERVE_UINT32, KSERVE_UINT64, KSERVE_INT8, KSERVE_INT16, KSERVE_INT32, KSERVE_INT64,
    KSERVE_FP16, KSERVE_BF16, KSERVE_FP32, KSERVE_FP64, KSERVE_BYTES,
    KSERVE_TYPES,
};
enum { KSERVE_RANK = 8, KSERVE_TENSORS = 64, KSERVE_ELEMENTS = 1 << 26, KSERVE_BATCH = 4096 };

/* A tensor's contents are little-endian and row-major; each BYTES element has its length (4 bytes) before it. */
struct kserve_tensor {
    struct str name;
    enum kserve_type type;
    int rank;
    int64_t shape[KSERVE_RANK];
    size_t elements;
    struct str data;
};

/* What is wanted of an output. */
struct kserve_wanted {
    struct str name, region; /* region.n 0: in the answer */
    bool binary;
    int classification;      /* so many of the largest values as texts; 0: the values */
    int type;                /* enum kserve_type; -1: as it is */
    size_t offset, bytes;    /* in the region */
};

struct kserve_request {
    struct str id;
    const struct json *parameters; /* an object; NULL: none */
    struct kserve_tensor *inputs;  /* [inputs_count] */
    struct kserve_wanted *wanted;  /* [wanted_count]; none: all */
    int inputs_count, wanted_count;
    bool binary, empty_final;      /* outputs that nobody named are binary; a last, empty answer behind the others */
    int type;                      /* of float outputs; -1: as they are */
    int priority;
    int64_t timeout_us;
};

struct kserve_answer {
    struct kserve_tensor *outputs;
    const struct kserve_wanted **wanted; /* [count], by output; NULL: nobody named it */
    int count;
    bool final, empty; /* the last one; it has no outputs */
};

struct kserve_call;
struct kserve_transport {
    void (*answer)(struct kserve_call *c, const struct kserve_answer *answer); /* several only where `streams` */
    void (*fail)(struct kserve_call *c, const struct api_error *e);            /* the end, also behind answers */
};
struct kserve_call {
    struct server *s;
    struct httpd_request *http; /* arena, id; of gRPC one without a connection */
    struct model *model;
    struct kserve_request request;
    const struct kserve_transport *transport;
    bool streams; /* the transport takes several answers */
    void *user;
    struct rose_request as_asked;      /* for outputs that are computed one after the other (kserve_infer.c): the request's wishes, */
    unsigned passes;                   /* what is still to be computed, */
    struct kserve_tensor made[6];      /* and what is there already */
    int made_count;
};

/* --- kserve_tensor.c --- */
const char *kserve_type_name(int type);
int kserve_type_find(struct str name); /* -1: there is none */
size_t kserve_type_bytes(enum kserve_type type); /* 0: BYTES */
/* The product of a shape; false: negative or beyond KSERVE_ELEMENTS. */
bool kserve_elements(const int64_t *shape, int rank, size_t *out);
/* Does `data` hold exactly `elements` values (BYTES: well-formed ones)? */
bool kserve_check(const struct kserve_tensor *t, struct api_error *e);
/* JSON, nested or flat, into t->data (in the arena); shape and type are set. */
bool kserve_from_json(const struct json *data, struct kserve_tensor *t, struct arena *arena, struct api_error *e);
/* The list of a tensor's values, flat. False: this type cannot be JSON. */
bool kserve_to_json(const struct kserve_tensor *t, struct strbuf *b);
/* Step through BYTES that kserve_check has seen. */
struct str kserve_next_bytes(struct str *rest);
double kserve_number(const struct kserve_tensor *t, size_t i);
/* float32 as another float type. */
bool kserve_convert(struct kserve_tensor *t, int type, struct arena *arena);
/* The k largest of the last dimension, as texts "value:index:label". labels NULL: without. */
bool kserve_classify(struct kserve_tensor *t, int k, const char *const *labels, int labels_count, struct arena *arena);
/* A refusal of a whole request, and of one whose tensors do not fit in memory; both are false. */
bool kserve_wrong(struct api_error *e, const char *fmt, ...) ROSE_PRINTF(2, 3);
/* Numbers may come in any width of their kind. */
bool kserve_type_fits(enum kserve_type have, enum kserve_type want);
bool kserve_too_large(struct api_error *e);

/* --- kserve_read.c --- */
/* An infer request; header_bytes: length of the JSON, SIZE_MAX: all. Shared memory comes from `regions` (NULL: there is none). */
bool kserve_read(struct str body, size_t header_bytes, struct arena *arena, struct regions *regions, struct kserve_request *out, struct api_error *e);
/* Parameters that any transport has: id, priority, timeout, ... */
bool kserve_read_parameters(const struct json *parameters, struct kserve_request *out, struct api_error *e);
bool kserve_read_wanted_parameters(const struct json *parameters, bool input, struct kserve_wanted *out, struct api_error *e);
/* The bytes of an input that lies in shared memory. */
bool kserve_read_region(struct regions *regions, const struct kserve_wanted *from, struct kserve_tensor *t, struct arena *arena, struct api_error *e);

/* --- kserve_write.c --- */
extern const struct kserve_transport kserve_http;
void kserve_refuse(struct httpd_request *r, const struct api_error *e);
void kserve_add_error(const struct api_error *e, struct strbuf *b);

/* --- kserve_io.c: which tensors a model takes and gives --- */
struct kserve_io {
    const char *name;
    enum kserve_type type;
    int rank;
    int64_t dims[3]; /* without the batch, where there is one; -1: any */
    bool optional;
    const char *to;  /* by a config.pbtxt: the engine's tensor that it is; NULL: this one's own name */
    const char *const *labels; /* [labels_count] of its label_filename; NULL: the model's own */
    int labels_count;
};
enum kserve_kind { KSERVE_TEXT, KSERVE_EMBED, KSERVE_CLASSIFY, KSERVE_SCORE };
enum kserve_kind kserve_kind(const struct model *m);
/* The engine's own; all: also those that only a config.pbtxt gives a name to. At most `room` rows; how many. */
int kserve_io_inputs(const struct model *m, bool all, struct kserve_io *io, int room);
int kserve_io_outputs(const struct model *m, bool all, struct kserve_io *io, int room);
int kserve_io_copy(const struct kserve_io *from, int count, struct kserve_io *to, int room);
/* As clients see them: a config.pbtxt's where there is one. */
int kserve_inputs(const struct model *m, struct kserve_io *io, int room);
int kserve_outputs(const struct model *m, struct kserve_io *io, int room);
/* 0: shapes have no batch dimension, or dims name it. */
int kserve_batch(const struct model *m);

/* --- kserve_map.c: tensors as a config.pbtxt calls them --- */
struct model_config;
struct kserve_map;
/* The model's configuration onto the tensors of its engine, whose info is there; *out NULL: it names none. docs/server.md has the rules. */
enum rose_status kserve_map_build(const struct model *m, const struct model_config *config, struct kserve_map **out, struct rose_error *err);
void kserve_map_free(struct kserve_map *map);
/* The whole shape that a client sends or gets, the batch first; its rank. */
int kserve_map_shape(const struct model *m, const struct kserve_io *io, int64_t to[4]);
/* A checked request in the engine's names and shapes; one that names no outputs asks for all. */
bool kserve_map_request(struct kserve_call *c, struct api_error *e);
/* An output in the client's name, type and shape; type -1: the configuration's. */
bool kserve_map_output(const struct model *m, struct kserve_tensor *t, int *type, struct api_error *e);
/* The labels that the engine's output has when it is classified. */
const char *const *kserve_map_labels(const struct model *m, struct str engine_output, int *count);
/* What clients call the engine's tensor, or the engine a client's; the name itself where there is no other; p NULL: an input that is taken and not read. */
const char *kserve_map_name(const struct model *m, const char *engine_output);
struct str kserve_map_input(const struct model *m, struct str client_input);
/* Triton's levels: 0 and those beyond the last are the default. */
int kserve_map_priority(const struct model *m, int priority);
/* "x -> text, y -> embedding", for a log. */
void kserve_map_describe(const struct kserve_map *map, struct strbuf *b);

/* --- kserve_infer.c --- */
/* Find the model, check, run; the transport answers, perhaps before this returns. */
void kserve_infer(struct kserve_call *c, struct str model, struct str version);
/* READY, by name and version ("": the highest). NULL: *e says why. */
struct model *kserve_find(struct server *s, struct str name, struct str version, struct api_error *e);
/* Outputs to the transport: wanted ones, converted, classified, into shared memory. */
void kserve_deliver(struct kserve_call *c, struct kserve_tensor *outputs, int count, bool final);

/* --- kserve_text.c --- */
void kserve_text_infer(struct kserve_call *c);
void kserve_generate(struct server *s, struct httpd_request *r, struct str model, struct str version, bool stream);

/* --- kserve_info.c --- */
void kserve_add_metadata(const struct server *s, struct strbuf *b);
void kserve_add_model(struct server *s, const struct model *m, struct strbuf *b);
void kserve_add_config(const struct model *m, struct strbuf *b);
void kserve_add_statistics(const struct model *m, struct strbuf *b);
const char *kserve_platform(const struct model *m);
extern const char *const kserve_extensions[];
extern const int kserve_extensions_count;

/* --- kserve_repository.c: what both transports do --- */
/* Load by name the versions that are wanted; the wait is told of the first that was not ready. False: *e says why. */
bool kserve_load(struct server *s, struct str name, const struct json *parameters, struct arena *arena, struct model_wait *wait, struct model **model, struct api_error *e);
/* *model has been loaded (*status): another wanted version follows, and the wait will be told of that? False: it is over, with *status and *err. */
bool kserve_load_more(struct server *s, struct model_wait *wait, struct model **model, enum rose_status *status, struct rose_error *err);
bool kserve_unload(struct server *s, struct str name, struct api_error *e);
/* Look again what is there. */
void kserve_rescan(struct server *s);
/* Settings by name: kept, or refused by *e. log: else those of traces. */
bool kserve_settings_change(struct server *s, bool log, const struct json *settings, struct api_error *e);
void kserve_add_settings(const struct server *s, bool log, struct strbuf *b);
bool kserve_ready(const struct server *s);

/* --- kserve_routes.c --- */
void kserve_route(struct server *s, struct httpd_request *r);
/* Which methods the path takes: "GET", "POST", "GET, POST"; NULL: there is no such path. */
const char *kserve_methods(const char *path);

#endif
