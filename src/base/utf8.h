/* UTF-8 (RFC 3629): decode, encode, validate. */
#ifndef ROSE_BASE_UTF8_H
#define ROSE_BASE_UTF8_H

#include "base/str.h"

#define UTF8_INVALID 0xFFFFFFFFu

/* Decode the first code point of s (s.n > 0); returns the bytes consumed. An invalid sequence gives UTF8_INVALID and
 * consumes its maximal valid prefix, at least one byte (Unicode 3.9, the practice of W3C and Python). */
size_t utf8_decode(struct str s, uint32_t *cp);
/* Write 1 to 4 bytes; cp must be a scalar value. */
size_t utf8_encode(uint32_t cp, char *out);
bool utf8_valid(struct str s);
/* Length of s without an incomplete sequence at its end: what may be shown while more bytes can come. */
size_t utf8_complete(struct str s);

#endif
