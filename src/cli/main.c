/* rose: the table of commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/commands.h"

const struct cli_command cli_commands[] = {
    CLI_RUN_COMMAND,
    CLI_TOKENIZE_COMMAND,
    CLI_RENDER_COMMAND,
    CLI_BENCH_COMMAND,
};
const size_t cli_commands_count = ROSE_COUNT(cli_commands);

static void print_help(FILE *to)
{
    fprintf(to, "Rose %s serves transformer models: on the terminal, over HTTP, as a library.\n\nusage: rose COMMAND [OPTIONS] ...\n\n", ROSE_VERSION);
    for (size_t i = 0; i < cli_commands_count; i++) fprintf(to, "  %-10s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fputs("\nMODEL is a Hugging Face directory, a .gguf file, or ORG/NAME in the hub's cache.\n`rose COMMAND --help` says what a command takes.\n", to);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? CLI_USAGE : CLI_OK;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        puts("rose " ROSE_VERSION);
        return CLI_OK;
    }
    for (size_t i = 0; i < cli_commands_count; i++)
        if (!strcmp(argv[1], cli_commands[i].name)) return cli_commands[i].run(&cli_commands[i], argc - 1, argv + 1);
    fprintf(stderr, "rose: there is no command \"%s\"\n\n", argv[1]);
    print_help(stderr);
    return CLI_USAGE;
}
