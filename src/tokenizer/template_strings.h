/* Operations on strings that methods and filters share. */
#ifndef ROSE_TOKENIZER_TEMPLATE_STRINGS_H
#define ROSE_TOKENIZER_TEMPLATE_STRINGS_H

#include "tokenizer/template_internal.h"

enum string_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP, CASE_FOLD };

bool template_strings_case(struct eval *e, const struct tstring *s, enum string_case to, struct value *out);
/* chars NULL: whitespace. */
bool template_strings_strip(struct eval *e, const struct tstring *s, const struct tstring *chars, bool left,
                            bool right, struct value *out);
/* count < 0: all. */
bool template_strings_replace(struct eval *e, const struct tstring *s, const struct tstring *old,
                              const struct tstring *new, int64_t count, struct value *out);
/* max < 0: no limit. right: the splits are counted from the end. */
bool template_strings_split(struct eval *e, const struct tstring *s, const struct tstring *sep, int64_t max,
                            bool right, struct value *out);
bool template_strings_split_space(struct eval *e, const struct tstring *s, int64_t max, bool right,
                                  struct value *out);
bool template_strings_lines(struct eval *e, const struct tstring *s, bool keep_ends, struct tlist **out);
/* side -1: text left, 0: centred, 1: right. */
bool template_strings_pad(struct eval *e, const struct tstring *s, int64_t width, const struct tstring *fill,
                          int side, struct value *out);
bool template_strings_is_case(struct str text, bool upper);

#endif
