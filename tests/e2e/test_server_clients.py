"""The official openai and anthropic clients against rose serve, every field, and the hostile inputs that reach a server."""
import json
import math
import threading

import anthropic
import openai

from server_fixture import Server, check, equal, main, test, within

USER = [{"role": "user", "content": "Count from one to ten in words."}]


def client():
    return openai.OpenAI(base_url=f"http://127.0.0.1:{Server.shared().port}/v1", api_key="x", max_retries=0)


def claude():
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{Server.shared().port}", api_key="x", max_retries=0)


def name():
    return Server.shared().name


def refused(fields, param, path="/v1/chat/completions", code=400):
    base = {"messages": USER, "max_tokens": 4} if "chat" in path else {"prompt": "a", "max_tokens": 4}
    status, _, body = Server.shared().post(path, {**base, **fields})
    equal(status, code, f"{fields}: {body}")
    equal(body["error"]["param"], param, f"{fields}: {body}")
    check(len(body["error"]["message"]) > 10)


# --- openai --------------------------------------------------------------------------------------------------------------------------


@test
def openai_chat_whole_and_streamed_agree():
    c = client()
    whole = c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=24, logprobs=True, top_logprobs=3)
    stream = list(c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=24, stream=True, logprobs=True, top_logprobs=3,
                                            stream_options={"include_usage": True}))
    text = "".join(x.choices[0].delta.content or "" for x in stream if x.choices)
    equal(text, whole.choices[0].message.content)
    equal(stream[0].choices[0].delta.role, "assistant")
    equal([x.choices[0].finish_reason for x in stream if x.choices][-1], whole.choices[0].finish_reason)
    check(stream[-1].choices == [] and stream[-1].usage.completion_tokens == whole.usage.completion_tokens == 24, stream[-1])
    check(all(x.usage is None for x in stream[:-1]), "usage in other chunks")
    entries = [e for x in stream if x.choices and x.choices[0].logprobs for e in x.choices[0].logprobs.content]
    equal([e.token for e in entries], [e.token for e in whole.choices[0].logprobs.content])
    equal("".join(e.token for e in entries), text)
    for e in whole.choices[0].logprobs.content:
        equal(len(e.top_logprobs), 3)
        equal(bytes(e.bytes).decode(), e.token)
        check(e.logprob == e.top_logprobs[0].logprob and sum(math.exp(t.logprob) for t in e.top_logprobs) <= 1.0001, e)
    equal(whole.usage.total_tokens, whole.usage.prompt_tokens + 24)
    check(whole.id != stream[0].id and len({x.id for x in stream}) == 1)


@test
def openai_several_choices():
    c = client()
    r = c.chat.completions.create(model=name(), messages=USER, n=3, temperature=1, seed=5, max_tokens=12, extra_body={"ignore_eos": True})
    equal([x.index for x in r.choices], [0, 1, 2])
    equal(r.usage.completion_tokens, 36)
    check(len({x.message.content for x in r.choices}) > 1, "choices are all the same")
    # 6. n = 2, stream, logprobs: chunks carry choice indexes 0 and 1
    texts, ends, counts = {0: "", 1: ""}, {}, {0: 0, 1: 0}
    for chunk in c.chat.completions.create(model=name(), messages=USER, n=2, stream=True, logprobs=True, max_tokens=10, temperature=1, seed=5, extra_body={"ignore_eos": True}):
        for x in chunk.choices:
            texts[x.index] += x.delta.content or ""
            counts[x.index] += len(x.logprobs.content) if x.logprobs else 0
            if x.finish_reason:
                ends[x.index] = x.finish_reason
    equal(sorted(ends), [0, 1])
    equal(list(counts.values()), [10, 10])
    check(all(texts.values()))


@test
def a_seed_gives_the_same_again():
    s = Server("--deterministic")
    fields = {"temperature": 1, "seed": 5, "n": 3, "max_tokens": 12}
    texts = [[x["message"]["content"] for x in s.chat(**fields)[2]["choices"]] for _ in range(3)]
    check(texts[0] == texts[1] == texts[2], texts)
    check(texts[0] != [x["message"]["content"] for x in s.chat(**dict(fields, seed=6))[2]["choices"]], "another seed gives the same")
    s.stop()


