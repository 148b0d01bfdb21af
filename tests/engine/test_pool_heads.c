/* Heads from hostile files: what modules.json, config.json and GGUF say of pooling, dense modules, labels and prompts is refused in a sentence that names
 * the fault; GGUF encoders with a tensor renamed, of another shape, or cut off. */
#define _GNU_SOURCE /* mkdtemp */
#include "pool_golden.h"

static enum rose_status open_at(const char *path, struct pool_run *r, struct rose_error *err)
{
    return pool_run_open(r, path, 1, &(struct pool_options){.step_tokens = 64}, err);
}

/* A sentence that has all of `says` (NULL-ended at three), or the model opens when says[0] is NULL. */
static void expect(const char *what, const char *path, const char *first, const char *second)
{
    struct pool_run r;
    struct rose_error err = {0};
    enum rose_status s = open_at(path, &r, &err);
    bool good = first ? s != ROSE_OK && strstr(err.message, first) && (!second || strstr(err.message, second)) : s == ROSE_OK;
    if (!good) printf("%s\n    gives %s: \"%s\", which should say \"%s\", \"%s\"\n", what, rose_status_name(s), err.message, first ? first : "nothing", second ? second : "");
    CHECK(good);
    pool_run_close(&r);
}

static void write_text(const struct golden *g, const char *name, const char *text)
{
    char path[400], *slash;
    struct strbuf b = {0};
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    if ((slash = strchr(path + strlen(g->dir) + 1, '/'))) *slash = '\0', mkdir(path, 0755), *slash = '/';
    strbuf_adds(&b, text);
    golden_write(path, &b);
    strbuf_free(&b);
}

#define TRANSFORMER "{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"},"
#define POOLING "{\"idx\":1,\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"}"
#define MORE(path, type) "," "{\"idx\":2,\"path\":\"" path "\",\"type\":\"" type "\"}"

TEST(modules)
{
    static const struct { const char *file, *text, *first, *second; } bad[] = {
        {"modules.json", "[", "modules.json", NULL},
        {"modules.json", "{}", "must be a list", NULL},
        {"modules.json", "[3,null,\"x\"]", "module", NULL},
        {"modules.json", "[{\"path\":\"../up\",\"type\":\"x.Pooling\"}]", "../up", "not the name of a folder"},
        {"modules.json", "[{\"path\":\"/etc\",\"type\":\"x.Pooling\"}]", "/etc", "not the name of a folder"},
        {"modules.json", "[{\"path\":\"0_Transformer\",\"type\":\"x.Transformer\"}]", "0_Transformer", "not supported"},
        {"modules.json", "[" TRANSFORMER "{\"path\":\"1_Dense\",\"type\":\"sentence_transformers.models.Dense\"}]", "Dense", "multi-vector (ColBERT)"},
        {"modules.json", "[" TRANSFORMER "{\"path\":\"1_Dense\",\"type\":\"sentence_transformers.multi_vec_encoder.modules.MultiVectorMask\"}]", "MultiVectorMask", "multi-vector (ColBERT)"},
        {"modules.json", "[" TRANSFORMER POOLING MORE("2_LayerNorm", "sentence_transformers.models.LayerNorm") "]", "LayerNorm", "not supported"},
        {"modules.json", "[" TRANSFORMER POOLING MORE("2_SpladePooling", "sentence_transformers.sparse_encoder.models.SpladePooling") "]", "SpladePooling", "not supported"},
        {"modules.json", "[" TRANSFORMER POOLING MORE("2_WordWeights", "sentence_transformers.models.WordWeights") "]", "WordWeights", "not supported"},
        {"1_Pooling/config.json", "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", "several poolings", NULL},
        {"1_Pooling/config.json", "{\"pooling_mode\":[\"cls\",\"mean\"]}", "several poolings", NULL},
        {"1_Pooling/config.json", "{\"pooling_mode\":\"attention\"}", "attention", "not known"},
        {"1_Pooling/config.json", "{\"pooling_mode\":7}", "pooling_mode", NULL},
        {"1_Pooling/config.json", "\"", "1_Pooling", NULL},
        {"config_sentence_transformers.json", "{\"prompts\":{\"a\":\"x\"},\"default_prompt_name\":\"b\"}", "\"b\"", "none of its prompts"},
        {"config_sentence_transformers.json", "{\"default_prompt_name\":\"b\"}", "\"b\"", "no prompts"},
        {"config_sentence_transformers.json", "{\"prompts\":{\"a\":5}}", "the prompt \"a\"", "must be a text"},
        {"config_sentence_transformers.json", "{\"prompts\":{\"a\":\"x\\u0000y\"}}", "the prompt \"a\"", "NUL"},
        {"config_sentence_transformers.json", "{\"prompts\":[\"a\"]}", "\"prompts\" must be an object", NULL},
        {"config_sentence_transformers.json", "{\"default_prompt_name\":5}", "\"default_prompt_name\" must be", NULL},
        {"1_Pooling/config.json", "{\"pooling_mode_cls_token\":\"true\"}", "1_Pooling/config.json: \"pooling_mode_cls_token\" must be true or false", NULL},
        {"1_Pooling/config.json", "{\"include_prompt\":0}", "1_Pooling/config.json: \"include_prompt\"", NULL},
        {"1_Pooling/config.json", "5", "1_Pooling/config.json", "must be an object"},
        {"sentence_bert_config.json", "{\"do_lower_case\":\"yes\"}", "sentence_bert_config.json: \"do_lower_case\"", NULL},
        {"sentence_bert_config.json", "{\"max_seq_length\":-5}", "sentence_bert_config.json: \"max_seq_length\"", NULL},
        {"sentence_bert_config.json", "{\"max_seq_length\":1e99}", "max_seq_length", NULL},
    };
    struct golden g;
    golden_open(&g, "embed_bert");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pool_golden_write(&g);
        write_text(&g, "sentence_bert_config.json", "{}");
        write_text(&g, "config_sentence_transformers.json", "{}");
        write_text(&g, bad[i].file, bad[i].text);
        expect(bad[i].text, g.dir, bad[i].first, bad[i].second);
    }
    golden_close(&g);
}

