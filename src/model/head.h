/* What stands on a model's hidden rows: the output matrix of a generator, or pooling and the layers behind it of models that embed,
 * classify and score. Read from the checkpoint's own files: config.json (architectures, id2label, problem_type), and those of
 * sentence-transformers (modules.json, its modules' config.json, config_sentence_transformers.json, sentence_bert_config.json). */
#ifndef ROSE_MODEL_HEAD_H
#define ROSE_MODEL_HEAD_H

#include "base/arena.h"
#include "base/json.h"
#include "ops/matmul.h"
#include "ops/pool.h"

struct weights;
struct model_config;

enum model_task {
    MODEL_AUTO,            /* as a wish: what the files say */
    MODEL_GENERATE,        /* logits of sampled rows */
    MODEL_EMBED,           /* one row a sequence, through dense layers */
    MODEL_CLASSIFY,        /* labels of a sequence */
    MODEL_CLASSIFY_TOKENS, /* labels of every row */
    MODEL_YES_NO,          /* logits of two tokens behind the last row: rerankers made of generators */
};

enum head_activation { HEAD_IDENTITY, HEAD_SIGMOID, HEAD_SOFTMAX };

enum { HEAD_MAX_DENSE = 4, HEAD_MAX_LABELS = 1 << 16, HEAD_MAX_PROMPTS = 64 };

/* y = activation(x W^T + b): sentence-transformers' Dense, and what stands before a classifier. */
struct head_dense {
    int32_t in, out;
    bool tanh;                  /* which op_activation lacks */
    enum op_activation activation;
    struct weights *weights;    /* its own file; NULL: the model's */
    struct op_weight weight;
    const float *bias;          /* f32 [out] or NULL */
};

struct model_head {
    enum model_task task;
    enum op_pooling pooling;
    bool per_token;             /* pooling "none": a row a token by default */
    bool skip_prompt;           /* a prompt's tokens do not count in the pooling */
    bool normalize;
    int32_t embedding;          /* columns of an embedding */
    int32_t dense_count;
    struct head_dense dense[HEAD_MAX_DENSE];
    const char *dense_path[HEAD_MAX_DENSE]; /* files, opened by the loader; NULL: dense_name is a tensor of the model's own file */
    const char *dense_name[HEAD_MAX_DENSE];
    bool dense_bias[HEAD_MAX_DENSE];
    bool sparse;                /* BGE-M3: relu(w . row) is the weight of the row's token */
    const char *sparse_path;
    /* classifiers */
    int32_t labels;             /* columns of the output */
    const char *const *label;   /* [labels] */
    const char *problem_type;   /* NULL: not said */
    enum head_activation activation;       /* CLASSIFY: of the labels */
    enum head_activation score_activation; /* SCORE: what the model's card does */
    struct head_dense inner;    /* out 0: none. The layer before the output (pooler, classifier.dense) */
    bool inner_norm;            /* ModernBERT: a norm behind it */
    /* yes or no */
    int32_t yes, no;            /* token ids; no -1: the logit of yes alone */
    const char *answers;        /* GGUF: the tensor whose rows 0 and 1 stand for yes and no instead; NULL: the output matrix */
    /* text */
    int32_t longest;            /* tokens, sentence-transformers' max_seq_length; 0: not said */
    int32_t prompts_count;
    const char *const *prompt;      /* [prompts_count] names */
    const char *const *prompt_text;
    const char *default_prompt; /* a name, NULL: none */
    const char *similarity;     /* NULL: not said */
    bool judge_template;        /* Qwen3's rerankers: query and document stand in a text that asks for yes or no */
};

struct head_wish {
    enum model_task task;
    int32_t yes, no; /* ids of the tokens "yes" and "no", -1: unknown; for MODEL_YES_NO where no file names them */
    bool score;      /* with MODEL_AUTO: a generator scores by answering yes or no */
    enum dtype weights; /* what float matrices of the layers become in memory (BF16, F16; Q8_0 on the CPU; on CUDA the step's type too); DTYPE_NONE: as in the file */
    bool early;         /* on CUDA the model may be opened while its weights are still on their way: model_loaded waits for them */
};

/* Fill config->head. Directories of Hugging Face bring files; GGUF brings its metadata. */
enum rose_status head_read(struct arena *arena, struct weights *weights, const struct head_wish *wish, struct model_config *config, struct rose_error *err);
const char *head_pooling_name(enum op_pooling pooling);

#endif
