/* rose: the table of commands. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/commands.h"

const struct cli_command cli_commands[] = {
    CLI_RUN_COMMAND,
    CLI_CHAT_COMMAND,
    CLI_SERVE_COMMAND,
    CLI_BATCH_COMMAND,
    CLI_EMBED_COMMAND,
    CLI_RERANK_COMMAND,
    CLI_CLASSIFY_COMMAND,
    CLI_SCORE_COMMAND,
    CLI_TOKENIZE_COMMAND,
    CLI_RENDER_COMMAND,
    CLI_INSPECT_COMMAND,
    CLI_CACHE_COMMAND,
    CLI_PULL_COMMAND,
    CLI_BENCH_COMMAND,
    CLI_KERNELS_COMMAND,
    CLI_MAN_COMMAND,
    CLI_COMPLETION_COMMAND,
};
const size_t cli_commands_count = ROSE_COUNT(cli_commands);

static void print_help(FILE *to)
{
    fprintf(to, "Rose %s serves transformer models: on the terminal, over HTTP, as a library.\n\nusage: rose COMMAND [OPTIONS] ...\n\n", ROSE_VERSION);
    for (size_t i = 0; i < cli_commands_count; i++)
        if (cli_commands[i].summary) fprintf(to, "  %-10s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fputs("\nMODEL is a Hugging Face directory, a .gguf file, or ORG/NAME in the hub's cache.\n`rose COMMAND --help` says what a command takes, `rose --version` which Rose this is.\n", to);
}

static int dispatch(int argc, char **argv)
{
    bool help = argc > 1 && !strcmp(argv[1], "help");
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || (help && argc == 2)) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? CLI_USAGE : CLI_OK;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        puts("rose " ROSE_VERSION);
        return CLI_OK;
    }
    const char *name = argv[help ? 2 : 1];
    char *show[] = {argv[help ? 2 : 1], (char[]){"--help"}, NULL};
    for (size_t i = 0; i < cli_commands_count; i++)
        if (!strcmp(name, cli_commands[i].name)) return cli_commands[i].run(&cli_commands[i], help ? 2 : argc - 1, help ? show : argv + 1);
    fprintf(stderr, "rose: there is no command \"%s\"\n\n", name);
    print_help(stderr);
    return CLI_USAGE;
}

/* Weights are read from their files while they are in use. Who cuts such a file short takes pages away that a product will ask for, and a disk
 * may fail: there is nothing to compute with then, and this says so. Other reasons for the signal keep its effect. */
static void on_lost_page(int signal_number, siginfo_t *info, void *context)
{
    static const char said[] = "rose: a file of weights became shorter while it was in use, or its disk failed (the model's file, or one below the cache's packed "
                               "folder: `rose cache --clear` removes those); start again, and replace such files by renaming\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(signal_number, SIG_DFL); /* the instruction faults again */
        return;
    }
    ssize_t ignored = write(STDERR_FILENO, said, sizeof said - 1); /* when nobody reads, the status says it */
    (void)ignored;
    _exit(CLI_FAILED);
}

int main(int argc, char **argv)
{
    struct sigaction lost = {.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO};
    sigemptyset(&lost.sa_mask);
    sigaction(SIGBUS, &lost, NULL);
    /* A reader that goes away is an error of writing, which is said below, and no reason to die silently. */
    signal(SIGPIPE, SIG_IGN);
    int status = dispatch(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == CLI_OK) {
        fprintf(stderr, "rose: cannot write to standard output%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
        status = CLI_FAILED;
    }
    if (status > CLI_SIGNAL) {
        signal(status - CLI_SIGNAL, SIG_DFL);
        raise(status - CLI_SIGNAL);
    }
    return status;
}
