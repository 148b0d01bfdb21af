/* Requests: JSON to rose_request, and what is refused. */
#include "server/api.h"
#include "test.h"

static struct arena arena;
static struct api_error error;

static bool read_chat(const char *text, struct api_request *r)
{
    const struct json *body;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct api_error){0};
    if (json_parse(&arena, NULL, str_of(text), &body, NULL) != ROSE_OK) return false;
    return openai_chat_read(body, &arena, r, &error);
}

static bool read_completion(const char *text, struct api_request *r)
{
    const struct json *body;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct api_error){0};
    if (json_parse(&arena, NULL, str_of(text), &body, NULL) != ROSE_OK) return false;
    return openai_completion_read(body, &arena, r, &error);
}

static bool read_messages(const char *text, struct api_request *r)
{
    const struct json *body;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct api_error){0};
    if (json_parse(&arena, NULL, str_of(text), &body, NULL) != ROSE_OK) return false;
    return anthropic_read(body, false, &arena, r, &error);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

TEST(defaults)
{
    struct api_request r;
    CHECK(read_chat("{" HI "}", &r));
    CHECK_INT(r.rose.max_tokens, -1);
    CHECK_NEAR(r.rose.sampling.temperature, 1, 0);
    CHECK_INT(r.rose.logprobs, -1);
    CHECK_INT(r.rose.choices, 1);
    CHECK(!r.stream && !r.rose.keep_special && !r.rose.sampling.has_seed);
    CHECK(read_completion("{\"prompt\":\"x\"}", &r));
    CHECK_INT(r.rose.max_tokens, 16);
}

TEST(every_field_lands)
{
    struct api_request r;
    CHECK(read_chat("{" HI ",\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.125,\"n\":3,\"seed\":-5,\"max_tokens\":9,\"max_completion_tokens\":11,"
                    "\"presence_penalty\":-1,\"frequency_penalty\":1.5,\"repetition_penalty\":1.25,\"min_tokens\":2,\"ignore_eos\":true,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[4,5],"
                    "\"include_stop_str_in_output\":true,\"skip_special_tokens\":false,\"prompt_logprobs\":1,\"priority\":-3,\"cache_salt\":\"s\",\"logit_bias\":{\"12\":-100},"
                    "\"logprobs\":true,\"top_logprobs\":4,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"model\":\"m\"}", &r));
    CHECK_NEAR(r.rose.sampling.temperature, 0.5, 0);
    CHECK_NEAR(r.rose.sampling.top_p, 0.25, 0);
    CHECK_INT(r.rose.sampling.top_k, 7);
    CHECK_NEAR(r.rose.sampling.min_p, 0.125, 0);
    CHECK_INT(r.rose.choices, 3);
    CHECK(r.rose.sampling.has_seed);
    CHECK_INT((int64_t)r.rose.sampling.seed, -5);
    CHECK_INT(r.rose.max_tokens, 11);
    CHECK_NEAR(r.rose.sampling.presence_penalty, -1, 0);
    CHECK_NEAR(r.rose.sampling.frequency_penalty, 1.5, 0);
    CHECK_NEAR(r.rose.sampling.repetition_penalty, 1.25, 0);
    CHECK_INT(r.rose.sampling.min_tokens, 2);
    CHECK(r.rose.sampling.ignore_eos && r.rose.include_stop && r.rose.keep_special && r.stream && r.include_usage);
    CHECK_INT(r.rose.stops_count, 2);
    CHECK_STR(r.rose.stops[1], "bc");
    CHECK_INT(r.rose.stop_ids_count, 2);
    CHECK_INT(r.rose.stop_ids[1], 5);
    CHECK_INT(r.rose.prompt_logprobs, 1);
    CHECK_INT(r.rose.priority, -3);
    CHECK_STR(r.rose.cache_salt, "s");
    CHECK_INT(r.rose.sampling.logit_bias_count, 1);
    CHECK_INT(r.rose.sampling.logit_bias[0].id, 12);
    CHECK_INT(r.rose.logprobs, 4);
    CHECK(str_is(r.model, "m"));
}

TEST(chat_object)
{
    struct api_request r;
    CHECK(read_chat("{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
                    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}],\"refusal\":null}],"
                    "\"chat_template_kwargs\":{\"messages\":5,\"k\":true}}", &r));
    struct str got = r.prompts[0].text;
    CHECK_STR(got.p, "{\"messages\":5,\"k\":true,\"tools\":null,\"add_generation_prompt\":true,\"continue_final_message\":false,\"messages\":[{\"role\":\"system\",\"content\":\"a\\nb\"},"
                     "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}]}");
    CHECK(read_chat("{" HI ",\"continue_final_message\":true}", &r));
    CHECK(strstr(r.prompts[0].text.p, "\"add_generation_prompt\":false,\"continue_final_message\":true") != NULL);
    CHECK(read_chat("{" HI ",\"add_generation_prompt\":false}", &r));
    CHECK(strstr(r.prompts[0].text.p, "\"add_generation_prompt\":false,\"continue_final_message\":false") != NULL);
}

