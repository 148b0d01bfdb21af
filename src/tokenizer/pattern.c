#include "tokenizer/internal.h"
#include <stdlib.h>

#include "tokenizer/unicode.h"

#ifdef ROSE_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

/* The published models split text by a handful of regular expressions, mostly one family: contractions, words
 * with one leading character, numbers, other characters, and white space whose last character goes to the
 * next word. Each scanner below matches one family at a position. They look at a run of white space at most
 * three times, so they are linear. */

enum { LETTER = 1, DIGIT = 2, SPACE = 4, NEWLINE = 8, OTHER = 16, WIDE = 32 };
static const uint8_t ascii_class[256] = {
    [0 ... 8] = OTHER,     ['\t'] = SPACE,           ['\n'] = SPACE | NEWLINE, [0x0B] = SPACE,
    [0x0C] = SPACE,        ['\r'] = SPACE | NEWLINE, [0x0E ... 0x1F] = OTHER,  [' '] = SPACE,
    ['!' ... '/'] = OTHER, ['0' ... '9'] = DIGIT,    [':' ... '@'] = OTHER,    ['A' ... 'Z'] = LETTER,
    ['[' ... '`'] = OTHER, ['a' ... 'z'] = LETTER,   ['{' ... 0x7F] = OTHER,   [0x80 ... 0xFF] = WIDE,
};

/* The class of the character at s[i] in the sense of \p{L}, \p{N}, \s, and its length. */
static inline uint8_t class_at(const uint8_t *s, size_t i, size_t *n, uint32_t letters)
{
    uint8_t c = ascii_class[s[i]];
    if (c != WIDE) return *n = 1, c;
    uint32_t r = unicode_record(unicode_next(s + i, n));
    if (UC_IN(r, letters)) return LETTER;
    if (UC_IN(r, GC_N)) return DIGIT;
    return r & UC_SPACE ? SPACE : OTHER;
}

/* The end of the run of characters of one class that starts at i. */
static inline size_t run_of(const uint8_t *s, size_t i, size_t n, uint8_t class, uint32_t letters)
{
    for (;;) {
        while (i < n && (ascii_class[s[i]] & class)) i++;
        if (i == n || ascii_class[s[i]] != WIDE) return i;
        size_t width;
        if (!(class_at(s, i, &width, letters) & class)) return i;
        i += width;
    }
}

/* White space at i, by \s+(?!\S)|\s+: all of it at the end of the text, else all but its last character. */
static size_t space_run(const uint8_t *s, size_t i, size_t n)
{
    size_t end = run_of(s, i, n, SPACE, 0);
    if (end == n) return end;
    size_t width;
    unicode_last((struct str){(const char *)s + i, end - i}, &width);
    return end - width > i ? end - width : end;
}

/* The same behind \s*[\r\n]+: up to the last line end of the run, if it has one. */
static size_t space_or_lines(const uint8_t *s, size_t i, size_t n)
{
    size_t end = run_of(s, i, n, SPACE, 0);
    for (size_t k = end; k > i; k--)
        if (s[k - 1] == '\n' || s[k - 1] == '\r') return k;
    if (end == n) return end;
    size_t width;
    unicode_last((struct str){(const char *)s + i, end - i}, &width);
    return end - width > i ? end - width : end;
}

