/* What stands behind the opaque handles of rose.h. */
#ifndef ROSE_API_INTERNAL_H
#define ROSE_API_INTERNAL_H

#include "base/arena.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/pool.h"
#include "model/model.h"
#include "tokenizer/template.h"
#include "tokenizer/tokenizer.h"
#include "weights/weights.h"

struct rose_device {
    struct device *device;
    struct jit *jit; /* CUDA */
    const struct rose_engine_options *opening; /* whose progress shows compiling; set while an engine opens */
    void (*message)(void *user, enum rose_message_level level, const char *line);
    void *message_user;
    char *packed_dir; /* what device->packed_dir points to */
    char name[160];
};
/* device.c: a line for the log. */
void device_say(const struct rose_device *device, enum rose_message_level level, const char *line);
/* Tells who opens an engine how far it is, from any thread; o may be NULL. */
void device_progress(const struct rose_engine_options *o, const char *what, size_t done, size_t total);
/* What compiles kernels for d->device, and closing of what a rose_device holds. */
/* $XDG_CACHE_HOME/rose or $HOME/.cache/rose, in the arena; NULL: neither is set. */
const char *device_cache_dir(struct arena *a);
enum rose_status device_open_jit(struct rose_device *d, const struct rose_device_options *o, struct rose_error *err);
void device_close_parts(struct rose_device *d);

/* Everything about text that a checkpoint holds. */
struct text {
    struct arena arena; /* owns strings of files */
    struct tokenizer *tokenizer;
    struct template *chat_template; /* NULL: none */
    const char *chat_template_text;
    char *bos, *eos, *pad, *unk;    /* token texts as templates see them; "" when absent */
};

struct rose_engine {
    struct rose_device *device;
    struct text text;
    struct weights *weights; /* only with tokenizer_only: else the model owns them */
    struct model *model;
    struct engine *engine; /* of models that generate */
    struct pool *pool;     /* of those that embed, classify and score */
    struct rose_model_info info;
    char name[160], weights_type[32];
};

/* task.c: models that embed, classify and score */
/* rose_engine_options.weights as a type; DTYPE_NONE: the file's. */
enum rose_status task_weights(const struct rose_engine *engine, const char *weights, enum dtype *out, struct rose_error *err);
enum rose_status task_wish(const struct rose_engine *engine, const char *name, const char *weights, struct head_wish *out, struct rose_error *err);
void task_info(const struct rose_engine *engine, struct rose_model_info *info);
enum rose_status task_submit(struct rose_engine *engine, const struct rose_request *request, uint64_t *id, struct rose_error *err);

/* hub.c: the directory or file a name stands for, in the arena. ORG/NAME is looked up in the hub's cache. */
enum rose_status hub_resolve(struct arena *arena, const char *model, const char **path, struct rose_error *err);

/* engine.c: a cache type by name, NULL or "auto": the device's own. */
enum rose_status kv_dtype(const char *name, enum device_kind kind, enum dtype *out, struct rose_error *err);
const char *kv_name(enum dtype dtype);

/* text.c */
enum rose_status text_open(struct weights *weights, const char *template_override, struct text *out, struct rose_error *err);
/* Text of ids alone, "[12][345]", for a vocabulary of so many: where there is no tokenizer (dummy weights). */
enum rose_status text_open_ids(int32_t vocabulary, struct text *out, struct rose_error *err);
void text_close(struct text *text);
/* Render a chat (JSON object) and give text and segments. */
enum rose_status text_render(const struct text *text, struct str input, struct template_output *out, struct rose_error *err);
/* The ids of a rendered chat: the template's control tokens are recognised, the user's are plain text, one BOS at most. */
enum rose_status text_encode_chat(const struct text *text, struct str input, size_t limit, struct token_ids *out, struct rose_error *err);
/* Copy to a caller's buffer by the rule of rose.h: at most capacity bytes, the whole length in *bytes. */
void text_copy_out(struct str from, char *to, size_t capacity, size_t *bytes);

#endif
