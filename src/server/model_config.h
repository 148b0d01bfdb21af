/* DIR/NAME/config.pbtxt, the ModelConfig that Triton reads of a model of its repository: what of it means something here.
 *
 *     text -- pbtxt --> fields -- model_config --> names, types and dims of tensors, versions, batch, priorities -- kserve_map --> the engine's tensors
 *
 * Read, and refused where they contradict each other: name, version_policy, max_batch_size, input, output, dynamic_batching's priorities, and of
 * parameters rose.input.NAME and rose.output.NAME. What places a model on Triton's devices, or makes it of others (an ensemble's steps are the engine's own
 * work), is taken and told in one line; sequences are refused.
 */
#ifndef ROSE_SERVER_MODEL_CONFIG_H
#define ROSE_SERVER_MODEL_CONFIG_H

#include "server/kserve.h"
#include "server/pbtxt.h"

struct model_config_tensor {
    const char *name, *to; /* to: the engine's tensor, by a parameter; NULL: by the rules of kserve_map */
    enum kserve_type type;
    int rank;
    int64_t dims[KSERVE_RANK]; /* -1: any */
    bool optional;
    const char *const *labels; /* [labels_count] lines of label_filename, beside the config.pbtxt; NULL: none */
    int labels_count;
    const struct pbtxt_field *at, *at_type, *at_dims, *at_to; /* where it says so */
};

struct model_config {
    struct arena arena;
    const char *file; /* its path, in errors */
    struct version_policy policy;
    bool has_policy, has_batch;
    int max_batch;             /* 0: dims are whole shapes */
    struct model_config_tensor *inputs, *outputs;
    int inputs_count, outputs_count;
    int64_t priority_levels, default_priority; /* 0: none are given */
    struct strbuf unused;      /* what has no meaning here, by name */
};

/* The text of a config.pbtxt of the model `name`. On failure *err says file, line, column and what was expected. */
enum rose_status model_config_read(struct str text, const char *file, const char *name, struct model_config **out, struct rose_error *err);
/* DIR/NAME/config.pbtxt; *out NULL: there is none. */
enum rose_status model_config_open(const char *dir, const char *name, struct model_config **out, struct rose_error *err);
void model_config_free(struct model_config *config);
/* An error that knows its place says it: "FILE:LINE:COLUMN: ..."; returns status. */
enum rose_status model_config_place(enum rose_status status, struct rose_error *err);
/* For a log: what its tensors are here and what of it has no meaning; nothing where there is neither. */
void model_config_describe(const struct model_config *config, const struct kserve_map *map, struct strbuf *b);

#endif
