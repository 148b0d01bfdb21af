/* Configs and checkpoints that make no sense: each ends in a status and a sentence that names what is wrong.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_run.h"

#include "base/str.h"

static enum rose_status read_text(const char *text, struct model_config *c, struct rose_error *err)
{
    struct arena a;
    const struct json *j;
    arena_init(&a, 64 << 20);
    enum rose_status s = json_parse(&a, "config.json", str_of(text), &j, err);
    if (s == ROSE_OK) s = config_from_json(&a, "config.json", j, c, err);
    c->layer = NULL;
    arena_free(&a);
    return s;
}

#define SIZES                                                                                       \
    "\"vocab_size\":160,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_" \
    "attention_heads\":4"

/* What must stand in the message. */
static const struct {
    const char *config, *says;
} bad[] = {
    {"{}", "model_type"},
    {"[]", "model_type"},
    {"7", "model_type"},
    {"{\"model_type\":\"gpt_from_the_future\"}", "gpt_from_the_future"},
    {"{\"model_type\":7}", "model_type"},
    {"{\"model_type\":\"llama\"}", "num_hidden_layers"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_hidden_layers\":0}", "num_hidden_layers"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_hidden_layers\":1e9}", "num_hidden_layers"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_hidden_layers\":99999999999999999999}", "num_hidden_layers"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_hidden_layers\":\"3\"}", "num_hidden_layers"},
    {"{\"model_type\":\"llama\"," SIZES ",\"hidden_size\":-64}", "hidden_size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"hidden_size\":64.5}", "hidden_size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"vocab_size\":2000000000}", "vocab_size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"vocab_size\":16777216,\"head_dim\":64,\"hidden_size\":1048576}",
     "absurd"},
    {"{\"model_type\":\"llama\"," SIZES ",\"intermediate_size\":null}", "intermediate_size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_attention_heads\":0}", "num_attention_heads"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_attention_heads\":16384,\"head_dim\":16384}", "head size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_attention_heads\":5}", "no multiple of the 5 heads"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":3}", "share"},
    {"{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":8}", "share"},
    {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":15}", "rotary dimension"},
    {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":1024}", "head size"},
    {"{\"model_type\":\"llama\"," SIZES ",\"max_position_embeddings\":0}", "max_position_embeddings"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":-1}", "epsilon"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":3}", "epsilon"},
    {"{\"model_type\":\"llama\"," SIZES ",\"hidden_act\":\"snake\"}", "snake"},
    {"{\"model_type\":\"\"}", "\"model_type\" is missing"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":\"1e-5\"}", "\"rms_norm_eps\" must be a number, found: string"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":\"500000\"}", "\"rope_theta\" must be a number"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":\"linear\"}", "\"rope_scaling\" must be an object"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_parameters\":{\"rope_theta\":[1]}}", "\"rope_theta\" must be a number"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", "\"factor\" must be a number"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"linear\"}}", "\"linear\" needs a \"factor\""},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"dynamic\"}}", "\"dynamic\" needs a \"factor\""},
    {"{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":\"true\"}", "\"tie_word_embeddings\" must be true or false"},
    {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":\"all\"}", "\"sliding_window\" must be a number"},
    {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":\"</s>\"}", "\"eos_token_id\" must be a token id"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":0}", "theta"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":-5}", "theta"},
    {"{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":0}", "partial_rotary_factor"},
    {"{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":1.5}", "partial_rotary_factor"},
    {"{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":0.01}", "rotary dimension"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"spiral\"}}", "spiral"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "factor"},
    {"{\"model_type\":\"llama\"," SIZES
     ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}}",
     "low_freq_factor"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8,\"beta_fast\":0}}",
     "beta"},
    {"{\"model_type\":\"llama\"," SIZES
     ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8,\"attention_factor\":1e300}}",
     "attention factor"},
    {"{\"model_type\":\"llama\"," SIZES
     ",\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":8}}",
     "dynamic"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":8}}",
     "short_factor"},
    {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,"
     "1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,0]}}",
     "long_factor"},
    {"{\"model_type\":\"phi3\"," SIZES ",\"original_max_position_embeddings\":1,\"rope_scaling\":{\"type\":"
     "\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
     "\"long_factor\":[1,1,1,1,1,1,1,1]}}",
     "original context"},
    {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":160}", "eos_token_id"},
    {"{\"model_type\":\"llama\"," SIZES ",\"eos_token_id\":[1,[2,500]]}", "eos_token_id"},
    {"{\"model_type\":\"mistral\"," SIZES ",\"num_key_value_heads\":4,\"sliding_window\":-3}",
     "sliding_window"},
    {"{\"model_type\":\"qwen2\"," SIZES ",\"num_key_value_heads\":4,\"layer_types\":[\"full_attention\"]}",
     "layer_types"},
    {"{\"model_type\":\"qwen2\"," SIZES
     ",\"num_key_value_heads\":4,\"layer_types\":[\"full_attention\",7,\"full_attention\"]}",
     "layer 1"},
    {"{\"model_type\":\"gemma2\"," SIZES ",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar"},
    {"{\"model_type\":\"gemma2\"," SIZES ",\"attn_logit_softcapping\":-1}", "soft cap"},
    {"{\"model_type\":\"gemma2\"," SIZES ",\"final_logit_softcapping\":1e300}", "soft cap"},
    {"{\"model_type\":\"deberta-v2\"," SIZES "}", "DeBERTa's disentangled attention is not supported yet"},
    {"{\"model_type\":\"bert\"," SIZES ",\"is_decoder\":true}", "is_decoder"},
    {"{\"model_type\":\"bert\"," SIZES ",\"position_embedding_type\":\"relative_key\"}", "relative_key"},
    {"{\"model_type\":\"roberta\"," SIZES ",\"max_position_embeddings\":2}", "leave none"},
    {"{\"model_type\":\"nomic_bert\"," SIZES ",\"prenorm\":true}", "prenorm"},
    {"{\"model_type\":\"nomic_bert\"," SIZES ",\"activation_function\":\"relu\"}", "relu"},
    {"{\"model_type\":\"mpnet\"," SIZES ",\"relative_attention_num_buckets\":1}", "relative_attention_num_buckets"},
    {"{\"model_type\":\"modernbert\"," SIZES ",\"layer_types\":[\"full_attention\"]}", "layer_types"},
    {"{\"model_type\":\"gemma3_text\"," SIZES ",\"sliding_window_pattern\":0}", "sliding_window_pattern"},
    {"{\"model_type\":\"gemma3_text\"," SIZES
     ",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"dynamic\",\"factor\":2}}}",
     "window"},
    {"{\"model_type\":\"granite\"," SIZES ",\"logits_scaling\":0}", "multiplier"},
    {"{\"model_type\":\"granite\"," SIZES ",\"embedding_multiplier\":1e300}", "multiplier"},
    {"{\"model_type\":\"granite\"," SIZES ",\"attention_multiplier\":0}", "attention_multiplier"},
    {"{\"model_type\":\"smollm3\"," SIZES ",\"no_rope_layers\":7}", "no_rope_layers"},
    {"{\"model_type\":\"mixtral\"," SIZES ",\"num_key_value_heads\":4,\"num_local_experts\":0}",
     "num_local_experts"},
    {"{\"model_type\":\"mixtral\"," SIZES
     ",\"num_key_value_heads\":4,\"num_local_experts\":2,\"num_experts_per_tok\":3}",
     "experts"},
    {"{\"model_type\":\"mixtral\"," SIZES ",\"num_key_value_heads\":4,\"num_local_experts\":1000000}",
     "num_local_experts"},
    {"{\"model_type\":\"qwen3_moe\"," SIZES ",\"num_experts\":8}", "moe_intermediate_size"},
};

