/* A loaded model: its config and its weights where the device wants them. */
#ifndef ROSE_MODEL_MODEL_H
#define ROSE_MODEL_MODEL_H

#include "model/arch.h"
#include "model/config.h"

struct weights;

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
    struct arena arena;
    struct model_layer *layers; /* [config.layers] */
    struct op_weight embed, output;
    const float *final_norm;
    const float *inv_freq[MODEL_MAX_ROPES]; /* [rotary_dim / 2] each */
    float rope_scale[MODEL_MAX_ROPES];
    void *memory; /* packed weights */
    size_t memory_bytes;
    void *vectors; /* CUDA: every float vector of the model, in device memory */
    size_t vectors_bytes;
    int64_t parameters;
    bool dummy; /* random weights */
    char notice[256]; /* what was done to weights while loading ("… converted to BF16"), empty: nothing */
    double upload_seconds; /* CUDA: weights to the device */
};

/* Called while loading with bytes done and in all; may be NULL. */
typedef void model_progress_fn(void *user, size_t done, size_t total);

/* Read the config, bind every tensor, pack. Takes ownership of weights, also when it fails. */
enum rose_status model_open(struct device *device, struct weights *weights, model_progress_fn *progress, void *user, struct model **out,
                            struct rose_error *err);
/* The same from a config alone (weights_open_config): seeded random weights, norms of one, no biases. For measurements. */
enum rose_status model_open_dummy(struct device *device, struct weights *config, uint64_t seed, struct model **out, struct rose_error *err);
void model_close(struct model *model);

/* What one forward reads and writes beside the weights. */
struct forward {
    struct op_step step;
    struct op_cache cache;
    bool deterministic;
    program_buffer_id logits; /* out: f32 [max_samples, vocabulary], rows in the order of step.sample_rows */
};

/* Record the forward of one step into a program (model/forward.c). */
enum rose_status forward_record(const struct model *model, struct program *program, const struct forward *forward, struct rose_error *err);

#endif
