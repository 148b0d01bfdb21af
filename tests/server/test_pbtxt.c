/* config.pbtxt: protobuf's text format, what of a ModelConfig is read, and whose names the engine's tensors get. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "server/kserve.h"
#include "server/model_config.h"
#include "server/pbtxt.h"
#include "test.h"

/* --- the format ------------------------------------------------------------------------------------------------------------------------- */

static struct arena arena;
static struct rose_error error;

static const struct pbtxt_field *tree(const char *text)
{
    struct pbtxt_field *f = NULL;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct rose_error){0};
    CHECK_OK(pbtxt_read(str_of(text), "f", &arena, &f, &error), error);
    return f;
}

static void refused(const char *text, int line, int column, const char *word)
{
    struct pbtxt_field *f;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct rose_error){0};
    CHECK(pbtxt_read(str_of(text), "f", &arena, &f, &error) != ROSE_OK);
    CHECK_INT(error.line, line);
    CHECK_INT(error.column, column);
    CHECK_STR(error.file, "f");
    if (!strstr(error.message, word)) CHECK_STR(error.message, word);
}

TEST(fields_lists_and_messages)
{
    CHECK(tree("") == NULL && tree(" # nothing\n\t") == NULL);
    const struct pbtxt_field *f = tree("name: 'x'; dims: [ -1, 0x10 ,010] # c\n, m { a: FOO } m < b: { } > l [ { c: 1 }, < > ] e: [ ]");
    CHECK(str_is(f->name, "name") && f->kind == PBTXT_STRING && str_is(f->value, "x") && !f->listed);
    const int64_t want[] = {-1, 16, 8};
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;
        f = f->next;
        CHECK(str_is(f->name, "dims") && f->listed && pbtxt_integer(f, &n));
        CHECK_INT(n, want[i]);
    }
    CHECK(str_is(f->next->name, "m") && str_is(f->next->fields->value, "FOO") && f->next->fields->kind == PBTXT_NAME);
    f = f->next->next;
    CHECK(str_is(f->name, "m") && f->line == 2 && f->column == 16 && f->fields->kind == PBTXT_MESSAGE && !f->fields->fields);
    CHECK(str_is(f->next->name, "l") && f->next->listed && f->next->next->kind == PBTXT_MESSAGE && !f->next->next->next);
}

TEST(texts_and_numbers)
{
    const struct pbtxt_field *f = tree("s: \"a\\n\\\"\\\\\\101\\x41\\u00e9\\U0001F600\" 'b'\n \"c\"");
    CHECK(str_is(f->value, "a\n\"\\AA\xC3\xA9\xF0\x9F\x98\x80" "bc"));
    int64_t n = 0;
    bool b = false;
    CHECK(pbtxt_integer(tree("a: 9223372036854775807"), &n) && n == INT64_MAX);
    CHECK(pbtxt_integer(tree("a: - 9223372036854775808"), &n) && n == INT64_MIN);
    CHECK(!pbtxt_integer(tree("a: 9223372036854775808"), &n) && !pbtxt_integer(tree("a: 09"), &n) && !pbtxt_integer(tree("a: 1.5"), &n) && !pbtxt_integer(tree("a: 1e3f"), &n));
    CHECK(!pbtxt_integer(tree("a: '1'"), &n) && !pbtxt_integer(tree("a: ONE"), &n) && !pbtxt_integer(tree("a: 0x10000000000000000"), &n));
    CHECK(pbtxt_bool(tree("a: true"), &b) && b && pbtxt_bool(tree("a: f"), &b) && !b && pbtxt_bool(tree("a: 1"), &b) && b && !pbtxt_bool(tree("a: yes"), &b) && !pbtxt_bool(tree("a: 2"), &b));
    CHECK(tree("a: -inf")->kind == PBTXT_NAME && tree("a: .5")->kind == PBTXT_NUMBER && tree("a: 5.f")->kind == PBTXT_NUMBER);
}

