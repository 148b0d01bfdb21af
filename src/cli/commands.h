/* One row a command; each command's file defines its run and its options. */
#ifndef ROSE_CLI_COMMANDS_H
#define ROSE_CLI_COMMANDS_H

#include "cli/cli.h"

#define CLI_DECLARE(name)                                                                                                                            \
    int cli_##name(const struct cli_command *self, int argc, char **argv);                                                                           \
    size_t cli_##name##_options(const struct option **options)

CLI_DECLARE(run);

#define CLI_RUN_COMMAND                                                                                                                              \
    {"run", "MODEL [PROMPT]", "One answer on the terminal.",                                                                                         \
     "The prompt goes through the model's chat template as a user's message; --raw sends it as it is.\nWithout a prompt, or with -, it is read from "  \
     "standard input.\n",                                                                                                                            \
     cli_run, cli_run_options}

#endif
