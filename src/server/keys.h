/* API keys: kept and compared as SHA-256 digests, all of them every time, so that the time taken tells nothing about a key. */
#ifndef ROSE_SERVER_KEYS_H
#define ROSE_SERVER_KEYS_H

#include "base/status.h"
#include "base/str.h"

struct keys {
    uint8_t (*digests)[32];
    size_t count;
};
/* One key a line; empty lines and lines that begin with # are skipped. A file without keys is an error. */
enum rose_status keys_read(struct keys *keys, const char *path, struct rose_error *err);
void keys_free(struct keys *keys);
bool keys_match(const struct keys *keys, struct str key);

#endif