TEST(syntax_errors_have_their_place)
{
    refused("a", 1, 2, "':' or '{'");
    refused("a b", 1, 3, "':' or '{'");
    refused("a 1", 1, 3, "'1'");
    refused("x: 1\n  a: }", 2, 6, "a value");
    refused("a {\n b: 1\n", 3, 1, "a field's name or '}'");
    refused("a { >", 1, 5, "a field's name");
    refused("a < }", 1, 5, "a field's name");
    refused("a: [1,]", 1, 7, "a value");
    refused("a: [1 2]", 1, 7, "',' or ']'");
    refused("a: 'x\ny'", 1, 6, "on the same line");
    refused("a: \"x", 1, 6, "the end of the file");
    refused("a: '\\q'", 1, 6, "an escape");
    refused("a: '\\ud800'", 1, 11, "Unicode");
    refused("a: '\\400'", 1, 9, "octal");
    refused("a: '\\x'", 1, 7, "hexadecimal");
    refused("a: 12x", 1, 6, "the end of a number");
    refused("a: 0x", 1, 6, "hexadecimal");
    refused("a: 1e", 1, 6, "exponent");
    refused("[ext.name]: 1", 1, 1, "a field's name");
    refused("1: 2", 1, 1, "a field's name");
    refused("}", 1, 1, "a field's name");
    refused("a: \x01", 1, 4, "a value");
}

TEST(bounds)
{
    struct strbuf b = {0};
    for (int i = 0; i < PBTXT_DEPTH; i++) strbuf_adds(&b, "a{");
    for (int i = 0; i < PBTXT_DEPTH; i++) strbuf_adds(&b, "}");
    tree(b.p);
    b.n = 0;
    for (int i = 0; i < 100000; i++) strbuf_adds(&b, "a{");
    refused(b.p, 1, 2 * PBTXT_DEPTH + 2, "within each other");
    b.n = 0;
    strbuf_adds(&b, "a:[1");
    for (int i = 1; i < PBTXT_FIELDS; i++) strbuf_adds(&b, ",1");
    strbuf_adds(&b, "]");
    tree(b.p);
    b.n--;
    strbuf_adds(&b, ",1]");
    struct pbtxt_field *f;
    CHECK_INT(pbtxt_read(strbuf_str(&b), "f", &arena, &f, &error), ROSE_LIMIT);
    b.n = 0;
    strbuf_reserve(&b, PBTXT_BYTES + 1);
    memset(b.p, ' ', PBTXT_BYTES + 1);
    CHECK_OK(pbtxt_read((struct str){b.p, PBTXT_BYTES}, "f", &arena, &f, &error), error);
    CHECK_INT(pbtxt_read((struct str){b.p, PBTXT_BYTES + 1}, "f", &arena, &f, &error), ROSE_LIMIT);
    strbuf_free(&b);
}

/* --- a ModelConfig ------------------------------------------------------------------------------------------------------------------------ */

static struct model_config *config(const char *text)
{
    struct model_config *c = NULL;
    error = (struct rose_error){0};
    CHECK_OK(model_config_read(str_of(text), "m/config.pbtxt", "m", &c, &error), error);
    return c;
}

static void bad(const char *text, const char *place, const char *word)
{
    struct model_config *c = NULL;
    char start[80];
    error = (struct rose_error){0};
    CHECK(model_config_read(str_of(text), "m/config.pbtxt", "m", &c, &error) != ROSE_OK && !c);
    snprintf(start, sizeof start, "m/config.pbtxt:%s: ", place);
    if (!str_starts(str_of(error.message), str_of(start))) CHECK_STR(error.message, start);
    if (!strstr(error.message, word)) CHECK_STR(error.message, word);
}

