/* rose kernels: what device code is made of. `rose kernels layout` shows the layout algebra. */
#include <stdio.h>

#include "cli/commands.h"

static struct {
    bool draw, color;
} o;

static const struct option options[] = {
    {"draw", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "layout: a table of offsets", &o.draw},
    {"color", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "layout: colours also when standard output is no terminal", &o.color},
};

size_t cli_kernels_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static int layout(const struct cli_command *self, const char *const *words, int count)
{
    struct rose_error err = {0};
    char *text;
    if (count != 1) return cli_usage(self, "name one layout, such as '(8,16):(16,1)'");
    bool color = o.color || (cli_is_terminal(1) && !option_env("NO_COLOR"));
    enum rose_status s = rose_layout(words[0], o.draw, color, &text, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    fputs(text, stdout);
    rose_free(text);
    return CLI_OK;
}

int cli_kernels(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (count && str_is(str_of(words[0]), "layout")) return layout(self, words + 1, count - 1);
    return cli_usage(self, count ? "there is no \"kernels %s\"" : "say what of%s", count ? words[0] : " the kernels: layout");
}