/* 's 't 're 've 'm 'll 'd at i, or 0. Without case, the long s (U+017F) is an s too. */
static size_t contraction(const uint8_t *s, size_t i, size_t n, bool any_case)
{
    if (n - i < 2 || s[i] != '\'') return 0;
    uint8_t fold = any_case ? 32 : 0, c = s[i + 1] | fold;
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return i + 2;
    if (n - i < 3) return 0;
    uint8_t d = s[i + 2] | fold;
    if ((c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l')) return i + 3;
    if (any_case && s[i + 1] == 0xC5 && s[i + 2] == 0xBF) return i + 3;
    return 0;
}

/* GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    (void)p;
    size_t width, j = i + (s[i] == ' ' && i + 1 < n);
    if (s[i] == '\'') {
        size_t end = contraction(s, i, n, false);
        if (end) return end;
    }
    uint8_t class = class_at(s, j, &width, GC_L);
    if (class & SPACE) return space_run(s, i, n);
    return run_of(s, j + width, n, class, GC_L);
}

/* The other characters of a text: [^\s\p{L}\p{N}]+ and what may trail it, line ends and slashes. */
enum { FLAG_CONTRACT = 1, FLAG_CONTRACT_FIRST = 2, FLAG_TRAIL_SLASH = 4 };

static size_t scan_others(const struct pattern *p, const uint8_t *s, size_t i, size_t n, uint32_t letters)
{
    size_t j = run_of(s, i, n, OTHER, letters);
    while (j < n && (s[j] == '\n' || s[j] == '\r' || ((p->flags & FLAG_TRAIL_SLASH) && s[j] == '/'))) j++;
    return j;
}

static size_t scan_digits(const struct pattern *p, const uint8_t *s, size_t i, size_t n, size_t width)
{
    size_t j = i + width;
    for (uint32_t count = 1; j < n && count < p->max_digits; count++, j += width)
        if (class_at(s, j, &width, GC_L) != DIGIT) break;
    return j;
}

/* cl100k: (?i:contractions)|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,max}| ?[^\s L
 * \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ L is p->letters; p->prefix_not are the categories that cannot lead
 * a word. */
static size_t scan_words(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    size_t width, next;
    if (s[i] == '\'' && (p->flags & FLAG_CONTRACT_FIRST)) {
        size_t end = contraction(s, i, n, true);
        if (end) return end;
    }
    uint32_t letters = p->letters;
    uint8_t class = class_at(s, i, &width, letters);
    if (class == LETTER) {
        size_t end = run_of(s, i + width, n, LETTER, letters);
        /* A letter that \p{L} does not have (a mark) may be the leading character, which changes nothing. */
        return end;
    }
    if (class == DIGIT) return scan_digits(p, s, i, n, width);
    size_t j = i + width;
    if (j < n && !(class & NEWLINE) && class_at(s, j, &next, letters) == LETTER)
        return run_of(s, j + next, n, LETTER, letters);
    if (class == OTHER) return scan_others(p, s, i, n, letters);
    if (s[i] == ' ' && j < n && class_at(s, j, &next, letters) == OTHER)
        return scan_others(p, s, j, n, letters);
    return space_or_lines(s, i, n);
}

#define UPPERS (GC_BIT(GC_LU) | GC_BIT(GC_LT) | GC_BIT(GC_LM) | GC_BIT(GC_LO) | GC_M)
#define LOWERS (GC_BIT(GC_LL) | GC_BIT(GC_LM) | GC_BIT(GC_LO) | GC_M)

static inline uint32_t record_at(const uint8_t *s, size_t i, size_t *n)
{
    return unicode_record(unicode_next(s + i, n));
}

/* At j: U*l+ (both is false) or U+l* (both is true), U and l overlapping in what has no case. 0 for no match.
 *     U U x x |        the run of U ends; if no l follows, l+ takes the last x of the run that is in l
 */
static size_t cased_word(const uint8_t *s, size_t j, size_t n, bool upper_first)
{
    size_t width, a = j, last = 0;
    bool has_last = false;
    while (a < n) {
        uint32_t r = record_at(s, a, &width);
        if (!UC_IN(r, UPPERS)) break;
        if (UC_IN(r, LOWERS)) last = a, has_last = true;
        a += width;
    }
    size_t k = a;
    while (k < n && UC_IN(record_at(s, k, &width), LOWERS)) k += width;
    if (upper_first) return a > j ? k : 0;
    if (k > a) return k;
    if (!has_last) return 0;
    record_at(s, last, &width);
    return last + width;
}

/* o200k and Tekken: words that begin upper-case and go on lower-case, each with a leading character. */
static size_t scan_cased(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    size_t width, next;
    uint32_t r = record_at(s, i, &width);
    bool letter = UC_IN(r, GC_L), digit = UC_IN(r, GC_N);
    bool prefix = !letter && !digit && s[i] != '\n' && s[i] != '\r' && i + width < n;
    size_t end = 0;
    if (prefix) end = cased_word(s, i + width, n, false);
    if (!end && (letter || UC_IN(r, GC_M))) end = cased_word(s, i, n, false);
    if (!end && prefix) end = cased_word(s, i + width, n, true);
    if (!end && (letter || UC_IN(r, GC_M))) end = cased_word(s, i, n, true);
    if (end) {
        size_t more = (p->flags & FLAG_CONTRACT) && end < n ? contraction(s, end, n, true) : 0;
        return more ? more : end;
    }
    uint8_t class = class_at(s, i, &width, GC_L);
    if (class == DIGIT) return scan_digits(p, s, i, n, width);
    if (class == OTHER) return scan_others(p, s, i, n, GC_L);
    if (s[i] == ' ' && i + 1 < n && class_at(s, i + 1, &next, GC_L) == OTHER)
        return scan_others(p, s, i + 1, n, GC_L);
    return space_or_lines(s, i, n);
}

/* DeepSeek V3's words: [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 * ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|… */
static size_t scan_deepseek3(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    (void)p;
    size_t width, next;
    uint32_t r = record_at(s, i, &width);
    uint8_t c = s[i];
    if (c > ' ' && ascii_class[c] == OTHER && c != 0x7F && i + 1 < n && ascii_class[s[i + 1]] == LETTER) {
        size_t j = i + 1;
        while (j < n && ascii_class[s[j]] == LETTER) j++;
        return j;
    }
    const uint32_t words = GC_L | GC_M, signs = GC_P | GC_S;
    size_t j = 0;
    if (!UC_IN(r, GC_L | signs) && c != '\n' && c != '\r' && i + width < n &&
        UC_IN(record_at(s, i + width, &next), words))
        j = i + width;
    else if (UC_IN(r, words))
        j = i;
    if (j || UC_IN(r, words)) {
        while (j < n && UC_IN(record_at(s, j, &next), words)) j += next;
        return j;
    }
    j = i + (c == ' ');
    if (j < n && UC_IN(record_at(s, j, &next), signs)) {
        while (j < n && UC_IN(record_at(s, j, &next), signs)) j += next;
        while (j < n && (s[j] == '\n' || s[j] == '\r')) j++;
        return j;
    }
    return r & UC_SPACE ? space_or_lines(s, i, n) : 0;
}

/* One class of characters, counted: CLASS{1,max}, perhaps behind \s? (FLAG_SPACE) or " ?". */
enum {
    FLAG_SPACE = 16,
    SET_LINES = 1,
    SET_HAN_KANA,
    SET_HAN_HANGUL,
    SET_PUNCT_WIDE,
    SET_LATIN,
    SET_ASCII_DIGIT
};

static bool in_set(uint32_t set, uint32_t cp)
{
    switch (set) {
    case SET_LINES: return cp == '\n' || cp == '\r';
    case SET_HAN_KANA:
        return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x309F) ||
               (cp >= 0x30A0 && cp <= 0x30FF);
    case SET_HAN_HANGUL:
        return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x800 && cp <= 0x4E00) ||
               (cp >= 0xAC00 && cp <= 0xD7FF);
    case SET_PUNCT_WIDE:
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '~') || (cp >= 0xFF01 && cp <= 0xFF0F) ||
               (cp >= 0xFF1A && cp <= 0xFF5E) || (cp >= 0x2018 && cp <= 0x201F) ||
               (cp >= 0x3000 && cp <= 0x3002);
    case SET_ASCII_DIGIT: return cp >= '0' && cp <= '9';
    default: return false;
    }
}

