/* What the files of this folder share: the parts of a tokenizer and the state of one encoding. */
#ifndef ROSE_TOKENIZER_INTERNAL_H
#define ROSE_TOKENIZER_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

#define TOKEN_NONE UINT32_MAX
enum {
    TOKENIZER_MAX_STEPS = TOKEN_STREAM_STEPS
}; /* steps of a normaliser, pre-tokenizer, decoder; also their depth of nesting */

/* --- vocab.c: tokens by id and by text
 * ----------------------------------------------------------------------------------- */

struct vocab_slot {
    uint64_t hash;
    uint32_t id, length; /* id TOKEN_NONE: empty */
};
struct vocab {
    struct str *tokens; /* [size] by id; p NULL: no such token */
    size_t size;
    struct vocab_slot *slots; /* [mask + 1] */
    uint32_t mask;
};
/* Tables for ids below size and `count` tokens, in the arena. */
bool vocab_init(struct vocab *v, struct arena *arena, size_t size, size_t count);
/* Make text find id; of equal texts the last wins. text must outlive the table. */
void vocab_put(struct vocab *v, struct str text, uint32_t id);
uint32_t vocab_get(const struct vocab *v, const char *p, size_t n);
/* The same by hash (64 bits) and length alone, for the files' own lists: it does not touch the token's text.
 */
uint32_t vocab_get_listed(const struct vocab *v, const char *p, size_t n);

/* Merges: a pair of ids to its rank and the id it becomes. */
struct pair_slot {
    uint32_t left, right, rank, id; /* left TOKEN_NONE: empty */
};
struct pairs {
    struct pair_slot *slots;
    uint32_t mask;
};
bool pairs_init(struct pairs *p, struct arena *arena, size_t count);
void pairs_put(struct pairs *p, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
static inline uint32_t pairs_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 12);
}
static inline const struct pair_slot *pairs_get(const struct pairs *p, uint32_t left, uint32_t right)
{
    for (uint32_t i = pairs_hash(left, right) & p->mask;; i = (i + 1) & p->mask) {
        const struct pair_slot *s = &p->slots[i];
        if (s->left == left && s->right == right) return s;
        if (s->left == TOKEN_NONE) return NULL;
    }
}

/* --- pattern.c: what a Split or Replace looks for
 * -------------------------------------------------------------------------- */

struct pattern;
typedef size_t pattern_scan(const struct pattern *p, const uint8_t *s, size_t i, size_t n);
/* Where a pattern matches. scan gives the end of the match that starts at i, or 0 for none (never an empty
 * match). */
struct pattern {
    pattern_scan *scan;
    struct str literal;           /* for a plain string */
    uint32_t letters, prefix_not; /* parameters of the scanners, sets of categories */
    uint32_t max_digits;
    uint32_t flags;
    bool covers; /* every character of every text is in a match */
    void *regex; /* pcre2_code of an unknown pattern */
};
/* A regular expression: one of the known ones, or compiled by PCRE2. where names it in errors. */
enum rose_status pattern_compile(struct pattern *p, struct str regex, struct arena *arena, const char *where,
                                 struct rose_error *err);
void pattern_literal(struct pattern *p, struct str text);
void pattern_free(struct pattern *p);
/* The next match at or after from: [*start, *end). False when there is none. *failed is set when a regular
 * expression gave up. */
bool pattern_find(const struct pattern *p, void **match_data, struct str s, size_t from, size_t *start,
                  size_t *end, bool *failed);
void pattern_free_match(void *match_data);

/* --- the pipeline's steps
 * -------------------------------------------------------------------------------------------------- */

enum normalizer_kind {
    NORMALIZE_FORM,
    NORMALIZE_LOWER,
    NORMALIZE_STRIP_ACCENTS,
    NORMALIZE_STRIP,
    NORMALIZE_REPLACE,
    NORMALIZE_PREPEND,
    NORMALIZE_BERT,
    NORMALIZE_NMT,
    NORMALIZE_CHARSMAP,
    NORMALIZE_BYTE_LEVEL,
    NORMALIZE_SPACES, /* SentencePiece's remove_extra_whitespaces */
};
struct normalizer_step {
    enum normalizer_kind kind;
    int form;
    bool left, right;                    /* Strip */
    bool clean, chinese, accents, lower; /* BertNormalizer */
    struct pattern pattern;
    struct str content;
    const uint32_t *trie; /* charsmap: a double array */
    size_t trie_size;     /* units */
    bool longest;         /* charsmap: SentencePiece's way, not that of `tokenizers` */
    struct str targets;   /* NUL-terminated replacements */
};

enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_CONTIGUOUS, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT };
enum pretoken_kind {
    PRETOKEN_SPLIT,
    PRETOKEN_CLASS,
    PRETOKEN_BYTE_LEVEL,
    PRETOKEN_METASPACE,
    PRETOKEN_WHITESPACE,
    PRETOKEN_FIXED
};
struct pretoken_step {
    enum pretoken_kind kind;
    enum split_behavior behavior;
    bool invert,
        last; /* last: of the byte-level step, nothing but splits follow and the text stays raw bytes */
    bool add_prefix_space, use_regex, split;
    enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend;
    uint32_t flag;      /* PRETOKEN_CLASS: unicode flag, or 0 and delimiter */
    uint32_t delimiter; /* code point */
    size_t length;
    struct pattern pattern;
    struct str replacement;
};

enum decoder_kind {
    DECODE_BYTE_LEVEL,
    DECODE_METASPACE,
    DECODE_WORDPIECE,
    DECODE_BPE,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_REPLACE,
    DECODE_CTC,
};
struct decoder_step {
    enum decoder_kind kind;
    bool cleanup, prepend;
    struct str content, other; /* prefix, suffix, replacement, pad token; word delimiter */
    uint32_t cp;
    size_t start, stop;
    struct pattern pattern;
};

enum { POST_TEXT_A, POST_TEXT_B, POST_ID };
struct post_piece {
    int kind;
    uint32_t id, type;
};
/* A post-processor as two templates, for one text and for a pair. */
struct post {
    struct post_piece *single, *pair;
    size_t single_count, pair_count;
    bool present, zero_types; /* zero_types: RoBERTa's, every type is 0 */
};

struct added_token {
    struct str text; /* as written */
    struct str
        match; /* what is looked for; p NULL until tokenizer_finish: normalised where the token says so */
    uint32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
};
/* One set of added tokens, sorted by match; first[b]..first[b + 1] begin with byte b. */
struct added_set {
    const struct added_token **sorted;
    uint32_t count, first[257];
    uint8_t only; /* the first byte of all of them, when they share it */
    bool one_first;
};

enum model_kind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL };
enum { ID_SPECIAL = 1, ID_ADDED = 2, ID_BYTE = 4, ID_UNUSED = 8 };

struct tokenizer {
    struct arena arena;
    struct tokenizer_facts facts;
    enum model_kind model;
    struct vocab vocab;
    uint8_t *id_flags; /* [vocab.size] */
    struct str *shown; /* [vocab.size] or NULL: what decoding starts from, where it is not the token's text */

    /* models */
    struct pairs pairs;
    bool byte_level; /* BPE over raw bytes: the words are not mapped to the byte alphabet, byte_ids is */
    bool byte_fallback, fuse_unk, ignore_merges, by_score;
    uint32_t unk;               /* TOKEN_NONE: none */
    struct str prefix, suffix;  /* continuing_subword_prefix, end_of_word_suffix */
    struct str first_prefix;    /* WordPiece of GGUF files: what marks the start of a word */
    uint32_t byte_ids[256];     /* the token of a byte's letter in the byte alphabet */
    uint32_t fallback_ids[256]; /* <0x00>…<0xFF> */
    double *scores;             /* Unigram and score-ordered BPE, by id */
    double min_score;
    size_t max_token;         /* bytes of the longest token */
    size_t max_chars;         /* WordPiece: longer words are unknown */
    uint64_t *beginnings;     /* Unigram: a bit for the hash of every beginning of a token */
    uint32_t beginnings_mask; /* bits - 1 */

    struct normalizer_step *normalizer;
    size_t normalizer_count;
    struct pretoken_step *pretokenizer;
    size_t pretokenizer_count;
    struct decoder_step *decoder;
    size_t decoder_count;
    bool has_decoder;
    struct post post;

    struct added_token *added;
    size_t added_count;
    struct added_set raw, normal,
        raw_all; /* raw_all: raw and the special ones of normal, for texts of mixed trust */
    bool normal_has_special;

    pthread_mutex_t lock;
    bool has_lock;
    struct encoder *idle; /* spare encoding states */
};

