/* Rose: the public interface of the serving engine. Copyright the Rose authors, Apache-2.0.
 *
 * A rose_device holds one memory plan and one worker pool. A rose_engine is one model with one engine
 * thread; several may share a device. Requests go in with rose_submit, everything that happens to them
 * comes out of rose_events, and every accepted id ends in exactly one final event. Handles are opaque.
 * Every fallible call returns a status (0 is success) and fills a caller's rose_error.
 *
 * Threads: rose_submit, rose_cancel, rose_tokenize, rose_detokenize, rose_render and rose_engine_stats may be
 * called from any thread; rose_events from one thread at a time.
 */
#ifndef ROSE_H
#define ROSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the library shows these and nothing else */
#endif

#define ROSE_VERSION "0.1.0"

enum rose_status {
    ROSE_OK = 0,
    ROSE_INVALID,     /* the caller's argument or request is wrong */
    ROSE_FORMAT,      /* a file does not follow its format */
    ROSE_UNSUPPORTED, /* valid, but not something this build can do */
    ROSE_NOT_FOUND,   /* a file, model, tensor or name is missing */
    ROSE_IO,          /* the operating system refused */
    ROSE_NO_MEMORY,   /* memory of the host, the device or the cache pool */
    ROSE_LIMIT,       /* a stated limit would be exceeded (context length, queue, size) */
    ROSE_BUSY,        /* try again later */
    ROSE_CANCELLED,
    ROSE_DEVICE,   /* the accelerator or its driver failed */
    ROSE_INTERNAL, /* a bug in Rose */
};

/* What went wrong, in a sentence that names the cause and the fix. Callers own the struct. */
struct rose_error {
    char message[1024];
    char file[256]; /* the input it concerns, empty if none */
    int line;       /* 1-based, 0 if unknown */
    int column;     /* 1-based, 0 if unknown */
    int64_t offset; /* byte offset into the input, -1 if unknown */
};

/* A static name such as "invalid" or "no_memory". */
const char *rose_status_name(enum rose_status status);


/* --- devices ------------------------------------------------------------------------------------------------------------- */

struct rose_device;

enum rose_message_level { ROSE_MESSAGE_INFO, ROSE_MESSAGE_DEBUG, ROSE_MESSAGE_WARNING }; /* warning: it works, otherwise than expected */

struct rose_device_options {
    const char *kind;    /* "auto" (NULL): a GPU that can be used, else the CPU; "cpu", "cuda", "cuda:1" */
    int threads;         /* CPU: worker threads, 0: one a core this process may use */
    bool no_pin;         /* CPU: do not bind workers to cores */
    const char *isa;     /* CPU: "auto" (NULL), "portable", "avx2", "avx512", "amx" */
    bool debug_sync;     /* CUDA: wait after every launch, so that an error names its kernel */
    const char *cache_dir; /* compiled kernels and packed weights; NULL: $XDG_CACHE_HOME/rose */
    bool no_packed_cache; /* CPU: pack weights at every start, keep no file of them (under cache_dir/packed) */
    int64_t packed_cache_bytes; /* of the packed weights of all models together, the least recently used go first; 0: a tenth of the file system */
    const char *driver, *nvrtc; /* paths of libcuda and libnvrtc; NULL: the usual places */
    /* Lines worth a log: which device was taken, what became of weights, the memory plan. From any thread, one at a time; may be NULL. */
    void (*message)(void *user, enum rose_message_level level, const char *line);
    void *message_user;
};

enum rose_status rose_device_open(const struct rose_device_options *options, struct rose_device **out, struct rose_error *err);
/* All engines on it must be closed before. */
void rose_device_close(struct rose_device *device);
/* One line such as "CPU, 2 threads, avx512" (valid while the device is open). */
const char *rose_device_name(const struct rose_device *device);

/* GPU memory of another process, opened by the handle that cudaIpcGetMemHandle gave there: for copies. */
struct rose_memory;
enum { ROSE_MEMORY_HANDLE = 64 };
/* handle: handle_bytes, ROSE_MEMORY_HANDLE. gpu: the one that the memory is of, as the driver counts; it must be the device's own. bytes: how
 * many of it are used. ROSE_UNSUPPORTED on a device that is no GPU, before anything else is looked at. */