static bool in_class(const struct pattern *p, const uint8_t *s, size_t i, size_t *width)
{
    uint32_t cp = unicode_next(s + i, width);
    return p->prefix_not ? in_set(p->prefix_not, cp) : UC_IN(unicode_record(cp), p->letters);
}

static size_t scan_class(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    size_t width, j = i;
    if (p->flags & FLAG_SPACE) {
        if (record_at(s, i, &width) & UC_SPACE) j += width;
        if (j == n || !in_class(p, s, j, &width)) j = i; /* a space may itself be in the class */
    }
    uint32_t count = 0;
    while (j < n && (!p->max_digits || count < p->max_digits) && in_class(p, s, j, &width))
        j += width, count++;
    return count ? j : 0;
}

/* "[0-9][0-9][0-9]" of Falcon: exactly so many. */
static size_t scan_exact(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    size_t width, j = i;
    for (uint32_t k = 0; k < p->max_digits; k++, j += width)
        if (j >= n || !in_class(p, s, j, &width)) return 0;
    return j;
}

/* CLIP: contractions, letters, single numbers, others; white space is in no match. */
static size_t scan_clip(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    (void)p;
    size_t width, end = contraction(s, i, n, false);
    if (end) return end;
    uint8_t class = class_at(s, i, &width, GC_L);
    if (class == DIGIT) return i + width;
    return class & SPACE ? 0 : run_of(s, i + width, n, class, GC_L);
}

/* \s+ */
static size_t scan_white(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    (void)p;
    size_t end = run_of(s, i, n, SPACE, 0);
    return end > i ? end : 0;
}

/* " {2,}" */
static size_t scan_spaces(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    (void)p;
    size_t j = i;
    while (j < n && s[j] == ' ') j++;
    return j - i >= 2 ? j : 0;
}

static size_t scan_literal(const struct pattern *p, const uint8_t *s, size_t i, size_t n)
{
    return n - i >= p->literal.n && p->literal.n && !memcmp(s + i, p->literal.p, p->literal.n)
               ? i + p->literal.n
               : 0;
}