/* Each module's config.json is read: many modules must not fill the memory with one large file, again and again. */
TEST(many_modules)
{
    struct golden g;
    struct strbuf b = {0};
    golden_open(&g, "embed_bert");
    pool_golden_write(&g);
    strbuf_adds(&b, "[" TRANSFORMER POOLING);
    for (int i = 0; i < 40; i++) strbuf_adds(&b, MORE("2_Normalize", "sentence_transformers.models.Normalize"));
    strbuf_adds(&b, "]");
    write_text(&g, "modules.json", b.p);
    expect("42 modules", g.dir, "42 modules", "at most 32");
    b.n = 0;
    strbuf_adds(&b, "{\"include_prompt\":true,\"padding\":\"");
    for (int i = 0; i < 70000; i++) strbuf_addc(&b, 'x');
    strbuf_adds(&b, "\"}");
    pool_golden_write(&g);
    write_text(&g, "1_Pooling/config.json", b.p);
    expect("70 kB of a pooling", g.dir, "1_Pooling/config.json", "65536");
    strbuf_free(&b);
    golden_close(&g);
}

TEST(dense)
{
    static const struct { const char *text, *first, *second; } bad[] = {
        {"{\"in_features\":48,\"out_features\":0}", "out_features", NULL},
        {"{\"in_features\":47,\"out_features\":64}", "in_features is 47", "48"},
        {"{\"in_features\":48,\"out_features\":9999999999}", "out_features", NULL},
        {"{\"in_features\":48,\"out_features\":96,\"bias\":true,\"activation_function\":\"torch.nn.modules.activation.Tanh\"}", "3_Dense/config.json", "96 columns"},
        {"{\"in_features\":48,\"out_features\":64,\"bias\":false,\"activation_function\":\"torch.nn.modules.activation.Tanh\"}", "linear.bias", NULL},
        {"{\"in_features\":48,\"out_features\":64,\"bias\":true,\"activation_function\":\"os.system\"}", "os.system", "not supported"},
        {"{\"in_features\":48,\"out_features\":64,\"use_residual\":true}", "use_residual", NULL},
        {"{\"in_features\":48,\"out_features\":64,\"module_input_name\":\"token_embeddings\"}", "multi-vector (ColBERT)", NULL},
        {"[]", "2_Dense/config.json", "must be an object"},
        {"{\"in_features\":48,\"out_features\":64,\"bias\":1}", "2_Dense/config.json: \"bias\"", "true or false"},
        {"{\"in_features\":48,\"out_features\":64,\"activation_function\":5}", "2_Dense/config.json: \"activation_function\"", "number"},
        {"{\"in_features\":48,\"out_features\":64,\"use_residual\":\"yes\"}", "\"use_residual\"", "string"},
    };
    struct golden g;
    char path[400];
    golden_open(&g, "embed_bert_dense");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pool_golden_write(&g);
        write_text(&g, "2_Dense/config.json", bad[i].text);
        expect(bad[i].text, g.dir, bad[i].first, bad[i].second);
    }
    pool_golden_write(&g);
    write_text(&g, "4_Dense/config.json", "{\"in_features\":32,\"out_features\":25,\"activation_function\":\"torch.nn.modules.activation.GELU\"}");
    expect("another shape than the file's", g.dir, "linear.weight", "[25, 32]");
    pool_golden_write(&g);
    snprintf(path, sizeof path, "%s/3_Dense/model.safetensors", g.dir);
    CHECK(unlink(path) == 0);
    expect("no file of a dense module", g.dir, "3_Dense/model.safetensors", NULL);
    golden_close(&g);
}