enum rose_status rose_memory_open(struct rose_device *device, const void *handle, size_t handle_bytes, int64_t gpu, size_t bytes, struct rose_memory **out,
                                  struct rose_error *err);
/* [offset, offset + bytes) of it into to, or from; beside what the device's engines do. */
enum rose_status rose_memory_read(struct rose_memory *memory, size_t offset, void *to, size_t bytes, struct rose_error *err);
enum rose_status rose_memory_write(struct rose_memory *memory, size_t offset, const void *from, size_t bytes, struct rose_error *err);
/* Before the device. */
void rose_memory_close(struct rose_memory *memory);

/* --- engines --------------------------------------------------------------------------------------------------------------- */

struct rose_engine;

struct rose_engine_options {
    const char *model;      /* a Hugging Face directory, a .gguf file, or ORG/NAME in the hub's cache */
    int context;            /* longest sequence in tokens; 0: the model's, at most what the pool holds. Models that embed, classify or score take their
                             * positions where it is more */
    int max_sequences;      /* running at once; 0: 64 */
    int max_waiting;        /* queued at most, more are refused with ROSE_BUSY; 0: 4096 */
    int step_tokens;        /* token budget of a step; 0: 512, on a GPU 8192 */
    double step_stretch;    /* while sequences decode, prompts may stretch a step to so many times what it takes without them; 0: 2, on a GPU no such
                             * bound; 1000 or more: none (a quarter of step_tokens, on a GPU half, bounds the rows) */
    const char *kv;         /* cache type: "auto" (NULL: f16, on a GPU what the model computes in), "f16", "f32", "bf16", "q8_0", "fp8" */
    size_t kv_bytes;        /* cache pool; 0: what the machine has left, at most max_sequences full contexts */
    double memory_share;    /* without kv_bytes: of what the machine has left, the cache's part, above 0 to 1 (0: all); for several models */
    size_t cache_ready;     /* CPU: bytes of the pool beyond those used that a resting engine takes from the system, so that no step waits for them; 0: none */
    bool deterministic;     /* the same bits for a request alone and under any load */
    bool no_prefix_cache;
    bool tokenizer_only;    /* no weights: tokenize, detokenize, render and facts work, submit is refused */
    const char *chat_template; /* template text that replaces the model's own; NULL */
    const char *weights;    /* what float matrices become in memory: "file" (NULL): as they are; "bf16", "f16", "q8_0" (CPU). On a GPU the
                             * step computes in that type, "file": in f16 where most of the file is F16, else in bf16 */
    const char *task;       /* "auto" (NULL): what the model's files say; "generate", "embed", "classify", "score" */
    bool dummy_weights;     /* random weights, from a directory's config.json alone; without a tokenizer.json texts are ids: "[12][345]" */
    /* Called while rose_engine_open runs, one call at a time but from any thread: weights load while kernels compile. May be NULL. */
    void (*progress)(void *user, const char *what, size_t done, size_t total);
    void *progress_user;
};

enum rose_status rose_engine_open(struct rose_device *device, const struct rose_engine_options *options, struct rose_engine **out, struct rose_error *err);
/* Ends every request with a final event nobody will read, stops the thread, frees all. */
void rose_engine_close(struct rose_engine *engine);

