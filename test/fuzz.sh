#!/usr/bin/env bash
# Fuzzes each target that the source has, one after the other: fuzz.sh TIME ("make fuzz"). GO is the go command.
set -euo pipefail
cd "$(dirname "$0")/.."
grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' -- */ | sort |
  while IFS=: read -r file declaration; do
    target=${declaration#func } package=./$(dirname "$file")
    echo "$target in $package for $1"
    # Without the limit, minimizing one interesting input may take a minute.
    "${GO:-go}" test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 1s "$package" </dev/null
  done
