/* rose kernels: what device code is made of. `rose kernels MODEL` lists the launches of a model's steps, `rose kernels layout` shows the
 * layout algebra. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"

static struct {
    bool draw, color, json, source, ptx, sass, deterministic, measure;
    const char *arch, *batches, *chunks, *kv, *kernel, *export_dir;
    int64_t context, sequences, step_tokens;
} o;

static const struct option options[] = {
    {"arch", 0, OPTION_TEXT, NULL, "ARCH", NULL, NULL, 0, 0, "plan for sm_80, sm_89, sm_90a, sm_100a or sm_120a; without it for the GPU, or sm_90a", &o.arch},
    {"batch", 'b', OPTION_TEXT, NULL, "B,...", NULL, NULL, 0, 0, "decode steps of so many sequences (texts, of a model that embeds or classifies; 1,16,128)", &o.batches},
    {"prompt-rows", 'p', OPTION_TEXT, NULL, "N,...", NULL, NULL, 0, 0, "steps of prompts of so many rows (2048)", &o.chunks},
    {"ctx", 'c', OPTION_INT, NULL, "N", NULL, "1024", 1, 1 << 24, "tokens of every sequence or text", &o.context},
    {"max-sequences", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 4096, "of the engine: says which programs there are; 0: its default", &o.sequences},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "likewise", &o.step_tokens},
    {"kv", 0, OPTION_CHOICE, NULL, NULL, "auto|bf16|fp8", "auto", 0, 0, "type of the key-value cache", &o.kv},
    {"deterministic", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "the same bits alone and under any load", &o.deterministic},
    {"measure", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "on a GPU: run each launch", &o.measure},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object, everything in it", &o.json},
    {"kernel", 'k', OPTION_TEXT, NULL, "NAME", NULL, NULL, 0, 0, "only kernels with this in their name", &o.kernel},
    {"source", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "print the kernels' sources", &o.source},
    {"ptx", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "print their PTX", &o.ptx},
    {"sass", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "print their machine code (needs nvdisasm)", &o.sass},
    {"export", 0, OPTION_TEXT, NULL, "DIR", NULL, NULL, 0, 0, "write every compiled kernel of the engine there, for machines without NVRTC", &o.export_dir},
    {.type = OPTION_GROUP, .help = "kernels layout:"},
    {"draw", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a table of offsets", &o.draw},
    {"color", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "colours also when standard output is no terminal", &o.color},
};

size_t cli_kernels_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static int layout(const struct cli_command *self, const char *const *words, int count)
{
    struct rose_error err = {0};
    char *text;
    if (count != 1) return cli_usage(self, "name one layout, such as '(8,16):(16,1)'");
    if (o.json || o.arch || o.kernel || o.export_dir || o.batches || o.chunks || o.sequences || o.step_tokens || o.context != 1024 || strcmp(o.kv, "auto") ||
        o.source + o.ptx + o.sass + o.measure + o.deterministic)
        return cli_usage(self, "a layout has --draw and --color; the other options are a model's");
    bool color = o.color || (cli_is_terminal(1) && !option_env("NO_COLOR"));
    enum rose_status s = rose_layout(words[0], o.draw, color, &text, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    fputs(text, stdout);
    rose_free(text);
    return CLI_OK;
}

/* --- the table ------------------------------------------------------------------------------------------------------------------- */

static double num(const struct json *j, const char *key) { return json_num(json_get(j, key), 0); }
static long long whole(const struct json *j, const char *key) { return json_int(json_get(j, key), 0); }

static const struct json *find_kernel(const struct json *root, struct str name)
{
    const struct json *list = json_get(root, "kernels");
    for (uint32_t i = 0; list && i < list->count; i++)
        if (str_eq(json_str(json_get(json_at(list, i), "name"), ""), name)) return json_at(list, i);
    return NULL;
}

/* "norm_rows.611bee9e" for norm_rows.611bee9e9af78494…: eight digits tell a model's kernels apart. */
static void add_name(struct strbuf *b, struct str name)
{
    const char *dot = memchr(name.p, '.', name.n);
    size_t n = dot ? ROSE_MIN((size_t)(dot - name.p) + 9, name.n) : name.n;
    strbuf_printf(b, "%-30.*s", (int)n, name.p);
}

static void add_share(struct strbuf *b, double limit, double us)
{
    if (us > 0) strbuf_printf(b, " %4.0f%%", 100 * limit / us);
    else strbuf_adds(b, "    –");
}