/* Facts of the model; strings live as long as the engine. */
struct rose_model_info {
    const char *name, *architecture, *format; /* "SmolLM2 135M Instruct", "llama", "gguf" */
    const char *weights_type;                 /* the type most parameters have: "Q4_1" */
    int64_t parameters;
    int context;                              /* in force */
    int model_context;                        /* what the model was trained for */
    int vocabulary, layers, hidden;
    const char *chat_template;                /* NULL: none */
    const char *kv_type;
    size_t weights_bytes, kv_bytes, work_bytes; /* the memory plan */
    int kv_pages, page_tokens;
    int bos;                                  /* -1: none */
    int max_sequences, step_tokens;
    double load_seconds;
    double upload_seconds;                    /* of these, weights to the GPU's memory (0 on the CPU) */
    size_t graph_bytes;                       /* of work_bytes, captured graphs */
    /* What it answers besides, or instead of, text. */
    unsigned tasks;                           /* ROSE_CAN_* bits */
    int embedding_size;                       /* values of an embedding before `dimensions`; 0 when it embeds nothing */
    int longest_input;                        /* tokens of one text (or pair), special tokens included */
    const char *pooling;                      /* "cls", "mean", "last", "weighted_mean", "max", "none"; NULL when it embeds nothing */
    bool normalized;                          /* embeddings have length 1 unless the request says otherwise */
    const char *similarity;                   /* how its embeddings are compared: "cosine" (or NULL: nothing said), "dot", "euclidean", "manhattan" */
    const char *const *labels;                /* [labels_count] in the order of the values; "LABEL_0" where the model names none */
    int labels_count;                         /* 0 when it classifies nothing */
    const char *problem_type;                 /* "single_label_classification" (softmax), "multi_label_classification" (sigmoid), "regression" (raw); NULL */
    const char *const *prompts;               /* [prompts_count] names that rose_request.prompt_name takes */
    const char *const *prompt_texts;          /* [prompts_count] what each puts before a text */
    int prompts_count;
    const char *default_prompt;               /* the one used when a request names none; NULL: no prompt */
    bool counted_positions;                   /* learned positions that count padding too: a text's tokens differ behind some (BERT) */
};
/* Bits of rose_model_info.tasks. */
enum {
    ROSE_CAN_GENERATE = 1,
    ROSE_CAN_EMBED = 2,
    ROSE_CAN_SPARSE = 4,          /* embed with `sparse` */
    ROSE_CAN_CLASSIFY = 8,        /* labels of a text or a pair */
    ROSE_CAN_CLASSIFY_TOKENS = 16, /* labels of every token (classify answers with one row a token) */
    ROSE_CAN_SCORE = 32,          /* one relevance score for a query and a document */
};
void rose_engine_info(const struct rose_engine *engine, struct rose_model_info *out);

/* --- text and tokens --------------------------------------------------------------------------------------------------------- */

enum {
    ROSE_TOKENIZE_NO_SPECIAL = 1,    /* add no BOS, EOS or other special tokens of the post-processor */
    ROSE_TOKENIZE_PARSE_SPECIAL = 2, /* control tokens spelt out in the text become those tokens */
};
/* At most capacity ids go to `ids`; *count is how many there are (call again with more room when larger). */
enum rose_status rose_tokenize(const struct rose_engine *engine, const char *text, size_t bytes, int flags, int32_t *ids, size_t capacity, size_t *count,
                               struct rose_error *err);
/* Where the ids that rose_tokenize made of a text lie in it: spans[count], bytes of the text without the spaces around a token, or -1, -1 of a special
 * token that was added. Found by comparing letters, so that a place may be empty where a tokenizer rewrites its text. */
struct rose_token_span { int64_t start, stop; };
enum rose_status rose_token_spans(const struct rose_engine *engine, const char *text, size_t bytes, int flags, const int32_t *ids, size_t count,
                                  struct rose_token_span *spans, struct rose_error *err);
/* The ids that a chat request (the JSON object of rose_render) has as its prompt. */
enum rose_status rose_tokenize_chat(const struct rose_engine *engine, const char *input, size_t input_bytes, int32_t *ids, size_t capacity, size_t *count,
                                    struct rose_error *err);
enum { ROSE_DETOKENIZE_SKIP_SPECIAL = 1 };
/* At most capacity bytes go to `text` (no NUL); *bytes is the whole length. */
enum rose_status rose_detokenize(const struct rose_engine *engine, const int32_t *ids, size_t count, int flags, char *text, size_t capacity, size_t *bytes,
                                 struct rose_error *err);
/* The bytes of one token as decoding would add them in the middle of a text; NULL for an id outside the vocabulary. *bytes is its length. */
const char *rose_token_text(const struct rose_engine *engine, int32_t id, size_t *bytes);

