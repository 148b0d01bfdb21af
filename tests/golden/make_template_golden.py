"""Golden data of the chat template engine: renders snippets, whole chat templates and error cases with jinja2 exactly as
transformers sets it up, and writes tests/golden/template.json.

    python tests/golden/make_template_golden.py > tests/golden/template.json

Inputs beside this script: template_snippets.txt (separated by lines of "%%"), template_errors.txt (the same; the
first line of a case is "LINE WORDS": the line of the error and words that our message must contain), and
template_chats/*.jinja with template_chats/inputs.json."""
import datetime as dt
import json
import pathlib
import re
import sys

import jinja2
import transformers.utils.chat_template_utils as utils

HERE = pathlib.Path(__file__).parent
NOW = dt.datetime(2023, 11, 14, 22, 13, 20)  # 1700000000 in UTC


class FrozenDatetime(dt.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


utils.datetime = FrozenDatetime

CONTEXT = {
    "s": "Hello", "u": "Grüße 日本 😀 ǅ", "l": [1, 2, 3], "d": {"a": 1, "b": 2}, "n": {"x": {"y": {"z": "deep"}}},
    "x": None, "ns": {"x": 1},
    "people": [{"name": "Ann", "age": 41, "city": "B"}, {"name": "bob", "age": 25, "city": "a"},
               {"name": "Cid", "age": 33, "city": "B"}],
    "n2": [{"a": {"b": 1}, "l": [7]}, {"a": {"b": 2}, "l": ["z"]}],
    "tree": [{"n": 1, "c": [{"n": 2}, {"n": 3, "c": [{"n": 4}]}]}, {"n": 5}],
    "tools": [{"type": "function", "function": {"name": "get_w", "description": "It's \"w\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "n": 1.5, "b": True, "z": None}}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi <|im_end|>"}]},
                 {"role": "assistant", "content": "Hello"}, {"role": "user", "content": " bye "}],
}


def render(template, variables):
    return utils._compile_jinja_template(template).render(**variables)


def split(name):
    return (HERE / name).read_text().split("\n%%\n")


def main():
    cases = []
    for i, template in enumerate(split("template_snippets.txt")):
        cases.append({"name": f"snippet {i + 1}", "template": template, "expected": render(template, CONTEXT)})
    for i, case in enumerate(split("template_errors.txt")):
        head, template = case.split("\n", 1)
        line, words = head.split(" ", 1)
        try:
            text = render(template, CONTEXT)
            sys.exit(f"error case {i + 1} renders to {text!r}: {template}")
        except jinja2.TemplateSyntaxError as e:
            if e.lineno != int(line) and not words.startswith("closed"):
                print(f"error case {i + 1}: jinja2 says line {e.lineno}, not {line}: {e}", file=sys.stderr)
        except Exception:
            pass
        cases.append({"name": f"error {i + 1}", "template": template, "error": words, "line": int(line)})
    inputs = json.loads((HERE / "template_chats" / "inputs.json").read_text())
    chats = []
    for path in sorted((HERE / "template_chats").glob("*.jinja")):
        template = path.read_text()
        for key, variables in inputs.items():
            only = variables.get("only")
            if only and not re.search(only, path.stem):
                continue
            variables = {k: v for k, v in variables.items() if k != "only"}
            case = {"name": f"{path.stem} / {key}", "file": path.name, "input": key}
            try:
                case["expected"] = render(template, variables)
            except jinja2.TemplateError as e:
                case["error"] = str(e)
            chats.append(case)
    json.dump({"context": CONTEXT, "cases": cases, "chats": chats}, sys.stdout, ensure_ascii=False, indent=0)
    print()


main()
