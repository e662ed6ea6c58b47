#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (Debian, as root or through sudo), builds the tests in two ways and runs them.
# Usage: sh tests/run.sh [OPTION FOR MESON SETUP]...
set -u
cd "$(dirname "$0")/.." || exit 1
. examples/setup.sh

# shellcheck disable=SC2086  # lists of words
install_missing $program_packages $test_packages

passed=0
failed=0
skipped=0
summary=''

# leg NAME FOLDER 'ARGUMENTS OF MESON TEST' OPTION...: configures, builds, tests and counts. A leg that does not build
# has failed once.
leg() {
  name=$1
  folder=$2
  selection=$3
  shift 3
  printf '\n== %s\n' "$name"
  began=$(date +%s)
  counts='0 1 0'
  if configure "$folder" "$@"; then
    if meson compile -C "$folder" --ninja-args=-k,0 >"$folder/build.log" 2>&1; then
      rm -f "$folder/meson-logs/testlog.json" "$folder/tests/readers.txt"
      # shellcheck disable=SC2086  # a list of words
      meson test --no-rebuild -C "$folder" --print-errorlogs $selection
      counts=$(python3 tests/tools/count.py "$folder/meson-logs/testlog.json")
    else
      grep -v '^\[' "$folder/build.log" | head -n 200
      echo "build failed; all it said is in $folder/build.log"
    fi
  fi
  # shellcheck disable=SC2086  # three numbers
  set -- $counts
  passed=$((passed + $1))
  failed=$((failed + $2))
  skipped=$((skipped + $3))
  summary="$summary
$name: $1 passed, $2 failed, $3 skipped in $(($(date +%s) - began)) s"
}

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=halt_on_error=1
export LSAN_OPTIONS=suppressions=$PWD/tests/tools/leaks.txt:print_suppressions=0

(command -v g++ && g++ -dumpfullversion && command -v clang++ && clang++ -dumpversion) | tr '\n' ' '
CXX=g++
export CXX
leg 'g++, everything' build-tests '' "$@"
CXX=clang++
leg 'clang++ with sanitizers, unit tests' build-tests-clang '--suite unit --suite odr' \
  -Dexamples=disabled -Dbench=disabled -Doptimization=0 -Db_sanitize=address,undefined -Db_lundef=false \
  -Dcpp_args=-D_GLIBCXX_ASSERTIONS "$@"

printf '%s\n\n%s passed, %s failed, %s skipped\n' "$summary" "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