TEST(configs)
{
    static const struct { const char *model, *patch, *first, *second; } bad[] = {
        {"class_roberta", "{\"problem_type\":\"ranking\"}", "ranking", "not known"},
        {"class_bert_score", "{\"sentence_transformers\":{\"activation_fn\":\"torch.nn.modules.activation.Softplus\"}}", "Softplus", "not supported"},
        {"class_modernbert", "{\"classifier_activation\":\"mish\"}", "mish", "not supported"},
        {"class_bert", "{\"architectures\":[\"BertForTokenClassification\"]}", NULL, NULL}, /* the same output, asked for each token */
        {"embed_bert", "{\"architectures\":[\"HF_ColBERT\"]}", "multi-vector (ColBERT)", NULL},
        {"embed_bert", "{\"architectures\":[\"BertForSequenceClassification\"]}", "without an output layer", NULL},
        {"embed_jina", "{\"position_embedding_type\":\"absolute\"}", "position_embeddings.weight", "missing"},
        {"embed_jina", "{\"feed_forward_type\":\"original\"}", "original", "not supported"},
        {"embed_jina", "{\"feed_forward_type\":\"__absent__\"}", "feed_forward_type", NULL},
        {"embed_jina", "{\"num_attention_heads\":5}", "no multiple of the 5 heads", NULL}, /* a head's size */
        {"embed_jina", "{\"intermediate_size\":81}", "gated_layers.weight", "[162, 48]"},
        {"embed_jina_code", "{\"is_decoder\":true}", "is_decoder", NULL},
        {"embed_bert", "{\"position_embedding_type\":\"alibi\",\"feed_forward_type\":\"geglu\"}", "gated_layers.weight", "missing"},
        {"embed_modernbert", "{\"local_attention\":0}", "local_attention", NULL},
    };
    struct arena a;
    arena_init(&a, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct golden g;
        struct rose_error err = {0};
        const struct json *patch;
        golden_open(&g, bad[i].model);
        pool_golden_write(&g);
        CHECK_OK(json_parse(&a, NULL, str_of(bad[i].patch), &patch, &err), err);
        golden_write_config(&g, patch);
        expect(bad[i].patch, g.dir, bad[i].first, bad[i].second);
        golden_close(&g);
    }
    arena_free(&a);
}

/* --- GGUF ------------------------------------------------------------------------------------------------------------------------ */

static const char *const files[] = {"embed_bert", "embed_nomic", "embed_modernbert", "embed_jina", "embed_jina_code", "embed_gemma", "embed_qwen3", "class_xlm_roberta", "class_modernbert",
                                    "text_reranker"};

/* The file with n bytes at `at` replaced. */
static void put(const struct golden *g, struct str file, size_t size, size_t at, const void *bytes, size_t n)
{
    struct strbuf b = {0};
    strbuf_add(&b, file.p, size);
    if (n) memcpy(b.p + at, bytes, n);
    golden_write(g->file, &b);
    strbuf_free(&b);
}

