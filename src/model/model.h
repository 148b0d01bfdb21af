/* A loaded model: its config and its weights where the device wants them. */
#ifndef ROSE_MODEL_MODEL_H
#define ROSE_MODEL_MODEL_H

#include "base/str.h"
#include "model/arch.h"
#include "model/config.h"

struct weights;
struct upload;

/* Weights of one layer by slot: matrices in weight[], vectors (norms, biases) as float32 in vector[]. Fused tensors of a file
 * (qkv, gate_up) are split into views, so that only SLOT_Q, _K, _V, _GATE and _UP exist here. */
struct model_layer {
    struct op_weight weight[SLOT_COUNT];
    const float *vector[SLOT_COUNT];
    struct op_weight *experts[3]; /* gate, up, down: [experts] each, NULL in dense layers */
};

struct model {
    struct model_config config;
    struct device *device;
    struct weights *weights; /* stays open: some weights are used in place */
    enum dtype element; /* CUDA: what activations, weights as rows and cache pages of two bytes are in: BF16 or F16 */
    struct arena arena;
    struct model_layer *layers; /* [config.layers] */
    struct model_layer *top;    /* the slots of the model itself */
    struct op_weight embed, output;
    const float *final_norm;
    const float *relative;      /* f32 [heads, OP_RELATIVE_STRIDE(config.context)], NULL: none */
    const float *alibi;         /* f32 [heads], NULL: none */
    struct op_weight answer[2]; /* MODEL_YES_NO: the output matrix's rows of yes and no, [1, hidden] */
    struct op_weight sparse;    /* [1, hidden] of the lexical head, its bias beside */
    const float *sparse_bias;
    struct weights *sparse_weights;
    const float *inv_freq[MODEL_MAX_ROPES]; /* [rotary_dim / 2] each */
    float rope_scale[MODEL_MAX_ROPES];
    void *memory; /* packed weights; NULL where an earlier start's are mapped */
    size_t memory_bytes;
    const void *packed; /* the map (packed.h), of memory_bytes */
    struct strbuf packed_key;
    struct packed_store *store; /* writes memory for later starts */
    void *vectors; /* CUDA: every float vector of the model, in device memory */
    size_t vectors_bytes;
    int64_t parameters;
    bool dummy; /* random weights */
    bool rough; /* its owner asked for other weights than the file's: attention over own rows may round to bfloat16 too */
    char notice[256]; /* what was done to weights while loading ("… converted to BF16"), empty: nothing */
    struct upload *upload; /* CUDA: weights on their way to the device (upload.h), until model_loaded; NULL: none */
    double upload_seconds; /* how long that took */
};

/* Called while loading with bytes done and in all; may be NULL. */
typedef void model_progress_fn(void *user, size_t done, size_t total);

/* Read the config, bind every tensor, pack. Takes ownership of weights, also when it fails. */
enum rose_status model_open(struct device *device, struct weights *weights, model_progress_fn *progress, void *user, struct model **out,
                            struct rose_error *err);
/* The same with a wish about what the model is for; model_open lets the files say it. */
enum rose_status model_open_as(struct device *device, struct weights *weights, const struct head_wish *wish, model_progress_fn *progress, void *user, struct model **out,
                               struct rose_error *err);
/* CUDA, after wish.early: returns when all weights are in device memory; nothing may read them before, nor may `user` of the progress go. Without
 * it, and on other devices, they are there already. */
enum rose_status model_loaded(struct model *model, struct rose_error *err);
/* The same from a config alone (weights_open_config): seeded random weights, norms of one, no biases. For measurements. type: as head_wish.weights
 * (on CUDA BF16, and without it, or F16; the CPU takes BF16 whatever it is). */
enum rose_status model_open_dummy(struct device *device, struct weights *config, uint64_t seed, enum dtype type, struct model **out, struct rose_error *err);
/* Does the model find every tensor that it wants, in shape and type? Binds, packs nothing; all problems come in one error. The weights
 * stay the caller's. */
enum rose_status model_check(struct device *device, struct weights *weights, struct rose_error *err);
void model_close(struct model *model);

/* What one forward reads and writes beside the weights. */
struct forward {
    struct op_step step;
    struct op_cache cache;
    bool deterministic;
    program_buffer_id logits; /* out: f32 [max_samples, vocabulary], rows in the order of step.sample_rows */
    /* Models that embed, classify and score (config.own_rows): no cache, other outputs. */
    program_buffer_id types;       /* i32 [T], token types; 0: all zero */
    program_buffer_id pool_kind;   /* i32 [S], enum op_pooling */
    program_buffer_id pool_skip;   /* i32 [S] */
    program_buffer_id hidden;      /* out: f32 [T, hidden], the last layer's rows */
    program_buffer_id pooled;      /* out: f32 [S, forward_pooled_cols] */
    program_buffer_id token_values; /* out: f32 [T, forward_token_cols]: labels of tokens, or their lexical weights */
};

/* Columns of the outputs; 0: there is none of the kind. */
int32_t forward_pooled_cols(const struct model_config *config);
int32_t forward_token_cols(const struct model_config *config);
/* Record the forward of one step into a program (model/forward.c). */
enum rose_status forward_record(const struct model *model, struct program *program, const struct forward *forward, struct rose_error *err);

#endif
