/* Lines from the terminal: with libedit (loaded when there is one) keys edit and history comes back; without it, as the terminal gives
 * them. */
#ifndef ROSE_CLI_LINE_H
#define ROSE_CLI_LINE_H

#include <stdbool.h>

struct line_editor;
/* history: a file that is read now and written by line_close; NULL: none. NULL: out of memory. */
struct line_editor *line_open(const char *history);
/* The next line without its end, valid until the next call; NULL at the end of input, or with *interrupted on Ctrl-C. The prompt shows
 * on a terminal only. */
const char *line_read(struct line_editor *l, const char *prompt, bool *interrupted);
void line_close(struct line_editor *l);

#endif
