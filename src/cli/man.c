/* rose man, rose completion: the man page and bash's completion, made of the same tables as --help. make install writes both. */
#include <stdio.h>

#include "cli/commands.h"

size_t cli_man_options(const struct option **out)
{
    *out = NULL;
    return 0;
}

size_t cli_completion_options(const struct option **out) { return cli_man_options(out); }

/* roff: a '-' is typed as such, a '\' and a line's first '.' or "'" are escaped. */
static void text(struct strbuf *b, const char *s)
{
    for (const char *p = s; *p; p++) {
        bool first = p == s || p[-1] == '\n';
        if (*p == '-' || *p == '\\') strbuf_addc(b, '\\');
        if (*p == '\\') strbuf_addc(b, 'e');
        else if (first && (*p == '.' || *p == '\'')) strbuf_printf(b, "\\&%c", *p);
        else strbuf_addc(b, *p);
    }
}

static void command(struct strbuf *b, const struct cli_command *c)
{
    const struct option *options;
    size_t count = c->options(&options);
    strbuf_printf(b, ".SH ROSE %s\n.B rose %s\n[OPTIONS]\n", c->name, c->name);
    text(b, c->arguments);
    strbuf_adds(b, "\n.PP\n");
    text(b, c->summary);
    strbuf_addc(b, '\n');
    if (c->details) text(b, c->details);
    option_man(options, count, b);
}

int cli_man(const struct cli_command *self, int argc, char **argv)
{
    int count, status;
    struct strbuf b = {0};
    if (!cli_parse(self, argc, argv, NULL, 0, &count, &status)) return status;
    strbuf_adds(&b, ".TH ROSE 1 \"\" \"Rose " ROSE_VERSION "\" \"User Commands\"\n.SH NAME\nrose \\- serve transformer models\n.SH SYNOPSIS\n.B rose\n"
                    ".I COMMAND\n[OPTIONS] ...\n.SH DESCRIPTION\nRose runs transformer language models: on the terminal, over HTTP, as a library.\n"
                    ".I MODEL\nis a Hugging Face directory, a .gguf file, or ORG/NAME in the Hugging Face hub's cache.\n.PP\nCommands:\n");
    for (size_t i = 0; i < cli_commands_count; i++) {
        if (!cli_commands[i].summary) continue;
        strbuf_printf(&b, ".TP\n.B %s\n", cli_commands[i].name);
        text(&b, cli_commands[i].summary);
        strbuf_addc(&b, '\n');
    }
    for (size_t i = 0; i < cli_commands_count; i++)
        if (cli_commands[i].summary) command(&b, &cli_commands[i]);
    strbuf_adds(&b, ".SH EXIT STATUS\n.TP\n.B 0\nsuccess\n.TP\n.B 1\nan error, said in a sentence on standard error\n.TP\n.B 2\nwrong usage\n"
                    ".SH ENVIRONMENT\nOptions with a name in brackets take that variable as their default.\n.TP\n.B HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME\n"
                    "where the hub's cache lies\n.TP\n.B NO_COLOR\nno colours\n");
    fwrite(b.p ? b.p : "", 1, b.n, stdout);
    strbuf_free(&b);
    return CLI_OK;
}

int cli_completion(const struct cli_command *self, int argc, char **argv)
{
    int count, status;
    struct strbuf b = {0};
    if (!cli_parse(self, argc, argv, NULL, 0, &count, &status)) return status;
    strbuf_adds(&b, "# bash completion for rose, made by rose completion\n_rose()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} options=\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < cli_commands_count; i++) {
        const struct option *options;
        if (!cli_commands[i].summary) continue;
        size_t n = cli_commands[i].options(&options);
        strbuf_printf(&b, "    %s) options=\"--help", cli_commands[i].name);
        for (size_t k = 0; k < n; k++)
            if (options[k].type != OPTION_GROUP) strbuf_printf(&b, " --%s", options[k].name);
        strbuf_adds(&b, "\" ;;\n");
    }
    strbuf_adds(&b, "    esac\n    if [[ $COMP_CWORD == 1 ]]; then\n        COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; i < cli_commands_count; i++)
        if (cli_commands[i].summary) strbuf_printf(&b, "%s ", cli_commands[i].name);
    strbuf_adds(&b, "--help --version\" -- \"$word\"))\n    elif [[ $word == -* ]]; then\n        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n    else\n"
                    "        compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\ncomplete -F _rose rose\n");
    fwrite(b.p ? b.p : "", 1, b.n, stdout);
    strbuf_free(&b);
    return CLI_OK;
}