TEST(prompts)
{
    struct api_request r;
    CHECK(read_completion("{\"prompt\":[\"a\",[1,2,3]],\"n\":2}", &r));
    CHECK_INT(r.prompts_count, 2);
    CHECK_INT(r.prompts[0].kind, ROSE_REQUEST_TEXT);
    CHECK_INT(r.prompts[1].kind, ROSE_REQUEST_TOKENS);
    CHECK_INT(r.prompts[1].count, 3);
    CHECK(read_completion("{\"prompt\":[4,5]}", &r));
    CHECK_INT(r.prompts_count, 1);
    CHECK_INT(r.prompts[0].tokens[1], 5);
    CHECK(read_completion("{\"prompt\":\"x\",\"max_tokens\":0,\"echo\":true,\"logprobs\":3}", &r));
    CHECK_INT(r.rose.prompt_logprobs, 3);
    CHECK(!r.wants_prompt_logprobs);
}

TEST(refusals_name_the_field)
{
    static const struct { const char *body, *param; } cases[] = {
        {"{}", "messages"}, {"{\"messages\":[]}", "messages"}, {"{" HI ",\"x\":1}", "x"}, {"{" HI ",\"stop\":[\"\"]}", "stop"}, {"{" HI ",\"n\":0}", "n"},
        {"{" HI ",\"tools\":[{}]}", "tools"}, {"{" HI ",\"response_format\":{\"type\":\"json_object\"}}", "response_format"}, {"{" HI ",\"temperature\":\"1\"}", "temperature"},
        {"{" HI ",\"logit_bias\":{\"a\":1}}", "logit_bias"}, {"{" HI ",\"top_logprobs\":2}", "top_logprobs"}, {"{" HI ",\"stream_options\":{}}", "stream_options"},
        {"{" HI ",\"stream\":true,\"stream_options\":5}", "stream_options"},
        {"{" HI ",\"max_tokens\":0}", "max_tokens"}, {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages[0].content"}, {"[]", ""}};
    struct api_request r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!read_chat(cases[i].body, &r));
        CHECK_INT(error.status, 400);
        CHECK_STR(error.param, cases[i].param);
    }
    CHECK(read_chat("{" HI ",\"tools\":[],\"tool_choice\":\"auto\",\"temperature\":null,\"metadata\":{\"a\":1},\"response_format\":{\"type\":\"text\"}}", &r));
}

TEST(anthropic)
{
    struct api_request r;
    CHECK(read_messages("{\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"stop_sequences\":[\"q\"],\"thinking\":{\"type\":\"disabled\"},\"messages\":["
                        "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":\"text\",\"text\":\"go\"}]}]}", &r));
    CHECK_INT(r.rose.max_tokens, 5);
    CHECK_INT(r.rose.stops_count, 1);
    CHECK_STR(r.prompts[0].text.p, "{\"enable_thinking\":false,\"tools\":null,\"add_generation_prompt\":false,\"continue_final_message\":true,\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
                                   "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"go\",\"reasoning_content\":\"t\"}]}");
    CHECK(!read_messages("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", &r));
    CHECK_STR(error.param, "max_tokens");
}

TEST(roles)
{
    static const char llama[] = "{% if m.role == \"tool\" or m.role == 'ipython' %}{% elif m['role'] == \"observation\" %}";
    struct api_request r;
    static const struct { const char *role, *chat_template; bool good; } cases[] = {
        {"user", NULL, true}, {"function", NULL, true}, {"alien", NULL, false}, {"ipython", NULL, false}, {"ipython", llama, true}, {"observation", llama, true}, {"serv", llama, false},
        {"m.role", llama, false}, {"an endless name of a role that no template ever had in it", llama, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"%s\",\"content\":\"\"}]}", cases[i].role);
        CHECK(read_chat(body, &r));
        CHECK_INT(openai_roles(r.messages, cases[i].chat_template, &error), cases[i].good);
        if (!cases[i].good) CHECK_STR(error.param, "messages[1].role");
    }
}

TEST_MAIN(CASE(roles), CASE(defaults), CASE(every_field_lands), CASE(chat_object), CASE(prompts), CASE(refusals_name_the_field), CASE(anthropic))