TEST(bad_configs)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rose_error err = {0};
        struct model_config c;
        enum rose_status s = read_text(bad[i].config, &c, &err);
        if (s == ROSE_OK || !strstr(err.message, bad[i].says)) {
            fprintf(stderr, "%s\n    gives %s: \"%s\", which should say \"%s\"\n", bad[i].config,
                    rose_status_name(s), err.message, bad[i].says);
            test_failures_++;
        }
    }
}

TEST(good_config)
{
    struct rose_error err = {0};
    struct model_config c;
    CHECK_OK(read_text("{\"model_type\":\"llama\"," SIZES
                       ",\"eos_token_id\":[2,2,3],\"bos_token_id\":1000,\"_name_or_path\":\"some/model\"}",
                       &c, &err),
             err);
    CHECK_INT(c.eos_count, 2);
    CHECK_INT(c.bos, -1);
    CHECK_STR(c.name, "some/model");
    CHECK_INT(c.heads.kv_heads, 4);
    CHECK_INT(c.heads.head_dim, 16);
    CHECK_NEAR(c.norm_eps, 1e-6, 1e-12);
}

/* --- files that do not fit their config
 * -------------------------------------------------------------------------------- */

/* A copy of the list of tensors with one change. */
static void change_list(struct golden *g, uint32_t index, const char *name, int drop_last)
{
    struct json *list = arena_alloc(&g->arena, sizeof *list),
                *items = arena_alloc(&g->arena, g->tensors->count * sizeof *items);
    memcpy(items, g->tensors->items, g->tensors->count * sizeof *items);
    *list = *g->tensors;
    list->items = items;
    list->count -= (uint32_t)drop_last;
    if (name) {
        struct json *fields = arena_alloc(&g->arena, 6 * sizeof *fields);
        memcpy(fields, items[index].items, 6 * sizeof *fields);
        fields[0].string = str_of(name);
        items[index].items = fields;
    }
    g->tensors = list;
}