/* Render the chat template. `input` is a JSON object: messages, tools, documents, add_generation_prompt (default true here as in
 * every chat request) and any further variables. "continue_final_message": true ends the text right behind the last message's
 * content, so that the model goes on with it. Text as with rose_detokenize. */
enum rose_status rose_render(const struct rose_engine *engine, const char *input, size_t input_bytes, char *text, size_t capacity, size_t *bytes,
                             struct rose_error *err);
/* The same for a template text alone, without an engine. file names it in errors. */
enum rose_status rose_render_template(const char *chat_template, size_t template_bytes, const char *file, const char *input, size_t input_bytes, char *text,
                                      size_t capacity, size_t *bytes, struct rose_error *err);

/* 64 digits of a checkpoint's files, their names, sizes and contents (of large ones pieces), NUL-terminated: another model gives others, a copy the same. */
enum rose_status rose_fingerprint(const char *model, char out[65], struct rose_error *err);

/* What is in a checkpoint, as a JSON text (docs/cli.md lists the keys); free with rose_free. context, sequences and kv as in the engine's options. */
enum rose_status rose_inspect(const char *model, int context, int sequences, const char *kv, char **json, struct rose_error *err);
/* The packed weights kept under cache_dir (NULL: $XDG_CACHE_HOME/rose), as a JSON text (docs/cli.md); clear: and remove them. limit as in
 * rose_device_options; free with rose_free. */
enum rose_status rose_packed_cache(const char *cache_dir, int64_t limit, bool clear, char **json, struct rose_error *err);
/* What a layout "(8,16):(16,1)" or "<3,4,3> (8,16):(16,1)" is and, with draw, looks like, as text; free with rose_free. */
enum rose_status rose_layout(const char *text, bool draw, bool color, char **out, struct rose_error *err);
/* What a model's steps are made of on a GPU, recorded from its config alone: no weights are read, and without a GPU a card of the
 * architecture is planned for. */
enum rose_kernels_show { ROSE_KERNELS_JSON, ROSE_KERNELS_SOURCE, ROSE_KERNELS_PTX, ROSE_KERNELS_SASS };
struct rose_kernels_options {
    const char *model;           /* as in the engine's options */
    const char *arch;            /* without a device: "sm_80", "sm_89", "sm_90a" (NULL), "sm_100a", "sm_120a" */
    const int *batches, *chunks; /* decode steps of so many sequences, steps of prompts of so many rows; each goes to the next bucket that there is */
    size_t batches_count, chunks_count;
    int context;                 /* tokens of every sequence; 0: 1024 */
    int max_sequences, step_tokens; /* as in the engine's options: they say which programs there are */
    const char *kv;
    bool deterministic;
    bool measure;                /* with a device: run each launch and add its time */
    enum rose_kernels_show show; /* JSON: docs/cli.md lists the keys; else the text of each kernel */
    const char *kernel;          /* only kernels whose name has this in it; NULL: all */
    const char *export_dir;      /* write all compiled kernels of the engine there, for machines without NVRTC */
    const char *cache_dir, *nvrtc; /* without a device: as in its options */
    void (*progress)(void *user, const char *what, size_t done, size_t total);
    void *progress_user;
};
/* device: a CUDA device, or NULL. *out is freed with rose_free. */
enum rose_status rose_kernels(struct rose_device *device, const struct rose_kernels_options *options, char **out, struct rose_error *err);
/* Time single ops over shapes. The ops by number; NULL past the last. */
const char *rose_bench_op_name(size_t i);
struct rose_bench_op_options {
    const char *op;
    const char *const *shapes; /* "rows=1,16,4096": a number of the op and its values; every combination is a case */
    size_t shapes_count;
    double seconds;            /* of each case; 0: 0.3 */
    int copies;                /* at most so many copies take turns; 0: as many as are larger than the caches */
    const char *weights;       /* matmul, moe: what the matrices are stored as, a type of GGUF ("q4_k"); NULL: bf16 */
    const char *arch;          /* without a device: plan for it, measure nothing */
    const char *cache_dir, *nvrtc; /* without a device: as in its options */
    void (*progress)(void *user, const char *what, size_t done, size_t total);
    void *progress_user;
};
/* device: NULL plans. *out is a JSON text (docs/cli.md lists the keys), freed with rose_free. */
enum rose_status rose_bench_op(struct rose_device *device, const struct rose_bench_op_options *options, char **out, struct rose_error *err);
void rose_free(void *memory);