TEST(what_a_configuration_says)
{
    struct model_config *c = config("name: \"m\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 16\n"
                                    "input [ { name: \"ids\" data_type: TYPE_INT64 dims: [ -1 ] }, { name: 'mask' data_type: 9 dims: -1 optional: true allow_ragged_batch: false } ]\n"
                                    "output { name: \"vector\" data_type: TYPE_FP16 dims: [ 384 ] reshape { shape: [ 384 ] } label_filename: \"\" }\n"
                                    "instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] } ]\n"
                                    "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 priority_levels: 3 default_priority_level: 2 }\n"
                                    "optimization { execution_accelerators { gpu_execution_accelerator : [ { name : \"tensorrt\" parameters { key: \"a\" value: \"b\" } } ] } }\n"
                                    "parameters: { key: \"tokenizer\" value: { string_value: \"x\" } }\n"
                                    "parameters { key: \"rose.output.vector\" value { string_value: \"embedding\" } }\n");
    CHECK(c->has_batch && c->max_batch == 16 && c->inputs_count == 2 && c->outputs_count == 1 && !c->has_policy);
    CHECK_STR(c->inputs[1].name, "mask");
    CHECK(c->inputs[0].type == KSERVE_INT64 && c->inputs[1].type == KSERVE_INT64 && !c->inputs[0].optional && c->inputs[1].optional && c->inputs[1].rank == 1 && c->inputs[1].dims[0] == -1);
    CHECK(c->outputs[0].type == KSERVE_FP16 && c->outputs[0].dims[0] == 384 && !c->inputs[0].to);
    CHECK_STR(c->outputs[0].to, "embedding");
    CHECK(c->priority_levels == 3 && c->default_priority == 2);
    CHECK_STR(c->unused.p, "platform, instance_group, optimization, dynamic_batching.preferred_batch_size, dynamic_batching.max_queue_delay_microseconds, parameters");
    model_config_free(c);
    c = config("max_batch_size: 0 input { name: \"t\" data_type: TYPE_STRING dims: [ 1 ] }");
    CHECK(c->has_batch && !c->max_batch && c->inputs[0].type == KSERVE_BYTES);
    model_config_free(c);
}

/* A label a line, of a file beside the configuration; only such a file. */
TEST(labels_of_outputs)
{
    char folder[] = "/tmp/rose_labels_XXXXXX", path[100], text[200];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/labels.txt", folder);
    CHECK_OK(file_write_atomic(path, STR("no\r\n\nperhaps\nyes"), &error), error);
    snprintf(text, sizeof text, "%s/config.pbtxt", folder);
    static const char config_text[] = "max_batch_size: 1 output { name: 'logits' data_type: TYPE_FP32 dims: 3 label_filename: 'labels.txt' } output { name: 'probabilities' data_type: TYPE_FP32 dims: 3 }";
    struct model_config *c = NULL;
    CHECK_OK(model_config_read(STR(config_text), text, "m", &c, &error), error);
    const struct rose_model_info info = {.tasks = ROSE_CAN_CLASSIFY, .labels_count = 3, .labels = (const char *const[]){"a", "b", "c"}};
    struct model m = {.name = "m", .info = info, .config = c};
    CHECK_OK(kserve_map_build(&m, c, &m.map, &error), error);
    int n = 0;
    const char *const *labels = kserve_map_labels(&m, STR("logits"), &n);
    CHECK_INT(n, 4);
    CHECK(!strcmp(labels[0], "no") && !strcmp(labels[1], "") && !strcmp(labels[3], "yes"));
    labels = kserve_map_labels(&m, STR("probabilities"), &n);
    CHECK(n == 3 && !strcmp(labels[2], "c"));
    kserve_map_free(m.map);
    model_config_free(c);
    CHECK(unlink(path) == 0);
    CHECK_INT(model_config_read(STR(config_text), text, "m", &c, &error), ROSE_NOT_FOUND);
    CHECK(strstr(error.message, ":1:88: output 'logits': its labels cannot be read"));
    CHECK(rmdir(folder) == 0);
    bad("output { name: 'x' data_type: TYPE_FP32 dims: 1 label_filename: '../passwd' }", "1:65", "beside config.pbtxt");
    bad("output { name: 'x' data_type: TYPE_FP32 dims: 1 label_filename: 'a\\001' }", "1:65", "beside config.pbtxt");
}