static void print_launch(const struct json *root, const struct json *l, struct strbuf *b)
{
    struct str name = json_str(json_get(l, "kernel"), ""), op = json_str(json_get(l, "op"), "");
    const struct json *kernel = name.n ? find_kernel(root, name) : NULL, *measured = json_get(l, "measured_us"), *entries = kernel ? json_get(kernel, "entries") : NULL;
    const struct json *entry = entries && entries->count ? json_at(entries, 0) : NULL;
    if (o.kernel && !kernel) return;
    strbuf_printf(b, "  %-16.*s %4lld x ", STR_ARG(op), whole(l, "count"));
    if (!name.n) {
        strbuf_printf(b, "%-30s %51s", "cuBLASLt", "");
    } else {
        add_name(b, name);
        strbuf_printf(b, " %5lld x %-4lld %6.1f", whole(l, "grid"), whole(l, "block"), ((double)whole(l, "shared") + (entry ? num(entry, "shared") : 0)) / 1024);
        long long spills = entry ? whole(entry, "spill_stores") : -1;
        strbuf_printf(b, " %4lld", entry ? whole(entry, "registers") : 0);
        if (spills >= 0) strbuf_printf(b, " %5lld", spills + whole(entry, "spill_loads"));
        else strbuf_adds(b, "     ?");
        strbuf_printf(b, " %6.1f %6.0f", kernel ? num(kernel, "cubin_bytes") / 1024 : 0, kernel ? num(kernel, "compile_ms") : 0);
    }
    strbuf_printf(b, " %9.3f %8.2f", num(l, "bytes") * 1e-6, num(l, "limit_us"));
    if (name.n) strbuf_printf(b, " %8.2f", num(l, "predicted_us"));
    else strbuf_printf(b, " %8s", "");
    add_share(b, num(l, "limit_us"), name.n ? num(l, "predicted_us") : 0);
    if (measured) {
        strbuf_printf(b, " %8.2f", json_num(measured, 0));
        add_share(b, num(l, "limit_us"), json_num(measured, 0));
    }
    strbuf_addc(b, '\n');
    const struct json *constants = o.kernel ? json_get(kernel, "constants") : NULL;
    for (uint32_t i = 0; constants && i < constants->count; i++) strbuf_printf(b, "%s%.*s", i ? " " : "    ", STR_ARG(json_str(json_at(constants, i), "")));
    if (constants) strbuf_addc(b, '\n');
}

static bool has_launch(const struct json *root, const struct json *launches)
{
    for (uint32_t i = 0; launches && i < launches->count; i++) {
        struct str name = json_str(json_get(json_at(launches, i), "kernel"), "");
        if (!o.kernel || (name.n && find_kernel(root, name))) return true;
    }
    return !o.kernel;
}

static void print_step(const struct json *root, const struct json *s, struct strbuf *b)
{
    const struct json *launches = json_get(s, "launches"), *measured = json_get(s, "measured_us");
    if (!has_launch(root, launches)) return;
    struct str kind = json_str(json_get(s, "kind"), "");
    strbuf_printf(b, "\n%.*s, %lld rows of %lld sequences: %lld launches, limit %.1f us, predicted %.1f us", STR_ARG(kind), whole(s, "rows"), whole(s, "sequences"),
                  whole(s, "count"), num(s, "limit_us"), num(s, "predicted_us"));
    if (measured) strbuf_printf(b, ", measured %.1f us", json_num(measured, 0));
    strbuf_printf(b, "\n  %-16s %4s   %-30s %12s %6s %4s %5s %6s %6s %9s %8s %8s %5s%s\n", "op", "n", "kernel", "grid x block", "shKB", "regs", "spill", "cubin", "ms", "MB", "limit", "predict",
                  "", measured ? " measured" : "");
    for (uint32_t i = 0; launches && i < launches->count; i++) print_launch(root, json_at(launches, i), b);
}

static void print_table(const struct json *root, struct strbuf *b)
{
    struct str device = json_str(json_get(root, "device"), ""), arch = json_str(json_get(root, "arch"), ""), model = json_str(json_get(root, "architecture"), "");
    struct str compiler = json_str(json_get(root, "compiler"), ""), kv = json_str(json_get(root, "kv"), "");
    const struct json *kernels = json_get(root, "kernels"), *steps = json_get(root, "steps");
    double bytes = 0, ms = 0;
    long long compiled = 0, spilling = 0;
    for (uint32_t i = 0; kernels && i < kernels->count; i++) {
        const struct json *k = json_at(kernels, i), *entries = json_get(k, "entries");
        bytes += num(k, "cubin_bytes"), ms += num(k, "compile_ms");
        compiled += str_is(json_str(json_get(k, "origin"), ""), "compiled");
        for (uint32_t e = 0; entries && e < entries->count; e++) spilling += whole(json_at(entries, e), "spill_stores") > 0;
    }
    strbuf_printf(b, "%.*s on %.*s (%.*s)", STR_ARG(model), STR_ARG(device), STR_ARG(arch));
    if (kv.n) strbuf_printf(b, ", cache %.*s", STR_ARG(kv));
    strbuf_addc(b, '\n');
    strbuf_printf(b, "%u kernels, %.1f kB, %.0f ms of compiling (%lld now), %lld with spills; compiler %.*s\n", kernels ? kernels->count : 0, bytes / 1024, ms, compiled, spilling,
                  STR_ARG(compiler));
    if (json_get(root, "exported")) strbuf_printf(b, "%lld kernels written to %s\n", whole(root, "exported"), o.export_dir);
    for (uint32_t i = 0; steps && i < steps->count; i++) print_step(root, json_at(steps, i), b);
}

