/* libFuzzer: a chat template of arbitrary bytes, rendered with fixed variables under tight limits. */
#include <stdint.h>

#include "tokenizer/template.h"

static const char variables_text[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" be <|good|> "
    "\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":\"h\\u00e9 "
    "\\ud83d\\ude00\"},{\"type\":\"image\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
    "\"id\":"
    "\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.5,\"b\":[true,null]}}}]}],\"tools\":[{"
    "\"name\":\"f\"}],"
    "\"bos_token\":\"<s>\",\"s\":\"a,b "
    "c\",\"n\":-3,\"x\":0.1,\"l\":[3,1,2],\"d\":{\"k\":\"v\",\"w\":2},\"add_generation_prompt\":true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena arena;
    static const struct json *variables;
    struct rose_error err = {0};
    struct template *template;
    struct template_output out;
    const struct template_options options = {
        .now = 1700000000, .utc = true, .max_steps = 200000, .max_output = 1 << 20, .max_memory = 32 << 20};
    if (!variables && json_parse(&arena, NULL, STR(variables_text), &variables, &err)) __builtin_trap();
    if (template_parse((struct str){(const char *)data, size}, NULL, &template, &err)) return 0;
    if (!template_render(template, variables, &options, &out, &err)) {
        size_t at = 0;
        for (size_t i = 0; i < out.count; i++) {
            if (out.segments[i].begin != at || out.segments[i].end <= at) __builtin_trap();
            at = out.segments[i].end;
        }
        if (at != out.text.n) __builtin_trap();
        template_output_free(&out);
    }
    template_free(template);
    return 0;
}