TEST(contradictions_are_refused_at_their_place)
{
    bad("name: \"n\"", "1:7", "\"m\", the directory's name");
    bad("a: 1", "1:1", "no field \"a\"");
    bad("\ninput { name: 'x' data_typ: TYPE_FP32 }", "2:19", "data_typ");
    bad("input: 5", "1:8", "a message");
    bad("name: m", "1:7", "a text in quotes");
    bad("max_batch_size: 'x'", "1:17", "a whole number");
    bad("max_batch_size: -1", "1:17", "from 0");
    bad("max_batch_size: 1 max_batch_size: 2", "1:19", "only one");
    bad("max_batch_size: [ 1 ]", "1:19", "no list");
    bad("input { data_type: TYPE_FP32 dims: 1 }", "1:7", "a name");
    bad("input { name: '' data_type: TYPE_FP32 dims: 1 }", "1:15", "a name");
    bad("input { name: 'a\\n' data_type: TYPE_FP32 dims: 1 }", "1:15", "a name");
    bad("input { name: '\\xff' data_type: TYPE_FP32 dims: 1 }", "1:15", "a name");
    bad("input { name: 'x' dims: 1 }", "1:7", "data_type");
    bad("input { name: 'x' data_type: TYPE_FLOAT dims: 1 }", "1:30", "not TYPE_FLOAT");
    bad("input { name: 'x' data_type: TYPE_BYTES dims: 1 }", "1:30", "TYPE_STRING");
    bad("input { name: 'x' data_type: FP32 dims: 1 }", "1:30", "TYPE_FP32");
    bad("input { name: 'x' data_type: 0 dims: 1 }", "1:30", "data_type");
    bad("input { name: 'x' data_type: 15 dims: 1 }", "1:30", "data_type");
    bad("input { name: 'x' data_type: TYPE_FP32 }", "1:7", "dims");
    bad("input { name: 'x' data_type: TYPE_FP32 dims: 0 }", "1:46", "from 1 on");
    bad("input { name: 'x' data_type: TYPE_FP32 dims: -2 }", "1:46", "from 1 on");
    bad("input { name: 'x' data_type: TYPE_FP32 dims: [1,1,1,1,1,1,1,1,1] }", "1:63", "at most 8");
    bad("input { name: 'x' data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }", "1:65", "shape tensors");
    bad("input [ { name: 'x' data_type: TYPE_FP32 dims: 1 }, { name: 'x' data_type: TYPE_FP32 dims: 1 } ]", "1:61", "twice");
    bad("sequence_batching { }", "1:1", "keeps a state");
    bad("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }", "1:60", "max_batch_size");
    bad("dynamic_batching { priority_levels: 2 }", "1:37", "default_priority_level");
    bad("dynamic_batching { priority_levels: 2 default_priority_level: 3 }", "1:63", "priority_levels, 2");
    bad("parameters { key: 'rose.output.y' value { string_value: 'embedding' } }", "1:19", "no output 'y'");
    bad("parameters { key: 'rose.z' value { string_value: 'embedding' } }", "1:19", "rose.input.NAME");
    bad("input { name: 'x' data_type: TYPE_STRING dims: 1 } parameters { key: 'rose.input.x' }", "1:63", "string_value");
    bad("input { name: 'x' data_type: TYPE_STRING dims: 1 } parameters { key: 'rose.input.x' value { string_value: 'text' } } parameters { key: 'rose.input.x' value { string_value: 'text' } }", "1:136", "twice");
    struct strbuf b = {0};
    for (int i = 0; i <= KSERVE_TENSORS; i++) strbuf_printf(&b, "input { name: 'x%d' data_type: TYPE_FP32 dims: 1 }\n", i);
    bad(b.p, "65:7", "at most 64");
    strbuf_free(&b);
}

/* --- onto the engine's tensors -------------------------------------------------------------------------------------------------------------- */

static const struct rose_model_info embedder = {.tasks = ROSE_CAN_EMBED, .embedding_size = 24, .hidden = 32}, sparse = {.tasks = ROSE_CAN_EMBED | ROSE_CAN_SPARSE, .embedding_size = 24, .hidden = 24},
                                    classifier = {.tasks = ROSE_CAN_CLASSIFY, .labels_count = 3}, tagger = {.tasks = ROSE_CAN_CLASSIFY_TOKENS, .labels_count = 5},
                                    ranker = {.tasks = ROSE_CAN_SCORE, .labels_count = 1}, writer = {.tasks = ROSE_CAN_GENERATE};

