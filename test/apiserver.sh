#!/usr/bin/env bash
# Runs the tests with the build tag controlplane against real API servers: apiserver.sh [FLAG OF GO TEST...]
# ("make test-apiserver"). The other tests of their packages need none, and are unit tests. GO is the go command.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(grep -rlE --include='*_test.go' '^//go:build controlplane( |$)' cmd internal pkg test/demo)
mapfile -t packages < <(for file in "${files[@]}"; do echo "./${file%/*}"; done | sort -u)
names=$(sed -nE 's/^func (Test[A-Z][A-Za-z0-9_]*)\(t \*testing\.T\).*/\1/p' "${files[@]}" | sort -u | paste -sd'|')
set -x
"${GO:-go}" test -p 2 -tags controlplane -run "^($names)\$" "$@" "${packages[@]}"
