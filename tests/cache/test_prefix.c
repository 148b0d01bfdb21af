/* The prefix tree against a model of it: shares, pins, eviction, windows. */
#include "cache/prefix.h"
#include "test.h"

static struct rose_error err;
static uint64_t state = 7;
static uint32_t rnd(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

TEST(finds_what_was_put)
{
    struct kv_pages pages;
    struct prefix t;
    int32_t windows[1] = {0}, nodes[8], tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    CHECK_OK(kv_pages_open(&pages, 8, &err), err);
    CHECK_OK(prefix_open(&t, &pages, 4, 1, windows, 8, &err), err);
    int32_t p0 = kv_pages_alloc(&pages), p1 = kv_pages_alloc(&pages);
    int32_t a = prefix_insert(&t, 1, PREFIX_NONE, tokens, &p0), b = prefix_insert(&t, 1, a, tokens + 4, &p1);
    CHECK(a >= 0 && b >= 0 && a != b);
    CHECK_INT(prefix_match(&t, 1, tokens, 12, nodes, 8), 2);
    CHECK(nodes[0] == a && nodes[1] == b);
    CHECK_INT(prefix_match(&t, 2, tokens, 12, nodes, 8), 0); /* another salt */
    CHECK_INT(prefix_match(&t, 1, tokens, 7, nodes, 8), 1);  /* whole blocks only */
    CHECK_INT(prefix_match(&t, 1, tokens + 4, 8, nodes, 8), 0); /* the second block is no first one */
    /* Owned by us and the tree; ours go, the tree's stay. */
    kv_pages_release(&pages, p0);
    kv_pages_release(&pages, p1);
    CHECK_INT(pages.free_count, 6);
    CHECK(!prefix_make_room(&t, 7)); /* everything is pinned */
    for (int i = 0; i < 2; i++) prefix_unpin(&t, b);
    for (int i = 0; i < 3; i++) prefix_unpin(&t, a);
    CHECK_INT(t.idle_pages, 2);
    CHECK(prefix_make_room(&t, 7)); /* the leaf goes first */
    CHECK_INT(prefix_match(&t, 1, tokens, 12, nodes, 8), 1);
    prefix_unpin(&t, nodes[0]);
    CHECK(prefix_make_room(&t, 8));
    CHECK_INT(t.count, 0);
    prefix_close(&t);
    kv_pages_close(&pages);
}

TEST(windows_decide_what_is_usable)
{
    struct kv_pages pages;
    struct prefix t;
    int32_t windows[2] = {0, 6}, nodes[8], tokens[16], chain[4], parent = PREFIX_NONE, idle;
    for (int i = 0; i < 16; i++) tokens[i] = i;
    CHECK_OK(kv_pages_open(&pages, 16, &err), err);
    CHECK_OK(prefix_open(&t, &pages, 4, 2, windows, 8, &err), err);
    for (int b = 0; b < 4; b++) {
        int32_t p[2] = {kv_pages_alloc(&pages), kv_pages_alloc(&pages)};
        parent = chain[b] = prefix_insert(&t, 0, parent, tokens + 4 * b, p);
    }
    CHECK_INT(prefix_probe(&t, 0, tokens, 16, nodes, 8, &idle), 4);
    /* Behind 16 tokens a window of 6 sees positions 11 to 15: blocks 2 and 3. */
    prefix_drop_page(&t, chain[0], 1);
    prefix_drop_page(&t, chain[1], 1);
    CHECK_INT(prefix_probe(&t, 0, tokens, 16, nodes, 8, &idle), 4);
    prefix_drop_page(&t, chain[2], 1);
    CHECK_INT(prefix_probe(&t, 0, tokens, 16, nodes, 8, &idle), 0); /* 3, 2 and 1 blocks would miss pages as well */
    prefix_close(&t);
    kv_pages_close(&pages);
}

/* Random prompts over a tiny alphabet; every matched block's page must hold exactly the block's tokens. */
TEST(random_use)
{
    enum { PAGES = 40, BLOCK = 2, LONGEST = 12, USERS = 4 };
    struct kv_pages pages;
    struct prefix t;
    int32_t windows[1] = {0}, content[PAGES][BLOCK];
    struct { int32_t tokens[LONGEST], count, blocks, page[LONGEST], node[LONGEST], nodes; } u[USERS] = {0};
    CHECK_OK(kv_pages_open(&pages, PAGES, &err), err);
    CHECK_OK(prefix_open(&t, &pages, BLOCK, 1, windows, PAGES, &err), err);
    for (int round = 0; round < 200000; round++) {
        int i = (int)rnd(USERS);
        if (u[i].count) { /* leave */
            for (int32_t b = 0; b < u[i].blocks; b++) kv_pages_release(&pages, u[i].page[b]);
            while (u[i].nodes) prefix_unpin(&t, u[i].node[--u[i].nodes]);
            u[i].count = u[i].blocks = 0;
            continue;
        }
        u[i].count = 1 + (int32_t)rnd(LONGEST);
        for (int32_t k = 0; k < u[i].count; k++) u[i].tokens[k] = (int32_t)rnd(2);
        u[i].nodes = prefix_match(&t, 0, u[i].tokens, u[i].count, u[i].node, LONGEST);
        for (int32_t b = 0; b < u[i].nodes; b++) {
            int32_t page = t.nodes[u[i].node[b]].page[0];
            kv_pages_share(&pages, page);
            u[i].page[u[i].blocks++] = page;
            CHECK(content[page][0] == u[i].tokens[b * BLOCK] && content[page][1] == u[i].tokens[b * BLOCK + 1]);
        }
        for (int32_t b = u[i].blocks; (b + 1) * BLOCK <= u[i].count; b++) {
            CHECK(prefix_make_room(&t, 1)); /* 40 pages are enough for 4 users */
            int32_t page = kv_pages_alloc(&pages);
            memcpy(content[page], u[i].tokens + b * BLOCK, sizeof content[page]);
            u[i].page[u[i].blocks++] = page;
            int32_t node = prefix_insert(&t, 0, b ? u[i].node[b - 1] : PREFIX_NONE, u[i].tokens + b * BLOCK, &page);
            CHECK(node >= 0);
            u[i].node[u[i].nodes++] = node;
        }
        if (test_failures_) return;
    }
    for (int i = 0; i < USERS; i++) {
        for (int32_t b = 0; b < u[i].blocks; b++) kv_pages_release(&pages, u[i].page[b]);
        while (u[i].nodes) prefix_unpin(&t, u[i].node[--u[i].nodes]);
    }
    CHECK_INT(t.idle_pages, PAGES - pages.free_count);
    CHECK(prefix_make_room(&t, PAGES));
    CHECK_INT(pages.free_count, PAGES);
    prefix_close(&t);
    kv_pages_close(&pages);
}

TEST_MAIN(CASE(finds_what_was_put), CASE(windows_decide_what_is_usable), CASE(random_use))