/* --- requests ------------------------------------------------------------------------------------------------------------------ */

enum rose_request_kind {
    ROSE_REQUEST_TEXT,   /* prompt is text, tokenised with special tokens added */
    ROSE_REQUEST_CHAT,   /* prompt is a JSON object for the chat template (rose_render) */
    ROSE_REQUEST_TOKENS, /* token ids as they are */
};

enum rose_task {
    ROSE_TASK_GENERATE, /* text: the events of rose_event_kind */
    /* The others are answered by the final event alone: values, rows, cols, value_ids. */
    ROSE_TASK_EMBED,    /* TEXT or TOKENS -> values[1, embedding_size], or one row a token (pooling NONE), or sparse weights */
    ROSE_TASK_CLASSIFY, /* one text or a pair -> values[1, labels_count]; token classifiers -> one row a token */
    ROSE_TASK_SCORE,    /* query (prompt) and document (pair), or TOKENS that are both -> values[1, 1], higher is more relevant */
};

enum rose_pooling {
    ROSE_POOL_MODEL, /* what the model's own files say */
    ROSE_POOL_CLS, ROSE_POOL_MEAN, ROSE_POOL_LAST, ROSE_POOL_WEIGHTED_MEAN, ROSE_POOL_MAX,
    ROSE_POOL_NONE,  /* a row for every token, special tokens included; value_ids are the tokens */
};
enum rose_switch { ROSE_DEFAULT, ROSE_ON, ROSE_OFF }; /* what the model does, or yes, or no */
/* An input longer than the model (or truncate_tokens) takes: refused with ROSE_LIMIT that names the limit, or shortened. Special tokens stay. */
enum rose_truncate {
    ROSE_TRUNCATE_NONE,
    ROSE_TRUNCATE_LEFT,  /* the beginning is cut off */
    ROSE_TRUNCATE_RIGHT, /* the end is cut off; of a pair the longer text's (longest first) */
};

struct rose_logit_bias {
    int32_t id;
    float bias; /* added to the logit */
};

struct rose_sampling {
    float temperature;     /* 0: greedy */
    int top_k;             /* 0: off */
    float top_p;           /* 1 (or 0): off */
    float min_p;           /* 0: off */
    float repetition_penalty; /* 1 (or 0): off; over prompt and answer (Keskar et al. 2019) */
    float presence_penalty, frequency_penalty; /* over the answer */
    uint64_t seed;         /* used when has_seed */
    bool has_seed;
    bool ignore_eos;
    int min_tokens;        /* no end token or stop before so many */
    const struct rose_logit_bias *logit_bias;
    size_t logit_bias_count;
};

