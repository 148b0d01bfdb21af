#define _GNU_SOURCE
#include "cli/line.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#ifdef ROSE_HAVE_EDIT
#include <histedit.h>
#endif

enum { HISTORY_LINES = 1000 };

struct line_editor {
    char *line;
    size_t room;
    const char *history_path, *prompt;
    bool terminal;
#ifdef ROSE_HAVE_EDIT
    EditLine *el;
    History *history;
    HistEvent event;
    EditLine *(*el_init)(const char *, FILE *, FILE *, FILE *);
    void (*el_end)(EditLine *);
    int (*el_set)(EditLine *, int, ...);
    const char *(*el_gets)(EditLine *, int *);
    int (*el_source)(EditLine *, const char *);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history_call)(History *, HistEvent *, int, ...);
#endif
};

static volatile sig_atomic_t interrupts;
/* Ctrl-C between the prompt and read() would leave read() waiting: a second signal, the alarm's, ends it then. */
static void on_interrupt(int signal)
{
    if (signal != SIGINT) return;
    interrupts++;
    alarm(1);
}

#ifdef ROSE_HAVE_EDIT
static struct line_editor *prompting; /* libedit's prompt function gets no pointer of ours */
static char *show_prompt(EditLine *el)
{
    (void)el;
    return (char *)(uintptr_t)prompting->prompt;
}

static void open_edit(struct line_editor *l)
{
    void *library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    struct {
        const char *name;
        void *to;
    } symbols[] = {{"el_init", &l->el_init},     {"el_end", &l->el_end},             {"el_set", &l->el_set},           {"el_gets", &l->el_gets},
                   {"el_source", &l->el_source}, {"history_init", &l->history_init}, {"history_end", &l->history_end}, {"history", &l->history_call}};
    for (size_t i = 0; i < ROSE_COUNT(symbols); i++) {
        void *symbol = library ? dlsym(library, symbols[i].name) : NULL;
        if (!symbol) return;
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    setlocale(LC_CTYPE, ""); /* whole characters, not bytes, move under the cursor */
    l->history = l->history_init();
    l->el = l->history ? l->el_init("rose", stdin, stdout, stderr) : NULL;
    if (!l->el) return;
    prompting = l;
    l->history_call(l->history, &l->event, H_SETSIZE, HISTORY_LINES);
    l->history_call(l->history, &l->event, H_SETUNIQUE, 1);
    if (l->history_path) l->history_call(l->history, &l->event, H_LOAD, l->history_path);
    l->el_set(l->el, EL_PROMPT, show_prompt);
    l->el_set(l->el, EL_SIGNAL, 0);
    l->el_set(l->el, EL_EDITOR, "emacs");
    l->el_set(l->el, EL_HIST, l->history_call, l->history);
    l->el_source(l->el, NULL); /* ~/.editrc */
}

static ssize_t edit(struct line_editor *l)
{
    int n = 0;
    const char *got = l->el_gets(l->el, &n);
    if (!got || n <= 0) return -1;
    if ((size_t)n + 1 > l->room) {
        char *more = realloc(l->line, (size_t)n + 1);
        if (!more) return -1;
        l->line = more;
        l->room = (size_t)n + 1;
    }
    memcpy(l->line, got, (size_t)n);
    l->line[n] = '\0';
    if (strspn(l->line, " \t\r\n") != (size_t)n) l->history_call(l->history, &l->event, H_ENTER, got);
    return n;
}

static void close_edit(struct line_editor *l)
{
    if (l->history && l->history_path) {
        mode_t mask = umask(077); /* what people ask is theirs */
        l->history_call(l->history, &l->event, H_SAVE, l->history_path);
        umask(mask);
    }
    if (l->el) l->el_end(l->el);
    if (l->history) l->history_end(l->history);
}
#endif

struct line_editor *line_open(const char *history)
{
    struct line_editor *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    l->history_path = history ? strdup(history) : NULL;
#ifdef ROSE_HAVE_EDIT
    if (l->terminal) open_edit(l);
#endif
    return l;
}

static ssize_t next(struct line_editor *l)
{
#ifdef ROSE_HAVE_EDIT
    if (l->el) return edit(l);
#endif
    if (l->terminal) fputs(l->prompt, stdout), fflush(stdout);
    return getline(&l->line, &l->room, stdin);
}

const char *line_read(struct line_editor *l, const char *prompt, bool *interrupted)
{
    struct sigaction act = {.sa_handler = on_interrupt}, before, alarm_before; /* no SA_RESTART: reading ends */
    l->prompt = prompt;
    interrupts = 0;
    sigaction(SIGALRM, &act, &alarm_before);
    sigaction(SIGINT, &act, &before);
    ssize_t n = next(l);
    sigaction(SIGINT, &before, NULL);
    alarm(0);
    sigaction(SIGALRM, &alarm_before, NULL);
    *interrupted = interrupts != 0;
    if (*interrupted) {
        clearerr(stdin);
        if (l->terminal) fputs("\n", stdout), fflush(stdout);
        return NULL;
    }
    if (n < 0) return NULL;
    while (n && (l->line[n - 1] == '\n' || l->line[n - 1] == '\r')) l->line[--n] = '\0';
    return l->line;
}

void line_close(struct line_editor *l)
{
    if (!l) return;
#ifdef ROSE_HAVE_EDIT
    close_edit(l);
#endif
    free((char *)(uintptr_t)l->history_path);
    free(l->line);
    free(l);
}
