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
CLI_DECLARE(chat);
CLI_DECLARE(inspect);
CLI_DECLARE(cache);
CLI_DECLARE(pull);
CLI_DECLARE(kernels);
CLI_DECLARE(man);
CLI_DECLARE(completion);
/* A model that is missing, ORG/NAME, and somebody at the terminal: offer to fetch it. True: it was fetched. */
bool cli_pull_offer(const char *model);
CLI_DECLARE(serve);
CLI_DECLARE(batch);
CLI_DECLARE(embed);
CLI_DECLARE(score);
int cli_rerank(const struct cli_command *self, int argc, char **argv); /* with the options of rose score */
CLI_DECLARE(classify);
/* rose bench --url: its options are others. */
CLI_DECLARE(bench_url);
bool cli_bench_is_url(int argc, char **argv);
/* rose bench OP: likewise. */
CLI_DECLARE(bench_op);
bool cli_bench_is_op(int argc, char **argv);
/* roofline.c: results of rose_bench_op as a picture, operations a second over operations a byte. */
struct json;
struct strbuf;
void cli_roofline(const struct json *root, struct strbuf *out);
int cli_render_command(const struct cli_command *self, int argc, char **argv);
size_t cli_render_options(const struct option **options);

#define CLI_RUN_COMMAND                                                                                                                              \
    {"run", "MODEL [PROMPT]", "One answer on the terminal.",                                                                                         \
     "The prompt goes through the model's chat template as a user's message; --raw sends it as it is.\nWithout a prompt, or with -, it is read from "  \
     "standard input.\n",                                                                                                                            \
     cli_run, cli_run_options}

#define CLI_CHAT_COMMAND                                                                                                                             \
    {"chat", "MODEL", "A conversation.",                                                                                                             \
     "/system TEXT sets the system message, /clear begins anew, /exit or Ctrl-D leaves, /help lists these. Ctrl-C\nstops an answer, not the "         \
     "program. History lies in $XDG_CACHE_HOME/rose/history.\n",                                                                                     \
     cli_chat, cli_chat_options}

#define CLI_INSPECT_COMMAND                                                                                                                          \
    {"inspect", "MODEL", "What is in a checkpoint, and what it will need in memory.",                                                                \
     "Reads headers only. What Rose cannot run is listed all the same, and it says why it cannot.\n", cli_inspect, cli_inspect_options}

#define CLI_CACHE_COMMAND                                                                                                                            \
    {"cache", "[--clear]", "Packed weights kept for later starts.",                                                                                  \
     "They lie in $XDG_CACHE_HOME/rose/packed. Files whose model is gone or has changed are removed when another is\nwritten, and the least "      \
     "recently used ones beyond the limit.\n",                                                                                                     \
     cli_cache, cli_cache_options}

#define CLI_PULL_COMMAND                                                                                                                             \
    {"pull", "ORG/NAME[@REVISION]", "Fetch a model from the Hugging Face hub.",                                                                      \
     "Files go to the hub's own cache (HF_HUB_CACHE, HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub), shared with\nPython. What an earlier try "        \
     "left is gone on with, and checksums are compared. Without --file: safetensors, or the\nGGUF file where there is one, and the files beside.\n", \
     cli_pull, cli_pull_options}

#define CLI_KERNELS_COMMAND                                                                                                                          \
    {"kernels", "MODEL | layout LAYOUT", "What a model's steps are made of on a GPU; layouts, as a drawing.",                                        \
     "Each kind of launch with its kernel, grid, shared memory, registers, spills, size, compile time, bytes, the time that\nmemory or the tensor cores alone would "    \
     "take (limit), the plan's prediction and, with --measure, the time; with --kernel\nits constants too. Only the model's config is "    \
     "read; no GPU is needed. LAYOUT is written '(8,16):(16,1)', shape and\nstrides, or '<3,3,3> (8,64):(64,1)' with a swizzle before it.\n",      \
     cli_kernels, cli_kernels_options}

#define CLI_MAN_COMMAND {"man", "", NULL, "The man page, of all commands: rose man | man -l -\n", cli_man, cli_man_options}
#define CLI_COMPLETION_COMMAND {"completion", "", NULL, "Completion for bash: source <(rose completion)\n", cli_completion, cli_completion_options}

#define CLI_TOKENIZE_COMMAND                                                                                                                         \
    {"tokenize", "MODEL [TEXT]", "Text to token ids, and back with --decode.", "Without a text, or with -, it is read from standard input.\n",       \
     cli_tokenize, cli_tokenize_options}