struct rose_request {
    enum rose_request_kind kind;
    const char *prompt;          /* TEXT, CHAT */
    size_t prompt_bytes;
    const int32_t *tokens;       /* TOKENS */
    size_t tokens_count;
    const int32_t *token_types;  /* TOKENS of CLASSIFY, SCORE, EMBED: [tokens_count], the type (segment) of each; NULL: all 0 */
    int tokenize_flags;          /* TEXT */
    struct rose_sampling sampling;
    int max_tokens;              /* -1: to the end of the context; 0: only the prompt (logprobs) */
    const char *const *stops;    /* stop strings, NUL-terminated, not empty */
    size_t stops_count;
    const int32_t *stop_ids;
    size_t stop_ids_count;
    bool include_stop;           /* the stop string is part of the text */
    bool keep_special;           /* special tokens show in the text */
    int logprobs;                /* -1: none; 0..20: of each token, with so many alternatives */
    int prompt_logprobs;         /* the same for prompt tokens */
    int priority;                /* smaller goes first; equal: first come */
    /* A reasoning model: behind so many tokens of thoughts their closing tag is forced; 0: no bound. Tags are at most 64 bytes, and their first
     * character occurs in them once. */
    int thought_tokens;
    const char *thought_open;    /* "<think>", when the answer begins with it; NULL: the prompt ends with it already */
    const char *thought_close;   /* "</think>" */
    int64_t deadline_ms;         /* from submission; 0: none */
    const char *cache_salt;      /* requests share prefixes only within a salt; NULL: "" */
    uint64_t user;               /* comes back with every event */
    int choices;                 /* n: how many answers, sharing one prompt; 0 means 1. Events carry the choice's index. */
    /* EMBED, CLASSIFY, SCORE. One request is one text (or pair): a call with many submits many. The fields of sampling do not count;
     * priority, deadline_ms and user do. Of equal priority, requests with the same `group` (one caller's batch) take turns with those of other
     * groups, so that a batch of thousands starves nobody. */
    enum rose_task task;
    const char *pair;            /* SCORE: the document; CLASSIFY: the second text, NULL: none */
    size_t pair_bytes;
    const char *prompt_name;     /* EMBED: a name of rose_model_info.prompts; NULL: the model's default; "": none */
    const char *instruction;     /* SCORE with a model whose template has one (Qwen3-Reranker): what is looked for; NULL: the template's own */
    enum rose_pooling pooling;
    int dimensions;              /* EMBED: keep so many leading values (Matryoshka, Kusupati et al. 2022), before normalising; 0: all */
    enum rose_switch normalize;  /* EMBED: to length 1 */
    enum rose_switch activation; /* CLASSIFY, SCORE: OFF gives raw logits, ON the sigmoid or softmax of the problem type */
    bool sparse;                 /* EMBED: token weights of the lexical head: values[1, cols] beside value_ids[cols], ids ascending */
    enum rose_truncate truncate;
    int truncate_tokens;         /* with truncate: at most so many tokens; 0: the model's longest input */
    uint64_t group;              /* 0: a batch of its own */
};
/* A request with every field at its neutral value (max_tokens -1, logprobs -1, penalties off, greedy). */
void rose_request_init(struct rose_request *request);

/* Queue a request; all it points to is copied. Refuses what can never be served, with the limit in the message. */
enum rose_status rose_submit(struct rose_engine *engine, const struct rose_request *request, uint64_t *id, struct rose_error *err);
/* Ask for the end of a request; its final event follows. Unknown or finished ids are ignored. */
void rose_cancel(struct rose_engine *engine, uint64_t id);

enum rose_event_kind {
    ROSE_EVENT_PROMPT, /* the prompt has been read: token counts, prompt logprobs */
    ROSE_EVENT_TOKEN,  /* one new token (text may be empty while a character is incomplete) */
    ROSE_EVENT_CHOICE, /* one of several choices has ended: finish */
    ROSE_EVENT_FINAL,  /* the last event of the request */
};
enum rose_finish { ROSE_FINISH_NONE, ROSE_FINISH_STOP, ROSE_FINISH_LENGTH, ROSE_FINISH_CANCELLED, ROSE_FINISH_DEADLINE, ROSE_FINISH_ERROR };
const char *rose_finish_name(enum rose_finish finish);

struct rose_logprob {
    int32_t id;
    float logprob;
};

