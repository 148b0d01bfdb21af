/* The insides of the template engine; nothing outside template_*.c includes this.
 *
 *   template_lex       source -> tokens
 *   template_parse     tokens -> statements
 *   template_expr      tokens -> expressions
 *   template_scopes    finds the names that a scope hides
 *   template_variables the caller's variables, from JSON
 *   template_exec      runs statements
 *   template_eval      evaluates expressions
 *   template_call      calls: arguments, macros, global functions
 *   template_ops       operators, subscripts, slices, attributes
 *   template_value     lists, dicts, truth, order, equality
 *   template_string    strings that know where their bytes come from
 *   template_repr      str(), repr() and tojson
 *   template_filters, _text, _tests, _methods, _format, _wrap    what templates can call
 *   template_strings, _numbers, _unicode    what those share
 *
 * Errors: functions that can fail return false after having filled eval->err (template_fail); the caller just
 * returns. Memory: parsing allocates in the template's arena, rendering in the eval's; nothing is freed
 * before its end. */
#ifndef ROSE_TOKENIZER_TEMPLATE_INTERNAL_H
#define ROSE_TOKENIZER_TEMPLATE_INTERNAL_H

#include "base/arena.h"
#include "tokenizer/template.h"

/* --- values --- */

enum value_kind {
    V_MISSING, /* no value: an argument that was not given, a variable that is not set */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW, /* dict.keys(), .values(), .items(): a list that prints differently and cannot be indexed */
    V_RANGE,
    V_ITERATOR, /* what map, select, ... give: walked once */
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_BUILTIN, /* a global function */
    V_METHOD,  /* a function bound to a value */
    V_CYCLER,
    V_JOINER,
};

struct value {
    enum value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct tstring *string;
        struct tlist *list; /* V_LIST, V_TUPLE, V_VIEW */
        struct tdict *dict; /* V_DICT, V_NAMESPACE */
        struct trange *range;
        struct titer *iter;
        struct tundefined *undefined;
        struct tloop *loop;
        struct tmacro *macro;
        const struct callable *builtin;
        struct tmethod *method;
        struct tcycler *cycler; /* V_CYCLER, V_JOINER */
    };
};

/* Bytes [previous end, end) of a string share their trust. */
struct tspan {
    size_t end;
    bool trusted;
};

/* An immutable string. Without spans the whole of it has one trust. */
struct tstring {
    const char *p;
    size_t n;
    size_t chars; /* code points */
    const struct tspan *spans;
    size_t span_count;  /* 0: uniform */
    bool trusted;       /* when uniform */
    bool markup;        /* came out of escape or safe */
    struct tgrow *grow; /* the buffer it ends in, if that may have room behind it */
};

/* A buffer that several strings share as prefixes; the one that ends at `used` may be appended to in place.
 */
struct tgrow {
    char *p;
    size_t used, cap;
};

struct tlist {
    struct value *items;
    size_t n;
    bool grouped;     /* a (grouper, list) pair of groupby */
    const char *view; /* V_VIEW: "dict_keys", ... */
};

struct tentry {
    struct value key, value;
    uint64_t hash;
};
struct tdict {
    struct tentry *entries; /* in order of insertion */
    size_t n, cap;
    uint32_t *index; /* open addressing over entries, holds position + 1; NULL while small */
    size_t index_cap;
};

struct trange {
    int64_t start, stop, step, n;
};
struct titer {
    struct tlist *list;
    size_t at;
    const char *type; /* Python's name of the type, for messages */
    const struct rose_error
        *error; /* what making its next element led to, reported behind the last one; or NULL */
};
struct tundefined {
    const char *hint;   /* whole message, or NULL: made from the others */
    struct value owner; /* V_MISSING: a variable */
    struct value name;
};
struct tmethod {
    const struct callable *callable;
    struct value self;
};
struct tcycler {
    struct value *items; /* joiner: items[0] is the separator */
    size_t n, at;
};
struct name { /* an interned identifier of the template */
    struct str text;
    uint32_t id;
    struct name *next;
};
struct tmacro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
    struct str name;
};
struct tloop {
    const struct node *node;
    struct scope *scope; /* around the loop */
    struct titer *source;
    struct value before, current, after; /* after: V_MISSING unless peeked */
    int64_t index0, length, depth0;      /* length -1: not known yet */
    struct value changed;                /* the last arguments of changed(), a tuple */
    struct titer *filtered;              /* the rest after the filter, once length needed all of it */
};

