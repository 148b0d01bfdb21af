/* Pieces of reading a config that the general reader and the rows share. */
#ifndef ROSE_MODEL_CONFIG_UTIL_H
#define ROSE_MODEL_CONFIG_UTIL_H

#include "model/config.h"

/* A whole number in [low, high]; missing or null: fallback, or an error when fallback < low. */
enum rose_status config_int(const struct json *config, const char *key, int64_t low, int64_t high, int64_t fallback, int32_t *out, struct rose_error *err);
/* The same of another file than config.json, which messages name. */
enum rose_status config_int_of(const char *file, const struct json *config, const char *key, int64_t low, int64_t high, int64_t fallback, int32_t *out, struct rose_error *err);
/* Values of a wrong type, which would be read as if they were not there, are refused: "rope_theta": "500000" must not become 10000. */
enum { CONFIG_NUMBER = 1 << JSON_NUMBER, CONFIG_SWITCH = (1 << JSON_FALSE) | (1 << JSON_TRUE), CONFIG_TEXT = 1 << JSON_STRING, CONFIG_LIST = 1 << JSON_ARRAY, CONFIG_OBJECT = 1 << JSON_OBJECT };
struct config_type {
    const char *key;
    unsigned types; /* CONFIG_... that it may have; null may stand anywhere */
    const char *what;
};
enum rose_status config_types(const char *file, const struct json *object, const struct config_type *known, size_t count, struct rose_error *err);
bool config_activation(struct str name, enum op_activation *out);
/* "sliding_window"; absent: the row's default, null: 0. */
enum rose_status config_window(const struct json *config, const struct model_config *c, int32_t *out, struct rose_error *err);
/* One table of rotary parameters; config gives the old-style neighbours (rope_theta, partial_rotary_factor). */
enum rose_status config_rope(struct arena *arena, const struct json *config, const struct json *params, double theta, const struct model_config *c,
                             struct rope_config *out, struct rose_error *err);
/* rope_parameters (transformers 5), else rope_scaling beside rope_theta. */
const struct json *config_rope_params(const struct json *config);
/* Adds the ids of "eos_token_id" (one or a list), each once. */
enum rose_status config_eos(const struct json *config, struct model_config *c, struct rose_error *err);
enum rose_status config_rope_check(const struct rope_config *r, const char *file, struct rose_error *err);
/* A size in GGUF metadata, 0 to high; also a list (one a layer), of which all must be equal. fallback < 0: it must be there. */
enum rose_status config_gguf_size(struct weights *weights, const char *key, int64_t high, int64_t fallback, int32_t *out, struct rose_error *err);
/* A number under the architecture's own prefix in GGUF metadata ("llama." + key). */
double config_gguf_num(struct weights *weights, const char *key, double fallback);

struct gguf_value;
/* Such a value; NULL: none. */
const struct gguf_value *config_gguf_find(struct weights *weights, const char *key);
/* Windows of the layers: all but every period-th (the last of a period, or the first: full_first) have `window`, unless the file says otherwise. */
enum rose_status config_gguf_pattern(struct weights *weights, struct model_config *config, int32_t window, int32_t period, bool full_first, struct rose_error *err);
/* Layers with a window turn by frequencies of their own. */
enum rose_status config_gguf_local_rope(struct weights *weights, struct model_config *config, struct rose_error *err);

#endif
