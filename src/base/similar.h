/* How alike two embeddings are, by the name that a model's files give (sentence-transformers' similarity_fn_name). */
#ifndef ROSE_BASE_SIMILAR_H
#define ROSE_BASE_SIMILAR_H

/* how: "cosine" (or NULL), "dot", "euclidean", "manhattan"; distances are negative, so that more is always more alike. A vector of zeros has
 * cosine 0 with any other. x, y: [n]. */
float similar(const char *how, const float *x, const float *y, int n);

#endif
