/* A roofline picture (Williams, Waterman and Patterson 2009): operations a second over operations a byte, both logarithmic, below the slope
 * of the memory and the flat of the tensor cores. One file without scripts or fonts of its own; light and dark. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/commands.h"

enum { WIDTH = 760, HEIGHT = 460, LEFT = 76, RIGHT = 24, TOP = 44, BOTTOM = 56 };

struct axes {
    double x0, x1, y0, y1; /* powers of ten */
};

static double num(const struct json *j, const char *key) { return json_num(json_get(j, key), 0); }
static double at_x(const struct axes *a, double v) { return LEFT + (log10(v) - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT); }
static double at_y(const struct axes *a, double v) { return HEIGHT - BOTTOM - (log10(v) - a->y0) / (a->y1 - a->y0) * (HEIGHT - TOP - BOTTOM); }

static void text(struct strbuf *b, double x, double y, const char *anchor, const char *style, const char *words)
{
    strbuf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y, anchor, style, words);
}

static struct axes range(const struct json *root)
{
    const struct json *results = json_get(root, "results");
    double x0 = 1e9, x1 = 1e-9, y0 = 1e18, y1 = 1, tensor = num(root, "tensor_rate"), bandwidth = num(root, "bandwidth");
    for (uint32_t i = 0; i < results->count; i++) {
        const struct json *r = json_at(results, i);
        double x = num(r, "bytes") > 0 ? num(r, "ops") / num(r, "bytes") : 0, us = num(r, "us") > 0 ? num(r, "us") : num(r, "predicted_us");
        if (x <= 0 || us <= 0) continue;
        x0 = fmin(x0, x), x1 = fmax(x1, x);
        y0 = fmin(y0, num(r, "ops") / us * 1e6), y1 = fmax(y1, num(r, "ops") / us * 1e6);
    }
    if (x0 > x1) x0 = 0.1, x1 = 10, y0 = 1e9, y1 = 1e12; /* nothing to show */
    if (tensor > 0) x1 = fmax(x1, 2 * tensor / bandwidth), y1 = fmax(y1, tensor);
    y1 = fmax(y1, x1 * bandwidth < tensor || tensor <= 0 ? x1 * bandwidth : tensor);
    struct axes a = {floor(log10(x0)), ceil(log10(x1)), floor(log10(y0)), ceil(log10(y1))};
    if (a.x1 <= a.x0) a.x1 = a.x0 + 1;
    if (a.y1 <= a.y0) a.y1 = a.y0 + 1;
    return a;
}

static void grid(const struct axes *a, struct strbuf *b)
{
    char label[32];
    for (double e = a->x0; e <= a->x1; e++) {
        double x = at_x(a, pow(10, e));
        strbuf_printf(b, "<path class=\"grid\" d=\"M%.1f %d V%d\"/>\n", x, TOP, HEIGHT - BOTTOM);
        snprintf(label, sizeof label, "%g", pow(10, e));
        text(b, x, HEIGHT - BOTTOM + 18, "middle", "small", label);
    }
    for (double e = a->y0; e <= a->y1; e++) {
        static const char *const units[] = {"", "k", "M", "G", "T", "P"};
        int unit = e < 0 ? 0 : (int)fmin(5, floor(e / 3));
        double y = at_y(a, pow(10, e));
        strbuf_printf(b, "<path class=\"grid\" d=\"M%d %.1f H%d\"/>\n", LEFT, y, WIDTH - RIGHT);
        snprintf(label, sizeof label, "%g%s", pow(10, e - 3 * unit), units[unit]);
        text(b, LEFT - 8, y + 4, "end", "small", label);
    }
    text(b, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14, "middle", "small", "operations a byte");
    text(b, LEFT - 52, TOP - 12, "start", "small", "operations/s");
}