/* "in -> ..., out -> ..." of names that differ; or the error, from its place on. */
static void maps(const struct rose_model_info *info, const char *text, const char *want)
{
    struct model_config *c = config(text);
    struct model m = {.name = "m", .info = *info, .config = c};
    struct strbuf b = {0};
    error = (struct rose_error){0};
    if (kserve_map_build(&m, c, &m.map, &error) == ROSE_OK) kserve_map_describe(m.map, &b);
    else strbuf_adds(&b, error.message + strlen("m/config.pbtxt:"));
    if (strcmp(b.p ? b.p : "", want) && !(error.message[0] && str_starts(strbuf_str(&b), str_of(want)))) CHECK_STR(b.p ? b.p : "", want);
    kserve_map_free(m.map);
    model_config_free(c);
    strbuf_free(&b);
}

#define IN(name, type, dims) "input { name: '" name "' data_type: TYPE_" type " dims: [ " dims " ] } "
#define OUT(name, type, dims) "output { name: '" name "' data_type: TYPE_" type " dims: [ " dims " ] } "
#define ONTO(side, name, to) "parameters { key: 'rose." side "." name "' value { string_value: '" to "' } } "

TEST(names_of_tensors)
{
    maps(&embedder, "max_batch_size: 8 " IN("input_ids", "INT64", "-1") IN("attention_mask", "INT32", "-1") IN("token_type_ids", "INT64", "-1") OUT("last_hidden_state", "FP32", "-1, 32"),
         "last_hidden_state -> token_embeddings");
    maps(&embedder, "max_batch_size: 8 " IN("TEXT", "STRING", "1") OUT("OUTPUT", "FP32", "24"), "TEXT -> text, OUTPUT -> embedding");
    maps(&embedder, "max_batch_size: 8 " IN("x", "INT32", "128") IN("input_mask", "INT32", "128") IN("segment_ids", "INT32", "128") OUT("token_embeddings", "FP16", "-1, -1") OUT("sentence_embedding", "FP16", "-1"),
         "x -> input_ids, input_mask -> attention_mask, segment_ids -> token_type_ids, sentence_embedding -> embedding");
    maps(&embedder, IN("input_ids", "INT64", "-1, -1") OUT("y", "FP32", "-1, 24"), "y -> embedding"); /* max_batch_size 0: dims are whole */
    maps(&embedder, IN("t", "STRING", "-1") OUT("y", "FP32", "-1, -1, 32"), "t -> text, y -> token_embeddings");
    maps(&embedder, IN("input_ids", "INT64", "-1") OUT("y", "FP32", "24"), "y -> embedding");
    maps(&embedder, "max_batch_size: 8 " IN("input_ids", "INT64", "-1") IN("position_ids", "INT64", "-1") ONTO("input", "position_ids", "none"), "position_ids -> none");
    maps(&embedder, "max_batch_size: 8 " OUT("b", "FP32", "24") OUT("a", "FP32", "-1, 32"), "b -> embedding, a -> token_embeddings");
    maps(&embedder, "max_batch_size: 8 " OUT("pooler_output", "FP32", "24") ONTO("output", "pooler_output", "embedding"), "pooler_output -> embedding");
    maps(&embedder, "version_policy { all {} }", "");
    maps(&embedder, "platform: 'ensemble' ensemble_scheduling { step [ { model_name: 't' } ] }", "");
    /* what need not come may be of no meaning here */
    maps(&writer, IN("PROMPT", "STRING", "1") "input { name: 'bad_words' data_type: TYPE_STRING dims: [ -1 ] optional: true } input { name: 'beam_width' data_type: TYPE_INT32 dims: [ 1 ] optional: true } "
         OUT("text_output", "STRING", "-1") OUT("cum_log_probs", "FP32", "-1") ONTO("output", "cum_log_probs", "none"), "PROMPT -> text_input, bad_words -> ?, beam_width -> ?, cum_log_probs -> none");
    maps(&sparse, "max_batch_size: 8 " OUT("v", "FP32", "24") OUT("sparse_indices", "INT32", "-1") OUT("w", "FP32", "-1") ONTO("output", "w", "sparse_values"), "v -> embedding, w -> sparse_values");
    maps(&classifier, "max_batch_size: 8 " IN("input_ids", "INT64", "-1") IN("attention_mask", "INT64", "-1") OUT("logits", "FP32", "3"), "");
    maps(&classifier, "max_batch_size: 8 " IN("s", "STRING", "1") OUT("scores", "FP32", "3"), "s -> text, scores -> probabilities");
    maps(&classifier, "max_batch_size: 8 " IN("s", "STRING", "1") OUT("raw", "FP32", "3") OUT("p", "FP32", "3") ONTO("output", "raw", "logits"), "s -> text, raw -> logits, p -> probabilities");
    maps(&tagger, "max_batch_size: 8 " IN("input_ids", "INT64", "-1") OUT("logits", "FP32", "-1, 5"), "");
    maps(&ranker, "max_batch_size: 8 " IN("input_ids", "INT64", "-1") IN("attention_mask", "INT64", "-1") OUT("logits", "FP32", "1"), "");
    maps(&ranker, "max_batch_size: 8 " IN("query", "STRING", "1") IN("passage", "STRING", "1") OUT("relevance", "FP32", "1"), "passage -> text, relevance -> score");
    maps(&ranker, IN("query", "STRING", "-1") IN("text", "STRING", "-1") OUT("s", "FP32", "-1"), "s -> score");
    maps(&writer, "max_batch_size: 4 " IN("PROMPT", "STRING", "1") IN("max_tokens", "INT32", "1") IN("stop_words", "STRING", "-1") OUT("ANSWER", "STRING", "-1"), "PROMPT -> text_input, ANSWER -> text_output");
}

