#!/bin/sh
# analyse.sh BUILD: static analysis by whatever is installed; cppcheck's findings fail.
if command -v cppcheck >/dev/null 2>&1; then
    cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
        --suppress=missingIncludeSystem --suppress=invalidPointerCast -D_GNU_SOURCE '-DPHI_VERSION="0"' -I include -I src src || exit 1
    echo "cppcheck: clean"
else
    echo "cppcheck is not installed; skipped"
fi
