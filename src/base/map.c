#include "base/map.h"

#include <stdlib.h>

#include "base/hash.h"

static uint32_t key_hash(struct str key) { return (uint32_t)hash_bytes(key.p, key.n, 0); }

static struct map_slot *find(const struct map *m, struct str key, uint32_t hash)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->key.p || (s->hash == hash && str_eq(s->key, key))) return s;
    }
}

bool map_reserve(struct map *m, size_t n)
{
    size_t cap = 16;
    while (cap / 4 * 3 < n) {
        if (cap > SIZE_MAX / 4) return false;
        cap *= 2;
    }
    if (cap <= m->cap) return true;
    struct map bigger = {calloc(cap, sizeof *bigger.slots), cap, m->count};
    if (!bigger.slots) return false;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key.p) *find(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    free(m->slots);
    *m = bigger;
    return true;
}

bool map_put(struct map *m, struct str key, uint32_t value)
{
    if (!map_reserve(m, m->count + 1)) return false;
    uint32_t hash = key_hash(key);
    struct map_slot *s = find(m, key, hash);
    if (!s->key.p) m->count++;
    *s = (struct map_slot){key, hash, value};
    return true;
}

bool map_get(const struct map *m, struct str key, uint32_t *value)
{
    if (!m->cap) return false;
    const struct map_slot *s = find(m, key, key_hash(key));
    if (!s->key.p) return false;
    *value = s->value;
    return true;
}

void map_free(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}