#define S_TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define S_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define S_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define S_LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define S_SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

/* The regular expressions that have a scanner, as the published files write them. */
static const struct known {
    const char *regex;
    struct pattern pattern;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {.scan = scan_gpt2, .covers = true}},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {.scan = scan_gpt2, .covers = true}},
    {S_SHORT "|" S_LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" S_TAIL,
     {.scan = scan_words, .letters = GC_L, .max_digits = 3, .flags = FLAG_CONTRACT_FIRST, .covers = true}},
    {S_SHORT "|" S_LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" S_TAIL,
     {.scan = scan_words, .letters = GC_L, .max_digits = 1, .flags = FLAG_CONTRACT_FIRST, .covers = true}},
    {S_SHORT "|" S_LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" S_TAIL,
     {.scan = scan_words,
      .letters = GC_L | GC_M,
      .max_digits = 1,
      .flags = FLAG_CONTRACT_FIRST,
      .covers = true}},
    {S_LEAD S_UPPER "*" S_LOWER "+" S_SHORT "?|" S_LEAD S_UPPER "+" S_LOWER "*" S_SHORT
                    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" S_TAIL,
     {.scan = scan_cased, .max_digits = 3, .flags = FLAG_CONTRACT | FLAG_TRAIL_SLASH, .covers = true}},
    {S_LEAD S_UPPER "*" S_LOWER "+|" S_LEAD S_UPPER "+" S_LOWER
                    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" S_TAIL,
     {.scan = scan_cased, .max_digits = 1, .flags = FLAG_TRAIL_SLASH, .covers = true}},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*|" S_TAIL,
     {.scan = scan_deepseek3}},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
     {.scan = scan_class, .prefix_not = SET_HAN_KANA}},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+",
     {.scan = scan_class, .prefix_not = SET_HAN_HANGUL}},
    {"\\s?[!-/"
     ":-~\xEF\xBC\x81-\xEF\xBC\x8F\xEF\xBC\x9A-\xEF\xBD\x9E\xE2\x80\x98-\xE2\x80\x9F\xE3\x80\x80-"
     "\xE3\x80\x82]+",
     {.scan = scan_class, .prefix_not = SET_PUNCT_WIDE, .flags = FLAG_SPACE}},
    {"[\\r\\n]", {.scan = scan_class, .prefix_not = SET_LINES, .max_digits = 1}},
    {"[\r\n]", {.scan = scan_class, .prefix_not = SET_LINES, .max_digits = 1}},
    {"\\s?\\p{L}+", {.scan = scan_class, .letters = GC_L, .flags = FLAG_SPACE}},
    {"\\s?\\p{P}+", {.scan = scan_class, .letters = GC_P, .flags = FLAG_SPACE}},
    {"\\p{N}{1,3}", {.scan = scan_class, .letters = GC_N, .max_digits = 3}},
    {"\\p{N}", {.scan = scan_class, .letters = GC_N, .max_digits = 1}},
    {"\\p{N}+", {.scan = scan_class, .letters = GC_N}},
    {"\\p{L}+", {.scan = scan_class, .letters = GC_L}},
    {"\\p{P}+", {.scan = scan_class, .letters = GC_P}},
    {"[0-9][0-9][0-9]", {.scan = scan_exact, .prefix_not = SET_ASCII_DIGIT, .max_digits = 3}},
    {"[0-9]+", {.scan = scan_class, .prefix_not = SET_ASCII_DIGIT}},
    {"'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", {.scan = scan_clip}},
    {"\\s+", {.scan = scan_white}},
    {" {2,}", {.scan = scan_spaces}},
};

void pattern_literal(struct pattern *p, struct str text)
{
    *p = (struct pattern){.scan = scan_literal, .literal = text};
}

/* --- unknown expressions, by PCRE2
 * ----------------------------------------------------------------------------------------- */

#ifdef ROSE_HAVE_PCRE2
/* In the engine that the files are written for, \w also has marks and connector punctuation; PCRE2's has not.
 */
static bool widen_words(struct str regex, struct strbuf *out)
{
    bool class = false;
    for (size_t i = 0; i < regex.n; i++) {
        char c = regex.p[i];
        if (c == '\\' && i + 1 < regex.n) {
            char d = regex.p[++i];
            if (d == 'w')
                strbuf_adds(out, class ? "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
                                       : "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");
            else if (d == 'W' && !class)
                strbuf_adds(out, "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");
            else if (d == 'h')
                strbuf_adds(out, class ? "0-9a-fA-F" : "[0-9a-fA-F]");
            else
                strbuf_add(out, regex.p + i - 1, 2);
            continue;
        }
        if (c == '[') class = true;
        if (c == ']') class = false;
        strbuf_addc(out, c);
    }
    return !out->failed;
}

