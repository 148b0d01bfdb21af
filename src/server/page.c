/* The page at /: one file inside the binary. Its script and style are allowed by their hashes and nothing else is: text of a model that
 * reached the page as markup could still run nothing and load nothing. */
#include "server/internal.h"

#include "base/hash.h"

__asm__(".section .rodata\n"
        ".global rose_page_begin\n.hidden rose_page_begin\nrose_page_begin:\n.incbin \"src/server/page/index.html\"\n"
        ".global rose_page_end\n.hidden rose_page_end\nrose_page_end:\n.byte 0\n.previous\n");
extern const char rose_page_begin[], rose_page_end[];

static void base64(const uint8_t *in, size_t n, struct strbuf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0) | (i + 2 < n ? in[i + 2] : 0);
        strbuf_addc(out, digits[v >> 18]);
        strbuf_addc(out, digits[v >> 12 & 63]);
        strbuf_addc(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
        strbuf_addc(out, i + 2 < n ? digits[v & 63] : '=');
    }
}

static void add_hash(struct str page, struct str open, struct str close, struct strbuf *out)
{
    ptrdiff_t begin = str_find(page, open, 0), end = begin < 0 ? -1 : str_find(page, close, (size_t)begin);
    if (end < 0) return;
    struct sha256 h;
    uint8_t digest[32];
    sha256_init(&h);
    sha256_add(&h, page.p + begin + open.n, (size_t)end - (size_t)begin - open.n);
    sha256_end(&h, digest);
    strbuf_adds(out, " 'sha256-");
    base64(digest, sizeof digest, out);
    strbuf_addc(out, '\'');
}

void page_serve(struct server *s, struct httpd_request *r)
{
    static struct strbuf policy; /* one, made at the first request */
    struct str page = {rose_page_begin, (size_t)(rose_page_end - rose_page_begin)};
    (void)s;
    if (!policy.n) {
        strbuf_adds(&policy, "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src");
        add_hash(page, STR("<script>"), STR("</script>"), &policy);
        strbuf_adds(&policy, "; style-src");
        add_hash(page, STR("<style>"), STR("</style>"), &policy);
    }
    httpd_add_header(r, "Content-Security-Policy", policy.p);
    httpd_add_header(r, "X-Content-Type-Options", "nosniff");
    httpd_add_header(r, "Referrer-Policy", "no-referrer");
    httpd_add_header(r, "Cache-Control", "no-cache");
    httpd_reply(r, 200, "text/html; charset=utf-8", page);
}
