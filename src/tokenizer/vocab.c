#include "tokenizer/internal.h"

static inline uint64_t load(const char *p, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}

/* Tokens are short: two overlapping loads cover up to 16 bytes. Both words are multiplied with carry into the
 * upper half. */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    __uint128_t m = (__uint128_t)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15ull, a, b;
    for (; n > 16; p += 8, n -= 8) h = fold(h ^ load(p, 8) ^ 0xA0761D6478BD642Full, 0xE7037ED1A0B428DBull);
    if (n >= 8)
        a = load(p, 8), b = load(p + n - 8, 8);
    else if (n >= 4)
        a = load(p, 4), b = load(p + n - 4, 4);
    else
        a = n ? (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 : 0, b = n ? (uint8_t)p[n - 1] : 0;
    return fold(a ^ h ^ 0x8EBC6AF09C88C6E3ull, b ^ 0x589965CC75374CC3ull ^ h << 7);
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
    uint64_t hash = hash_of(text.p, text.n);
    for (uint32_t i = (uint32_t)hash & v->mask;; i = (i + 1) & v->mask) {
        struct vocab_slot *s = &v->slots[i];
        if (s->id == TOKEN_NONE || (s->hash == hash && str_eq(v->tokens[s->id], text))) {
            *s = (struct vocab_slot){hash, id, (uint32_t)text.n};
            v->tokens[id] = text;
            return;
        }
    }
}

uint32_t vocab_get(const struct vocab *v, const char *p, size_t n)
{
    uint64_t hash = hash_of(p, n);
    for (uint32_t i = (uint32_t)hash & v->mask;; i = (i + 1) & v->mask) {
        const struct vocab_slot *s = &v->slots[i];
        if (s->id == TOKEN_NONE) return TOKEN_NONE;
        if (s->hash == hash && v->tokens[s->id].n == n && !memcmp(v->tokens[s->id].p, p, n)) return s->id;
    }
}

uint32_t vocab_get_listed(const struct vocab *v, const char *p, size_t n)
{
    uint64_t hash = hash_of(p, n);
    for (uint32_t i = (uint32_t)hash & v->mask;; i = (i + 1) & v->mask) {
        const struct vocab_slot *s = &v->slots[i];
        if (s->id == TOKEN_NONE || (s->hash == hash && s->length == n)) return s->id;
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
