/* SHA-1 (FIPS 180-4), for names that git gives: not for security. */
#ifndef ROSE_BASE_SHA1_H
#define ROSE_BASE_SHA1_H

#include <stddef.h>
#include <stdint.h>

struct sha1 {
    uint32_t state[5];
    uint64_t bytes;
    uint8_t block[64];
};
void sha1_init(struct sha1 *h);
void sha1_add(struct sha1 *h, const void *bytes, size_t n);
void sha1_end(struct sha1 *h, uint8_t digest[20]);

#endif
