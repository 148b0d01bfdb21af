/* Tokenizers: text to ids and back, the same as Hugging Face `tokenizers`.
 *
 * A tokenizer is built once, from a tokenizer.json or from the arrays of a GGUF file, and then never changes:
 * every call below takes it const and may run in any number of threads at once. Text need not be valid UTF-8:
 * each maximal invalid part counts as U+FFFD. Encoding takes time linear in the text (n log n where a model
 * merges across the whole of it). */
#ifndef ROSE_TOKENIZER_TOKENIZER_H
#define ROSE_TOKENIZER_TOKENIZER_H

#include "base/status.h"
#include "base/str.h"

struct tokenizer;

/* --- building
 * ----------------------------------------------------------------------------------------------------------
 */

/* The files of a Hugging Face directory; empty where one is missing. */
struct tokenizer_files {
    struct str tokenizer_json; /* required */
    struct str config_json;    /* tokenizer_config.json: bos, eos, pad tokens, clean_up_tokenization_spaces,
                                  add_bos_token */
    struct str special_tokens_map; /* special_tokens_map.json: the tokens that config_json does not name */
    bool lower_case;           /* lower-case texts before anything else, unless the normalizer does so anyhow (sentence-transformers' do_lower_case) */
};
/* Texts are only read during the call. On failure *out is NULL and err names the JSON member and what is
 * wrong with it. */
enum rose_status tokenizer_from_json(const struct tokenizer_files *files, struct tokenizer **out,
                                     struct rose_error *err);

/* GGUF token types, tokenizer.ggml.token_type. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* The tokenizer.ggml.* entries of a GGUF file. An id of -1 and a switch of -1 mean that the file does not
 * say. */
struct tokenizer_vocab {
    struct str model;         /* "gpt2", "llama", "t5", "bert" */
    struct str pre;           /* "smollm", "llama-bpe", "qwen2", …; empty: unknown, GPT-2's pattern */
    const struct str *tokens; /* [count] in id order; the bytes must outlive the tokenizer (they may lie in
                                 the mapped file) */
    size_t count;
    const float *scores;      /* [count] or NULL */
    const int32_t *types;     /* [count] or NULL: all normal */
    const struct str *merges; /* [merge_count] "left right", best first; only read during the call */
    size_t merge_count;
    int64_t bos, eos, eot, unk, sep, pad, cls, mask;
    int add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
    struct str
        precompiled_charsmap; /* SentencePiece's normalisation rules, or empty; must outlive the tokenizer */
};
enum rose_status tokenizer_from_vocab(const struct tokenizer_vocab *vocab, struct tokenizer **out,
                                      struct rose_error *err);

void tokenizer_free(struct tokenizer *t);

/* --- text to ids
 * ------------------------------------------------------------------------------------------------------- */

/* A growing array of ids. With a limit the encoder stops with ROSE_LIMIT when one more would not fit. */
struct token_ids {
    uint32_t *p;
    size_t n, cap;
    size_t limit; /* 0: none */
};
void token_ids_free(struct token_ids *ids);
bool token_ids_add(struct token_ids *ids, uint32_t id);

enum tokenizer_flag {
    TOKENIZER_ADD_SPECIAL = 1, /* let the post-processor add BOS, EOS, CLS, SEP */
    TOKENIZER_PARSE_SPECIAL =
        2, /* recognise control tokens in the text; without it they are encoded as plain text */
    TOKENIZER_ONE_BOS = 4, /* with ADD_SPECIAL: add no BOS where the text itself begins with it */
};
/* Append the ids of a text. After an error the ids found so far remain in out. */
enum rose_status tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags,
                                  struct token_ids *out, struct rose_error *err);

/* A rendered chat: pieces of one text, of which only the trusted ones may hold control tokens. */
struct tokenizer_segment {
    struct str text;
    bool trusted;
};
/* Encode the concatenation of the segments as one text, so that words and merges run across their borders,
 * but recognise a control token only where all of its bytes are trusted (and flags have PARSE_SPECIAL). */
enum rose_status tokenizer_encode_segments(const struct tokenizer *t,
                                           const struct tokenizer_segment *segments, size_t count,
                                           unsigned flags, struct token_ids *out, struct rose_error *err);