static bool opens(const struct golden *g, const char *what)
{
    struct pool_run r;
    struct rose_error err = {0};
    enum rose_status s = open_at(g->file, &r, &err);
    bool said = s == ROSE_OK || strlen(err.message) >= 20;
    if (!said) printf("%s, %s: %s without a sentence\n", g->name, what, rose_status_name(s));
    CHECK(said);
    pool_run_close(&r);
    return s == ROSE_OK;
}

/* Its first dimension stands behind the name and the number of dimensions. */
static void break_tensor(const struct golden *g, struct str file, struct str name)
{
    char long_name[200], what[240];
    uint64_t bytes = name.n, dim;
    memcpy(long_name, &bytes, 8);
    memcpy(long_name + 8, name.p, name.n);
    int64_t at = str_find(file, (struct str){long_name, name.n + 8}, 0);
    CHECK(at > 0);
    if (at <= 0) return;
    size_t dims = (size_t)at + 8 + name.n + 4;
    snprintf(what, sizeof what, STR_FMT " renamed", STR_ARG(name));
    put(g, file, file.n, (size_t)at + 8, "X", 1);
    CHECK(!opens(g, what));
    memcpy(&dim, file.p + dims, 8);
    for (int i = 0; i < 3; i++) {
        uint64_t other = i == 0 ? dim / 2 : i == 1 ? 0 : UINT64_MAX / 2;
        snprintf(what, sizeof what, STR_FMT " of %llu", STR_ARG(name), (unsigned long long)other);
        put(g, file, file.n, dims, &other, 8);
        bool taken = opens(g, what);
        if (taken) printf("%s: %s is taken\n", g->name, what);
        CHECK(!taken);
    }
}

/* A golden GGUF file, and its bytes. */
struct whole {
    struct golden g;
    struct arena a;
    struct str bytes;
};

static void whole_open(struct whole *f, const char *name)
{
    struct rose_error err = {0};
    golden_open(&f->g, name);
    arena_init(&f->a, 0);
    CHECK(golden_write_gguf(&f->g));
    CHECK(opens(&f->g, "as it is"));
    CHECK_OK(file_read(&f->a, f->g.file, 1 << 24, &f->bytes, &err), err);
}

static void whole_close(struct whole *f)
{
    arena_free(&f->a);
    golden_close(&f->g);
}

TEST(gguf_tensors)
{
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        struct whole f;
        struct rose_error err = {0};
        struct weights *w = NULL;
        whole_open(&f, files[k]);
        CHECK_OK(weights_open(f.g.file, &w, &err), err);
        char (*names)[80] = calloc(weights_count(w), sizeof *names);
        size_t n = 0;
        for (size_t i = 0; i < weights_count(w); i++) /* of the layers one: they are alike */
            if (!str_starts(weights_tensor(w, i)->name, STR("blk.")) || str_starts(weights_tensor(w, i)->name, STR("blk.1.")))
                snprintf(names[n++], sizeof *names, STR_FMT, STR_ARG(weights_tensor(w, i)->name));
        weights_close(w);
        CHECK(n > 8);
        for (size_t i = 0; i < n; i++) break_tensor(&f.g, f.bytes, str_of(names[i]));
        free(names);
        whole_close(&f);
    }
}

/* Cut off anywhere, and metadata overwritten: refused, or it runs. */
TEST(gguf_bytes)
{
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        struct whole f;
        int refused = 0;
        whole_open(&f, files[k]);
        for (size_t i = 0; i < 24; i++) {
            put(&f.g, f.bytes, f.bytes.n * i / 24, 0, NULL, 0);
            CHECK(!opens(&f.g, "cut"));
        }
        for (size_t at = 24; at < 1500; at += 9 + k) {
            uint32_t value = at % 3 == 0 ? 0 : at % 3 == 1 ? 0xFFFFFFFF : 0x7FC00000; /* 0, -1, NaN */
            put(&f.g, f.bytes, f.bytes.n, at, &value, 4);
            refused += !opens(&f.g, "overwritten");
        }
        CHECK(refused > 8);
        whole_close(&f);
    }
}

TEST_MAIN(CASE(modules), CASE(many_modules), CASE(dense), CASE(configs), CASE(gguf_tensors), CASE(gguf_bytes))
