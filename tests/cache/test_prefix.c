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
    for (int i = 0; i < 2; i++) prefix_unpin(&t, b, 0);
    for (int i = 0; i < 3; i++) prefix_unpin(&t, a, 0);
    CHECK_INT(t.idle_pages, 2);
    CHECK(prefix_make_room(&t, 7)); /* the leaf goes first */
    CHECK_INT(prefix_match(&t, 1, tokens, 12, nodes, 8), 1);
    prefix_unpin(&t, nodes[0], 0);
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
    prefix_pass(&t, chain[0], 1);
    prefix_pass(&t, chain[1], 1);
    CHECK_INT(prefix_probe(&t, 0, tokens, 16, nodes, 8, &idle), 4);
    prefix_pass(&t, chain[2], 1);
    CHECK_INT(prefix_probe(&t, 0, tokens, 16, nodes, 8, &idle), 0); /* 3, 2 and 1 blocks would miss pages as well */
    prefix_close(&t);
    kv_pages_close(&pages);
}

/* Two who share a prefix: its window's pages go when the second has passed them, not before; who left without passing leaves them there. */
TEST(shared_windows_are_given_up_by_the_last)
{
    struct kv_pages pages;
    struct prefix t;
    int32_t windows[2] = {0, 4}, tokens[4] = {1, 2, 3, 4}, nodes[2];
    CHECK_OK(kv_pages_open(&pages, 8, &err), err);
    CHECK_OK(prefix_open(&t, &pages, 4, 2, windows, 4, &err), err);
    int32_t p[2] = {kv_pages_alloc(&pages), kv_pages_alloc(&pages)};
    int32_t a = prefix_insert(&t, 0, PREFIX_NONE, tokens, p);
    for (int g = 0; g < 2; g++) kv_pages_release(&pages, p[g]); /* the tree alone owns them */
    CHECK_INT(prefix_match(&t, 0, tokens, 4, nodes, 2), 1);
    prefix_pass(&t, a, 1);
    CHECK_INT(t.nodes[a].page[1], p[1]);
    CHECK_INT(pages.free_count, 6);
    prefix_pass(&t, a, 1);
    CHECK_INT(t.nodes[a].page[1], -1);
    CHECK_INT(pages.free_count, 7);
    prefix_unpin(&t, a, 2);
    prefix_unpin(&t, a, 2);
    CHECK_INT(t.nodes[a].passed[1], 0);
    CHECK_INT(t.idle_pages, 1);
    /* The one that stays passes, the other had left before: the page may be wanted again. */
    tokens[0] = 9;
    for (int g = 0; g < 2; g++) p[g] = kv_pages_alloc(&pages);
    a = prefix_insert(&t, 0, PREFIX_NONE, tokens, p);
    for (int g = 0; g < 2; g++) kv_pages_release(&pages, p[g]);
    CHECK_INT(prefix_match(&t, 0, tokens, 4, nodes, 2), 1);
    prefix_pass(&t, a, 1);
    prefix_unpin(&t, a, 0);
    CHECK_INT(t.nodes[a].page[1], p[1]);
    prefix_unpin(&t, a, 2);
    CHECK_INT(t.idle_pages, 3);
    CHECK(prefix_make_room(&t, 8));
    prefix_close(&t);
    kv_pages_close(&pages);
}

/* Random readers of common prefixes whose windows move on: pages are conserved, and none is kept for a block that all its readers have passed. */
TEST(random_windows)
{
    enum { PAGES = 160, BLOCK = 2, BLOCKS = 8, USERS = 5, WINDOW = 3 };
    struct kv_pages pages;
    struct prefix t;
    int32_t windows[2] = {0, WINDOW};
    struct { int32_t node[BLOCKS], tokens[BLOCKS * BLOCK], nodes, behind; } u[USERS] = {0};
    CHECK_OK(kv_pages_open(&pages, PAGES, &err), err);
    CHECK_OK(prefix_open(&t, &pages, BLOCK, 2, windows, PAGES / 2, &err), err);
    for (int round = 0; round < 100000 && !test_failures_; round++) {
        int i = (int)rnd(USERS), act = (int)rnd(8);
        if (act == 0 || u[i].nodes == BLOCKS) { /* leave */
            for (; u[i].nodes; u[i].nodes--) prefix_unpin(&t, u[i].node[u[i].nodes - 1], u[i].nodes - 1 < u[i].behind ? 2 : 0);
            u[i].behind = 0;
            for (int k = 0; k < BLOCKS * BLOCK; k++) u[i].tokens[k] = (int32_t)rnd(4) == 0; /* mostly alike */
            u[i].nodes = prefix_match(&t, 0, u[i].tokens, BLOCKS * BLOCK - 1, u[i].node, BLOCKS);
        } else { /* another block */
            int32_t b = u[i].nodes, p[2];
            CHECK(prefix_make_room(&t, 2));
            for (int g = 0; g < 2; g++) p[g] = kv_pages_alloc(&pages);
            u[i].node[b] = prefix_insert(&t, 0, b ? u[i].node[b - 1] : PREFIX_NONE, u[i].tokens + b * BLOCK, p);
            CHECK(u[i].node[b] >= 0);
            u[i].nodes++;
            for (int g = 0; g < 2; g++) kv_pages_release(&pages, p[g]);
        }
        int32_t passed = (u[i].nodes * BLOCK - WINDOW + 1) / BLOCK;
        for (; u[i].behind < passed; u[i].behind++) prefix_pass(&t, u[i].node[u[i].behind], 1);
        int32_t held = 0;
        for (int32_t n = 0; n < t.capacity; n++)
            if (t.nodes[n].used) {
                held += (t.nodes[n].page[0] >= 0) + (t.nodes[n].page[1] >= 0);
                CHECK(t.nodes[n].passed[1] <= t.nodes[n].pins);
            }
        CHECK_INT(held + pages.free_count, PAGES);
        for (int k = 0; k < USERS; k++)
            for (int32_t b = 0; b < u[k].nodes; b++) {
                int32_t readers = 0, through = 0;
                for (int j = 0; j < USERS; j++)
                    if (b < u[j].nodes && u[j].node[b] == u[k].node[b]) readers++, through += b < u[j].behind;
                CHECK_INT(t.nodes[u[k].node[b]].pins, readers);
                CHECK_INT(t.nodes[u[k].node[b]].passed[1], through);
            }
    }
    for (int i = 0; i < USERS; i++)
        for (; u[i].nodes; u[i].nodes--) prefix_unpin(&t, u[i].node[u[i].nodes - 1], u[i].nodes - 1 < u[i].behind ? 2 : 0);
    CHECK_INT(t.idle_pages, PAGES - pages.free_count);
    CHECK(prefix_make_room(&t, PAGES));
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
            while (u[i].nodes) prefix_unpin(&t, u[i].node[--u[i].nodes], 0);
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
        while (u[i].nodes) prefix_unpin(&t, u[i].node[--u[i].nodes], 0);
    }
    CHECK_INT(t.idle_pages, PAGES - pages.free_count);
    CHECK(prefix_make_room(&t, PAGES));
    CHECK_INT(pages.free_count, PAGES);
    prefix_close(&t);
    kv_pages_close(&pages);
}

TEST_MAIN(CASE(finds_what_was_put), CASE(windows_decide_what_is_usable), CASE(random_use), CASE(shared_windows_are_given_up_by_the_last), CASE(random_windows))