static void check_refused(const struct golden *g, const char *path, const char *first, const char *second)
{
    struct run r;
    struct rose_error err = {0};
    enum rose_status s = run_open(&r, path, DTYPE_F32, &err);
    CHECK(s == ROSE_FORMAT || s == ROSE_UNSUPPORTED);
    if (s == ROSE_OK) run_close(&r);
    if (!strstr(err.message, first) || !strstr(err.message, second)) {
        fprintf(stderr, "%s: \"%s\" should say \"%s\" and \"%s\"\n", g->name, err.message, first, second);
        test_failures_++;
    }
}

static void refuse(const struct golden *g, const char *first, const char *second)
{
    golden_write_hf(g);
    check_refused(g, g->dir, first, second);
}

TEST(bad_tensors)
{
    struct golden g;
    golden_open(&g, "mistral");
    const struct json *list = g.tensors;
    change_list(&g, 0, NULL, 1);
    refuse(&g, "missing", "lm_head.weight");
    g.tensors = list;
    change_list(&g, 1, "model.layers.0.self_attn.no_such.weight", 0);
    refuse(&g, "unexpected", "model.layers.0.self_attn.no_such.weight");
    g.tensors = list;
    golden_write_hf(&g);
    struct arena a;
    const struct json *patch;
    struct rose_error err;
    static const struct {
        const char *patch, *first, *second;
    } patches[] = {
        {"{\"intermediate_size\":64}", "mlp.gate_proj.weight", "[64, 48]"},
        {"{\"vocab_size\":161}", "model.embed_tokens.weight", "[161, 48]"},
        {"{\"num_hidden_layers\":4}", "missing", "model.layers.3."},
        {"{\"num_hidden_layers\":2}", "unexpected", "model.layers.2."},
        {"{\"num_hidden_layers\":4096}", "missing", "model.layers.3."},
        {"{\"model_type\":\"qwen2\"}", "missing", "q_proj.bias"},
        {"{\"model_type\":\"phi3\"}", "missing", "qkv_proj"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":4096,\"num_hidden_layers\":4096}", "experts",
         "tensors"},
    };
    arena_init(&a, 0);
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        CHECK_OK(json_parse(&a, NULL, str_of(patches[i].patch), &patch, &err), err);
        golden_write_config(&g, patch);
        check_refused(&g, g.dir, patches[i].first, patches[i].second);
    }
    arena_free(&a);
    golden_close(&g);
}