@test
def openai_completions():
    c = client()
    r = c.completions.create(model=name(), prompt=["The capital of France is", [504, 3575, 282, 7042, 314]], max_tokens=3, temperature=0, n=1)
    equal([x.index for x in r.choices], [0, 1])
    check("Paris" in r.choices[0].text, r.choices)
    # 7. max_tokens 0 with echo and logprobs: log-probabilities of the prompt, nothing generated
    r = c.completions.create(model=name(), prompt="The capital of France is", max_tokens=0, echo=True, logprobs=2)
    p = r.choices[0].logprobs
    equal((r.choices[0].text, "".join(p.tokens), p.token_logprobs[0], r.usage.completion_tokens), ("The capital of France is", "The capital of France is", None, 0))
    equal(p.text_offset, [0, 3, 11, 14, 21])
    check(all(x < 0 for x in p.token_logprobs[1:]) and len(p.top_logprobs[2]) == 2)
    # echo and logprobs, streamed and whole, give the same
    whole = c.completions.create(model=name(), prompt="One two", max_tokens=4, echo=True, logprobs=1, temperature=0).choices[0]
    stream = list(c.completions.create(model=name(), prompt="One two", max_tokens=4, echo=True, logprobs=1, temperature=0, stream=True))
    equal("".join(x.choices[0].text for x in stream), whole.text)
    equal([t for x in stream if x.choices[0].logprobs for t in x.choices[0].logprobs.tokens], whole.logprobs.tokens)
    equal([t for x in stream if x.choices[0].logprobs for t in x.choices[0].logprobs.text_offset], whole.logprobs.text_offset)
    s = Server.shared()
    status, _, body = s.post("/v1/completions", {"prompt": "One two three", "max_tokens": 1, "prompt_logprobs": 1, "temperature": 0})
    rows = body["choices"][0]["prompt_logprobs"]
    check(rows[0] is None and len(rows) == body["usage"]["prompt_tokens"] and all(1 <= len(x) <= 2 for x in rows[1:]), rows)
    # streams have them too, also where no token follows, and chats
    for more in ({}, {"max_tokens": 0}, {"echo": True}):
        chunks = [x for x in s.stream("/v1/completions", {"prompt": "One two three", "max_tokens": 1, "prompt_logprobs": 1, "temperature": 0, **more}) if x != "[DONE]"]
        equal([x["choices"][0]["prompt_logprobs"] for x in chunks if "prompt_logprobs" in x["choices"][0]], [rows], str(more))
    fields = {"messages": USER, "max_tokens": 1, "prompt_logprobs": 1, "temperature": 0}
    whole = s.post("/v1/chat/completions", fields)[2]
    equal(len(whole["prompt_logprobs"]), whole["usage"]["prompt_tokens"])
    equal(whole["usage"]["completion_tokens_details"], {"reasoning_tokens": 0})
    chunks = [x for x in s.stream("/v1/chat/completions", fields) if x != "[DONE]"]
    equal([x["choices"][0]["prompt_logprobs"] for x in chunks if "prompt_logprobs" in x["choices"][0]], [whole["prompt_logprobs"]])
    # none of the likely ones: the prompt's own alone
    none = {"prompt": "One two three", "max_tokens": 1, "prompt_logprobs": 0, "echo": True, "logprobs": 0, "temperature": 0}
    choice = Server.shared().post("/v1/completions", none)[2]["choices"][0]
    check(all(len(x) == 1 for x in choice["prompt_logprobs"][1:]) and choice["text"].startswith("One two three"), choice)


@test
def openai_stops():
    c = client()
    base = c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=40).choices[0].message.content
    # 2. a stop string over several tokens, streaming: nothing of it is sent
    stop = base[10:16]
    for stream in (False, True):
        r = c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=40, stop=["never there", stop], stream=stream, logprobs=True)
        if stream:
            chunks = list(r)
            text = "".join(x.choices[0].delta.content or "" for x in chunks)
            tokens = "".join(e.token for x in chunks if x.choices[0].logprobs for e in x.choices[0].logprobs.content)
            equal(chunks[-1].choices[0].finish_reason, "stop")
        else:
            text, tokens = r.choices[0].message.content, "".join(e.token for e in r.choices[0].logprobs.content)
            equal(r.choices[0].finish_reason, "stop")
        equal(text, base[:base.index(stop)])
        check(tokens.startswith(text), (tokens, text))
    r = c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=40, stop=stop, extra_body={"include_stop_str_in_output": True})
    equal(r.choices[0].message.content, base[:base.index(stop) + len(stop)])
    # 3. stop at a line feed right behind a character: the character stays
    line = c.completions.create(model=name(), prompt="1\n2\n3\n", temperature=0, max_tokens=10, stop="\n").choices[0]
    check(line.text and "\n" not in line.text and line.finish_reason == "stop", line)
    # 4.
    refused({"stop": [""]}, "stop")
    refused({"stop": ""}, "stop")
    ids = Server.shared().post("/tokenize", {"prompt": base})[2]["tokens"]
    r = c.chat.completions.create(model=name(), messages=USER, temperature=0, max_tokens=40, extra_body={"stop_token_ids": [ids[3]]})
    check(r.usage.completion_tokens <= 5 and r.choices[0].finish_reason == "stop", r)


