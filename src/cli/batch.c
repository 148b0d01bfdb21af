/* rose batch: a file of requests, all at once, without a server. */
#include "server/batch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/texts.h"

static struct {
    bool json, restart;
    const char *alias;
} o;

static const struct option options[] = {
    {"max-sequences", 0, OPTION_INT, NULL, "N", NULL, "64", 1, 4096, "sequences running at once", &cli_common.sequences},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a step; 0: 512", &cli_common.step_tokens},
    {"kv-bytes", 0, OPTION_SIZE, NULL, "SIZE", NULL, "0", 0, 0, "key-value cache; 0: what the machine has left", &cli_common.kv_bytes},
    {"alias", 0, OPTION_TEXT, NULL, "NAME", NULL, NULL, 0, 0, "what \"model\" in the requests says; default: nothing is compared", &o.alias},
    {"restart", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "write the output anew, whatever is there", &o.restart},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "the totals as one JSON object", &o.json},
    CLI_COMMON_OPTIONS,
};

size_t cli_batch_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal) { interrupted = signal; }

static bool show_progress(void *user, int done, int total, int failed)
{
    if (*(bool *)user && total) {
        int filled = (int)(30.0 * done / total);
        fprintf(stderr, "\r[%.*s%*s] %d of %d, %d refused ", filled, "##############################", 30 - filled, "", done, total, failed);
    }
    return !interrupted;
}

int cli_batch(const struct cli_command *self, int argc, char **argv)
{
    const char *words[3];
    int count, status;
    struct rose_error err = {0};
    struct batch_report report;
    if (!cli_parse(self, argc, argv, words, 3, &count, &status)) return status;
    if (count != 3) return cli_usage(self, "write MODEL IN.jsonl OUT.jsonl");
    if (!strcmp(words[1], words[2])) return cli_usage(self, "input and output are the same file");
    struct cli_engine e;
    enum rose_status s = cli_open(words[0], false, &e, &err);
    if (s == ROSE_OK) {
        struct rose_model_info info;
        rose_engine_info(e.engine, &info);
        if (!(info.tasks & ROSE_CAN_GENERATE))
            s = status_set(&err, ROSE_UNSUPPORTED, "%s writes no text, which is what batches ask for; rose embed and rose score take files of texts for it", words[0]);
    }
    bool terminal = cli_is_terminal(2) && !cli_common.quiet;
    if (s == ROSE_OK) {
        char name[256];
        struct server_model model = {.name = o.alias ? o.alias : cli_model_name(words[0], name, sizeof name), .engine = e.engine};
        struct batch_options batch = {.any_name = !o.alias, .input = words[1], .output = words[2], .at_once = (int)cli_common.sequences * 2, .progress = show_progress, .user = &terminal};
        struct texts_made made;
        char context[24], template[24] = "(the model's)";
        snprintf(context, sizeof context, "%lld", (long long)cli_common.context);
        if (e.chat_template) snprintf(template, sizeof template, "%016llx", (unsigned long long)resume_hash(e.chat_template, strlen(e.chat_template)));
        s = texts_made(&made, "rose batch", words[0], words[1], words[2], o.restart, &err);
        resume_option(&made.resume, "kv", cli_common.kv);
        resume_option(&made.resume, "ctx", context);
        resume_option(&made.resume, "chat-template", template);
        batch.resume = &made.resume;
        batch.restart = o.restart;
        signal(SIGINT, on_interrupt);
        signal(SIGTERM, on_interrupt);
        if (s == ROSE_OK) s = batch_run(&batch, &model, &report, &err);
        if (terminal) fputc('\n', stderr);
        if (s == ROSE_OK && o.json)
            printf("{\"total\":%d,\"skipped\":%d,\"done\":%d,\"failed\":%d,\"prompt_tokens\":%lld,\"completion_tokens\":%lld}\n", report.total, report.skipped, report.done, report.failed,
                   (long long)report.prompt_tokens, (long long)report.completion_tokens);
        else if (s == ROSE_OK && !cli_common.quiet)
            printf("%d requests: %d answered before, %d now, of which %d refused; %lld tokens in, %lld out\n", report.total, report.skipped, report.done, report.failed,
                   (long long)report.prompt_tokens, (long long)report.completion_tokens);
    }
    status = s != ROSE_OK ? cli_error(s, &err) : interrupted ? CLI_SIGNAL + (int)interrupted : CLI_OK;
    cli_close(&e);
    return status;
}
