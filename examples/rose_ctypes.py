#!/usr/bin/env python3
"""Rose from Python without a binding: ctypes on librose.so.  python3 rose_ctypes.py MODEL "question" [path of librose.so]

The structs follow include/rose.h member by member; ctypes lays them out as the C compiler does.
"""
import ctypes as c
import sys


class Error(c.Structure):
    _fields_ = [("message", c.c_char * 1024), ("file", c.c_char * 256), ("line", c.c_int), ("column", c.c_int), ("offset", c.c_int64)]


class DeviceOptions(c.Structure):
    _fields_ = [("kind", c.c_char_p), ("threads", c.c_int), ("no_pin", c.c_bool), ("isa", c.c_char_p), ("debug_sync", c.c_bool), ("cache_dir", c.c_char_p),
                ("no_packed_cache", c.c_bool), ("driver", c.c_char_p), ("nvrtc", c.c_char_p), ("message", c.c_void_p), ("message_user", c.c_void_p)]


class EngineOptions(c.Structure):
    _fields_ = [("model", c.c_char_p), ("context", c.c_int), ("max_sequences", c.c_int), ("max_waiting", c.c_int), ("step_tokens", c.c_int),
                ("step_stretch", c.c_double), ("kv", c.c_char_p), ("kv_bytes", c.c_size_t), ("memory_share", c.c_double), ("deterministic", c.c_bool),
                ("no_prefix_cache", c.c_bool), ("tokenizer_only", c.c_bool), ("chat_template", c.c_char_p), ("weights", c.c_char_p), ("task", c.c_char_p),
                ("dummy_weights", c.c_bool), ("progress", c.c_void_p), ("progress_user", c.c_void_p)]


class Sampling(c.Structure):
    _fields_ = [("temperature", c.c_float), ("top_k", c.c_int), ("top_p", c.c_float), ("min_p", c.c_float), ("repetition_penalty", c.c_float),
                ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float), ("seed", c.c_uint64), ("has_seed", c.c_bool), ("ignore_eos", c.c_bool),
                ("min_tokens", c.c_int), ("logit_bias", c.c_void_p), ("logit_bias_count", c.c_size_t)]


class Request(c.Structure):
    _fields_ = [("kind", c.c_int), ("prompt", c.c_char_p), ("prompt_bytes", c.c_size_t), ("tokens", c.c_void_p), ("tokens_count", c.c_size_t),
                ("token_types", c.c_void_p), ("tokenize_flags", c.c_int), ("sampling", Sampling), ("max_tokens", c.c_int), ("stops", c.c_void_p), ("stops_count", c.c_size_t),
                ("stop_ids", c.c_void_p), ("stop_ids_count", c.c_size_t), ("include_stop", c.c_bool), ("keep_special", c.c_bool), ("logprobs", c.c_int),
                ("prompt_logprobs", c.c_int), ("priority", c.c_int), ("thought_tokens", c.c_int), ("thought_open", c.c_char_p),
                ("thought_close", c.c_char_p), ("deadline_ms", c.c_int64), ("cache_salt", c.c_char_p), ("user", c.c_uint64), ("choices", c.c_int),
                ("task", c.c_int), ("pair", c.c_char_p), ("pair_bytes", c.c_size_t), ("prompt_name", c.c_char_p), ("instruction", c.c_char_p),
                ("pooling", c.c_int), ("dimensions", c.c_int), ("normalize", c.c_int), ("activation", c.c_int), ("sparse", c.c_bool),
                ("truncate", c.c_int), ("truncate_tokens", c.c_int), ("group", c.c_uint64)]


class Event(c.Structure):
    _fields_ = [("kind", c.c_int), ("id", c.c_uint64), ("user", c.c_uint64), ("choice", c.c_int), ("token", c.c_int32), ("text", c.c_void_p),
                ("text_bytes", c.c_size_t), ("logprob", c.c_float), ("top", c.c_void_p), ("top_count", c.c_int), ("prompt_tokens", c.c_void_p),
                ("prompt_logprobs", c.c_void_p), ("prompt_count", c.c_int), ("top_per_token", c.c_int), ("prompt_tokens_count", c.c_int),
                ("cached_tokens", c.c_int), ("completion_tokens", c.c_int), ("finish", c.c_int), ("stop_index", c.c_int), ("stop_token", c.c_int32),
                ("status", c.c_int), ("message", c.c_char_p), ("queued_s", c.c_double), ("prefill_s", c.c_double), ("decode_s", c.c_double),
                ("values", c.c_void_p), ("rows", c.c_int), ("cols", c.c_int), ("value_ids", c.c_void_p), ("value_ids_count", c.c_int)]


KIND_CHAT, EVENT_TOKEN, EVENT_FINAL = 1, 1, 3


def main():
    import json
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rose = c.CDLL(sys.argv[3] if len(sys.argv) > 3 else "librose.so")
    rose.rose_events.restype = c.c_size_t
    err, device, engine = Error(), c.c_void_p(), c.c_void_p()

    def check(status):
        if status:
            sys.exit(err.message.decode())

    check(rose.rose_device_open(c.byref(DeviceOptions()), c.byref(device), c.byref(err)))
    options = EngineOptions(model=sys.argv[1].encode(), max_sequences=1)
    check(rose.rose_engine_open(device, c.byref(options), c.byref(engine), c.byref(err)))
    request, ident = Request(), c.c_uint64()
    rose.rose_request_init(c.byref(request))
    chat = json.dumps({"messages": [{"role": "user", "content": sys.argv[2]}]}).encode()
    request.kind, request.prompt, request.prompt_bytes, request.max_tokens = KIND_CHAT, chat, len(chat), 64
    check(rose.rose_submit(engine, c.byref(request), c.byref(ident), c.byref(err)))
    events = (Event * 16)()
    while True:
        for event in events[: rose.rose_events(engine, events, c.c_size_t(16), -1)]:
            if event.kind == EVENT_TOKEN:
                sys.stdout.write(c.string_at(event.text, event.text_bytes).decode())
                sys.stdout.flush()
            if event.kind == EVENT_FINAL:
                print()
                rose.rose_engine_close(engine)
                rose.rose_device_close(device)
                return


if __name__ == "__main__":
    main()
