/* Character classes and cases as Python's str methods have them (tables: template_unicode_tables.h). */
#include "tokenizer/template_internal.h"

#include "base/utf8.h"
#include "tokenizer/template_unicode_tables.h"

uint32_t template_unicode_next(struct str text, size_t *at)
{
    unsigned char c = (unsigned char)text.p[*at];
    if (c < 0x80) return ++*at, c;
    uint32_t cp;
    *at += utf8_decode((struct str){text.p + *at, text.n - *at}, &cp);
    return cp;
}

static bool in_ranges(const uint32_t (*ranges)[2], size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > ranges[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= ranges[lo][0];
}
#define IN(ranges) in_ranges(ranges, ROSE_COUNT(ranges), cp)

bool template_unicode_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 31);
    return IN(space_ranges);
}
bool template_unicode_alpha(uint32_t cp)
{
    return IN(alpha_ranges);
}
bool template_unicode_decimal(uint32_t cp)
{
    return IN(decimal_ranges);
}
bool template_unicode_digit(uint32_t cp)
{
    return IN(digit_ranges);
}
bool template_unicode_numeric(uint32_t cp)
{
    return IN(numeric_ranges);
}
bool template_unicode_printable(uint32_t cp)
{
    return IN(printable_ranges);
}
bool template_unicode_lower(uint32_t cp)
{
    return IN(lower_ranges);
}
bool template_unicode_upper(uint32_t cp)
{
    return IN(upper_ranges);
}
bool template_unicode_title(uint32_t cp)
{
    return IN(title_ranges);
}
bool template_unicode_cased(uint32_t cp)
{
    return IN(cased_ranges);
}
bool template_unicode_case_ignorable(uint32_t cp)
{
    return IN(ignorable_ranges);
}

/* Rows of map: first, last, step, what to add. */
static uint32_t mapped(const int32_t (*map)[4], size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > (uint32_t)map[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == n || cp < (uint32_t)map[lo][0] || (cp - (uint32_t)map[lo][0]) % (uint32_t)map[lo][2]) return cp;
    return (uint32_t)((int32_t)cp + map[lo][3]);
}

/* Rows of special: a code point and the two or three it becomes, ended by 0. */
static int convert(const int32_t (*map)[4], size_t n, const uint32_t (*special)[4], size_t n_special,
                   uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; cp >= 0x80 && i < n_special; i++) {
        if (special[i][0] != cp) continue;
        memcpy(out, special[i] + 1, 3 * sizeof *out);
        return out[2] ? 3 : 2;
    }
    out[0] = mapped(map, n, cp);
    return 1;
}

int template_unicode_to_upper(uint32_t cp, uint32_t out[3])
{
    return convert(upper_map, ROSE_COUNT(upper_map), upper_special, ROSE_COUNT(upper_special), cp, out);
}
int template_unicode_to_lower(uint32_t cp, uint32_t out[3])
{
    return convert(lower_map, ROSE_COUNT(lower_map), lower_special, ROSE_COUNT(lower_special), cp, out);
}
int template_unicode_to_title(uint32_t cp, uint32_t out[3])
{
    return convert(title_map, ROSE_COUNT(title_map), title_special, ROSE_COUNT(title_special), cp, out);
}
int template_unicode_to_fold(uint32_t cp, uint32_t out[3])
{
    return convert(fold_map, ROSE_COUNT(fold_map), fold_special, ROSE_COUNT(fold_special), cp, out);
}
