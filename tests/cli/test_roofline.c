/* The roofline picture: a point a case, inside the frame, roofs where they belong, names escaped. */
#include <math.h>

#include "base/json.h"
#include "cli/commands.h"
#include "test.h"

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
    return n;
}

static char *draw(const char *json)
{
    struct arena a;
    struct rose_error err;
    const struct json *root = NULL;
    struct strbuf b = {0};
    arena_init(&a, 0);
    CHECK_OK(json_parse(&a, "test", str_of(json), &root, &err), err);
    cli_roofline(root, &b);
    arena_free(&a);
    CHECK(b.p && !strstr(b.p, "nan") && !strstr(b.p, "inf"));
    return b.p;
}

TEST(measured_and_planned)
{
    char *svg = draw("{\"op\":\"norm\",\"device\":\"A <B> & C\",\"bandwidth\":4e12,\"tensor_rate\":9e14,\"numbers\":[\"rows\",\"cols\"],\"results\":["
                     "{\"rows\":1,\"cols\":64,\"bytes\":1e6,\"ops\":2.5e5,\"limit_us\":0.25,\"predicted_us\":1,\"us\":0.5},"
                     "{\"rows\":16,\"cols\":64,\"bytes\":1e6,\"ops\":1e9,\"limit_us\":1.2,\"predicted_us\":3}]}");
    CHECK_INT(count(svg, "<circle"), 2);
    CHECK_INT(count(svg, "class=\"point\""), 1);
    CHECK_INT(count(svg, "class=\"plan\""), 1);
    CHECK_INT(count(svg, "class=\"roof\""), 2);
    CHECK(strstr(svg, "norm on A &lt;B> &amp; C, by rows") != NULL);
    CHECK(strstr(svg, "rows=16 cols=64 3.00 us predicted, 40% of the limit") != NULL);
    CHECK(strstr(svg, "memory 4000 GB/s") && strstr(svg, "tensor cores 900 Tops/s"));
    for (const char *p = svg; (p = strstr(p, "<circle")); p++) {
        double x = 0, y = 0;
        CHECK_INT(sscanf(strstr(p, "cx="), "cx=\"%lf\" cy=\"%lf\"", &x, &y), 2);
        CHECK(x >= 70 && x <= 740 && y >= 40 && y <= 410);
    }
    free(svg);
}

TEST(nothing_to_show)
{
    char *svg = draw("{\"op\":\"x\",\"device\":\"y\",\"bandwidth\":1e10,\"tensor_rate\":0,\"numbers\":[\"rows\"],\"results\":[]}");
    CHECK_INT(count(svg, "<circle"), 0);
    CHECK_INT(count(svg, "class=\"roof\""), 1);
    CHECK(strstr(svg, "</svg>") != NULL);
    free(svg);
}

TEST_MAIN(CASE(measured_and_planned), CASE(nothing_to_show))