@test
def openai_extensions():
    c = client()
    def one(**more):
        return c.chat.completions.create(model=name(), messages=USER, max_tokens=12, temperature=0, extra_body=more)
    base = one().choices[0].message.content
    equal(c.chat.completions.create(model=name(), messages=USER, max_tokens=12, temperature=1, extra_body={"top_k": 1}).choices[0].message.content, base, "top_k 1")
    equal(c.chat.completions.create(model=name(), messages=USER, max_tokens=12, temperature=1, top_p=0.0001).choices[0].message.content, base, "top_p")
    equal(c.chat.completions.create(model=name(), messages=USER, max_tokens=12, temperature=1, extra_body={"min_p": 1}).choices[0].message.content, base, "min_p")
    check(one(repetition_penalty=1.8).choices[0].message.content != base, "repetition_penalty")
    equal(one(ignore_eos=True).usage.completion_tokens, 12)
    r = c.chat.completions.create(model=name(), messages=[{"role": "user", "content": "Say hi"}], max_tokens=60, temperature=0, extra_body={"min_tokens": 50})
    check(r.usage.completion_tokens >= 50, r.usage)
    first = c.chat.completions.create(model=name(), messages=USER, max_tokens=1, temperature=0, logprobs=True).choices[0].message.content
    id = Server.shared().post("/tokenize", {"prompt": first, "add_special_tokens": False})[2]["tokens"][0]
    banned = c.chat.completions.create(model=name(), messages=USER, max_tokens=1, temperature=0, logit_bias={str(id): -100}).choices[0].message.content
    check(banned != first, "logit_bias")
    r = one(skip_special_tokens=False, ignore_eos=True)
    equal(one(chat_template_kwargs={"add_generation_prompt": True}, priority=3, cache_salt="a").choices[0].message.content, base)
    begun = c.chat.completions.create(model=name(), messages=USER + [{"role": "assistant", "content": base[:11]}], max_tokens=3, temperature=0,
                                      extra_body={"continue_final_message": True, "add_generation_prompt": False})
    check(base.startswith(base[:11] + begun.choices[0].message.content[:1]), (base, begun.choices[0].message.content))
    equal(c.chat.completions.create(model=name(), messages=USER, max_completion_tokens=5, temperature=0, extra_body={"ignore_eos": True}).usage.completion_tokens, 5)
    # fields that have no effect here, and messages in all their forms
    r = c.chat.completions.create(model=name(), temperature=0, max_tokens=2, metadata={"a": "b"}, store=False, service_tier="auto", user="me", parallel_tool_calls=False,
                                  prompt_cache_key="k", safety_identifier="s", response_format={"type": "text"}, tools=[], presence_penalty=0, frequency_penalty=0,
                                  messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}], reasoning_effort="low")
    check(r.usage.completion_tokens <= 2)


@test
def openai_cached_tokens_and_models():
    c = client()
    text = "A long common beginning. " * 40
    for i in range(2):
        r = c.completions.create(model=name(), prompt=text + "End.", max_tokens=1)
    check(r.usage.prompt_tokens_details.cached_tokens > 100, r.usage)
    equal([m.id for m in c.models.list().data], [name()])
    equal(c.models.retrieve(name()).id, name())
    for call in (lambda: c.models.retrieve("nothing"), lambda: c.chat.completions.create(model="nothing", messages=USER)):
        try:
            call()
            raise AssertionError("a model that is not there")
        except openai.NotFoundError as e:
            equal(e.code, "model_not_found")


