"""Writes src/tokenizer/template_unicode_tables.h from Python's own str methods, which are the reference of the
chat template engine: python3 tests/golden/make_template_unicode.py > src/tokenizer/template_unicode_tables.h"""
import sys
import unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(test):
    out = []
    for c in ALL:
        if not test(chr(c)):
            continue
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def emit(name, rows, kind="uint32_t"):
    width = len(rows[0])
    print(f"static const {kind} {name}[][{width}] = {{")
    line = "   "
    for row in rows:
        item = " {" + ", ".join(f"0x{v:X}" if v >= 0 else f"-0x{-v:X}" for v in row) + "},"
        if len(line) + len(item) > 118:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


def final(text):
    return text.lower()[-1] == "\u03c2"


def case_map(fn):
    """(first, last, step, delta) of characters that map to one other; (from, to, to, to) of those that map to more."""
    simple, special = [], []
    for c in ALL:
        to = fn(chr(c))
        if to == chr(c):
            continue
        if len(to) > 1:
            special.append([c] + [ord(x) for x in to] + [0] * (3 - len(to)))
            continue
        delta = ord(to) - c
        if simple and simple[-1][3] == delta:
            first, last, step, _ = simple[-1]
            if c - last in (1, 2) and (first == last or step == c - last):
                simple[-1] = [first, c, c - last, delta]
                continue
        simple.append([c, c, 1, delta])
    return simple, special


print("/* Written by tests/golden/make_template_unicode.py from Python's tables of Unicode " + unicodedata.unidata_version + ". */")
print("/* clang-format off */")
emit("space_ranges", ranges(str.isspace))
emit("alpha_ranges", ranges(str.isalpha))
emit("decimal_ranges", ranges(str.isdecimal))
emit("digit_ranges", ranges(str.isdigit))
emit("numeric_ranges", ranges(str.isnumeric))
emit("printable_ranges", ranges(str.isprintable))
emit("lower_ranges", ranges(str.islower))
emit("upper_ranges", ranges(str.isupper))
emit("title_ranges", ranges(lambda c: unicodedata.category(c) == "Lt"))
emit("cased_ranges", ranges(lambda c: final(c + "\u03a3")))
emit("ignorable_ranges", ranges(lambda c: final("A" + c + "\u03a3") and not final(c + "\u03a3")))
for name, fn in (("upper", str.upper), ("lower", str.lower), ("title", str.title), ("fold", str.casefold)):
    simple, special = case_map(fn)
    emit(f"{name}_map", simple, "int32_t")
    if special:
        emit(f"{name}_special", special)
sys.stdout.flush()
