#!/usr/bin/env bash
# The server's share when a model embeds: rose bench MODEL (no HTTP) beside rose bench --url of the same model, in one run.
#   bench/serve_encoder.sh ROSE MODEL     rows "what,figure,unit" on standard output; PREFIX="chrt -r 10" and the like goes before each program
set -eu
rose=$1 model=$2 port=${PORT:-18095}
work=$(mktemp -d)
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
awk 'BEGIN { srand(1); n = split("time year people way day man thing woman life child world school state family student group", w, " ");
             for (i = 0; i < 1000; i++) { for (k = 0; k < 14; k++) printf "%s ", w[int(rand() * n) + 1]; print "" } }' >"$work/texts"
began=$(date +%s%N)
${PREFIX:-} "$rose" serve "$model" --port "$port" --no-access-log 2>"$work/log" &
server=$!
until curl -fs "http://127.0.0.1:$port/health" >/dev/null; do sleep 0.005; done
echo "start to ready,$((($(date +%s%N) - began) / 1000000)),ms"
load() { # what, options: requests a second and the middle time
    local what=$1; shift
    ${PREFIX:-} "$rose" bench --url "http://127.0.0.1:$port" --json -p 14 "$@" 2>/dev/null |
        sed -E "s/.*\"failed\":([0-9]+).*\"requests_per_s\":([0-9.]+).*\"e2e_s\":\{\"mean\":[^,]*,\"p50\":([0-9.e-]+).*/$what,\2,requests\/s\n$what p50,\3,s\n$what failed,\1,/"
}
bare() { # what: texts a second without HTTP
    ${PREFIX:-} "$rose" bench "$model" --texts "$work/texts" -r 1 | sed -nE "s/ *throughput *([0-9.]+) texts.*/$1,\1,texts\/s/p; s/ *one text *([0-9.]+) ms.*/no HTTP: one text,\1,ms/p"
}
load "one text at a time" --endpoint embeddings -c 1 -n 1000
bare "no HTTP: 1000 texts"
load "64 clients" --endpoint embeddings -c 64 -n 4000
for round in 1 2 3; do
    bare "no HTTP: 1000 texts round $round" | grep -v "one text"
    load "1000 texts KServe binary round $round" --endpoint infer -c 1 -n 2 --texts 1000
    load "1000 texts KServe JSON round $round" --endpoint infer-json -c 1 -n 2 --texts 1000
    load "1000 texts base64 round $round" --endpoint embeddings -c 1 -n 2 --texts 1000
done
