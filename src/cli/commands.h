/* One row a command; each command's file defines its run and its options. */
#ifndef ROSE_CLI_COMMANDS_H
#define ROSE_CLI_COMMANDS_H

#include "cli/cli.h"

#define CLI_DECLARE(name)                                                                                                                            \
    int cli_##name(const struct cli_command *self, int argc, char **argv);                                                                           \
    size_t cli_##name##_options(const struct option **options)

CLI_DECLARE(run);
CLI_DECLARE(tokenize);
CLI_DECLARE(bench);
CLI_DECLARE(serve);
int cli_render_command(const struct cli_command *self, int argc, char **argv);
size_t cli_render_options(const struct option **options);

#define CLI_RUN_COMMAND                                                                                                                              \
    {"run", "MODEL [PROMPT]", "One answer on the terminal.",                                                                                         \
     "The prompt goes through the model's chat template as a user's message; --raw sends it as it is.\nWithout a prompt, or with -, it is read from "  \
     "standard input.\n",                                                                                                                            \
     cli_run, cli_run_options}

#define CLI_TOKENIZE_COMMAND                                                                                                                         \
    {"tokenize", "MODEL [TEXT]", "Text to token ids, and back with --decode.", "Without a text, or with -, it is read from standard input.\n",       \
     cli_tokenize, cli_tokenize_options}

#define CLI_RENDER_COMMAND                                                                                                                           \
    {"render", "MODEL | --template FILE [INPUT.json]", "What a chat template makes of messages.",                                                    \
     "The input is a JSON object: messages, tools, documents, add_generation_prompt and any further\nvariables. Without a file, or "  \
     "with -, it is read from standard input.\n",                                                                                                    \
     cli_render_command, cli_render_options}

#define CLI_BENCH_COMMAND                                                                                                                            \
    {"bench", "MODEL", "Throughput and latency of a model.", "Rates are totals over the batch. Prompts are random tokens, different in every round.\n", \
     cli_bench, cli_bench_options}

#define CLI_SERVE_COMMAND                                                                                                                            \
    {"serve", "MODEL [MODEL...]", "Models behind HTTP: OpenAI and Anthropic interfaces, metrics, a page.",                                           \
     "POST /v1/chat/completions, /v1/completions, /v1/messages, /v1/messages/count_tokens, /tokenize, /detokenize;\n"                               \
     "GET /v1/models, /health, /metrics, /version, and the page at /. A peer that closes its side counts as gone.\nSIGTERM: no new requests, "      \
     "those under way may end; a second one stops at once.\n",                                                                                      \
     cli_serve, cli_serve_options}

#endif