static enum rose_status compile(struct pattern *p, struct str regex, const char *where,
                                struct rose_error *err)
{
    struct strbuf text = {0};
    if (!widen_words(regex, &text)) {
        strbuf_free(&text);
        return status_set(err, ROSE_NO_MEMORY, "no memory for a regular expression");
    }
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(context, 1 << 16);
        pcre2_set_parens_nest_limit(context, 100);
    }
    p->regex = pcre2_compile((PCRE2_SPTR)(text.p ? text.p : ""), text.n,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at, context);
    pcre2_compile_context_free(context);
    strbuf_free(&text);
    if (!p->regex) {
        PCRE2_UCHAR message[128] = {0};
        pcre2_get_error_message(code, message, sizeof message);
        return status_set(err, ROSE_UNSUPPORTED, "%s: the regular expression cannot be used: %s", where,
                          (const char *)message);
    }
    pcre2_jit_compile(p->regex, PCRE2_JIT_COMPLETE); /* without it the interpreter serves */
    return ROSE_OK;
}

static pcre2_match_context *match_limits(void)
{
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (!context) return NULL;
    pcre2_set_match_limit(context, 1 << 20);
    pcre2_set_depth_limit(context, 1 << 12);
    pcre2_set_heap_limit(context, 1 << 14); /* KiB */
    return context;
}

struct match_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static bool regex_find(const struct pattern *p, void **state, struct str s, size_t from, size_t *start,
                       size_t *end, bool *failed)
{
    struct match_state *m = *state;
    if (!m) {
        m = *state = calloc(1, sizeof *m);
        if (m) m->data = pcre2_match_data_create(1, NULL), m->context = match_limits();
        if (!m || !m->data || !m->context) return *failed = true, false;
    }
    for (size_t at = from; at <= s.n;) {
        int got = pcre2_match(p->regex, (PCRE2_SPTR)s.p, s.n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
        if (got == PCRE2_ERROR_NOMATCH) return false;
        if (got < 0) return *failed = true, false;
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m->data);
        if (o[1] > o[0] && o[0] >= from) return *start = o[0], *end = o[1], true;
        at = o[1] > at ? o[1]
                       : at; /* an empty match splits nothing that is ever used: step over one character */
        if (at >= s.n) return false;
        size_t width;
        unicode_next((const uint8_t *)s.p + at, &width);
        at += width;
    }
    return false;
}

void pattern_free(struct pattern *p)
{
    if (p->regex) pcre2_code_free(p->regex);
    p->regex = NULL;
}

void pattern_free_match(void *state)
{
    struct match_state *m = state;
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    free(m);
}
#else
static enum rose_status compile(struct pattern *p, struct str regex, const char *where,
                                struct rose_error *err)
{
    (void)p;
    return status_set(
        err, ROSE_UNSUPPORTED,
        "%s: the regular expression \"%.*s\" is none of the known ones, and this build has no PCRE2", where,
        (int)ROSE_MIN(regex.n, 200), regex.p);
}
static bool regex_find(const struct pattern *p, void **state, struct str s, size_t from, size_t *start,
                       size_t *end, bool *failed)
{
    (void)p, (void)state, (void)s, (void)from, (void)start, (void)end;
    return *failed = true, false;
}
void pattern_free(struct pattern *p)
{
    p->regex = NULL;
}
void pattern_free_match(void *state)
{
    (void)state;
}
#endif

enum rose_status pattern_compile(struct pattern *p, struct str regex, struct arena *arena, const char *where,
                                 struct rose_error *err)
{
    (void)arena;
    *p = (struct pattern){0};
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(regex, known[i].regex)) {
            *p = known[i].pattern;
            return ROSE_OK;
        }
    return compile(p, regex, where, err);
}

bool pattern_find(const struct pattern *p, void **state, struct str s, size_t from, size_t *start,
                  size_t *end, bool *failed)
{
    if (p->regex) return regex_find(p, state, s, from, start, end, failed);
    if (p->scan == scan_literal) {
        ptrdiff_t at = p->literal.n ? str_find(s, p->literal, from) : -1;
        if (at < 0) return false;
        return *start = (size_t)at, *end = (size_t)at + p->literal.n, true;
    }
    for (size_t i = from, width; i < s.n; i += width) {
        size_t e = p->scan(p, (const uint8_t *)s.p, i, s.n);
        if (e) return *start = i, *end = e, true;
        unicode_next((const uint8_t *)s.p + i, &width);
    }
    return false;
}
