"""Qwen3-Reranker as its card asks it, and a model with prompts: a tiny golden model's answers, as transformers and sentence-transformers give them, through rose score,
rose embed and the routes."""
import atexit
import json
import os
import shutil
import subprocess
import tempfile

import encoders
from server_fixture import Server, check, equal, main, options, test

made = tempfile.mkdtemp()
atexit.register(shutil.rmtree, made)
RERANKER, PROMPTS = os.path.join(made, "Qwen3-Reranker-tiny"), os.path.join(made, "prompts")
ranked, embedded = encoders.golden(RERANKER, "text_reranker"), encoders.golden(PROMPTS, "text_bert")
the_server = None


def server():
    global the_server
    if the_server is None:
        the_server = Server(model=[made])
    return the_server


def rose(*words, lines):
    r = subprocess.run([options.rose, *words], input="".join(json.dumps(x) + "\n" for x in lines).encode(), capture_output=True, timeout=120)
    equal(r.returncode, 0, r.stderr)
    return [json.loads(x) for x in r.stdout.splitlines()]


def close(got, want, tolerance=2e-5):
    check(len(got) == len(want) and all(abs(a - b) < tolerance for a, b in zip(got, want)), f"{got} is not {want}")


def queries():
    """[(query, documents, scores)] of those that ask for nothing special."""
    out = {}
    for case, value in ranked:
        if "instruction" not in case:
            out.setdefault(case["text"], []).append((case["pair"], float(value[0])))
    return [(q, [d for d, _ in pairs], [s for _, s in pairs]) for q, pairs in out.items()]


@test
def pairs_by_the_command():
    plain = [(c, v) for c, v in ranked if "instruction" not in c]
    close([x["score"] for x in rose("score", RERANKER, lines=[{"query": c["text"], "document": c["pair"]} for c, _ in plain])], [float(v[0]) for _, v in plain])
    asked = [(c, v) for c, v in ranked if "instruction" in c]
    check(len(asked) > 2 and len(plain) > 2)
    close([x["score"] for x in rose("score", RERANKER, "--instruction", asked[0][0]["instruction"], lines=[{"query": c["text"], "document": c["pair"]} for c, _ in asked])], [float(v[0]) for _, v in asked])


@test
def documents_by_the_routes():
    for query, documents, scores in queries():
        status, _, answer = server().post("/v1/rerank", {"model": "Qwen3-Reranker-tiny", "query": query, "documents": documents})
        equal(status, 200, answer)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        equal([r["index"] for r in answer["results"]], order)
        close([r["relevance_score"] for r in answer["results"]], [scores[i] for i in order])
        status, _, answer = server().post("/rerank", {"model": "Qwen3-Reranker-tiny", "query": query, "texts": documents})
        equal(status, 200, answer)
        close([r["score"] for r in answer], [scores[i] for i in order])
        status, _, answer = server().post("/v1/score", {"model": "Qwen3-Reranker-tiny", "text_1": query, "text_2": documents})
        equal(status, 200, answer)
        close([r["score"] for r in answer["data"]], scores)


@test
def prompts_by_the_command():
    asks = {}
    for case, value in embedded:
        asks.setdefault((case.get("prompt_name"), case.get("dimensions")), []).append((case["text"], value))
    check(len(asks) > 4)
    for (prompt, dimensions), answers in asks.items():
        words = (["--prompt-name", prompt] if prompt is not None else []) + (["--dimensions", str(dimensions)] if dimensions else [])
        got = rose("embed", PROMPTS, *words, lines=[t for t, _ in answers])
        for x, (_, value) in zip(got, answers):
            close(x["embedding"], [float(v) for v in value])
        equal(len(got), len(answers))


@test
def prompts_by_the_route():
    for case, value in embedded:
        more = {k: case[k] for k in ("prompt_name", "dimensions") if k in case}
        status, _, answer = server().post("/v1/embeddings", {"model": "prompts", "input": case["text"], **more})
        equal(status, 200, answer)
        close(answer["data"][0]["embedding"], [float(v) for v in value])


@test
def texts_that_a_nul_would_cut_short():
    infer = {"inputs": [{"name": n, "shape": [1, 1], "datatype": "BYTES", "data": ["a"]} for n in ("query", "text")]}
    for path, body, where in (("/v1/rerank", {"query": "a", "documents": ["b"], "instruction": "find\0 it"}, "instruction"), ("/v1/score", {"text_1": "a", "text_2": "b", "instruction": "\0"}, "instruction"),
                              ("/v2/models/Qwen3-Reranker-tiny/infer", {**infer, "parameters": {"instruction": "find\0 it"}}, "instruction"),
                              ("/v2/models/prompts/infer", {"inputs": infer["inputs"][1:], "parameters": {"prompt_name": "query\0"}}, "prompt_name")):
        status, _, answer = server().post(path, body if path.startswith("/v2") else {"model": "Qwen3-Reranker-tiny", **body})
        equal(status, 400, answer)
        check(where in str(answer) and "NUL" in str(answer), answer)


main()
