/* Character data for tokenisation: categories, case, normalisation forms, grapheme clusters.
 *
 * The tables are generated (unicode_tables.c) from the behaviour of Hugging Face tokenizers, so that a class
 * here is the class there, whichever Unicode version each of its parts follows. Strings given to these
 * functions must be valid UTF-8. */
#ifndef ROSE_TOKENIZER_UNICODE_H
#define ROSE_TOKENIZER_UNICODE_H

#include "base/str.h"

/* General categories, in the order of the generator. */
enum unicode_gc {
    GC_CN,
    GC_CC,
    GC_CF,
    GC_CO,
    GC_LU,
    GC_LL,
    GC_LT,
    GC_LM,
    GC_LO,
    GC_MN,
    GC_MC,
    GC_ME,
    GC_ND,
    GC_NL,
    GC_NO,
    GC_PC,
    GC_PD,
    GC_PS,
    GC_PE,
    GC_PI,
    GC_PF,
    GC_PO,
    GC_SM,
    GC_SC,
    GC_SK,
    GC_SO,
    GC_ZS,
    GC_ZL,
    GC_ZP
};
/* One record a code point: category in the low byte, these flags above it. */
enum unicode_flag {
    UC_SPACE = 1 << 8,      /* \s of the regex engine */
    UC_RUST_SPACE = 1 << 9, /* White_Space */
    UC_NUMERIC = 1 << 10,   /* any N* */
    UC_PUNCT = 1 << 11,     /* ASCII punctuation or P*, in the older version BERT's steps use */
    UC_OTHER = 1 << 12,     /* C* without tab, LF and CR, likewise */
    UC_MARK = 1 << 13,      /* Mn, likewise */
    UC_COMBINING = 1 << 14, /* M*, what StripAccents removes */
    UC_WORD = 1 << 15,      /* \w */
};
/* Sets of categories as bit masks, to be tested with UC_IN. */
#define GC_BIT(c) (1u << (c))
#define GC_L (GC_BIT(GC_LU) | GC_BIT(GC_LL) | GC_BIT(GC_LT) | GC_BIT(GC_LM) | GC_BIT(GC_LO))
#define GC_M (GC_BIT(GC_MN) | GC_BIT(GC_MC) | GC_BIT(GC_ME))
#define GC_N (GC_BIT(GC_ND) | GC_BIT(GC_NL) | GC_BIT(GC_NO))
#define GC_P                                                                                         \
    (GC_BIT(GC_PC) | GC_BIT(GC_PD) | GC_BIT(GC_PS) | GC_BIT(GC_PE) | GC_BIT(GC_PI) | GC_BIT(GC_PF) | \
     GC_BIT(GC_PO))
#define GC_S (GC_BIT(GC_SM) | GC_BIT(GC_SC) | GC_BIT(GC_SK) | GC_BIT(GC_SO))
#define UC_IN(record, mask) (((mask) >> ((record)&31)) & 1)

extern const uint16_t unicode_index[8704];
extern const uint8_t unicode_pages[];
extern const uint16_t unicode_records[];

/* The record of a scalar value. */
static inline uint32_t unicode_record(uint32_t cp)
{
    return unicode_records[unicode_pages[(uint32_t)unicode_index[cp >> 7] << 7 | (cp & 127)]];
}

/* Decode one code point of valid UTF-8 at p; *n becomes its length. */
static inline uint32_t unicode_next(const uint8_t *p, size_t *n)
{
    if (p[0] < 0x80) return *n = 1, p[0];
    if (p[0] < 0xE0) return *n = 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (p[0] < 0xF0) return *n = 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return *n = 4, (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}
/* The last code point of s (s.n > 0) and its length. */
uint32_t unicode_last(struct str s, size_t *n);
/* How many code points. */
size_t unicode_count(struct str s);
bool unicode_is_ascii(struct str s);

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };
/* Append s in a normalisation form (UAX #15) to out. Work is linear but for runs of combining marks, which
 * are sorted. */
void unicode_normalize(struct str s, enum unicode_form form, struct strbuf *out);
/* Append s in lower case, each character for itself (no final-sigma rule). */
void unicode_lower(struct str s, struct strbuf *out);
/* Length of the extended grapheme cluster (UAX #29) at the start of s (s.n > 0). */
size_t unicode_grapheme(struct str s);

/* The generated tables. */
extern const uint16_t unicode_grapheme_index[8704];
extern const uint8_t unicode_grapheme_pages[];
extern const uint8_t unicode_ccc_index[8704], unicode_ccc_pages[];
extern const uint32_t unicode_lower_count, unicode_lower_keys[], unicode_lower_to[];
extern const uint16_t unicode_lower_starts[];
extern const uint32_t unicode_canonical_count, unicode_canonical_keys[], unicode_canonical_to[];
extern const uint16_t unicode_canonical_starts[];
extern const uint32_t unicode_compatible_count, unicode_compatible_keys[], unicode_compatible_to[];
extern const uint16_t unicode_compatible_starts[];
extern const uint32_t unicode_compose_count, unicode_compose[];

#endif
