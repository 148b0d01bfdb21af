/* What an accepted tensor promises: it can be read to its end. */
#ifndef ROSE_FUZZ_KSERVE_H
#define ROSE_FUZZ_KSERVE_H

#include <stdint.h>
#include <stdlib.h>

#include "server/kserve.h"

static double sum; /* so that nothing is left out */

static void use(const struct kserve_tensor *t)
{
    struct str rest = t->data;
    struct strbuf b = {0};
    size_t want = 0;
    if (!kserve_elements(t->shape, t->rank, &want) || want != t->elements) abort();
    for (size_t i = 0; i < t->elements; i++) {
        if (t->type == KSERVE_BYTES) {
            struct str s = kserve_next_bytes(&rest);
            for (size_t k = 0; k < s.n; k++) sum += s.p[k];
        } else {
            sum += kserve_number(t, i);
        }
    }
    if (t->type == KSERVE_BYTES && rest.n) abort();
    if (t->type != KSERVE_FP32) kserve_to_json(t, &b); /* of FP32 only aligned outputs become JSON */
    strbuf_free(&b);
}

#endif
