/* rose render: a chat template's output, by a model's template or a template file. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

static const char *template_file;

static const struct option options[] = {
    {"template", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "this template instead of a model's", &template_file},
    {"chat-template", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "MODEL's tokens with this template instead of its own", &cli_common.chat_template},
    CLI_TEXT_OPTIONS,
};

size_t cli_render_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static enum rose_status by_template(struct str input, struct strbuf *out, struct rose_error *err)
{
    struct strbuf source = {0};
    size_t n;
    *out = (struct strbuf){0};
    ROSE_TRY(cli_read(template_file, 4 << 20, &source, err));
    enum rose_status s = rose_render_template(source.p, source.n, template_file, input.p, input.n, NULL, 0, &n, err);
    if (s == ROSE_OK && !strbuf_reserve(out, n)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) s = rose_render_template(source.p, source.n, template_file, input.p, input.n, out->p, n, &out->n, err);
    strbuf_free(&source);
    return s;
}

int cli_render_command(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    struct rose_error err = {0};
    struct strbuf input = {0}, out = {0};
    template_file = NULL;
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    int models = template_file ? 0 : 1;
    if (count < models) return cli_usage(self, "name a MODEL, or a template with --template FILE");
    if (count > models + 1) return cli_usage(self, "unexpected argument \"%s\"; --template FILE stands for MODEL", words[models + 1]);
    enum rose_status s = cli_read(count > models ? words[models] : "-", 256 << 20, &input, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    struct cli_engine e = {0};
    if (template_file) {
        s = by_template(strbuf_str(&input), &out, &err);
    } else {
        s = cli_open(words[0], true, &e, &err);
        if (s == ROSE_OK) s = cli_render(e.engine, strbuf_str(&input), &out, &err);
    }
    if (s == ROSE_OK) fwrite(out.p ? out.p : "", 1, out.n, stdout);
    status = s == ROSE_OK ? CLI_OK : cli_error(s, &err);
    cli_close(&e);
    strbuf_free(&input);
    strbuf_free(&out);
    return status;
}