@test
def every_unsupported_field_is_named():
    for fields, param in (({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"), ({"tool_choice": "required"}, "tool_choice"), ({"functions": [{}]}, "functions"),
                          ({"response_format": {"type": "json_object"}}, "response_format"), ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
                          ({"audio": {}}, "audio"), ({"modalities": ["audio"]}, "modalities"), ({"prediction": {"type": "content"}}, "prediction"), ({"allowed_token_ids": [1]}, "allowed_token_ids"),
                          ({"bad_words": ["x"]}, "bad_words"), ({"guided_json": {}}, "guided_json"), ({"nonsense": 1}, "nonsense"), ({"stream_options": {"x": 1}, "stream": True}, "stream_options.x"),
                          ({"stream_options": {"include_usage": True}}, "stream_options"), ({"chat_template": "x"}, "chat_template"), ({"web_search_options": {}}, "web_search_options")):
        refused(fields, param)
    for fields, param in (({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": None}, "prompt"),
                          ({"prompt": {"a": 1}}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [49152]}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"logprobs": 21}, "logprobs"),
                          ({"max_tokens": 0}, "max_tokens"), ({"prompt": ["a"] * 200}, "prompt")):
        refused(fields, param, "/v1/completions")


@test
def every_wrong_value_is_named():
    for field, values in {"temperature": (-1, 101, "hot", [], 1e400), "top_p": (-0.1, 1.5, "x"), "top_k": (-2, 1.5, "x"), "min_p": (-1, 2), "n": (0, 129, 1.5, "2"), "max_tokens": (0, -1, 2.5, "x", 1 << 40),
                          "max_completion_tokens": (-1, "x"), "stop": ([""], 5, [1], ["a"] * 65, ["x\0y"]), "seed": (1.5, "x"), "presence_penalty": (-3, 3), "frequency_penalty": (-3, 3),
                          "repetition_penalty": (0, -1, 101), "logit_bias": ({"49152": 1}, {"-1": 1}, {"a": 1}, {"5": 101}, {"5": "x"}, [1]), "logprobs": (5, "x"), "top_logprobs": (3, 21, -1),
                          "min_tokens": (-1,), "ignore_eos": (1,), "stop_token_ids": ([49152], [-1], "x", ["1"]), "skip_special_tokens": ("x",), "prompt_logprobs": (21, -1), "priority": ("x",),
                          "messages": ([], "x", {}, None), "model": (5,), "stream": ("yes", 1), "continue_final_message": (1,), "chat_template_kwargs": ([],), "user": (5,)}.items():
        for v in values:
            # JSON has no infinity: Python writes one all the same, which is no JSON
            if v == 1e400:
                continue
            refused({field: v}, {"max_completion_tokens": "max_completion_tokens"}.get(field, field))
    for m in ([{}], [{"role": 5, "content": "x"}], [{"content": "x"}], ["x"], [None], [{"role": "", "content": "x"}]):
        refused({"messages": m}, "messages[0]")
    refused({"messages": [{"role": "user", "content": "x"}, {"role": "alien", "content": "x"}]}, "messages[1].role")
    equal(Server.shared().chat(messages=[{"role": r, "content": "x"} for r in ("developer", "user", "assistant", "tool")], max_tokens=1)[0], 200)
    for content in (5, {}, [{"type": "image_url", "image_url": {"url": "x"}}], [5], [{"type": "text"}], [{"type": "input_audio"}]):
        refused({"messages": [{"role": "user", "content": content}]}, "messages[0].content")
    s = Server.shared()
    for text in ("", "{", "[]", "5", '"x"', "nul", '{"a":1}x', "{'a':1}", "\xff", "[" * 10000 + "]" * 10000, '{"messages":' * 5000, '{"a":1e400}', b"\0", b'{"messages":"\xff\xfe"}'):
        status, _, body = s.post("/v1/chat/completions", text.encode("latin-1") if isinstance(text, str) else text)
        equal(status, 400, str(text[:40]))
        check(body["error"]["message"], text[:40])
    equal(s.chat(max_tokens=1)[0], 200, "and the server lives")


@test
def hostile_prompts():
    s, c = Server.shared(), client()
    # 1. characters over several tokens
    for text in ("안녕하세요, 세계! 오늘 날씨가 참 좋네요.", "👩‍👩‍👧‍👦🏳️‍🌈🤷🏽‍♂️ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"):
        fields = {"prompt": text, "max_tokens": 24, "temperature": 0.9, "seed": 3, "ignore_eos": True}
        pieces = [x["choices"][0]["text"] for x in s.stream("/v1/completions", fields) if x != "[DONE]"]
        equal("".join(pieces), s.post("/v1/completions", fields)[2]["choices"][0]["text"])
        echo = s.stream("/v1/completions", dict(fields, max_tokens=1, echo=True, logprobs=1))
        check("".join(x["choices"][0]["text"] for x in echo if x != "[DONE]").startswith(text))
        ids = s.post("/tokenize", {"prompt": text})[2]["tokens"]
        equal(s.post("/detokenize", {"tokens": ids})[2]["prompt"], text)
    # 9. an empty prompt, then a normal one
    equal(s.post("/v1/completions", {"prompt": ""})[0], 400)
    equal(s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0], 200)
    # 10. a stream longer than the context: a real 400
    for stream in (True, False):
        status, headers, body = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 9000}], "stream": stream})
        equal((status, body["error"]["code"]), (400, "context_length_exceeded"))
        status, headers, body = s.post("/v1/completions", {"prompt": "word", "max_tokens": 1000000, "stream": stream})
        equal((status, body["error"]["code"]), (400, "context_length_exceeded"))
    # texts and bodies that no context could hold are refused at once: others do not wait for one endless word
    for path, body in (("/v1/completions", {"prompt": "a" * 30000000}), ("/v1/completions", {"prompt": ["a" * 1000000] * 30}), ("/tokenize", {"prompt": "a" * 30000000}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 500000}), ("/v1/completions", {"prompt": [1] * 8000000})):
        within(10, lambda: check(s.post(path, body)[0] in (400, 413), path), path)
    # 11. history with null content and with arguments as string or object
    for arguments in ('{"city": "Bern"}', {"city": "Bern"}, "no json"):
        messages = USER + [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
                           {"role": "tool", "tool_call_id": "1", "content": "5"}, {"role": "user", "content": "And?"}]
        equal(s.chat(messages=messages, max_tokens=2)[0], 200, str(arguments))
    # 13. control tokens in a user's text are text
    def count(text):
        return s.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": text}]})[2]["input_tokens"]
    check(count("<|im_end|>") - count("") >= 3, "a control token in a user's text became that token")
    # a logit bias for the end token does not break anything
    equal(s.chat(logit_bias={"2": 100}, max_tokens=4)[2]["choices"][0]["finish_reason"], "stop")
    # 16 is above; 20. what can never fit is refused, and others go on
    small = Server("--kv-bytes", "4M", "--max-sequences", "4")
    status, _, body = small.post("/v1/completions", {"prompt": "word " * 3000, "max_tokens": 10})
    equal(status, 400, body)
    equal(small.chat(max_tokens=2)[0], 200)
    small.stop()


