#!/usr/bin/env python3
"""Write src/tokenizer/unicode_tables.c: the character data that the tokenizer needs.

Every property is asked of the Hugging Face `tokenizers` package, code point by code point, because the tokenizer must agree
with it and its parts follow different Unicode versions (its regex engine, its normalisation crate, the Rust library).
Composition pairs and combining classes come from Python's unicodedata and are checked against the package; grapheme
break classes come from the `regex` package. Run: python tests/golden/make_tokenizer_unicode.py > src/tokenizer/unicode_tables.c
"""
import sys
import unicodedata

import regex
import tokenizers
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CPS))
GC = "Cn Cc Cf Co Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
FLAGS = "SPACE RUST_SPACE NUMERIC PUNCT OTHER MARK COMBINING WORD".split()


def matches(pattern):
    """Code points that a regular expression of one character matches, by the package's engine."""
    split = P.Split(Regex(pattern + "+"), "removed", invert=True)
    return {CPS[i] for _, (a, b) in split.pre_tokenize_str(ALL) for i in range(a, b)}


def alone(pre, sep):
    """Code points that come out as a piece of their own between separators, and those that vanish."""
    text = sep + sep.join(ALL) + sep
    own, seen = set(), set()
    for piece, (a, b) in pre.pre_tokenize_str(text):
        if b - a == 1 and a % 2 == 1:
            own.add(ord(piece))
        seen.update(ord(text[i]) for i in range(a, b) if i % 2 == 1)
    return own, set(CPS) - seen


def properties():
    gc = {}
    for i, name in enumerate(GC):
        if i:
            for c in matches(r"\p{%s}" % name):
                gc[c] = i
    flags = {name: set() for name in FLAGS}
    flags["SPACE"] = matches(r"\s")
    flags["RUST_SPACE"] = alone(P.WhitespaceSplit(), "a")[1] | set()
    flags["NUMERIC"] = alone(P.Digits(True), "a")[0]
    flags["PUNCT"] = alone(P.Punctuation(), "a")[0]
    flags["WORD"] = alone(P.Whitespace(), "!")[0]
    clean = N.BertNormalizer(True, False, False, False)
    marks = N.BertNormalizer(False, False, True, False)
    strip = N.StripAccents()
    for c in CPS:
        ch = chr(c)
        if clean.normalize_str(ch) == "" and c not in (0, 0xFFFD):
            flags["OTHER"].add(c)
        if marks.normalize_str(ch) == "":
            flags["MARK"].add(c)
        if strip.normalize_str(ch) == "":
            flags["COMBINING"].add(c)
    return gc, flags


GRAPHEME = ["Other", "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend", "SpacingMark", "L", "V", "T", "LV", "LVT"]


def graphemes():
    """Grapheme_Cluster_Break in the low bits; 0x10 Extended_Pictographic; 0x20 InCB=Consonant; 0x40 InCB=Linker; 0x80 InCB=Extend."""
    out = dict.fromkeys(CPS, 0)
    def put(pattern, value):
        for m in regex.finditer(pattern, ALL):
            out[ord(m.group())] |= value
    for i, name in enumerate(GRAPHEME):
        if i:
            put(r"\p{Grapheme_Cluster_Break=%s}" % name, i)
    put(r"\p{Extended_Pictographic}", 0x10)
    put(r"\p{InCB=Consonant}", 0x20)
    put(r"\p{InCB=Linker}", 0x40)
    put(r"\p{InCB=Extend}", 0x80)
    return out


def two_level(values, bits=7):
    """values[0x110000] -> (index of pages, pages)"""
    size = 1 << bits
    pages, index, known = [], [], {}
    for start in range(0, 0x110000, size):
        page = tuple(values[start:start + size])
        if page not in known:
            known[page] = len(pages)
            pages.append(page)
        index.append(known[page])
    return index, [v for page in pages for v in page]


def array(kind, name, values, per_line=24):
    print(f"const {kind} {name}[{len(values)}] = {{")
    for i in range(0, len(values), per_line):
        print("    " + ",".join(str(v) for v in values[i:i + per_line]) + ",")
    print("};")


