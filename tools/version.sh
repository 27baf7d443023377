#!/bin/sh
# Prints the version of this source tree: the newest release tag before it, as v1.2.3 or v1.2.3-4-gCOMMIT. Without such a
# tag that is v0.0.0-gCOMMIT, and without a git checkout, as in a tarball, v0.0.0-unknown. Changed files add -dirty.
#
# With an argument it prints nothing, and fails unless the argument has that form: k8s.io/component-base panics at the
# start of a program whose version is not a semantic one.
number='(0|[1-9][0-9]*)'
if [ $# -gt 0 ]; then
  if ! printf '%s\n' "$1" | grep -qE "^v$number\.$number\.$number([-+][0-9A-Za-z.+-]+)?\$"; then
    echo "VERSION=$1 is not a semantic version: set VERSION=vX.Y.Z, or leave it out" >&2
    exit 1
  fi
  exit
fi
cd "$(dirname "$0")/.." || exit
# The tree can be a folder in the checkout of something else, which git then describes.
if [ "$(git rev-parse --show-prefix 2>&1)" ]; then
  echo v0.0.0-unknown
elif tag=$(git describe --tags --match 'v[0-9]*.[0-9]*.[0-9]*' --dirty 2>&1); then
  echo "$tag"
elif commit=$(git describe --always --exclude '*' --dirty 2>&1); then
  echo "v0.0.0-g$commit"
else # no commit yet
  echo v0.0.0-unknown
fi