TEST(names_that_fit_nothing)
{
    maps(&embedder, "max_batch_size: 8\n" IN("pixels", "FP32", "3, 224, 224"), "2:15: input 'pixels': which of the model's inputs it is was expected (text, input_ids, attention_mask, token_type_ids, or none");
    maps(&embedder, IN("a", "STRING", "1") IN("b", "STRING", "1"), "1:15: input 'a': which");
    maps(&embedder, IN("input_ids", "INT64", "-1, -1") IN("position_ids", "INT64", "-1, -1"), "1:82: input 'position_ids': which");
    maps(&embedder, OUT("pooler_output", "FP32", "-1, 24"), "1:16: output 'pooler_output': which of the model's outputs it is was expected (token_embeddings, embedding, or none: not given), by parameters { key: \"rose.output.pooler_output\"");
    maps(&embedder, OUT("a", "FP32", "-1, 24") OUT("b", "FP32", "-1, 24"), "1:16: output 'a': which");
    maps(&embedder, OUT("a", "INT8", "-1, 24"), "1:16: output 'a': which");
    maps(&embedder, OUT("embedding", "INT8", "-1, 24"), "1:39: output 'embedding' is the engine's embedding, for which TYPE_FP32 was expected");
    maps(&embedder, IN("text", "INT64", "-1"), "1:33: input 'text' is the engine's text, for which TYPE_STRING was expected");
    maps(&embedder, "max_batch_size: 8 " OUT("e", "FP32", "768"), "1:67: output 'e' is the engine's embedding: with max_batch_size 8, dims: [ 24 ] was expected, not [ 768 ]");
    maps(&embedder, OUT("e", "FP32", "1, 2, 3, 4"), "1:49: output 'e' is the engine's embedding: with max_batch_size 0, dims: [ -1, 24 ] was expected");
    maps(&embedder, OUT("last_hidden_state", "FP32", "-1, -1, 768"), "1:65: output 'last_hidden_state' is the engine's token_embeddings: with max_batch_size 0, dims: [ -1, -1, 32 ] was expected");
    maps(&embedder, "max_batch_size: 8 " IN("text", "STRING", "2"), "1:71: input 'text' is the engine's text: with max_batch_size 8, dims: [ 1 ] was expected, not [ 2 ]");
    maps(&embedder, "max_batch_size: 8 " IN("input_ids", "INT64", "-1, 1"), "1:75: input 'input_ids'");
    maps(&embedder, OUT("e", "FP32", "-1, 24") ONTO("output", "e", "logits"), "1:116: this model has no output \"logits\"; it has: token_embeddings, embedding");
    maps(&embedder, OUT("e", "FP32", "-1, 24") OUT("embedding", "FP32", "-1, 24") ONTO("output", "e", "embedding"), "1:75: 'e' and 'embedding' would both be the engine's embedding");
    maps(&embedder, IN("attention_mask", "INT64", "-1, -1") IN("text", "STRING", "-1"), "1:15: 'attention_mask' is the engine's attention_mask, and an input that is its input_ids was expected beside it");
    maps(&embedder, IN("input_ids", "INT64", "-1, -1") IN("text", "STRING", "-1"), "1:15: 'text' and 'input_ids' are two forms of one input: optional: true was expected of both");
    maps(&embedder, IN("x", "INT64", "-1") ONTO("input", "x", "none"), "1:15: an input that is the engine's text, or its input_ids, was expected");
    maps(&ranker, IN("query", "STRING", "-1"), "1:15: inputs that are the engine's query and its text were expected");
    maps(&ranker, IN("a", "STRING", "-1") IN("b", "STRING", "-1"), "1:15: input 'a': which");
    maps(&writer, IN("max_tokens", "INT32", "1"), "1:15: an input that is the engine's text_input was expected");
    maps(&writer, IN("text_input", "STRING", "1") IN("beams", "INT32", "1"), "1:79: input 'beams': which");
}