/* Encode two texts as a pair, for models that score one against the other. types receives the type id (0 or
 * 1) of each id and may be NULL. */
enum rose_status tokenizer_encode_pair(const struct tokenizer *t, struct str a, struct str b, unsigned flags,
                                       struct token_ids *out, struct token_ids *types,
                                       struct rose_error *err);

/* --- ids to text
 * ------------------------------------------------------------------------------------------------------- */

enum tokenizer_decode_flag {
    TOKENIZER_SKIP_SPECIAL = 1, /* leave control tokens out */
    TOKENIZER_CLEAN_UP = 2,     /* undo spaces before punctuation, as transformers does where
                                   clean_up_tokenization_spaces is set */
};
/* Append the text of ids, valid UTF-8. Bytes that never complete a character become U+FFFD, each of them
 * where they come from byte tokens (the characters around them stay; `tokenizers` would drop these too). Ids
 * outside of the vocabulary are left out. */
enum rose_status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count,
                                  unsigned flags, struct strbuf *out, struct rose_error *err);

/* A decoder fed one id at a time. What it has given out never changes, and joined it equals tokenizer_decode
 * of all ids (without CLEAN_UP). Bytes that may still become a character wait; a call allocates nothing once
 * the stream is made, but for chains of decoders that can only be applied to a whole text, whose text comes
 * at the end. */
enum { TOKEN_STREAM_STEPS = 32 };
struct token_stream {
    const struct tokenizer *t;
    unsigned flags;
    struct strbuf ready;   /* the text of the last call */
    struct strbuf pending; /* bytes that do not make a character yet */
    struct strbuf held;    /* the token before, where the next one decides about it */
    struct strbuf scratch[2];
    struct strbuf whole;                    /* all of the text, for the step whole_step */
    uint32_t count[TOKEN_STREAM_STEPS + 1]; /* tokens that each step has seen */
    int whole_step;                         /* -1: none */
    size_t stripped[TOKEN_STREAM_STEPS];    /* characters a Strip step has looked at */
    bool has_held;
};
void token_stream_init(struct token_stream *s, const struct tokenizer *t, unsigned flags);
/* Feed one id. *text (valid until the next call) is what may be shown now, perhaps nothing. */
enum rose_status token_stream_add(struct token_stream *s, uint32_t id, struct str *text,
                                  struct rose_error *err);
/* No more ids: what still waited, with U+FFFD for what was never completed. The stream is then as after init.
 */
enum rose_status token_stream_end(struct token_stream *s, struct str *text, struct rose_error *err);
void token_stream_free(struct token_stream *s);

/* --- facts
 * -------------------------------------------------------------------------------------------------------------
 */

struct tokenizer_facts {
    const char *kind;                                /* "bpe", "unigram", "wordpiece", "wordlevel" */
    size_t vocab_size;                               /* the highest id + 1 */
    int64_t bos, eos, eot, unk, pad, sep, cls, mask; /* -1: none */
    bool add_bos, add_eos; /* what ADD_SPECIAL puts at the ends of a single text: bos, and eos or sep */
    bool clean_up;         /* transformers would clean up spaces when decoding */
};
const struct tokenizer_facts *tokenizer_facts(const struct tokenizer *t);

/* The token as the vocabulary writes it ("Ġthe", "▁the", "##ing"); p is NULL for an unused id. */
struct str tokenizer_token(const struct tokenizer *t, uint32_t id);
/* Append the bytes that the token stands for in running text (" the"): not always whole characters. Control
 * tokens give their name. False for an unused id. */
bool tokenizer_piece(const struct tokenizer *t, uint32_t id, struct strbuf *out);
/* The id of a token as the vocabulary writes it, or -1. */
int64_t tokenizer_find(const struct tokenizer *t, struct str token);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);

/* The bytes of a text that a token comes from, without spaces around it; of a token of spaces alone, what is between its neighbours. */
struct token_span { int64_t start, stop; };
/* out[n]: where the ids of text lie, which was encoded without special tokens. Letters that several tokens share are each one's. */
enum rose_status tokenizer_spans(const struct tokenizer *t, struct str text, const uint32_t *ids, size_t n,
                                 struct token_span *out, struct rose_error *err);

#endif