/* GGUF metadata with one value overwritten in place: nothing crashes, and what loads is refused or runs. */
TEST(bad_gguf)
{
    static const char *const names[] = {"llama3", "gemma3", "qwen2_moe", "phi3_longrope", "granite"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct golden g;
        struct arena a;
        struct str file;
        struct rose_error err = {0};
        golden_open(&g, names[k]);
        arena_init(&a, 0);
        CHECK(golden_write_gguf(&g));
        CHECK_OK(file_read(&a, g.file, 1 << 24, &file, &err), err);
        int refused = 0;
        for (size_t at = 24; at < 1400 && at + 4 < file.n; at += 12 + k) {
            struct strbuf b = {0};
            uint32_t value = at % 3 == 0 ? 0 : at % 3 == 1 ? 0xFFFFFFFF : 0x7FC00000; /* 0, -1, NaN */
            strbuf_add(&b, file.p, file.n);
            memcpy(b.p + at, &value, 4);
            golden_write(g.file, &b);
            strbuf_free(&b);
            struct run r;
            err.message[0] = '\0';
            enum rose_status s = run_open(&r, g.file, DTYPE_F32, &err);
            if (s == ROSE_OK)
                run_close(&r);
            else if (strlen(err.message) < 10)
                fprintf(stderr, "%s at %zu: %s without a sentence\n", g.name, at, rose_status_name(s)),
                    test_failures_++;
            else
                refused++;
        }
        CHECK(refused > 8);
        arena_free(&a);
        golden_close(&g);
    }
}

/* Numbers that become strings (of a length that leaves the tensors where they are aligned), heads that do not divide the width, text of the file that a terminal
 * would take for a command: each value by its key, whose type comes behind it. */
TEST(bad_gguf_sentences)
{
    static const char text[41] = "\x08\0\0\0\x1c\0\0\0\0\0\0\0a string of twenty-eight char";
    static const struct {
        const char *model, *key, *bytes;
        size_t n, over; /* bytes of the new value, and of the old one that it takes the place of */
        const char *says;
    } cases[] = {{"embed_jina", "attention.layer_norm_epsilon", text, 40, 8, "layer_norm_epsilon must be a number"},
                 {"embed_modernbert", "rope.freq_base_swa", text, 40, 8, "rope.freq_base_swa must be a number"},
                 {"embed_jina", "attention.head_count", "\4\0\0\0\5\0\0\0", 8, 8, "no multiple of its 5 heads"},
                 {"embed_modernbert", "hidden_activation", "\x08\0\0\0\4\0\0\0\0\0\0\0\x1b\r\x07\x7f", 16, 16, "activation \"????\""}};
    for (size_t i = 0; i < ROSE_COUNT(cases); i++) {
        struct golden g;
        struct arena a;
        struct str file;
        struct rose_error err = {0};
        struct strbuf b = {0};
        golden_open(&g, cases[i].model);
        arena_init(&a, 0);
        CHECK(golden_write_gguf(&g));
        CHECK_OK(file_read(&a, g.file, 1 << 24, &file, &err), err);
        const char *key = memmem(file.p, file.n, cases[i].key, strlen(cases[i].key));
        size_t at = key ? (size_t)(key - file.p) + strlen(cases[i].key) : 0;
        CHECK(at && strbuf_add(&b, file.p, at) && strbuf_add(&b, cases[i].bytes, cases[i].n) && strbuf_add(&b, file.p + at + cases[i].over, file.n - at - cases[i].over));
        golden_write(g.file, &b);
        strbuf_free(&b);
        check_refused(&g, g.file, cases[i].says, cases[i].says);
        arena_free(&a);
        golden_close(&g);
    }
}

TEST_MAIN(CASE(bad_configs), CASE(good_config), CASE(bad_tensors), CASE(bad_gguf), CASE(bad_gguf_sentences))
