/* Reading numbers from text as Python's int() and float() do, and dates for strftime_now. */
#define _GNU_SOURCE
#include "tokenizer/template_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Text without whitespace around it, underscores between digits removed; false when it does not fit or an
 * underscore stands elsewhere. */
static bool clean(struct str text, char *out, size_t cap, size_t *n)
{
    size_t begin = 0, end = text.n, at;
    while (begin < end) {
        at = begin;
        if (!template_unicode_space(template_unicode_next(text, &at))) break;
        begin = at;
    }
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)text.p[last] & 0xC0) == 0x80) last--;
        at = last;
        if (!template_unicode_space(template_unicode_next(text, &at))) break;
        end = last;
    }
    *n = 0;
    for (size_t i = begin; i < end; i++) {
        char c = text.p[i];
        if (c == '_') {
            bool between = i > begin && i + 1 < end && text.p[i - 1] != '_' && text.p[i + 1] != '_';
            if (!between) return false;
            continue;
        }
        if (*n + 1 >= cap) return false;
        out[(*n)++] = c;
    }
    out[*n] = '\0';
    return *n > 0;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

bool template_read_int(struct str text, int64_t base, int64_t *out, bool *overflow)
{
    char digits[512];
    size_t n, at = 0;
    uint64_t value = 0;
    *overflow = false;
    if ((base && base < 2) || base > 36 || !clean(text, digits, sizeof digits, &n)) return false;
    bool negative = digits[0] == '-';
    if (digits[0] == '-' || digits[0] == '+') at++;
    if (n - at > 2 && digits[at] == '0') {
        int letter = digits[at + 1] | 0x20, prefix = letter == 'x'   ? 16
                                                     : letter == 'o' ? 8
                                                     : letter == 'b' ? 2
                                                                     : 0;
        if (prefix && (base == 0 || base == prefix)) base = prefix, at += 2;
    }
    if (base == 0) {
        base = 10;
        if (n - at > 1 && digits[at] == '0')
            for (size_t i = at; i < n; i++)
                if (digits[i] != '0') return false;
    }
    if (at == n) return false;
    for (; at < n; at++) {
        int digit = digit_value(digits[at]);
        if (digit >= base) return *overflow = false, false;
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            *overflow = true;
    }
    if (value > (uint64_t)INT64_MAX + negative) *overflow = true;
    if (*overflow) return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* [sign] (digits [. digits] | . digits) [e [sign] digits] | [sign] inf | infinity | nan */
bool template_read_float(struct str text, double *out)
{
    char digits[512];
    size_t n;
    if (!clean(text, digits, sizeof digits, &n)) return false;
    const char *p = digits + (digits[0] == '-' || digits[0] == '+');
    static const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < ROSE_COUNT(words); i++) {
        size_t k = 0;
        while (p[k] && (p[k] | 0x20) == words[i][k]) k++;
        if (!p[k] && !words[i][k]) return *out = strtod(digits, NULL), true;
    }
    size_t count = 0;
    while (*p >= '0' && *p <= '9') p++, count++;
    if (*p == '.') p++;
    while (*p >= '0' && *p <= '9') p++, count++;
    if (!count) return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '-' || *p == '+') p++;
        if (*p < '0' || *p > '9') return false;
        while (*p >= '0' && *p <= '9') p++;
    }
    if (p != digits + n) return false;
    *out = strtod(digits, NULL);
    return true;
}

/* --- strftime --- */

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* One directive in the C locale, whatever the program's locale is. */
static void directive(char c, char flag, const struct tm *tm, char out[64])
{
    char format[4] = {'%', c, 0, 0};
    if (flag) format[1] = flag, format[2] = c;
    out[0] = '\0';
    switch (c) {
    case 'A': snprintf(out, 64, "%s", days[tm->tm_wday]); break;
    case 'a': snprintf(out, 64, "%.3s", days[tm->tm_wday]); break;
    case 'B': snprintf(out, 64, "%s", months[tm->tm_mon]); break;
    case 'b':
    case 'h': snprintf(out, 64, "%.3s", months[tm->tm_mon]); break;
    case 'p': snprintf(out, 64, "%s", tm->tm_hour < 12 ? "AM" : "PM"); break;
    case 'P': snprintf(out, 64, "%s", tm->tm_hour < 12 ? "am" : "pm"); break;
    case 'c':
        snprintf(out, 64, "%.3s %.3s %2d %02d:%02d:%02d %d", days[tm->tm_wday], months[tm->tm_mon],
                 tm->tm_mday, tm->tm_hour, tm->tm_min, tm->tm_sec, tm->tm_year + 1900);
        break;
    case 'x': snprintf(out, 64, "%02d/%02d/%02d", tm->tm_mon + 1, tm->tm_mday, tm->tm_year % 100); break;
    case 'X': snprintf(out, 64, "%02d:%02d:%02d", tm->tm_hour, tm->tm_min, tm->tm_sec); break;
    case 'r':
        snprintf(out, 64, "%02d:%02d:%02d %s", tm->tm_hour % 12 ? tm->tm_hour % 12 : 12, tm->tm_min,
                 tm->tm_sec, tm->tm_hour < 12 ? "AM" : "PM");
        break;
    case 'f': snprintf(out, 64, "000000"); break;
    case 'z':
    case 'Z': break; /* a datetime without zone has none */
    default:
        if (!strchr("CdDeFgGHIjklmMnRsStTuUVwWyY%", c) || !c)
            snprintf(out, 64, "%s", format); /* glibc copies what it does not know */
        else if (!strftime(out, 64, format, tm))
            out[0] = '\0';
    }
}

bool template_format_time(struct eval *e, const struct tstring *format, struct value *out)
{
    time_t now = e->now ? e->now : time(NULL);
    struct tm tm;
    struct tbuild b = {0};
    if (!(e->utc ? gmtime_r(&now, &tm) : localtime_r(&now, &tm)))
        return template_fail(e, "strftime_now: the clock is out of range");
    for (size_t at = 0; at < format->n;) {
        char text[64];
        size_t begin = at;
        if (format->p[at] != '%' || at + 1 == format->n) {
            if (!tbuild_slice(e, &b, format, at, at + 1)) return false;
            at++;
            continue;
        }
        char flag = format->p[++at];
        if (strchr("-_0^#", flag) && flag && at + 1 < format->n)
            at++;
        else
            flag = 0;
        if ((unsigned char)format->p[at] >= 0x80) {
            if (!tbuild_slice(e, &b, format, begin, at)) return false;
            continue;
        }
        directive(format->p[at++], flag, &tm, text);
        if (!tbuild_text(e, &b, text)) return false;
    }
    return tbuild_end(e, &b, out);
}