/* As clients see them, and a request there and back. */
TEST(shapes_both_ways)
{
    struct model_config *c = config("max_batch_size: 4 " IN("ids", "INT32", "-1") IN("attention_mask", "INT32", "-1") OUT("vec", "FP16", "24") OUT("last_hidden_state", "FP32", "-1, 32")
                                    "dynamic_batching { priority_levels: 5 default_priority_level: 3 }");
    struct model m = {.name = "m", .info = embedder, .config = c};
    struct kserve_io io[KSERVE_TENSORS];
    struct httpd_request http = {0};
    struct api_error e = {0};
    CHECK_OK(kserve_map_build(&m, c, &m.map, &error), error);
    arena_init(&http.arena, 0);
    CHECK_INT(kserve_batch(&m), 4);
    CHECK_INT(kserve_inputs(&m, io, KSERVE_TENSORS), 2);
    CHECK(io[0].type == KSERVE_INT32 && !io[0].optional && !strcmp(io[0].name, "ids") && !strcmp(io[0].to, "input_ids"));
    CHECK_INT(kserve_outputs(&m, io, KSERVE_TENSORS), 2);
    int64_t shape[4];
    CHECK(kserve_map_shape(&m, &io[1], shape) == 3 && shape[0] == -1 && shape[1] == -1 && shape[2] == 32);
    static const int32_t ids[] = {1, 2, 3, 4};
    struct kserve_tensor in[2] = {{STR("ids"), KSERVE_INT32, 2, {2, 2}, 4, {(const char *)ids, 16}}, {STR("attention_mask"), KSERVE_INT32, 2, {2, 2}, 4, {(const char *)ids, 16}}};
    struct kserve_call call = {.http = &http, .model = &m, .request = {.inputs = in, .inputs_count = 2, .binary = true}};
    CHECK(kserve_map_request(&call, &e));
    CHECK(str_is(in[0].name, "input_ids") && call.request.wanted_count == 2 && str_is(call.request.wanted[0].name, "embedding") && str_is(call.request.wanted[1].name, "token_embeddings"));
    CHECK(call.request.wanted[0].binary && call.request.wanted[0].type == -1);
    int type = -1;
    struct kserve_tensor out = {STR("embedding"), KSERVE_FP32, 2, {2, 24}, 48, {NULL, 0}};
    CHECK(kserve_map_output(&m, &out, &type, &e) && str_is(out.name, "vec") && out.rank == 2);
    CHECK_INT(type, KSERVE_FP16);
    CHECK(kserve_map_priority(&m, 0) == 3 && kserve_map_priority(&m, 1) == 1 && kserve_map_priority(&m, 5) == 5 && kserve_map_priority(&m, 6) == 3);
    CHECK_STR(kserve_map_name(&m, "embedding"), "vec");
    CHECK(str_is(kserve_map_input(&m, STR("ids")), "input_ids") && str_is(kserve_map_input(&m, STR("other")), "other"));
    kserve_map_free(m.map);
    model_config_free(c);
    /* without a batch: one text's tokens, and a row of its own */
    c = config(IN("ids", "INT32", "-1") OUT("vec", "FP32", "24"));
    m = (struct model){.name = "m", .info = embedder, .config = c};
    CHECK_OK(kserve_map_build(&m, c, &m.map, &error), error);
    in[0] = (struct kserve_tensor){STR("ids"), KSERVE_INT32, 1, {4}, 4, {(const char *)ids, 16}};
    call = (struct kserve_call){.http = &http, .model = &m, .request = {.inputs = in, .inputs_count = 1}};
    CHECK(kserve_map_request(&call, &e) && in[0].rank == 2 && in[0].shape[0] == 1 && in[0].shape[1] == 4);
    out = (struct kserve_tensor){STR("embedding"), KSERVE_FP32, 2, {1, 24}, 24, {NULL, 0}};
    type = -1;
    CHECK(kserve_map_output(&m, &out, &type, &e) && out.rank == 1 && out.shape[0] == 24 && type == KSERVE_FP32);
    out = (struct kserve_tensor){STR("embedding"), KSERVE_FP32, 2, {2, 24}, 48, {NULL, 0}};
    CHECK(!kserve_map_output(&m, &out, &type, &e) && strstr(e.message, "one text a request"));
    kserve_map_free(m.map);
    model_config_free(c);
    /* without tensors the batch alone counts, and shapes stay as they are */
    c = config("max_batch_size: 4");
    m = (struct model){.name = "m", .info = embedder, .config = c};
    CHECK_OK(kserve_map_build(&m, c, &m.map, &error), error);
    CHECK(!m.map && kserve_batch(&m) == 4);
    m.info = writer;
    CHECK_INT(kserve_batch(&m), 0);
    model_config_free(c);
    /* what is taken and not read, what is not given, and what is refused when it comes */
    c = config(IN("text", "STRING", "-1") IN("position_ids", "INT64", "-1, -1") "input { name: 'more' data_type: TYPE_FP32 dims: [ 1 ] optional: true } " OUT("v", "FP32", "-1, 24") OUT("w", "FP32", "-1")
               ONTO("input", "position_ids", "none") ONTO("output", "w", "none"));
    m = (struct model){.name = "m", .info = embedder, .config = c};
    CHECK_OK(kserve_map_build(&m, c, &m.map, &error), error);
    struct kserve_tensor three[3] = {{STR("text"), KSERVE_BYTES, 1, {1}, 1, {"\1\0\0\0a", 5}}, {STR("position_ids"), KSERVE_INT32, 2, {1, 4}, 4, {(const char *)ids, 16}}, {STR("more"), KSERVE_FP32, 1, {1}, 1, {(const char *)ids, 4}}};
    call = (struct kserve_call){.http = &http, .model = &m, .request = {.inputs = three, .inputs_count = 2}};
    CHECK(kserve_map_request(&call, &e) && call.request.inputs_count == 1 && call.request.wanted_count == 1 && str_is(call.request.wanted[0].name, "embedding"));
    call = (struct kserve_call){.http = &http, .model = &m, .request = {.inputs = three, .inputs_count = 3}};
    CHECK(!kserve_map_request(&call, &e) && strstr(e.message, "input 'more' means nothing to model 'm' here"));
    struct kserve_wanted w = {.name = STR("w")};
    call = (struct kserve_call){.http = &http, .model = &m, .request = {.inputs = three, .inputs_count = 1, .wanted = &w, .wanted_count = 1}};
    CHECK(!kserve_map_request(&call, &e) && strstr(e.message, "output 'w' of model 'm' is not given here"));
    kserve_map_free(m.map);
    model_config_free(c);
    arena_free(&http.arena);
    arena_free(&arena);
}

TEST_MAIN(CASE(fields_lists_and_messages), CASE(texts_and_numbers), CASE(syntax_errors_have_their_place), CASE(bounds), CASE(what_a_configuration_says), CASE(labels_of_outputs), CASE(contradictions_are_refused_at_their_place),
          CASE(names_of_tensors), CASE(names_that_fit_nothing), CASE(shapes_both_ways))
