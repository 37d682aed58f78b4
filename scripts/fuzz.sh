#!/bin/sh
# fuzz.sh BUILD SECONDS: runs every fuzzer for that long, starting from its committed corpus. What it finds
# beyond goes to BUILD/fuzz/new/<target>, a failing input to BUILD/fuzz/crash-<target>-*.
build=$1
seconds=$2
passed=0
failed=0
for fuzzer in "$build"/fuzz/fuzz_*; do
    [ -x "$fuzzer" ] && [ -f "$fuzzer" ] || continue
    name=${fuzzer##*/fuzz_}
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