#define CLI_RENDER_COMMAND                                                                                                                           \
    {"render", "MODEL | --template FILE [INPUT.json]", "What a chat template makes of messages.",                                                    \
     "The input is a JSON object: messages, tools, documents, add_generation_prompt and any further\nvariables. Without a file, or "  \
     "with -, it is read from standard input.\n",                                                                                                    \
     cli_render_command, cli_render_options}

#define CLI_BENCH_COMMAND                                                                                                                            \
    {"bench", "MODEL | OP", "Throughput and latency of a model.",                                                                                         \
     "Rates are totals over the batch. Prompts are random tokens, different in every round.\n"                                                       \
     "A server is measured with --url; `rose bench --url URL --help` lists its options.\n"                                                          \
     "Single ops (norm, matmul, ...) are measured over shapes; `rose bench norm --help` lists them and their options.\n",                                                        \
     cli_bench, cli_bench_options}

#define CLI_SERVE_COMMAND                                                                                                                            \
    {"serve", "MODEL|DIR [MODEL|DIR...]", "Models behind HTTP: OpenAI, Anthropic, TEI and KServe v2 interfaces, metrics, a page.",                   \
     "POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, /v1/score, /v1/messages, /tokenize, ...;\nGET /v1/models, /health, "    \
     "/metrics, /version, and the page at /; below /v2 KServe's. docs/server.md lists all.\nA DIR is a model repository: each directory with a "       \
     "config.json and each .gguf file in it is served.\nA peer that closes its side counts as gone. SIGTERM: no new requests, those under way may "   \
     "end; a second\none stops at once.\n",                                                                                                         \
     cli_serve, cli_serve_options}

#define CLI_EMBED_COMMAND                                                                                                                            \
    {"embed", "MODEL [FILE]", "Texts of a file to vectors.",                                                                                         \
     "A line a text, or JSON: a string, or an object with \"text\". Without a file, or with -, from standard input.\nA line an answer: "               \
     "{\"index\", \"embedding\"}. With --output the same command goes on where an earlier one ended.\n",                                            \
     cli_embed, cli_embed_options}

#define CLI_RERANK_LINES                                                                                                                             \
    "a line is {\"query\", \"document\"}\nor query TAB document -> {\"index\", \"score\"}; {\"query\", \"documents\": [...]} -> {\"index\", \"results\":\n"       \
    "[{\"index\", \"score\"}]}, best first; with --query every line is a document.\n"
#define CLI_CLASSIFY_LINES                                                                                                                           \
    "a line is a text or {\"text\", \"pair\"} -> {\"index\", \"label\", \"probs\"}; of tokens\n{\"index\", \"tokens\"}.\n"

#define CLI_SCORE_COMMAND                                                                                                                            \
    {"score", "MODEL [FILE]", "Relevance or labels, by what the model is.",                                                                            \
     "Rerankers, cross-encoders and embedders (rose rerank): " CLI_RERANK_LINES "Classifiers (rose classify): " CLI_CLASSIFY_LINES, cli_score,         \
     cli_score_options}

#define CLI_RERANK_COMMAND                                                                                                                           \
    {"rerank", "MODEL [FILE]", "Relevance of documents to a query.",                                                                                 \
     "Rerankers, cross-encoders and embedders: " CLI_RERANK_LINES "Embedders say how alike the embeddings are. Classifiers are refused: rose "         \
     "classify takes them.\n",                                                                                                                       \
     cli_rerank, cli_score_options}

#define CLI_CLASSIFY_COMMAND                                                                                                                         \
    {"classify", "MODEL [FILE]", "Labels of texts.",                                                                                                 \
     "Classifiers: " CLI_CLASSIFY_LINES "Models without labels are refused: rose rerank and rose embed take them.\n", cli_classify,                   \
     cli_classify_options}

#define CLI_BATCH_COMMAND                                                                                                                            \
    {"batch", "MODEL IN.jsonl OUT.jsonl", "A file of requests in OpenAI's batch format.",                                                            \
     "A line a request: {\"custom_id\", \"url\": \"/v1/chat/completions\" or \"/v1/completions\", \"body\"}.\nAfter a kill the same command "         \
     "goes on where it was: answers that are there are kept.\n",                                                                                    \
     cli_batch, cli_batch_options}

#endif