/* --- the tree --- */

enum node_kind {
    /* expressions */
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_NEG,
    N_POS,
    N_NOT,
    N_BINARY,
    N_AND,
    N_OR,
    N_CONCAT,
    N_COMPARE,
    N_OPERAND,
    N_COND,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_KEYWORD,
    N_NSREF,
    /* statements */
    N_TEXT,
    N_OUTPUT,
    N_FOR,
    N_IF,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_BREAK,
    N_CONTINUE,
    N_GENERATION,
    N_BLOCK,
};

/* One node; what a, b, c, body and orelse are depends on the kind (see template_expr.c and template_parse.c).
 */
struct node {
    uint8_t kind, op; /* op: a token type */
    bool flag;        /* for: recursive; macro: uses caller; test: negated; block: scoped */
    bool uses_varargs, uses_kwargs;
    int line, column;
    struct node *a, *b, *c; /* operands */
    struct node *args;      /* list by next: arguments, elements; keywords come last */
    struct node *star, *starstar;
    struct node *body, *orelse;
    struct hidden *hidden, *hidden_else; /* of the scopes of body and orelse; see template_scopes.c */
    struct node *next;
    struct value value;              /* N_CONST, N_TEXT */
    struct name *name;               /* N_NAME, N_ATTR, N_KEYWORD, N_NSREF, N_MACRO, filters and tests */
    struct name *attr;               /* N_NSREF */
    const struct callable *callable; /* N_FILTER, N_TEST; NULL: no such thing */
};

/* A list of names that have no value at the beginning of a scope. */
struct hidden {
    const struct name *name;
    struct hidden *next;
};

enum token_type {
    T_EOF,
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LPAREN,
    T_RPAREN,
    T_LBRACKET,
    T_RBRACKET,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_LT,
    T_LE,
    T_GT,
    T_GE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
    T_IN,
    T_NOTIN, /* only as operators of comparisons */
};
struct token {
    enum token_type type;
    int line, column;
    struct str text; /* name; string and data: the value; number: as written */
    int64_t integer;
    double number;
};

struct template
{
    struct arena arena;
    char *file;        /* or NULL */
    struct str source; /* newlines normalised, the last one removed */
    struct token *tokens;
    size_t token_count;
    struct name **name_slots; /* hash table of chains */
    size_t name_cap;
    uint32_t name_count;
    struct node *body;
    struct hidden *hidden;
};

struct name *template_name(struct template *t, struct str text);
/* Existing name or NULL. */
struct name *template_name_find(const struct template *t, struct str text);

/* Lexer: fills tokens. */
enum rose_status template_lex(struct template *t, struct rose_error *err);
/* A word for a token in messages, e.g. "end of print statement". buf: 64 bytes. */
const char *template_token_describe(const struct token *token, char buf[64]);

struct parser {
    struct template *t;
    struct rose_error *err;
    enum rose_status status;
    size_t at;
    int nesting;          /* recursion */
    int loops;            /* loops around, within the macro */
    int soft;             /* within an if, where unknown filters fail only when reached */
    struct node *unknown; /* the first unknown filter or test of the expression */
    struct macro_uses {
        bool caller, varargs, kwargs;
        struct macro_uses *outer;
    } * macro; /* the macros around */
};
struct node *template_parse_fail(struct parser *p, const struct token *at, enum rose_status status,
                                 const char *fmt, ...) ROSE_PRINTF(4, 5);
struct node *template_parse_node(struct parser *p, enum node_kind kind, const struct token *at);
/* One level of recursion deeper; p->nesting-- ends it. */
bool template_parse_enter(struct parser *p);
bool template_parse_skip(struct parser *p, enum token_type type); /* takes the token if it is next */
bool template_parse_skip_word(struct parser *p, const char *word);
bool template_parse_expect(struct parser *p, enum token_type type, const char *what);
static inline const struct token *template_token(const struct parser *p)
{
    return &p->t->tokens[p->at];
}
bool template_parse_word(const struct parser *p, const char *word); /* is the next token this name? */