static int print(const char *json)
{
    struct rose_error err = {0};
    struct arena a;
    const struct json *root;
    struct strbuf b = {0};
    arena_init(&a, 0);
    enum rose_status s = json_parse(&a, "rose_kernels", str_of(json), &root, &err);
    if (s == ROSE_OK) print_table(root, &b);
    if (s == ROSE_OK && b.p) fputs(b.p, stdout);
    strbuf_free(&b);
    arena_free(&a);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}

/* --- the command ------------------------------------------------------------------------------------------------------------------- */

enum { MOST_NUMBERS = 16 };

/* "1,16,128"; the count (0: no text), or -1 when it is no list of positive numbers. */
static int numbers(const char *text, int out[MOST_NUMBERS])
{
    int n = 0;
    while (text) {
        size_t length = strcspn(text, ",");
        int64_t value;
        if (n == MOST_NUMBERS || !str_to_i64((struct str){text, length}, &value) || value < 1 || value > 1 << 20) return -1;
        out[n++] = (int)value;
        text = text[length] ? text + length + 1 : NULL;
    }
    return n;
}

/* The GPU where there is one and no architecture was named. */
static struct rose_device *gpu(struct rose_error *err)
{
    struct rose_device *d = NULL;
    struct rose_device_options options = {.kind = "cuda", .driver = option_env("ROSE_CUDA_DRIVER"), .nvrtc = option_env("ROSE_NVRTC")};
    return !o.arch && rose_device_open(&options, &d, err) == ROSE_OK ? d : NULL;
}

static int model(const struct cli_command *self, const char *name)
{
    int batches[MOST_NUMBERS], chunks[MOST_NUMBERS], bn = numbers(o.batches, batches), cn = numbers(o.chunks, chunks);
    struct rose_error err = {0};
    char *out = NULL;
    if (bn < 0 || cn < 0) return cli_usage(self, "--%s: a list of numbers such as 1,16,128 (at most %d)", bn < 0 ? "batch" : "prompt-rows", MOST_NUMBERS);
    if (o.draw + o.color) return cli_usage(self, "--draw and --color are for a layout, and %s is a model", name);
    if (o.export_dir && !*o.export_dir) return cli_usage(self, "--export: name a directory");
    if (o.source + o.ptx + o.sass + o.json > 1) return cli_usage(self, "one of --json, --source, --ptx and --sass");
    struct cli_progress progress;
    cli_progress_begin(&progress);
    struct rose_device *device = gpu(&err);
    if (o.measure && !device) return cli_usage(self, "--measure needs a GPU%s%s", o.arch ? ", and --arch plans for one that need not be there" : ": ", o.arch ? "" : err.message);
    struct rose_kernels_options k = {.model = name, .arch = o.arch, .batches = batches, .batches_count = (size_t)bn, .chunks = chunks, .chunks_count = (size_t)cn,
                                     .context = (int)o.context, .max_sequences = (int)o.sequences, .step_tokens = (int)o.step_tokens, .kv = o.kv,
                                     .deterministic = o.deterministic, .measure = o.measure, .kernel = o.kernel, .export_dir = o.export_dir, .nvrtc = option_env("ROSE_NVRTC"),
                                     .show = o.source ? ROSE_KERNELS_SOURCE : o.ptx ? ROSE_KERNELS_PTX : o.sass ? ROSE_KERNELS_SASS : ROSE_KERNELS_JSON,
                                     .progress = cli_progress_show, .progress_user = &progress};
    enum rose_status s = rose_kernels(device, &k, &out, &err);
    cli_progress_end(&progress);
    rose_device_close(device);
    if (s != ROSE_OK) return cli_error(s, &err);
    int status = CLI_OK;
    if (k.show == ROSE_KERNELS_JSON && !o.json) status = print(out);
    else printf("%s%s", out, o.json ? "\n" : "");
    rose_free(out);
    return status;
}

int cli_kernels(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (count && str_is(str_of(words[0]), "layout")) return layout(self, words + 1, count - 1);
    if (count != 1) return cli_usage(self, "name one model, or layout and a layout");
    return model(self, words[0]);
}
