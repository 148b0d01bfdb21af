#include "server/coding.h"

#include <string.h>
#include <strings.h>

#include "base/status.h"

const char *coding_name(enum coding coding) { return coding == CODING_GZIP ? "gzip" : coding == CODING_DEFLATE ? "deflate" : "identity"; }

static bool is_word(struct str s, const char *word) { return s.n == strlen(word) && !strncasecmp(s.p, word, s.n); }

static enum coding of_name(struct str name)
{
    if (is_word(name, "identity") || !name.n) return CODING_IDENTITY;
#ifdef ROSE_HAVE_ZLIB
    if (is_word(name, "gzip") || is_word(name, "x-gzip")) return CODING_GZIP;
    if (is_word(name, "deflate")) return CODING_DEFLATE;
#endif
    return CODING_UNKNOWN;
}

static struct str trimmed(const char *p, size_t n)
{
    while (n && (*p == ' ' || *p == '\t')) p++, n--;
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    return (struct str){p, n};
}

enum coding coding_find(const char *header) { return header ? of_name(trimmed(header, strlen(header))) : CODING_IDENTITY; }

/* A weight "q=0.5" in thousandths; 1000 where there is none, 0 where it is none of RFC 9110, 12.4.2. */
static int weight(struct str s)
{
    if (!s.n) return 1000;
    if (s.n < 3 || strncasecmp(s.p, "q=", 2) || (s.p[2] != '0' && s.p[2] != '1')) return 0;
    int w = s.p[2] == '1' ? 1000 : 0;
    for (size_t i = 4, unit = 100; i < s.n && i < 7 && s.p[3] == '.' && s.p[i] >= '0' && s.p[i] <= '9'; i++, unit /= 10) w += (s.p[i] - '0') * (int)unit;
    return ROSE_MIN(w, 1000);
}

enum coding coding_accepted(const char *header)
{
    enum coding best = CODING_IDENTITY;
    int most = 0;
    while (header && *header) {
        size_t n = strcspn(header, ","), name = ROSE_MIN(n, strcspn(header, ";"));
        enum coding c = of_name(trimmed(header, name));
        int w = weight(name < n ? trimmed(header + name + 1, n - name - 1) : (struct str){"", 0});
        if (c != CODING_UNKNOWN && name && w > most) best = c, most = w;
        header += n + (header[n] == ',');
    }
    return best;
}

#ifdef ROSE_HAVE_ZLIB
#include <zlib.h>

enum { PIECE = 65536 };

/* One stream after another (gzip may have several members) until the input ends. window: as inflateInit2 has it. */
static enum coding_result inflate_all(int window, struct str in, struct strbuf *out)
{
    z_stream z = {0};
    char piece[PIECE];
    enum coding_result result = CODING_OK;
    if (in.n > UINT32_MAX) return CODING_TOO_LARGE;
    if (inflateInit2(&z, window) != Z_OK) return CODING_NO_MEMORY;
    z.next_in = (Bytef *)(void *)in.p;
    z.avail_in = (uInt)in.n;
    for (bool ended = false; result == CODING_OK && !(ended && !z.avail_in);) {
        if (ended && inflateReset(&z) != Z_OK) result = CODING_WRONG;
        z.next_out = (Bytef *)piece;
        z.avail_out = PIECE;
        int s = result == CODING_OK ? inflate(&z, Z_NO_FLUSH) : Z_DATA_ERROR;
        ended = s == Z_STREAM_END;
        if (s == Z_MEM_ERROR) result = CODING_NO_MEMORY;
        else if (s != Z_OK && s != Z_STREAM_END) result = CODING_WRONG; /* Z_BUF_ERROR: the input ends too early */
        size_t n = PIECE - z.avail_out;
        if (result == CODING_OK && out->limit && n > out->limit - out->n) result = CODING_TOO_LARGE;
        if (result == CODING_OK) strbuf_add(out, piece, n);
        if (result == CODING_OK && out->failed) result = CODING_NO_MEMORY;
    }
    inflateEnd(&z);
    return result;
}

enum coding_result coding_decode(enum coding coding, struct strbuf *body)
{
    struct strbuf out = {.limit = body->limit};
    enum coding_result r;
    if (coding == CODING_IDENTITY) return CODING_OK;
    if (coding == CODING_UNKNOWN) return CODING_WRONG;
    r = inflate_all(coding == CODING_GZIP ? 15 + 16 : 15, strbuf_str(body), &out);
    if (r == CODING_WRONG && coding == CODING_DEFLATE) { /* "some non-conformant implementations send the data without the zlib wrapper" */
        out.n = 0;
        r = inflate_all(-15, strbuf_str(body), &out);
    }
    if (r != CODING_OK) {
        strbuf_free(&out);
        return r;
    }
    strbuf_free(body);
    *body = out;
    return r;
}

bool coding_encode(enum coding coding, struct strbuf *body)
{
    z_stream z = {0};
    struct strbuf out = {0};
    char piece[PIECE];
    int s = Z_OK;
    if ((coding != CODING_GZIP && coding != CODING_DEFLATE) || body->n > UINT32_MAX) return false;
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, coding == CODING_GZIP ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK) return false;
    z.next_in = (Bytef *)(void *)body->p;
    z.avail_in = (uInt)body->n;
    while (s == Z_OK) {
        z.next_out = (Bytef *)piece;
        z.avail_out = PIECE;
        s = deflate(&z, Z_FINISH);
        strbuf_add(&out, piece, PIECE - z.avail_out);
    }
    deflateEnd(&z);
    if (s != Z_STREAM_END || out.failed) {
        strbuf_free(&out);
        return false;
    }
    strbuf_free(body);
    *body = out;
    return true;
}
#else
enum coding_result coding_decode(enum coding coding, struct strbuf *body) { return (void)body, coding == CODING_IDENTITY ? CODING_OK : CODING_WRONG; }
bool coding_encode(enum coding coding, struct strbuf *body) { return (void)coding, (void)body, false; }
#endif
