/* Content codings: what comes out is what went in, bounds hold, broken streams are refused. */
#include "server/coding.h"
#include "test.h"

/* zlib's own output for "hello hello hello hello\n" * 2, made by Python (gzip.compress with mtime 0, zlib.compress, raw deflate). */
static const unsigned char gz[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x27, 0xb9, 0x32, 0x70, 0x88, 0x03, 0x00, 0x95, 0x59, 0x4a, 0x93, 0x30, 0x00, 0x00, 0x00};
static const char text[] = "hello hello hello hello\nhello hello hello hello\n";

static void fill(struct strbuf *b, const void *p, size_t n, size_t limit)
{
    strbuf_free(b);
    *b = (struct strbuf){.limit = limit};
    strbuf_add(b, p, n);
}

TEST(names)
{
    CHECK_INT(coding_find(NULL), CODING_IDENTITY);
    CHECK_INT(coding_find("Identity"), CODING_IDENTITY);
    CHECK_INT(coding_find(" gzip "), CODING_GZIP);
    CHECK_INT(coding_find("x-gzip"), CODING_GZIP);
    CHECK_INT(coding_find("deflate"), CODING_DEFLATE);
    CHECK_INT(coding_find("br"), CODING_UNKNOWN);
    CHECK_INT(coding_find("gzip, gzip"), CODING_UNKNOWN);
    CHECK_INT(coding_accepted(NULL), CODING_IDENTITY);
    CHECK_INT(coding_accepted("gzip"), CODING_GZIP);
    CHECK_INT(coding_accepted("br, deflate;q=0.5, gzip;q=0.25"), CODING_DEFLATE);
    CHECK_INT(coding_accepted("deflate; q=0.2,gzip ; q=0.201"), CODING_GZIP);
    CHECK_INT(coding_accepted("gzip;q=0"), CODING_IDENTITY);
    CHECK_INT(coding_accepted("gzip;q=0.5, identity"), CODING_IDENTITY);
    CHECK_INT(coding_accepted("gzip;q=nonsense, *"), CODING_IDENTITY);
    CHECK_INT(coding_accepted(",,;,"), CODING_IDENTITY);
}

TEST(there_and_back)
{
    struct strbuf b = {0};
    enum coding codings[] = {CODING_GZIP, CODING_DEFLATE};
    char *big = malloc(1000003);
    for (size_t i = 0; i < 1000003; i++) big[i] = (char)(i * i >> 7);
    for (int k = 0; k < 2; k++) {
        fill(&b, big, 1000003, 0);
        CHECK(coding_encode(codings[k], &b));
        CHECK(b.n < 1000003);
        b.limit = 1000003; /* the limit itself fits */
        CHECK_INT(coding_decode(codings[k], &b), CODING_OK);
        CHECK(b.n == 1000003 && !memcmp(b.p, big, b.n));
        CHECK_INT(b.limit, 1000003);
        fill(&b, big, 1000003, 0);
        CHECK(coding_encode(codings[k], &b));
        size_t n = b.n;
        b.limit = 1000002;
        CHECK_INT(coding_decode(codings[k], &b), CODING_TOO_LARGE);
        CHECK_INT(b.n, n); /* as it was */
    }
    CHECK(!coding_encode(CODING_IDENTITY, &b));
    fill(&b, "", 0, 10);
    CHECK_INT(coding_decode(CODING_IDENTITY, &b), CODING_OK);
    strbuf_free(&b);
    free(big);
}

TEST(foreign_streams)
{
    struct strbuf b = {0}, two = {0};
    fill(&b, gz, sizeof gz, 48);
    CHECK_INT(coding_decode(CODING_GZIP, &b), CODING_OK);
    CHECK(b.n == 48 && !memcmp(b.p, text, 48));
    strbuf_add(&two, gz, sizeof gz); /* two members are one text */
    strbuf_add(&two, gz, sizeof gz);
    CHECK_INT(coding_decode(CODING_GZIP, &two), CODING_OK);
    CHECK(two.n == 96 && !memcmp(two.p + 48, text, 48));
    fill(&b, gz + 10, sizeof gz - 18, 48); /* deflate without its wrapper */
    CHECK_INT(coding_decode(CODING_DEFLATE, &b), CODING_OK);
    CHECK(b.n == 48 && !memcmp(b.p, text, 48));
    fill(&b, gz, sizeof gz, 0);
    CHECK_INT(coding_decode(CODING_DEFLATE, &b), CODING_WRONG);
    for (size_t n = 0; n < sizeof gz; n++) { /* cut off anywhere */
        fill(&b, gz, n, 0);
        CHECK_INT(coding_decode(CODING_GZIP, &b), CODING_WRONG);
    }
    fill(&b, gz, sizeof gz, 0);
    b.p[12] ^= 1; /* the checksum tells */
    CHECK_INT(coding_decode(CODING_GZIP, &b), CODING_WRONG);
    fill(&b, gz, sizeof gz, 0);
    strbuf_adds(&b, "rest");
    CHECK_INT(coding_decode(CODING_GZIP, &b), CODING_WRONG);
    strbuf_free(&b);
    strbuf_free(&two);
}

/* A thousandfold body is given up at the limit. */
TEST(bombs)
{
    struct strbuf b = {0};
    char *zeros = calloc(1, (size_t)64 << 20);
    strbuf_add(&b, zeros, (size_t)64 << 20);
    CHECK(coding_encode(CODING_GZIP, &b));
    CHECK(b.n < 1 << 20);
    b.limit = 1 << 20;
    CHECK_INT(coding_decode(CODING_GZIP, &b), CODING_TOO_LARGE);
    strbuf_free(&b);
    free(zeros);
}

TEST_MAIN(CASE(names), CASE(there_and_back), CASE(foreign_streams), CASE(bombs))
