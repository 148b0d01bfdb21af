/* The counters of text-embeddings-inference by its own names (te_request_count, te_request_duration, ...), with its labels and buckets, so that dashboards
 * and alerts made for it go on working. Requests are those of TEI's routes and of /v1/embeddings; sizes of batches are not among them. */
#ifndef ROSE_SERVER_TE_METRICS_H
#define ROSE_SERVER_TE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { TE_BUCKETS = 36 }; /* the last one: all above too */
struct te_histogram {
    uint64_t count[TE_BUCKETS], total;
    double sum;
};
enum te_error { TE_VALIDATION, TE_TOKENIZATION, TE_BATCH_SIZE, TE_MODEL_TYPE, TE_OVERLOADED, TE_INFERENCE, TE_ERRORS };
struct te_metrics {
    uint64_t requests[2], success[2], failure[TE_ERRORS]; /* [1]: of several texts */
    uint64_t embeds, embedded, predicts, predicted;       /* texts: asked for, answered */
    struct te_histogram duration, tokenizing, queued, inference; /* seconds of a request */
    struct te_histogram tokens;                           /* of a text */
};

/* Times of a request in seconds. */
void te_metrics_times(struct te_metrics *m, double total, double tokenizing, double queued, double inference);
void te_metrics_tokens(struct te_metrics *m, int tokens);
struct api_error;
void te_metrics_failed(struct te_metrics *m, const struct api_error *e);
/* Prometheus' text; nothing where nobody has asked for anything yet. */
void te_metrics_write(const struct te_metrics *m, int waiting, struct strbuf *b);

#endif
