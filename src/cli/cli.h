/* What the sub-commands share: the table of commands, common options, opening an engine, talking to the terminal. */
#ifndef ROSE_CLI_CLI_H
#define ROSE_CLI_CLI_H

#include "base/option.h"
#include "base/str.h"
#include "rose.h"

/* Exit statuses. CLI_SIGNAL + its number: what a signal stopped before its end; main ends the process by that signal, so that a shell's loop ends too. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_SIGNAL = 128 };

struct cli_command {
    const char *name, *arguments, *summary; /* "run", "MODEL [PROMPT]", one line; NULL: not listed */
    const char *details;                    /* behind the options in --help; NULL */
    int (*run)(const struct cli_command *self, int argc, char **argv);
    /* Fills `options` (bound to a static struct of the command) for --help and the man page. */
    size_t (*options)(const struct option **options);
};
extern const struct cli_command cli_commands[];
extern const size_t cli_commands_count;

/* Options of every command that opens an engine. */
struct cli_common {
    const char *device, *isa, *kv, *log, *chat_template, *packed_cache, *task, *weights;
    int64_t threads, context, kv_bytes, sequences, step_tokens;
    bool quiet, no_pin, deterministic, no_prefix_cache, dummy_weights;
    bool sized; /* context is the command's own choice, not --ctx */
};
extern struct cli_common cli_common;
#define CLI_DEVICE_OPTIONS                                                                                                                           \
    {"device", 0, OPTION_TEXT, "ROSE_DEVICE", "NAME", NULL, "auto", 0, 0, "auto, cpu, cuda or cuda:N", &cli_common.device},                          \
    {"threads", 't', OPTION_INT, "ROSE_THREADS", "N", NULL, "0", 0, 1024, "CPU threads; 0: one a core", &cli_common.threads},                        \
    {"isa", 0, OPTION_CHOICE, "ROSE_ISA", NULL, "auto|portable|avx2|avx512|amx", "auto", 0, 0, "CPU instruction set", &cli_common.isa}

#define CLI_COMMON_OPTIONS                                                                                                                           \
    {.type = OPTION_GROUP, .help = "Engine:"},                                                                                                       \
    CLI_DEVICE_OPTIONS,                                                                                                                              \
    {"ctx", 'c', OPTION_INT, NULL, "N", NULL, "0", 0, 1 << 30, "context in tokens; 0: the model's", &cli_common.context},                            \
    {"kv", 0, OPTION_CHOICE, NULL, NULL, "auto|f16|f32|bf16|q8_0|fp8", "auto", 0, 0, "type of the key-value cache; auto: f16, on a GPU what the model computes in", &cli_common.kv}, \
    {"weights", 0, OPTION_CHOICE, NULL, NULL, "file|bf16|f16|q8_0", "file", 0, 0, "what float weights become in memory; on a GPU (bf16, f16) activations and cache too", &cli_common.weights},         \
    {"deterministic", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "the same bits alone and under any load", &cli_common.deterministic},            \
    {"chat-template", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "use this template instead of the model's", &cli_common.chat_template},        \
    {"no-pin", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "do not bind threads to cores", &cli_common.no_pin},                                    \
    {"packed-cache", 0, OPTION_TEXT, "ROSE_PACKED_CACHE", "on|off|SIZE", NULL, "on", 0, 0, "keep packed weights for the next start, on a CPU; SIZE: of all models together, on: a tenth of the disk", &cli_common.packed_cache}, \
    {"log", 0, OPTION_CHOICE, "ROSE_LOG", NULL, "error|info|debug", "error", 0, 0, "how much is said on standard error", &cli_common.log},           \
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "no progress, only results", &cli_common.quiet}

/* Of these what commands take that open a model for its text side alone. */
#define CLI_TEXT_OPTIONS                                                                                                                             \
    {"log", 0, OPTION_CHOICE, "ROSE_LOG", NULL, "error|info|debug", "error", 0, 0, "how much is said on standard error", &cli_common.log},           \
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "no progress, only results", &cli_common.quiet}