/* Fills the hidden names of all scopes; false when memory runs out. */
bool template_scopes(struct template *t);

/* Expressions. */
enum tuple_mode { TUPLE_EXPRESSION, TUPLE_NO_COND, TUPLE_TARGET, TUPLE_PARENTHESES };
struct node *template_expr(struct parser *p);
struct node *template_expr_tuple(struct parser *p, enum tuple_mode mode, const char *end_word);
struct node *template_expr_target(struct parser *p, bool namespaces, const char *end_word);
struct node *template_expr_filters(struct parser *p, struct node *operand, bool at_name);
struct name *template_expr_name(struct parser *p, const char *what); /* expects an identifier */

/* --- rendering --- */

struct binding {
    const struct name *name;
    struct value value;
    struct binding *next;
};
struct scope {
    struct scope *parent;
    struct binding *first;
};

/* A string under construction. */
struct tbuild {
    char *p;
    size_t n, cap;
    struct tspan *spans;
    size_t span_count, span_cap;
};

struct eval {
    const struct template *t;
    struct arena arena;
    struct rose_error *err; /* never NULL here */
    enum rose_status status;
    const struct node *at; /* what is evaluated, for messages */
    struct tbuild *out;
    struct scope *scope;
    struct scope *root;
    struct value *globals; /* by name id: variables, then global functions */
    uint64_t steps;        /* left */
    uint32_t depth, max_depth;
    size_t max_output;
    size_t buffered; /* bytes in all output buffers */
    time_t now;
    bool utc;
};

bool template_fail(struct eval *e, const char *fmt, ...) ROSE_PRINTF(2, 3);
bool template_fail_status(struct eval *e, enum rose_status status, const char *fmt, ...) ROSE_PRINTF(3, 4);
bool template_fail_memory(struct eval *e);
/* Counts work: one step and bytes / 32 more. */
bool template_charge(struct eval *e, size_t bytes);
bool template_enter(struct eval *e); /* one level deeper; template_leave must follow a success */
static inline void template_leave(struct eval *e)
{
    e->depth--;
}
void *template_alloc(struct eval *e, size_t bytes);              /* NULL after template_fail */
void *template_array(struct eval *e, size_t count, size_t size); /* the same, zeroed; not NULL for 0 */
#define TEMPLATE_NEW(e, type) ((type *)template_array((e), 1, sizeof(type)))

/* Fills e->globals: the caller's variables, and the global functions that they do not hide. */
bool template_variables(struct eval *e, const struct json *variables, const struct template_options *options);

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_ERROR };
enum flow template_exec(struct eval *e, const struct node *body);
/* Runs body in a new scope below parent into a string. */
enum flow template_exec_captured(struct eval *e, const struct node *body, struct scope *scope,
                                 struct value *out);
struct scope *template_scope(struct eval *e, struct scope *parent, const struct hidden *hidden);
bool template_scope_set(struct eval *e, struct scope *scope, const struct name *name, struct value value);
bool template_exec_assign(struct eval *e, const struct node *target, struct value value);
/* The loop called with children, loop(children). */
bool template_exec_recurse(struct eval *e, struct tloop *loop, struct value children, struct value *out);
bool template_loop_attr(struct eval *e, struct tloop *loop, struct str name, struct value *out);
bool template_loop_next(struct eval *e, struct tloop *loop, struct value *out, bool *done);

bool template_eval(struct eval *e, const struct node *node, struct value *out);
bool template_eval_lookup(struct eval *e, const struct name *name, struct value *out);

/* Calls. kw are in order of the call. */
struct keyword {
    struct str name;
    struct value value;
    bool trusted; /* the name is the template's own */
};
struct args {
    struct value *pos;
    size_t npos;
    struct keyword *kw;
    size_t nkw;
};
enum { CALL_MAX_PARAMS = 8 };
struct call {
    const struct callable *callable;
    struct value self;
    struct value p[CALL_MAX_PARAMS]; /* bound parameters, V_MISSING where not given */
    struct args args;                /* as called */
};
/* params: names separated by blanks; the first `required` must be given. NULL: any arguments, taken from
 * args. */