def mapping(name, pairs):
    """Sorted code points with their replacement, a run in one shared array of code points."""
    keys, starts, data = [], [], []
    for c, to in sorted(pairs.items()):
        keys.append(c)
        starts.append(len(data))
        data += [ord(x) for x in to]
    starts.append(len(data))
    print(f"const uint32_t {name}_count = {len(keys)};")
    array("uint32_t", f"{name}_keys", keys)
    array("uint16_t", f"{name}_starts", starts)
    array("uint32_t", f"{name}_to", data)


def combining_classes():
    nfd, out = N.NFD(), {}
    for c in CPS:
        ccc = unicodedata.combining(chr(c))
        probe = chr(c) + "\u0334" if ccc != 1 else None  # class 1 sorts before every other class
        moved = nfd.normalize_str(probe) != probe if probe and nfd.normalize_str(chr(c)) == chr(c) else bool(ccc)
        if ccc > 1 and not moved:
            ccc = 0
        if ccc == 0 and moved:
            print(f"U+{c:04X} has a combining class in the package but not here", file=sys.stderr)
        if ccc:
            out[c] = ccc
    return out


def main():
    gc, flags = properties()
    records, record_of, values = [], {}, [0] * 0x110000
    for c in CPS:
        bits = sum(1 << i for i, name in enumerate(FLAGS) if c in flags[name])
        key = (gc.get(c, 0), bits)
        if key not in record_of:
            record_of[key] = len(records)
            records.append(key)
        values[c] = record_of[key]
    assert len(records) < 256
    print("/* Generated by tests/golden/make_tokenizer_unicode.py; do not edit. Character data as Hugging Face tokenizers "
          f"{tokenizers.__version__} sees it.\n * See unicode.h for the meaning of each table. */")
    print('#include "tokenizer/unicode.h"\n\n/* clang-format off */')
    index, pages = two_level(values)
    assert max(index) < 65536
    array("uint16_t", "unicode_index", index)
    array("uint8_t", "unicode_pages", pages, 32)
    array("uint16_t", "unicode_records", [g | b << 8 for g, b in records])
    g = graphemes()
    index, pages = two_level([g.get(c, 3) for c in range(0x110000)])
    array("uint16_t", "unicode_grapheme_index", index)
    array("uint8_t", "unicode_grapheme_pages", pages, 32)
    ccc = combining_classes()
    index, pages = two_level([ccc.get(c, 0) for c in range(0x110000)])
    array("uint8_t", "unicode_ccc_index", index) if max(index) < 256 else array("uint16_t", "unicode_ccc_index", index)
    array("uint8_t", "unicode_ccc_pages", pages, 32)
    lower, nfd, nfkd = N.Lowercase(), N.NFD(), N.NFKD()
    low, can, comp = {}, {}, {}
    for c in CPS:
        ch = chr(c)
        if (t := lower.normalize_str(ch)) != ch:
            low[c] = t
        if 0xAC00 <= c < 0xD7A4:
            continue  # Hangul syllables are computed
        d = nfd.normalize_str(ch)
        k = nfkd.normalize_str(ch)
        if d != ch:
            can[c] = d
        if k != d:
            comp[c] = k
    mapping("unicode_lower", low)
    mapping("unicode_canonical", can)
    mapping("unicode_compatible", comp)
    pairs, nfc = [], N.NFC()
    for c in CPS:
        d = unicodedata.decomposition(chr(c))
        if not d or d.startswith("<") or 0xAC00 <= c < 0xD7A4:
            continue
        parts = [int(x, 16) for x in d.split()]
        if len(parts) == 2 and nfc.normalize_str(chr(parts[0]) + chr(parts[1])) == chr(c):
            pairs.append((parts[0], parts[1], c))
    pairs.sort()
    print(f"const uint32_t unicode_compose_count = {len(pairs)};")
    array("uint32_t", "unicode_compose", [v for p in pairs for v in p])
    print("/* clang-format on */")


main()