static void roofs(const struct json *root, const struct axes *a, struct strbuf *b)
{
    double bandwidth = num(root, "bandwidth"), tensor = num(root, "tensor_rate"), x0 = pow(10, a->x0), x1 = pow(10, a->x1);
    char label[96];
    double knee = tensor > 0 ? fmin(x1, tensor / bandwidth) : x1, from = fmax(x0, pow(10, a->y0) / bandwidth);
    if (from < knee) {
        strbuf_printf(b, "<path class=\"roof\" d=\"M%.1f %.1f L%.1f %.1f\"/>\n", at_x(a, from), at_y(a, from * bandwidth), at_x(a, knee), at_y(a, knee * bandwidth));
        snprintf(label, sizeof label, "memory %.0f GB/s", bandwidth * 1e-9);
        double middle = sqrt(from * knee);
        text(b, at_x(a, middle) - 8, at_y(a, middle * bandwidth) - 8, "end", "small", label);
    }
    if (tensor > 0 && knee < x1) {
        strbuf_printf(b, "<path class=\"roof\" d=\"M%.1f %.1f H%d\"/>\n", at_x(a, knee), at_y(a, tensor), WIDTH - RIGHT);
        snprintf(label, sizeof label, "tensor cores %.0f Tops/s", tensor * 1e-12);
        text(b, WIDTH - RIGHT - 4, at_y(a, tensor) - 8, "end", "small", label);
    }
}

/* A point, its case in a tooltip and, for a few cases, its first number beside it. Hollow: predicted. */
static void point(const struct json *root, const struct json *r, const struct axes *a, bool labelled, struct strbuf *b)
{
    const struct json *numbers = json_get(root, "numbers");
    double x = num(r, "bytes") > 0 ? num(r, "ops") / num(r, "bytes") : 0, us = num(r, "us"), predicted = num(r, "predicted_us");
    bool measured = us > 0;
    if (!measured) us = predicted;
    if (x <= 0 || us <= 0) return;
    double px = at_x(a, x), py = at_y(a, num(r, "ops") / us * 1e6);
    strbuf_printf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"><title>", measured ? "point" : "plan", px, py);
    for (uint32_t i = 0; i < numbers->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", STR_ARG(json_str(json_at(numbers, i), "")));
        strbuf_printf(b, "%s=%lld ", key, (long long)json_int(json_get(r, key), 0));
    }
    strbuf_printf(b, "%.2f us%s, %.0f%% of the limit</title></circle>\n", us, measured ? "" : " predicted", 100 * num(r, "limit_us") / us);
    if (!labelled) return;
    char key[64], label[80];
    snprintf(key, sizeof key, "%.*s", STR_ARG(json_str(json_at(numbers, 0), "")));
    snprintf(label, sizeof label, "%lld", (long long)json_int(json_get(r, key), 0));
    text(b, px + 8, py + 4, "start", "small", label);
}

/* What a file's text may hold, in XML. */
static void escaped(struct strbuf *b, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '<') strbuf_adds(b, "&lt;");
        else if (s.p[i] == '&') strbuf_adds(b, "&amp;");
        else strbuf_addc(b, s.p[i]);
    }
}

void cli_roofline(const struct json *root, struct strbuf *b)
{
    const struct json *results = json_get(root, "results"), *numbers = json_get(root, "numbers");
    struct axes a = range(root);
    strbuf_printf(b,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"system-ui, sans-serif\">\n"
                  "<style>.page{fill:#fff}.grid{stroke:#ddd;fill:none}.roof{stroke:#a02040;stroke-width:2;fill:none}.point{fill:#2060a0}.plan{fill:none;stroke:#2060a0;stroke-width:1.5}"
                  "text{fill:#222}.small{font-size:12px}.head{font-size:15px;font-weight:600}"
                  "@media (prefers-color-scheme: dark){.page{fill:#16181c}.grid{stroke:#333}.roof{stroke:#e06080}.point{fill:#70b0f0}.plan{stroke:#70b0f0}text{fill:#ddd}}</style>\n"
                  "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<text x=\"%d\" y=\"22\" class=\"head\">",
                  WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    escaped(b, json_str(json_get(root, "op"), ""));
    strbuf_adds(b, " on ");
    escaped(b, json_str(json_get(root, "device"), ""));
    strbuf_adds(b, ", by ");
    escaped(b, numbers->count ? json_str(json_at(numbers, 0), "") : STR(""));
    strbuf_adds(b, "</text>\n");
    grid(&a, b);
    roofs(root, &a, b);
    for (uint32_t i = 0; i < results->count; i++) point(root, json_at(results, i), &a, results->count <= 40, b);
    strbuf_adds(b, "</svg>\n");
}