struct callable {
    const char *name;
    bool (*fn)(struct eval *e, struct call *call, struct value *out);
    const char *params;
    int required;
};
bool template_eval_args(struct eval *e, const struct node *call, struct args *args);
bool template_call(struct eval *e, struct value fn, struct args *args, struct value *out);
bool template_call_bound(struct eval *e, const struct callable *callable, struct value self,
                         struct args *args, struct value *out);
bool template_call_macro(struct eval *e, const struct tmacro *macro, struct args *args, struct value *out);
const struct callable *template_callable_find(const struct callable *table, size_t n, struct str name);

const struct callable *template_filter(struct str name);
const struct callable *template_text_filter(struct str name);
bool template_wrap(struct eval *e, struct call *call, struct value *out); /* the filter wordwrap */
const struct callable *template_test(struct str name);
const struct callable *template_global(struct str name);
const struct callable *template_method(struct value self, struct str name);
/* Is name a method of the value that would change it? */
bool template_method_mutates(struct value self, struct str name);

/* Values. */
static inline struct value value_of(enum value_kind kind)
{
    return (struct value){.kind = kind};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.kind = V_BOOL, .boolean = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = V_INT, .integer = i};
}
static inline struct value value_float(double d)
{
    return (struct value){.kind = V_FLOAT, .number = d};
}
static inline struct value value_string(struct tstring *s)
{
    return (struct value){.kind = V_STRING, .string = s};
}
static inline struct str value_str(struct value v)
{
    return (struct str){v.string->p, v.string->n};
}
static inline bool value_is_number(struct value v)
{
    return v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL;
}
static inline bool value_is_integral(struct value v)
{
    return v.kind == V_INT || v.kind == V_BOOL;
}
static inline int64_t value_integer(struct value v)
{
    return v.kind == V_BOOL ? v.boolean : v.integer;
}
static inline double value_number(struct value v)
{
    return v.kind == V_FLOAT ? v.number : (double)value_integer(v);
}

const char *template_value_type(struct value v); /* Python's name: "str", "dict", ... */
bool template_value_truth(struct value v);
bool template_value_equal(struct eval *e, struct value a, struct value b, bool *out);
bool template_value_compare(struct eval *e, enum token_type op, struct value a, struct value b, bool *out);
bool template_value_contains(struct eval *e, struct value container, struct value item, bool *out);
bool template_value_length(struct eval *e, struct value v, int64_t *out);
/* The elements as a list (for a list the same one). An iterator is used up. Strings give characters, dicts
 * keys. */
bool template_value_elements(struct eval *e, struct value v, struct tlist **out);
/* For walking one by one: an iterator gives itself. */
bool template_value_iter(struct eval *e, struct value v, struct titer **out);
bool template_value_hash(struct eval *e, struct value v, uint64_t *out);
/* At the end of an iterator: false after reporting its error, if it has one. */
bool template_value_iter_end(struct eval *e, const struct titer *iter);
bool template_value_is_iterable(struct value v);
/* Stable sort; keys[i] belongs to items[i]. */
bool template_value_sort(struct eval *e, struct value *items, struct value *keys, size_t n, bool reverse);
bool template_value_undefined(struct eval *e, struct value owner, struct value name, struct value *out);
bool template_value_undefined_hint(struct eval *e, const char *hint, struct value *out);
/* The error of using an undefined value. */
bool template_value_undefined_fail(struct eval *e, struct value v);

struct tlist *template_list_new(struct eval *e, size_t n);
bool template_list_value(struct eval *e, enum value_kind kind, struct value *items, size_t n,
                         struct value *out);
bool template_iterator(struct eval *e, struct tlist *list, const char *type, struct value *out);
/* The iterator a lazy filter gives. Not ok: making the elements failed behind the ones in list (NULL: none);
 * as in Python, that is reported only when somebody gets there. Limits stay errors. depth: e->depth before
 * the filter. */
bool template_iterator_lazy(struct eval *e, bool ok, struct tlist *list, uint32_t depth, struct value *out);
struct tdict *template_dict_new(struct eval *e, size_t room);
bool template_dict_set(struct eval *e, struct tdict *dict, struct value key, struct value value);
/* NULL in *out when missing. */
bool template_dict_get(struct eval *e, const struct tdict *dict, struct value key, struct value **out);
struct value *template_dict_get_str(const struct tdict *dict, struct str key);

