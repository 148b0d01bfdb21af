/* The lexical head of BGE-M3 as torch.save writes it: a weight [1, hidden] and a bias. */
#ifndef ROSE_MODEL_HEAD_PT_H
#define ROSE_MODEL_HEAD_PT_H

#include <stddef.h>

#include "base/status.h"

/* weight: [hidden]; bias: one value. The pickle in the file is a program and is not run. */
enum rose_status head_pt_read(const char *path, size_t hidden, float *weight, float *bias, struct rose_error *err);

#endif
