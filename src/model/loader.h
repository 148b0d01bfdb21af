/* A model being loaded: what its files (model.c, head_load.c) share. */
#ifndef ROSE_MODEL_LOADER_H
#define ROSE_MODEL_LOADER_H

#include "model/model.h"
#include "weights/bind.h"

/* A matrix that waits to be packed. */
struct loader_item {
    struct tensor source;
    struct op_weight *target;
    const struct weights *weights;        /* the file that `release` belongs to */
    const struct weights_tensor *release; /* given back once packed; NULL: more views of it follow */
    size_t bytes;
    bool convert; /* to wish.weights first */
    bool table;   /* only looked up: op_table_pack */
    bool expand;  /* CUDA: becomes BF16 whatever it is, for kernels that read nothing else */
};

struct loader {
    struct model *m;
    struct bind *bind;
    const struct arch *arch;
    const char *prefix; /* what "model." in Hugging Face names stands for in this file */
    bool gguf, dummy, in_layer;
    bool check; /* only bind: nothing is packed */
    bool fused_qkv, fused_gate_up; /* one tensor in this file */
    uint64_t seed;
    struct head_wish wish;
    struct tensor relative; /* the table of SLOT_RELATIVE, which no product reads: head_load_relative spreads it */
    struct rose_error *err;
    /* matrices in the order they will be packed */
    struct loader_item *items;
    size_t count, capacity;
    model_progress_fn *progress;
    void *user;
};

enum rose_status loader_no_memory(struct loader *l);
/* Adds to what people are told of the loading. */
void loader_notice(struct loader *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum rose_status loader_add(struct loader *l, struct tensor source, struct op_weight *target, const struct weights *weights, const struct weights_tensor *release);
/* Norms, biases and factors become float32 in the arena. */
enum rose_status loader_vector(struct loader *l, const struct tensor *t, const float **out);
/* Rows [begin, begin + rows) of a matrix. */
struct tensor loader_rows(const struct tensor *t, int64_t begin, int64_t rows);

/* element.c: decides model.element; the config is read. */
enum rose_status element_choose(struct loader *l);

/* head_load.c: dense modules, the lexical head and the rows of "yes" and "no"; opens their files. */
enum rose_status head_load(struct loader *l);
/* After packing: the relative attention bias spread over distances, and the slopes of ALiBi. */
enum rose_status head_load_relative(struct loader *l);
enum rose_status head_load_alibi(struct loader *l);
void head_close(struct model *m);

#endif