/* Strings. */
bool template_string_new(struct eval *e, struct str text, bool trusted, struct value *out); /* borrows text */
bool template_string_literal(struct eval *e, const char *text, struct value *out); /* trusted, borrows */
bool template_string_slice(struct eval *e, const struct tstring *s, size_t begin, size_t end,
                           struct value *out);
bool template_string_concat(struct eval *e, const struct tstring *a, const struct tstring *b,
                            struct value *out);
bool template_string_all_trusted(const struct tstring *s);
size_t template_string_offset(const struct tstring *s,
                              size_t chars); /* bytes before the code point number chars */
size_t template_string_chars(struct str text);

bool tbuild_add(struct eval *e, struct tbuild *b, const void *bytes, size_t n, bool trusted);
static inline bool tbuild_text(struct eval *e, struct tbuild *b, const char *text)
{
    return tbuild_add(e, b, text, strlen(text), true);
}
bool tbuild_slice(struct eval *e, struct tbuild *b, const struct tstring *s, size_t begin, size_t end);
static inline bool tbuild_string(struct eval *e, struct tbuild *b, const struct tstring *s)
{
    return tbuild_slice(e, b, s, 0, s->n);
}
bool tbuild_repeat(struct eval *e, struct tbuild *b, char c, size_t n);
bool tbuild_end(struct eval *e, struct tbuild *b, struct value *out);

/* Text of values. */
bool template_str(struct eval *e, struct value v, struct value *out); /* str(v) */
bool template_str_add(struct eval *e, struct tbuild *b, struct value v);
bool template_repr_add(struct eval *e, struct tbuild *b, struct value v);
size_t template_float_repr(double d, char out[40]); /* Python's repr */
struct json_style {
    struct value indent; /* V_STRING or V_MISSING */
    struct value item_separator, key_separator;
    bool ascii, sort;
};
bool template_json_add(struct eval *e, struct tbuild *b, struct value v, const struct json_style *style,
                       int level);

/* Operators. */
bool template_ops_binary(struct eval *e, enum token_type op, struct value a, struct value b,
                         struct value *out);
bool template_ops_getattr(struct eval *e, struct value v, struct value name, struct value *out);
bool template_ops_getitem(struct eval *e, struct value v, struct value key, struct value *out);
bool template_ops_slice(struct eval *e, struct value v, struct value start, struct value stop,
                        struct value step, struct value *out);
bool template_ops_index(struct eval *e, struct value v, const char *what,
                        int64_t *out);                                      /* must be an integer */
bool template_escape_add(struct eval *e, struct tbuild *b, struct value v); /* HTML escapes of str(v) */

bool template_format_percent(struct eval *e, const struct tstring *format, struct value args,
                             struct value *out);
bool template_format_braces(struct eval *e, const struct tstring *format, struct args *args,
                            struct value *out);
bool template_format_time(struct eval *e, const struct tstring *format, struct value *out);

/* int(text, base) and float(text) as Python reads them; false: not a number. *overflow: too big for 64 bits.
 */
bool template_read_int(struct str text, int64_t base, int64_t *out, bool *overflow);
bool template_read_float(struct str text, double *out);

/* Characters. */
uint32_t template_unicode_next(struct str text, size_t *at);
bool template_unicode_space(uint32_t cp);
bool template_unicode_alpha(uint32_t cp);
bool template_unicode_decimal(uint32_t cp);
bool template_unicode_digit(uint32_t cp);
bool template_unicode_numeric(uint32_t cp);
bool template_unicode_printable(uint32_t cp);
bool template_unicode_lower(uint32_t cp);
bool template_unicode_upper(uint32_t cp);
bool template_unicode_title(uint32_t cp); /* a title-case letter, such as U+01C5 */
bool template_unicode_cased(uint32_t cp);
bool template_unicode_case_ignorable(uint32_t cp);
/* Full case mappings: writes up to 3 code points, returns how many. */
int template_unicode_to_upper(uint32_t cp, uint32_t out[3]);
int template_unicode_to_lower(uint32_t cp, uint32_t out[3]);
int template_unicode_to_title(uint32_t cp, uint32_t out[3]);
int template_unicode_to_fold(uint32_t cp, uint32_t out[3]);

#endif
