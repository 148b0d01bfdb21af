/* Numbers of embeddings and scores as text: a million of them a second and more, exact. */
#ifndef ROSE_SERVER_FLOATS_H
#define ROSE_SERVER_FLOATS_H

#include "base/str.h"

/* A float32 with the fewest digits (at most nine) that read back as the same float32; NaN and infinities are null. */
void floats_add(struct strbuf *b, float x);
/* "[a,b,...]" */
void floats_add_list(struct strbuf *b, const float *x, size_t n);
/* Base64 (RFC 4648) of little-endian float32. */
void floats_add_base64(struct strbuf *b, const float *x, size_t n);

#endif
