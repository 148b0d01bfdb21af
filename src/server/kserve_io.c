/* Which tensors a model takes and gives. */
#include "server/kserve.h"

enum kserve_kind kserve_kind(const struct model *m)
{
    unsigned t = m->info.tasks;
    if (t & ROSE_CAN_SCORE) return KSERVE_SCORE;
    if (t & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS)) return KSERVE_CLASSIFY;
    return t & ROSE_CAN_GENERATE || !(t & ROSE_CAN_EMBED) ? KSERVE_TEXT : KSERVE_EMBED;
}

int kserve_io_copy(const struct kserve_io *from, int count, struct kserve_io *to, int room)
{
    for (int i = 0; i < count && i < room; i++) to[i] = from[i];
    return ROSE_MIN(count, room);
}

#define OPTIONAL(name, type) {name, type, 1, {1, 0, 0}, true, NULL, NULL, 0}
#define NEEDED(name, type) {name, type, 1, {1, 0, 0}, false, NULL, NULL, 0}
/* Tokens as an exported model's clients send them: [n,w], padding masked. */
#define TOKENS                                                                                                                                       \
    {"input_ids", KSERVE_INT64, 1, {-1, 0, 0}, true, NULL, NULL, 0}, {"attention_mask", KSERVE_INT64, 1, {-1, 0, 0}, true, NULL, NULL, 0}, {"token_type_ids", KSERVE_INT64, 1, {-1, 0, 0}, true, NULL, NULL, 0}

int kserve_io_inputs(const struct model *m, bool all, struct kserve_io *io, int room)
{
    static const struct kserve_io text[] = {NEEDED("text_input", KSERVE_BYTES), OPTIONAL("stream", KSERVE_BOOL), OPTIONAL("sampling_parameters", KSERVE_BYTES),
                                            OPTIONAL("exclude_input_in_output", KSERVE_BOOL), OPTIONAL("max_tokens", KSERVE_INT32), OPTIONAL("min_tokens", KSERVE_INT32),
                                            OPTIONAL("temperature", KSERVE_FP32), OPTIONAL("top_k", KSERVE_INT32), OPTIONAL("top_p", KSERVE_FP32), OPTIONAL("min_p", KSERVE_FP32),
                                            OPTIONAL("repetition_penalty", KSERVE_FP32), OPTIONAL("presence_penalty", KSERVE_FP32), OPTIONAL("frequency_penalty", KSERVE_FP32),
                                            OPTIONAL("random_seed", KSERVE_UINT64), {"stop_words", KSERVE_BYTES, 1, {-1, 0, 0}, true, NULL, NULL, 0}, OPTIONAL("ignore_eos", KSERVE_BOOL),
                                            OPTIONAL("n", KSERVE_INT32), OPTIONAL("return_finish_reason", KSERVE_BOOL), OPTIONAL("return_num_input_tokens", KSERVE_BOOL),
                                            OPTIONAL("return_num_output_tokens", KSERVE_BOOL)};
    static const struct kserve_io embed[] = {OPTIONAL("text", KSERVE_BYTES), TOKENS};
    static const struct kserve_io classify[] = {NEEDED("text", KSERVE_BYTES), OPTIONAL("text_pair", KSERVE_BYTES), TOKENS};
    static const struct kserve_io score[] = {NEEDED("query", KSERVE_BYTES), NEEDED("text", KSERVE_BYTES), TOKENS};
    switch (kserve_kind(m)) {
    case KSERVE_EMBED: return kserve_io_copy(embed, ROSE_COUNT(embed), io, room);
    case KSERVE_CLASSIFY: return kserve_io_copy(classify, all ? ROSE_COUNT(classify) : 2, io, room);
    case KSERVE_SCORE: return kserve_io_copy(score, all ? ROSE_COUNT(score) : 2, io, room);
    default: return kserve_io_copy(text, ROSE_COUNT(text), io, room);
    }
}

int kserve_io_outputs(const struct model *m, bool all, struct kserve_io *io, int room)
{
    static const struct kserve_io text[] = {{"text_output", KSERVE_BYTES, 1, {-1, 0, 0}, false, NULL, NULL, 0}, {"finish_reason", KSERVE_BYTES, 1, {-1, 0, 0}, false, NULL, NULL, 0},
                                            {"num_input_tokens", KSERVE_UINT32, 1, {1, 0, 0}, false, NULL, NULL, 0}, {"num_output_tokens", KSERVE_UINT32, 1, {1, 0, 0}, false, NULL, NULL, 0}};
    const struct rose_model_info *i = &m->info;
    bool rows = !(i->tasks & ROSE_CAN_CLASSIFY);
    const struct kserve_io embed[] = {{"token_embeddings", KSERVE_FP32, 2, {-1, i->hidden, 0}, false, NULL, NULL, 0}, /* the last hidden state */
                                      {"embedding", KSERVE_FP32, 1, {i->embedding_size, 0, 0}, false, NULL, NULL, 0},
                                      /* models with a lexical head; a text's tokens, padded with -1 and 0 to the longest of the batch */
                                      {"sparse_indices", KSERVE_INT32, 1, {-1, 0, 0}, false, NULL, NULL, 0}, {"sparse_values", KSERVE_FP32, 1, {-1, 0, 0}, false, NULL, NULL, 0}};
    const struct kserve_io classes[] = {{"probabilities", KSERVE_FP32, rows ? 2 : 1, {rows ? -1 : i->labels_count, i->labels_count, 0}, false, NULL, NULL, 0},
                                        {"logits", KSERVE_FP32, rows ? 2 : 1, {rows ? -1 : i->labels_count, i->labels_count, 0}, false, NULL, NULL, 0}};
    static const struct kserve_io score[] = {{"score", KSERVE_FP32, 1, {1, 0, 0}, false, NULL, NULL, 0}, {"logits", KSERVE_FP32, 1, {1, 0, 0}, false, NULL, NULL, 0}};
    switch (kserve_kind(m)) {
    case KSERVE_EMBED: return kserve_io_copy(all ? embed : embed + 1, (i->tasks & ROSE_CAN_SPARSE ? 3 : 1) + all, io, room);
    case KSERVE_CLASSIFY: return kserve_io_copy(classes, all ? 2 : 1, io, room);
    case KSERVE_SCORE: return kserve_io_copy(score, all ? 2 : 1, io, room);
    default: return kserve_io_copy(text, ROSE_COUNT(text), io, room);
    }
}
