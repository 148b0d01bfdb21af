/* Chat templates: an engine for the Jinja language, set up as Hugging Face transformers sets jinja2 up for
 * chat templates (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, no
 * autoescape).
 *
 *     source --template_parse--> struct template --template_render--> text + segments
 *
 * A template is immutable after parsing; any number of threads may render it at once.
 *
 * Trust. A rendered prompt mixes the template's own text with the user's. Every byte of the output therefore
 * knows whether it came from the template (trusted) or from a variable (untrusted), through assignments,
 * slices, macros and filters; an operation that cannot tell marks its whole result untrusted. A tokenizer may
 * recognise a control token only where all of its bytes are trusted, so that a user who writes "<|im_end|>"
 * sends plain text. The segments are no borders for anything else: ordinary tokens may span them.
 *
 * Differences from jinja2:
 *   - integers have 64 bits; an overflow is an error (jinja2: unlimited);
 *   - map, select, reject, selectattr, rejectattr, unique, batch, slice and items compute their elements when
 *     called, not one by one (an error in one still shows only when it is reached);
 *   - left out, with an error that says so: the tags extends, include, import, from, autoescape; the filters
 *     urlize and random; the global lipsum; complex numbers; names in strings like \N{DASH};
 *   - not there, so undefined: self and super; attributes of numbers and functions; the methods encode,
 *     format_map, isidentifier, maketrans and translate of strings;
 *   - dict views have no set operations; a string marked by safe or escape acts on +, escape and the test
 *     escaped only; pprint prints one line, unsorted;
 *   - constants are not folded when a template is read, so an error in one shows only when it is reached. */
#ifndef ROSE_TOKENIZER_TEMPLATE_H
#define ROSE_TOKENIZER_TEMPLATE_H

#include <time.h>

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

struct template;

enum {
    TEMPLATE_MAX_SOURCE = 1 << 20, /* bytes */
    TEMPLATE_MAX_NESTING = 200,    /* parentheses, blocks and operands inside each other */
};

/* Parse source (UTF-8). file names it in errors, of parsing and of rendering (NULL: none). A template that
 * does not follow the language is ROSE_FORMAT (or ROSE_UNSUPPORTED, ROSE_LIMIT) with line and column. *out is
 * freed with template_free. source need not outlive the call. */
enum rose_status template_parse(struct str source, const char *file, struct template **out,
                                struct rose_error *err);
void template_free(struct template *template);

/* Whether the word occurs as a name in a tag of the template, e.g. "tools". */
bool template_uses(const struct template *template, const char *variable);

struct template_options {
    time_t now; /* what strftime_now shows; 0: the clock */
    bool utc;   /* strftime_now in UTC instead of local time */

    /* Treat the variables as transformers' apply_chat_template does: members of a message that are null are
     * left out, its reasoning is offered as reasoning_content and as thinking, tools and documents that are
     * not given are none, add_generation_prompt is false. */
    bool as_transformers;

    /* Top-level variables whose strings count as the template's own text, ended by NULL. NULL: bos_token,
     * eos_token, unk_token, pad_token, sep_token, cls_token, mask_token; do not let users set those. */
    const char *const *trusted;

    /* Limits; 0 is the default. */
    uint64_t max_steps; /* evaluation steps; default 50,000,000 */
    uint32_t max_depth; /* expressions, blocks and macro calls inside each other; default 400 */
    size_t max_output;  /* bytes of text; default 64 MiB */
    size_t max_memory;  /* bytes of working memory; default 512 MiB */
};

struct template_segment {
    size_t begin, end; /* bytes of the text */
    bool trusted;
};

/* The text and its segments: in order, without gaps, neighbours differ in trust. Owned; template_output_free.
 */
struct template_output {
    struct strbuf text;
    struct template_segment *segments;
    size_t count;
};
void template_output_free(struct template_output *output);

/* Render with variables, a JSON object (messages, tools, documents, add_generation_prompt, bos_token, ...;
 * NULL: none). options may be NULL. Roles of messages count as trusted where they are one of the known words.
 * Errors: ROSE_INVALID with the template's line and column when the template refuses its input
 * (raise_exception) or an operation fails, ROSE_LIMIT, ROSE_NO_MEMORY. After an error *out is empty. */
enum rose_status template_render(const struct template *template, const struct json *variables,
                                 const struct template_options *options, struct template_output *out,
                                 struct rose_error *err);

#endif
