/* What GGUF's metadata and tensors say of a head (llama.cpp's keys and names). */
#ifndef ROSE_MODEL_HEAD_GGUF_H
#define ROSE_MODEL_HEAD_GGUF_H

#include "model/config.h"

/* Pooling, dense modules, labels of the answer. *task stays MODEL_AUTO where nothing says it; *pooled: the file names a pooling of embeddings. */
enum rose_status head_gguf_read(struct weights *weights, struct model_config *config, bool *pooled, enum model_task *task, struct rose_error *err);
/* Where the classifier's input comes from: rows that are pooled, through cls (and cls.norm) where the file has them. */
enum rose_status head_gguf_classifier(struct weights *weights, struct model_config *config, struct rose_error *err);
/* The i-th of classifier.output_labels; empty: there is none. */
struct str head_gguf_label(struct weights *weights, int32_t i);

#endif
