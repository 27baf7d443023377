#!/usr/bin/env bash
# Writes what controller-gen makes of pkg/apis: deep copies, and the CustomResourceDefinitions ("make apis"). With
# --check it writes nothing, and fails where they are not up to date ("make lint"). GO is the go command.
set -euo pipefail
cd "$(dirname "$0")/../.."

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mkdir "$new/crd"
"${GO:-go}" tool -modfile=tools/controller-gen/go.mod controller-gen paths=./pkg/apis/fencing/... \
  object output:object:dir="$new" crd output:crd:dir="$new/crd"
{
  cat <<'HEADER'
# NodeFence, FencePolicy and NodeFenceTemplate, the kinds by which nodes are fenced (docs/how-to/node-fencing.md).
# Generated from pkg/apis/fencing/v1alpha1 by "make apis".
#
#   kubectl apply -f node-fencing-crd.yaml
#
# Delete it only when no NodeFence is left: with it, all of them are deleted, which ends the fences.
HEADER
  cat "$new"/crd/*.yaml | sed '1{/^---$/d}'
} > "$new/crds.yaml"

compare() { # compare NEW FILE
  cmp -s "$1" "$2" && return
  if [[ $check ]]; then
    echo "$2 is not up to date; run make apis" >&2
    stale=1
  else
    cp "$1" "$2"
  fi
}
check= stale=
[[ ${1-} == --check ]] && check=1
compare "$new/zz_generated.deepcopy.go" pkg/apis/fencing/v1alpha1/zz_generated.deepcopy.go
compare "$new/crds.yaml" deploy/manifests/node-fencing-crd.yaml
[[ ! $stale ]]
