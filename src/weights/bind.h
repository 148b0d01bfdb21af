/* Binding: a model asks for its tensors one by one, and every problem comes out at the end in one error.
 *
 *     bind_open(weights, &b, err)
 *     bind_want(b, "model.norm.weight", 1, (int64_t[]){576}, BIND_PLAIN, &norm);
 *     bind_ignore(b, "*.rotary_emb.inv_freq");
 *     bind_finish(b, NULL, err)        missing, misshapen, unusable and unexpected tensors, expected against
 * found
 */
#ifndef ROSE_WEIGHTS_BIND_H
#define ROSE_WEIGHTS_BIND_H

#include "weights/weights.h"

enum bind_flags {
    BIND_ANY = 0,      /* any type that weights can have: F32 F16 BF16 and the block formats */
    BIND_PLAIN = 1,    /* only F32 F16 BF16 */
    BIND_OPTIONAL = 2, /* may be missing */
    BIND_FP8 = 4,      /* F8_E4M3 too: the caller binds its scales */
};

struct bind;
enum rose_status bind_open(const struct weights *w, struct bind **out, struct rose_error *err);

/* The tensor called name with ndim <= 4 dimensions, shape[0] outermost; -1 stands for any size. Leading
 * dimensions of 1 may be absent or present in the file; the view has the shape that was asked for. true: *out
 * is set. false: *out is zeroed, and the problem is noted unless the tensor is optional and missing. Asking
 * twice is fine (tied embeddings). */
bool bind_want(struct bind *b, const char *name, int ndim, const int64_t *shape, int flags,
               struct tensor *out);
/* Tensors that match are not unexpected. '*' stands for any characters, also none. */
void bind_ignore(struct bind *b, const char *pattern);
/* How many problems are noted so far (unexpected tensors come only with bind_finish). */
size_t bind_problems(const struct bind *b);
/* How many tensors nobody has asked for yet. */
size_t bind_unused(const struct bind *b);
/* Frees b. With problems: ROSE_UNSUPPORTED when all are types Rose cannot compute with, else ROSE_FORMAT; the
 * message lists what fits of the first 20 and says how many more there are. report (may be NULL) gets up to
 * 10,000, one a line. */
enum rose_status bind_finish(struct bind *b, struct strbuf *report, struct rose_error *err);

#endif
