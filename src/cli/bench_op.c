/* rose bench OP: single ops over shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"

static struct {
    struct option_list shapes;
    const char *arch, *csv, *svg, *weights;
    double seconds;
    bool json;
} o;

static const struct option options[] = {
    {"shape", 's', OPTION_LIST, NULL, "NAME=N,...", NULL, NULL, 0, 0, "values of one of the op's numbers; once for each number, every combination is measured", &o.shapes},
    {"seconds", 0, OPTION_NUMBER, NULL, "S", NULL, "0.3", 0.001, 60, "for each case", &o.seconds},
    {"weights", 0, OPTION_TEXT, NULL, "TYPE", NULL, NULL, 0, 0, "matmul, moe: what the matrices are stored as: bf16 (unless given), or a block format of GGUF such as q4_k", &o.weights},
    {"arch", 0, OPTION_TEXT, NULL, "ARCH", NULL, NULL, 0, 0, "no measurement: what is planned for sm_80, sm_89, sm_90a, sm_100a or sm_120a", &o.arch},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object", &o.json},
    {"csv", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "the results as CSV", &o.csv},
    {"svg", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "a roofline picture", &o.svg},
    {.type = OPTION_GROUP, .help = "Machine:"},
    CLI_DEVICE_OPTIONS,
    {"no-pin", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "do not bind threads to cores", &cli_common.no_pin},
    CLI_TEXT_OPTIONS,
};

size_t cli_bench_op_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

bool cli_bench_is_op(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        for (size_t k = 0; rose_bench_op_name(k); k++)
            if (!strcmp(argv[i], rose_bench_op_name(k))) return !file_exists(argv[i]);
    return false;
}

static double num(const struct json *j, const char *key) { return json_num(json_get(j, key), 0); }

static void add_us(struct strbuf *b, double us)
{
    if (us > 0) strbuf_printf(b, " %11.2f", us);
    else strbuf_printf(b, " %11s", "");
}

/* "refused rows=1 cols=7: why", below the results. */
static void print_refused(const struct json *root, struct strbuf *b)
{
    const struct json *numbers = json_get(root, "numbers"), *refused = json_get(root, "refused");
    for (uint32_t r = 0; refused && r < refused->count; r++) {
        const struct json *j = json_at(refused, r);
        strbuf_adds(b, "refused");
        for (uint32_t i = 0; i < numbers->count; i++) {
            char key[64];
            snprintf(key, sizeof key, "%.*s", STR_ARG(json_str(json_at(numbers, i), "")));
            strbuf_printf(b, " %s=%lld", key, (long long)json_int(json_get(j, key), 0));
        }
        strbuf_printf(b, ": %.*s\n", STR_ARG(json_str(json_get(j, "why"), "")));
    }
}

static void print_table(const struct json *root, struct strbuf *b)
{
    const struct json *numbers = json_get(root, "numbers"), *results = json_get(root, "results");
    struct str op = json_str(json_get(root, "op"), ""), device = json_str(json_get(root, "device"), "");
    bool planned = json_bool(json_get(root, "planned"), false);
    strbuf_printf(b, "%.*s on %.*s: memory %.0f GB/s%s\n", STR_ARG(op), STR_ARG(device), num(root, "bandwidth") * 1e-9, planned ? ", planned" : "");
    for (uint32_t i = 0; i < numbers->count; i++) strbuf_printf(b, " %10.*s", STR_ARG(json_str(json_at(numbers, i), "")));
    strbuf_printf(b, " %11s %11s %11s %11s %9s %9s %6s\n", "MB", "limit us", "predict us", "us", "GB/s", "Tops/s", "limit");
    for (uint32_t r = 0; r < results->count; r++) {
        const struct json *j = json_at(results, r);
        for (uint32_t i = 0; i < numbers->count; i++) {
            char key[64];
            snprintf(key, sizeof key, "%.*s", STR_ARG(json_str(json_at(numbers, i), "")));
            strbuf_printf(b, " %10lld", (long long)json_int(json_get(j, key), 0));
        }
        strbuf_printf(b, " %11.3f", num(j, "bytes") * 1e-6);
        add_us(b, num(j, "limit_us")), add_us(b, num(j, "predicted_us")), add_us(b, num(j, "us"));
        if (num(j, "us") > 0) strbuf_printf(b, " %9.1f %9.3f %5.0f%%", num(j, "bytes_per_s") * 1e-9, num(j, "ops_per_s") * 1e-12, 100 * num(j, "share"));
        strbuf_addc(b, '\n');
    }
}