/* --- the state of one encoding, reused
 * ---------------------------------------------------------------------------------------- */

struct word_entry {  /* one cache line */
    uint64_t key[3]; /* the word's bytes, zero-padded */
    uint8_t length, count, unused[2];
    uint32_t ids[9];
};
enum { WORD_MAX = 24, WORD_IDS = 9, WORD_SLOTS = 8192 };

struct symbol {
    uint32_t id, length; /* length 0: merged away */
    int32_t prev, next;
};
struct merge {
    uint64_t order; /* rank << 32 | position: least first */
    uint32_t id;
};
struct best {
    double score;
    uint32_t start, id; /* start TOKEN_NONE: not reached */
};
struct range {
    size_t from, to;
};
struct encoder {
    struct encoder *next;
    const struct tokenizer *t;
    unsigned flags;
    struct token_ids *out;
    struct rose_error *err;
    enum rose_status status;
    struct word_entry *words; /* [WORD_SLOTS] */
    struct symbol *symbols;
    size_t symbol_cap;
    struct merge *heap;
    size_t heap_cap;
    struct best *best;
    size_t best_cap;
    struct strbuf utf8, norm[2], word;
    struct strbuf level[TOKENIZER_MAX_STEPS]; /* texts that a pre-tokenizer step rewrote */
    void *match[TOKENIZER_MAX_STEPS];
    void *norm_match;
    const struct range *untrusted; /* sorted byte ranges of the text where control tokens do not count */
    size_t untrusted_count;
    bool kept_start; /* the normaliser did not drop the first character */
};
struct encoder *encoder_take(const struct tokenizer *t);
void encoder_give(const struct tokenizer *t, struct encoder *e);
void encoder_free(struct encoder *e);
/* Record the first failure; false, for `return encoder_fail(…)`. */
bool encoder_fail(struct encoder *e, enum rose_status status, const char *message);
/* It was stopped from outside (base/stop.h): records that; true. */
bool encoder_stopped(struct encoder *e);
/* Room for n more ids, within the limit. */
bool encoder_room(struct encoder *e, size_t n);
static inline bool encoder_emit(struct encoder *e, uint32_t id)
{
    if (e->out->n == e->out->cap || (e->out->limit && e->out->n >= e->out->limit))
        if (!encoder_room(e, 1)) return false;
    e->out->p[e->out->n++] = id;
    return true;
}

/* Each of these returns false after encoder_fail. */
bool normalizer_run(struct encoder *e, struct str in, struct str *out);
bool pretokenizer_run(struct encoder *e, size_t step, struct str text, bool at_start);
bool model_word(struct encoder *e, struct str word);
bool bpe_word(struct encoder *e, struct str word);
/* The filter of token beginnings and the least score. */
bool unigram_prepare(struct tokenizer *t);
bool unigram_word(struct encoder *e, struct str word);
bool wordpiece_word(struct encoder *e, struct str word);
/* Split text at the added tokens and encode what lies between. */
bool added_run(struct encoder *e, struct str text);
bool added_build(struct tokenizer *t, struct rose_error *err);

/* The byte alphabet (GPT-2): every byte as a printable character. */
uint32_t alphabet_of(uint8_t byte);
int alphabet_byte(uint32_t cp); /* -1: not a letter of it */
/* Append the UTF-8 of each byte's letter. */
void alphabet_encode(struct str bytes, struct strbuf *out);
/* Append the bytes of letters; false (out as before) when a character is none. */
bool alphabet_decode(struct str letters, struct strbuf *out);

/* --- building
 * -------------------------------------------------------------------------------------------------------------------
 */

/* An empty tokenizer; memory bounds what it may take, in bytes. */
struct tokenizer *tokenizer_new(size_t memory);
/* What follows from the parts: byte tables, id flags, the added tokens' sets. */
enum rose_status tokenizer_finish(struct tokenizer *t, struct rose_error *err);
enum rose_status tokenizer_json_steps(struct tokenizer *t, const struct json *root, bool lower_case, struct rose_error *err);
enum rose_status charsmap_read(struct normalizer_step *step, struct str blob, struct rose_error *err);
/* The two halves of a merge "a b"; false when it is not two tokens. */
bool bpe_split_merge(struct str merge, struct str *left, struct str *right);
struct str tokenizer_copy(struct tokenizer *t, struct str s);

#endif