/* Text and arrays are valid until the next rose_events on this engine. */
struct rose_event {
    enum rose_event_kind kind;
    uint64_t id, user;
    int choice;
    int32_t token;          /* TOKEN: its id, -1 when the event only carries held-back text */
    const char *text;       /* TOKEN: bytes to append, whole UTF-8 characters */
    size_t text_bytes;
    float logprob;          /* TOKEN, when asked for */
    const struct rose_logprob *top; /* [top_count] alternatives, most likely first; PROMPT: prompt_count rows of top_per_token */
    int top_count;
    /* PROMPT with prompt_logprobs: the prompt's tokens and their log-probabilities (NAN for the first). */
    const int32_t *prompt_tokens;
    const float *prompt_logprobs;
    int prompt_count, top_per_token;
    /* PROMPT and FINAL */
    int prompt_tokens_count, cached_tokens, completion_tokens;
    enum rose_finish finish; /* CHOICE, FINAL */
    int stop_index;          /* which stop string ended it; -1: none */
    int32_t stop_token;      /* which token ended it; -1: none */
    enum rose_status status; /* FINAL: why, when finish is ERROR */
    const char *message;
    double queued_s, prefill_s, decode_s; /* FINAL */
    /* FINAL of EMBED, CLASSIFY, SCORE with finish STOP: float32, row-major */
    const float *values;         /* [rows, cols] */
    int rows, cols;
    const int32_t *value_ids;    /* [value_ids_count] sparse: the token of each column; a row a token: the token of each row; else NULL */
    int value_ids_count;
};

/* Fill up to n events; waits up to timeout_ms (-1: for ever, 0: not at all) for the first one. Returns how many. */
size_t rose_events(struct rose_engine *engine, struct rose_event *events, size_t n, int timeout_ms);
/* A descriptor that polls readable while events wait. */
int rose_event_fd(struct rose_engine *engine);

/* --- state ------------------------------------------------------------------------------------------------------------------------ */

enum { ROSE_HISTOGRAM_BUCKETS = 24 };
/* Bucket i counts values <= 2^(i - 12) seconds (0.24 ms to 2048 s); the last one counts all above too. */
struct rose_histogram {
    uint64_t count[ROSE_HISTOGRAM_BUCKETS], total;
    double sum;
};

struct rose_stats {
    uint64_t steps, tokens_in, tokens_out, requests, finished, cancelled, failed, preemptions;
    uint64_t prefix_lookup_tokens, prefix_hit_tokens, late_compiles;
    int running, waiting, pages_total, pages_free, pages_cached;
    int last_prefill_rows, last_decode_rows; /* of the latest step */
    double last_step_s, seconds_since_step;  /* the latter counts only while there is work */
    bool lost;                               /* the device has failed: requests are refused until the engine is opened again */
    struct rose_histogram ttft, inter_token, end_to_end, step_time, queue_time;
};
void rose_engine_stats(const struct rose_engine *engine, struct rose_stats *out);

/* One step: how many tokens of prompts and how many decoding sequences its batch had. */
struct rose_step {
    uint64_t index; /* from 1 */
    int prefill_rows, decode_rows;
    float seconds;
};
enum { ROSE_STEPS_KEPT = 256 };
/* The latest steps with an index above `after`, oldest first, at most n; returns how many. */
size_t rose_engine_steps(const struct rose_engine *engine, uint64_t after, struct rose_step *steps, size_t n);
/* Where the device's time goes: each kind of launch since the profile was switched on. On a GPU launches run
 * one by one while it is on, between events. */
struct rose_profile_entry {
    const char *name;
    uint64_t calls;
    double seconds, bytes, operations; /* what the launches must move and compute */
};
/* Switch on (and back to zero) or off; call while no request is running. */
enum rose_status rose_device_profile(struct rose_device *device, bool on, struct rose_error *err);
/* At most n entries; returns how many. Call while no request is running. */
size_t rose_device_profile_read(const struct rose_device *device, struct rose_profile_entry *entries, size_t n);
/* A trace of a GPU's steps: their parts in order, at most `marks` ends of parts; 0 switches it off. Call while no request is running. */
struct rose_span {
    const char *name;        /* "inputs", "decode", "mixed", "sample" */
    int step;                /* from 1 */
    double begin_s, seconds; /* since the first one */
};
enum rose_status rose_device_trace(struct rose_device *device, int marks, struct rose_error *err);
/* At most n spans go to `spans`, their number to *count. */
enum rose_status rose_device_trace_read(struct rose_device *device, struct rose_span *spans, int n, int *count, struct rose_error *err);
/* Take no new requests; running ones go on. */
void rose_engine_drain(struct rose_engine *engine);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