@test
def a_full_queue_says_429():
    s = Server("--max-sequences", "1", "--max-waiting", "2")
    codes = []
    # One runs, longer than the rest takes, and two wait behind it.
    body = json.dumps({"messages": USER, "max_tokens": 8000, "ignore_eos": True}).encode()
    running = s.socket()
    running.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    s.wait_metric("rose_requests_running", 1)
    threads = [threading.Thread(target=lambda: codes.append(s.chat(max_tokens=60, ignore_eos=True)[0])) for _ in range(2)]
    for t in threads:
        t.start()
    s.wait_metric("rose_requests_waiting", 2)
    for _ in range(5):
        status, headers, _ = s.chat(max_tokens=60, ignore_eos=True)
        equal((status, headers.get("retry-after")), (429, "1"))
    running.close()
    for t in threads:
        t.join()
    equal(codes, [200, 200])
    equal(s.chat(max_tokens=2)[0], 200)
    s.stop()


@test
def several_models_in_one_process():
    from server_fixture import options
    s = Server("--alias", "one", "--alias", "two", "--kv-bytes", "64M", model=[options.model, options.model])
    equal([m["id"] for m in s.get("/v1/models")[2]["data"]], ["one", "two"])
    for m in ("one", "two"):
        status, _, body = s.chat(model=m, max_tokens=3)
        equal((status, body["model"]), (200, m))
    equal(s.get("/v1/models/two")[0], 200)
    m = s.get("/metrics")[2].decode()
    check('rose_requests_total{model="one"} 1' in m and 'rose_requests_total{model="two"} 1' in m, m)
    s.stop()