static void print_csv(const struct json *root, struct strbuf *b)
{
    static const char *const columns[] = {"bytes", "ops", "limit_us", "predicted_us", "us", "bytes_per_s", "ops_per_s", "share", "copies"};
    const struct json *numbers = json_get(root, "numbers"), *results = json_get(root, "results");
    struct str op = json_str(json_get(root, "op"), ""), device = json_str(json_get(root, "device"), ""), arch = json_str(json_get(root, "arch"), "");
    strbuf_adds(b, "op,device,arch");
    for (uint32_t i = 0; i < numbers->count; i++) strbuf_printf(b, ",%.*s", STR_ARG(json_str(json_at(numbers, i), "")));
    for (size_t i = 0; i < ROSE_COUNT(columns); i++) strbuf_printf(b, ",%s", columns[i]);
    strbuf_addc(b, '\n');
    for (uint32_t r = 0; r < results->count; r++) {
        strbuf_printf(b, "%.*s,\"%.*s\",%.*s", STR_ARG(op), STR_ARG(device), STR_ARG(arch));
        for (uint32_t i = 0; i < numbers->count; i++) {
            char key[64];
            snprintf(key, sizeof key, "%.*s", STR_ARG(json_str(json_at(numbers, i), "")));
            strbuf_printf(b, ",%lld", (long long)json_int(json_get(json_at(results, r), key), 0));
        }
        for (size_t i = 0; i < ROSE_COUNT(columns); i++) {
            const struct json *v = json_get(json_at(results, r), columns[i]);
            strbuf_addc(b, ',');
            if (v) json_add_num(b, json_num(v, 0));
        }
        strbuf_addc(b, '\n');
    }
}

static enum rose_status write_file(const char *path, const struct json *root, void (*make)(const struct json *, struct strbuf *), struct rose_error *err)
{
    struct strbuf b = {0};
    make(root, &b);
    enum rose_status s = b.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : file_write_atomic(path, strbuf_str(&b), err);
    strbuf_free(&b);
    return s;
}

static enum rose_status print(const char *text, struct rose_error *err)
{
    struct arena a;
    const struct json *root;
    struct strbuf b = {0};
    arena_init(&a, 0);
    enum rose_status s = json_parse(&a, "rose_bench_op", str_of(text), &root, err);
    if (s == ROSE_OK && !o.json) print_table(root, &b), print_refused(root, &b);
    if (s == ROSE_OK && o.json) strbuf_printf(&b, "%s\n", text);
    if (s == ROSE_OK && b.p) fputs(b.p, stdout);
    if (s == ROSE_OK && o.csv) s = write_file(o.csv, root, print_csv, err);
    if (s == ROSE_OK && o.svg) s = write_file(o.svg, root, cli_roofline, err);
    strbuf_free(&b);
    arena_free(&a);
    return s;
}

/* "norm|qk|..." */
static const char *names(void)
{
    static char out[256];
    size_t n = 0;
    for (size_t i = 0; rose_bench_op_name(i) && n < sizeof out; i++) n += (size_t)snprintf(out + n, sizeof out - n, "%s%s", i ? "|" : "", rose_bench_op_name(i));
    return out;
}

int cli_bench_op(const struct cli_command *self, int argc, char **argv)
{
    const char *words[1];
    int count, status;
    struct rose_error err = {0};
    struct cli_command command = *self;
    command.arguments = names();
    command.summary = "Single ops over shapes: time, bytes, and the share of what the machine could do.";
    command.details = "limit: the longer of the bytes at the rate of a plain copy (on the CPU, of reading) and, on a GPU, the operations at the\ntensor cores' rate. Operands come from memory: copies of the op "
                      "take turns until they are larger than the caches.\nA wrong --shape says which numbers the op has.\n";
    command.options = cli_bench_op_options;
    bool device_named = false; /* ROSE_DEVICE is for every command and no contradiction */
    for (int i = 1; i < argc; i++) device_named |= !strncmp(argv[i], "--device", 8);
    if (!cli_parse(&command, argc, argv, words, 1, &count, &status)) return status;
    if (count != 1) return cli_usage(&command, "name one op");
    struct rose_device *device = NULL;
    if (o.arch && device_named) return cli_usage(&command, "--arch plans for a GPU that need not be there; --device names one to measure");
    if ((o.csv && !*o.csv) || (o.svg && !*o.svg)) return cli_usage(&command, "--%s: name a file", o.csv && !*o.csv ? "csv" : "svg");
    if (!o.arch) {
        enum rose_status s = cli_device(false, &device, &err);
        if (s != ROSE_OK) return cli_error(s, &err);
    }
    struct cli_progress progress;
    cli_progress_begin(&progress);
    struct rose_bench_op_options bench = {.op = words[0], .shapes = o.shapes.items, .shapes_count = (size_t)o.shapes.count, .seconds = o.seconds, .weights = o.weights, .arch = o.arch,
                                          .nvrtc = option_env("ROSE_NVRTC"), .progress = cli_progress_show, .progress_user = &progress};
    char *text = NULL;
    enum rose_status s = rose_bench_op(device, &bench, &text, &err);
    cli_progress_end(&progress);
    rose_device_close(device);
    if (s == ROSE_OK) s = print(text, &err);
    rose_free(text);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}
