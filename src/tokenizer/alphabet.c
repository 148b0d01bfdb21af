#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in their
 * order. */
static bool plain(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

uint32_t alphabet_of(uint8_t b)
{
    if (plain(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x121u + (b - 0x7F);
    return 0x143;
}

int alphabet_byte(uint32_t cp)
{
    if (cp < 0x100) return plain(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

void alphabet_encode(struct str bytes, struct strbuf *out)
{
    if (!strbuf_reserve(out, 2 * bytes.n)) return;
    for (size_t i = 0; i < bytes.n; i++) {
        char letter[4];
        strbuf_add(out, letter, utf8_encode(alphabet_of((uint8_t)bytes.p[i]), letter));
    }
}

bool alphabet_decode(struct str letters, struct strbuf *out)
{
    size_t before = out->n;
    for (size_t i = 0, n; i < letters.n; i += n) {
        int b = alphabet_byte(unicode_next((const uint8_t *)letters.p + i, &n));
        if (b < 0) {
            out->n = before;
            return false;
        }
        strbuf_addc(out, (char)b);
    }
    return true;
}