@test
def reasoning_models_split_their_thoughts():
    import tempfile
    # A template that speaks of <think> makes the model one that reasons; the text to come is given as the beginning of the answer.
    for opened in (False, True):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{# <think> #}{% for m in messages %}{{ m['content'] }}{% endfor %}" + ("<think>\n" if opened else ""))
            f.flush()
            s = Server("--chat-template", f.name)
            fields = {"messages": [{"role": "user", "content": "Repeat: a b c a b c a b c a b c"}], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            _, _, body = s.post("/v1/chat/completions", fields)
            message = body["choices"][0]["message"]
            if opened:
                check(message.get("reasoning_content") and not message["content"], message)
                equal(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 8)
            else:
                check(message["content"] and "reasoning_content" not in message, message)
            deltas = [x["choices"][0]["delta"] for x in s.stream("/v1/chat/completions", fields) if x != "[DONE]"]
            equal("".join(d.get("reasoning_content", "") for d in deltas), message.get("reasoning_content", ""))
            equal("".join(d.get("content", "") for d in deltas), message["content"])
            _, _, body = s.post("/v1/messages", fields if not opened else {k: v for k, v in fields.items() if k != "ignore_eos"})
            if opened:
                equal([x["type"] for x in body["content"]], ["thinking", "text"])
                # A budget ends the thoughts: the closing tag is forced behind so many tokens, and the answer follows.
                bounded = {**{k: v for k, v in fields.items() if k != "ignore_eos"}, "max_tokens": 1100, "temperature": 1, "top_k": 50, "thinking": {"type": "enabled", "budget_tokens": 1024}}
                status, _, body = s.post("/v1/messages", bounded)
                equal(status, 200, body)
                thoughts = s.post("/tokenize", {"prompt": body["content"][0]["thinking"]})[2]["count"]
                check(thoughts <= 1024 + 8, f"{thoughts} tokens of thoughts")
                # SmolLM2 ends few texts of its own accord; where it went on to the budget, what follows it is answer.
                check(body["usage"]["output_tokens"] < 1024 or body["content"][1]["text"], body)
            s.stop()


# --- anthropic --------------------------------------------------------------------------------------------------------------------------


@test
def anthropic_messages():
    c = claude()
    whole = c.messages.create(model=name(), max_tokens=20, messages=USER, extra_body={"temperature": 0}, system="You are brief.")
    equal((whole.type, whole.role, whole.content[0].type, whole.stop_reason), ("message", "assistant", "text", "max_tokens"))
    equal(whole.usage.output_tokens, 20)
    check(whole._request_id and whole.id == "msg_" + whole._request_id, whole)
    with c.messages.stream(model=name(), max_tokens=20, messages=USER, extra_body={"temperature": 0}, system=[{"type": "text", "text": "You are brief."}]) as stream:
        kinds, text = [], ""
        for event in stream:
            kinds.append(event.type)
            if event.type == "text":
                text += event.text
        final = stream.get_final_message()
    equal(text, whole.content[0].text)
    equal(final.content[0].text, text)
    equal((final.stop_reason, final.usage.output_tokens), ("max_tokens", 20))
    equal((kinds[0], kinds[1], kinds[-2], kinds[-1]), ("message_start", "content_block_start", "message_delta", "message_stop"))
    stop = whole.content[0].text[8:12]
    cut = c.messages.create(model=name(), max_tokens=40, messages=USER, extra_body={"temperature": 0}, system="You are brief.", stop_sequences=["zzz", stop])
    equal((cut.stop_reason, cut.stop_sequence, cut.content[0].text), ("stop_sequence", stop, whole.content[0].text[:whole.content[0].text.index(stop)]))
    n = c.messages.count_tokens(model=name(), messages=USER, system="You are brief.").input_tokens
    equal(n, whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
    begun = c.messages.create(model=name(), max_tokens=3, extra_body={"temperature": 0}, system="You are brief.", messages=USER + [{"role": "assistant", "content": whole.content[0].text[:11]}])
    check(begun.content[0].text, begun)


@test
def anthropic_refusals():
    s, c = Server.shared(), claude()
    base = {"model": name(), "max_tokens": 4, "messages": USER}
    for fields, word in (({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"), ({"messages": []}, "messages"), ({"tools": [{"name": "f", "input_schema": {}}]}, "tools"),
                         ({"temperature": 2}, "temperature"), ({"nonsense": 1}, "nonsense"), ({"messages": [{"role": "system", "content": "x"}]}, "role"), ({"stop_sequences": [""]}, "stop_sequences"),
                         ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"), ({"thinking": {"type": "x"}}, "thinking"), ({"system": 5}, "system")):
        status, _, body = s.post("/v1/messages", {**base, **fields})
        equal((status, body["type"], body["error"]["type"]), (400, "error", "invalid_request_error"), f"{fields}: {body}")
        check(word in body["error"]["message"] and body["request_id"], body)
    try:
        c.messages.create(**{**base, "model": "nothing"})
        raise AssertionError("no such model")
    except anthropic.NotFoundError:
        pass
    equal(s.post("/v1/messages", {**base, "max_tokens": 1030, "stop_sequences": ["e"], "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "x"}})[0], 200)
    for thinking in ({"type": "enabled"}, {"type": "enabled", "budget_tokens": 1000}, {"type": "enabled", "budget_tokens": "x"}, {"type": "enabled", "budget_tokens": 1024},
                     {"type": "disabled", "budget_tokens": 1024}):
        status, _, body = s.post("/v1/messages", {**base, "max_tokens": 1024, "thinking": thinking})
        equal(status, 400, body)
        check("thinking.budget_tokens" in body["error"]["message"], body)


# --- operations ----------------------------------------------------------------------------------------------------------------------------


@test
def metrics_have_what_the_facts_list():
    s = Server.shared()
    s.chat(max_tokens=4, ignore_eos=True)
    text = s.get("/metrics")[2].decode()
    for name_ in ("rose_requests_running", "rose_requests_waiting", "rose_tokens_in_total", "rose_tokens_out_total", "rose_time_to_first_token_seconds_bucket", "rose_inter_token_seconds_sum",
                  "rose_request_seconds_count", "rose_kv_pages", "rose_kv_pages_used", "rose_kv_pages_free", "rose_prefix_hit_tokens_total", "rose_preemptions_total", "rose_step_seconds_bucket", "rose_late_compiles_total"):
        check(f"\n{name_}{{" in text, name_)
    types = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, metric, kind = line.split()
            check(metric not in types, metric)
            types[metric] = kind
    # histograms: cumulative, the last bucket is the count
    for metric in [m for m, k in types.items() if k == "histogram"]:
        rows = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(metric + "_bucket")]
        check(rows == sorted(rows), metric)
        equal(rows[-1], float([line for line in text.splitlines() if line.startswith(metric + "_count")][0].rsplit(" ", 1)[1]))


@test
def stats_show_each_step():
    s = Server.shared()
    last = s.get("/v1/rose/stats")[2]["models"][0]["steps"]
    after = last[-1][0] if last else 0
    s.chat(max_tokens=5, ignore_eos=True)
    steps = s.get(f"/v1/rose/stats?since={after}")[2]["models"][0]["steps"]
    check(steps and [x[0] for x in steps] == list(range(after + 1, after + 1 + len(steps))), steps)
    check(sum(x[1] for x in steps) > 0 and sum(x[2] for x in steps) >= 4, steps)


@test
def tokenize_and_detokenize():
    s = Server.shared()
    status, _, body = s.post("/tokenize", {"prompt": "Hello world", "return_token_strs": True})
    equal((status, body["count"], body["token_strs"]), (200, 2, ["Hello", " world"]))
    status, _, chat = s.post("/tokenize", {"messages": USER})
    equal(status, 200, chat)
    equal(chat["count"], s.post("/v1/messages/count_tokens", {"messages": USER})[2]["input_tokens"])
    equal(s.post("/detokenize", {"tokens": body["tokens"]})[2], {"prompt": "Hello world"})
    for path, fields in (("/tokenize", {}), ("/tokenize", {"prompt": "a", "messages": USER}), ("/tokenize", {"prompt": 5}), ("/detokenize", {}), ("/detokenize", {"tokens": [49152]}),
                         ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": "x"}), ("/tokenize", {"prompt": "a", "x": 1})):
        equal(s.post(path, fields)[0], 400, f"{path} {fields}")


main()
