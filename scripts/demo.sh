#!/bin/sh
# demo.sh PROGRAM: the two bundled models at work, each command shown before its output.
set -eu
program=$1

show() {
    printf '\n$ phidelity'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./-]*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$program" "$@"
}

show generate models/phi-tiny-code -p 'def fibonacci(n):' --max-tokens 64 --temperature 0
show chat models/phi3-tiny-chat -p 'Anna has 3 apples and buys 4 more. How many apples does she have?' --temperature 0 --stats
