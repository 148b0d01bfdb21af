#include "tokenizer/internal.h"

static inline uint64_t load(const char *p, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}

/* Tokens are short: two overlapping loads cover up to 16 bytes. */
uint32_t vocab_hash(const char *p, size_t n)
{
    const uint64_t k = 0x9E3779B97F4A7C15ull;
    uint64_t h = n * k;
    while (n > 16) {
        h = (h ^ load(p, 8)) * k;
        h ^= h >> 29;
        p += 8, n -= 8;
    }
    uint64_t a, b;
    if (n >= 8)
        a = load(p, 8), b = load(p + n - 8, 8);
    else if (n >= 4)
        a = load(p, 4), b = load(p + n - 4, 4);
    else
        a = n ? (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 : 0, b = n ? (uint8_t)p[n - 1] : 0;
    h = (h ^ a) * k;
    h ^= h >> 32;
    h = (h ^ b) * k;
    return (uint32_t)(h >> 32);
}

/* Slots for count entries at a load of at most three quarters. */
static size_t slot_count(size_t count)
{
    size_t slots = 16;
    while (slots / 4 * 3 < count) slots *= 2;
    return slots;
}

bool vocab_init(struct vocab *v, struct arena *arena, size_t size, size_t count)
{
    if (count > 1u << 29 || size > 1u << 29) return false;
    size_t slots = slot_count(count);
    v->tokens = ARENA_ARRAY(arena, struct str, size + 1);
    v->slots = arena_alloc(arena, slots * sizeof *v->slots);
    if (!v->tokens || !v->slots) return false;
    memset(v->slots, 0xFF, slots * sizeof *v->slots);
    v->size = size;
    v->mask = (uint32_t)slots - 1;
    return true;
}

void vocab_put(struct vocab *v, struct str text, uint32_t id)
{
    uint32_t hash = vocab_hash(text.p, text.n);
    for (uint32_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        struct vocab_slot *s = &v->slots[i];
        if (s->id == TOKEN_NONE || (s->hash == hash && str_eq(v->tokens[s->id], text))) {
            *s = (struct vocab_slot){hash, id};
            v->tokens[id] = text;
            return;
        }
    }
}

uint32_t vocab_get(const struct vocab *v, const char *p, size_t n)
{
    uint32_t hash = vocab_hash(p, n);
    for (uint32_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        const struct vocab_slot *s = &v->slots[i];
        if (s->id == TOKEN_NONE) return TOKEN_NONE;
        if (s->hash == hash && v->tokens[s->id].n == n && !memcmp(v->tokens[s->id].p, p, n)) return s->id;
    }
}

bool pairs_init(struct pairs *p, struct arena *arena, size_t count)
{
    if (count > 1u << 28) return false;
    size_t slots = slot_count(count);
    p->slots = arena_alloc(arena, slots * sizeof *p->slots);
    if (!p->slots) return false;
    memset(p->slots, 0xFF, slots * sizeof *p->slots);
    p->mask = (uint32_t)slots - 1;
    return true;
}

void pairs_put(struct pairs *p, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    for (uint32_t i = pairs_hash(left, right) & p->mask;; i = (i + 1) & p->mask) {
        struct pair_slot *s = &p->slots[i];
        if (s->left == TOKEN_NONE || (s->left == left && s->right == right)) {
            *s = (struct pair_slot){left, right, rank, id};
            return;
        }
    }
}
