/* Hashes: a fast 64-bit one for tables and prefix keys (not against adversaries who know the seed), SHA-256 for files. */
#ifndef ROSE_BASE_HASH_H
#define ROSE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* 64-bit hash of bytes, after wyhash's construction (two 64x64->128 multiplications a 16-byte step). */
uint64_t hash_bytes(const void *bytes, size_t n, uint64_t seed);
/* Mixes one word into a hash. */
uint64_t hash_mix(uint64_t a, uint64_t b);

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};
/* FIPS 180-4. */
void sha256_init(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *bytes, size_t n);
void sha256_end(struct sha256 *h, uint8_t digest[32]);
/* Lower-case hexadecimal of the digest, NUL-terminated. */
void sha256_hex(const uint8_t digest[32], char out[65]);

#endif
