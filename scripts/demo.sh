#!/bin/sh
# demo.sh PROGRAM: the two bundled models at work, each command shown before its output: in the
# terminal, then behind the HTTP server, asked with curl.
set -eu
program=$1
log=$(mktemp)
server=

quit() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -f "$log"
}
trap quit EXIT

quoted() { # the words as a shell would need them
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
}

show() {
    printf '\n$ phidelity%s\n' "$(quoted "$@")"
    "$program" "$@"
}

# serve ARGUMENTS: on port 8000, or the next one that is free; sets $url.
serve() {
    for port in 8000 8001 8002 8003 0; do
        "$program" serve "$@" --port "$port" >"$log" 2>&1 &
        server=$!
        for _ in $(seq 300); do
            grep -q 'startup complete' "$log" && break 2
            kill -0 "$server" 2>/dev/null || break
            sleep 0.1
        done
        grep -q 'cannot listen' "$log" || break
    done
    url=$(sed -n 's|.*Listening on \(http://[^ ;]*\).*|\1|p' "$log")
    printf '\n$ phidelity serve%s &\n' "$(quoted "$@" --port "${url##*:}")"
    grep 'startup complete' "$log" || {
        cat "$log" >&2
        exit 1
    }
}

stop() {
    kill "$server"
    wait "$server" # 0: everything that ran was finished
    server=
}

ask() { # ask PATH [JSON [curl options]]
    path=$1
    shift
    if [ $# -gt 0 ]; then
        json=$1
        shift
        set -- "$@" -H 'Content-Type: application/json' -d "$json"
    fi
    printf '\n$ curl -s%s\n' "$(quoted "$url$path" "$@")"
    curl -sS --fail-with-body "$url$path" "$@"
    echo
}

show generate models/phi-tiny-code -p 'def fibonacci(n):' --max-tokens 64 --temperature 0
show chat models/phi3-tiny-chat --temperature 0 --stats \
    -p 'Anna has 3 apples and buys 4 more. How many apples does she have?'

serve models/phi-tiny-code --host 127.0.0.1 --seed 42 --served-model-name phi-1 --max-num-seqs 64 \
    --max-model-len 512 --trust-remote-code --gpu-memory-utilization 0.5 --dtype float16 \
    --no-enable-prefix-caching
ask /v1/models
ask /v1/completions '{"model": "phi-1", "prompt": "def fibonacci(n):", "max_tokens": 64, "temperature": 0}'
stop

serve models/phi3-tiny-chat --host 127.0.0.1 --served-model-name phi3-tiny-chat
ask /v1/chat/completions '{"model": "phi3-tiny-chat", "temperature": 0, "stream": true, "messages": [{"role": "user", "content": "Anna has 3 apples and buys 4 more. How many apples does she have?"}]}' -N
stop
