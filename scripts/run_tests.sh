#!/bin/sh
# run_tests.sh BUILD [meson test options]: runs the tests; the last line counts every case.
build=$1
shift
report=$build/meson-logs/testlog.json
rm -f "$report"
meson test -C "$build" --print-errorlogs "$@"
status=$?
python3 scripts/summary.py "$report" || status=1
exit $status