/* Sampling options, shared by run and chat. */
struct cli_sampling {
    double temperature, top_p, min_p, repetition, presence, frequency;
    int64_t top_k, seed, max_tokens;
    struct option_list stop, logit_bias;
    bool ignore_eos;
};
extern struct cli_sampling cli_sampling;
#define CLI_SAMPLING_OPTIONS                                                                                                                         \
    {.type = OPTION_GROUP, .help = "Sampling:"},                                                                                                     \
    {"max-tokens", 'n', OPTION_INT, NULL, "N", NULL, "-1", -1, 1 << 30, "new tokens at most; -1: to the end of the context", &cli_sampling.max_tokens}, \
    {"temperature", 0, OPTION_NUMBER, NULL, "X", NULL, "0", 0, 100, "0: the likeliest token", &cli_sampling.temperature},                            \
    {"top-k", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 1 << 30, "only the N likeliest; 0: all", &cli_sampling.top_k},                                 \
    {"top-p", 0, OPTION_NUMBER, NULL, "X", NULL, "1", 0, 1, "only the likeliest with this share", &cli_sampling.top_p},                              \
    {"min-p", 0, OPTION_NUMBER, NULL, "X", NULL, "0", 0, 1, "only those at least X times as likely as the likeliest", &cli_sampling.min_p},          \
    {"repetition-penalty", 0, OPTION_NUMBER, NULL, "X", NULL, "1", 0, 100, "of tokens in prompt and answer", &cli_sampling.repetition},              \
    {"presence-penalty", 0, OPTION_NUMBER, NULL, "X", NULL, "0", -100, 100, "of tokens in the answer", &cli_sampling.presence},                      \
    {"frequency-penalty", 0, OPTION_NUMBER, NULL, "X", NULL, "0", -100, 100, "of tokens in the answer, by their count", &cli_sampling.frequency},    \
    {"logit-bias", 0, OPTION_LIST, NULL, "ID=X", NULL, NULL, 0, 0, "add X to a token's logit; may be repeated", &cli_sampling.logit_bias},           \
    {"seed", 's', OPTION_INT, NULL, "N", NULL, "-1", 0, 0, "the same seed gives the same text (beside other requests: with --deterministic); -1: a fresh one", &cli_sampling.seed},                \
    {"stop", 0, OPTION_LIST, NULL, "TEXT", NULL, NULL, 0, 0, "end before this text; may be repeated", &cli_sampling.stop},                           \
    {"ignore-eos", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "go on behind the end token", &cli_sampling.ignore_eos}

/* Parse a command's words. CLI_OK: go on; else return *status (after --help or a usage error, which it prints). */
bool cli_parse(const struct cli_command *self, int argc, char **argv, const char **rest, int rest_room, int *rest_count, int *status);
/* Print "rose: sentence" and, where known, its place; returns the exit status for it. */
int cli_error(enum rose_status status, const struct rose_error *err);
/* A line on standard error. Names come out of models' files and paths: no line feed and no terminal's command of theirs gets through. */
void cli_say(const char *line);
int cli_usage(const struct cli_command *self, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Open device and engine by the common options; sequences 0: one. A progress line shows when it takes over a second. */
struct cli_engine {
    struct rose_device *device;
    struct rose_engine *engine;
    char *chat_template;
};
/* --packed-cache: off, or the limit in bytes (0: the usual one). */
enum rose_status cli_packed_cache(const char *text, bool *off, int64_t *bytes, struct rose_error *err);
/* The device of the common options, its lines on standard error as --log says; text_only: no GPU and one thread. */
enum rose_status cli_device(bool text_only, struct rose_device **out, struct rose_error *err);
enum rose_status cli_open(const char *model, bool tokenizer_only, struct cli_engine *out, struct rose_error *err);
void cli_close(struct cli_engine *e);
/* A line of progress that overwrites itself (rose_engine_options.progress); `on`: show it, from the second second on. */
struct cli_progress {
    double began;
    int percent; /* shown last */
    bool shown, on;
};
void cli_progress_begin(struct cli_progress *p);
void cli_progress_show(void *progress, const char *what, size_t done, size_t total);
void cli_progress_end(const struct cli_progress *p);
/* A line on standard error when --ctx is longer than the model's own context. */
void cli_warn_context(const struct rose_engine *engine);
/* What --log info says of an engine. */
void cli_say_engine(const struct rose_engine *engine, const struct rose_device *device);
/* What requests call a model: "dir/SmolLM2.Q4_1.gguf" -> "SmolLM2.Q4_1"; a name of the hub stays whole. Returns room. */
const char *cli_model_name(const char *model, char *room, size_t bytes);
/* Sampling options into a request. False: *err says which is wrong. `biases` has room for OPTION_LIST_MAX. */
bool cli_request(struct rose_request *request, struct rose_logit_bias *biases, struct rose_error *err);

/* All of standard input or of a file; free p. */
enum rose_status cli_read(const char *path_or_dash, size_t limit, struct strbuf *out, struct rose_error *err);
/* rose_render and its kin twice: once for the size, once for the text. Free with strbuf_free. */
enum rose_status cli_render(const struct rose_engine *engine, struct str input, struct strbuf *out, struct rose_error *err);
enum rose_status cli_detokenize(const struct rose_engine *engine, const int32_t *ids, size_t count, int flags, struct strbuf *out, struct rose_error *err);

bool cli_is_terminal(int fd);
int cli_columns(void);

#endif
