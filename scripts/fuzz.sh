#!/bin/sh
# fuzz.sh BUILD SECONDS: builds every fuzzer and runs it for that long, starting from its committed
# corpus. What it finds beyond goes to BUILD/fuzz/new/<target>, a failing input to
# BUILD/fuzz/crash-<target>-*.
build=$1
seconds=$2
passed=0
failed=0
targets=$(ninja -C "$build" -t targets all | sed -n 's/^\(fuzz\/fuzz_[a-z0-9_]*\): .*/\1/p')
# shellcheck disable=SC2086 # a list of words
ninja -C "$build" $targets || exit 1
for target in $targets; do
    fuzzer=$build/$target
    name=${target##*/fuzz_}
    mkdir -p "$build/fuzz/new/$name"
    echo "fuzzing $name for $seconds s"
    if "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/fuzz/crash-$name-" "$build/fuzz/new/$name" "fuzz/corpus/$name" \
        >"$build/fuzz/$name.log" 2>&1; then
        passed=$((passed + 1))
        grep -E 'number_of_executed_units|new_units_added' "$build/fuzz/$name.log"
    else
        failed=$((failed + 1))
        tail -n 40 "$build/fuzz/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
