#!/usr/bin/env bash
# Makes the plugin's archives and its krew manifest: build.sh VERSION FOLDER OS/ARCH... ("make krew").
# GO and LDFLAGS are the go command and its linker flags. Replaces what FOLDER has.
set -euo pipefail
version=$1 folder=$2
shift 2
here=$(dirname "$0") root=$(dirname "$0")/../..

number='(0|[1-9][0-9]*)'
if ! [[ $version =~ ^v$number\.$number\.$number([-+][0-9A-Za-z.+-]+)?$ ]]; then
  echo "krew takes no version like $version: make krew VERSION=vX.Y.Z" >&2
  exit 1
fi

rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sed "s|\${VERSION}|$version|" "$here/reclaim.yaml" >"$folder/reclaim.yaml"
for platform in "$@"; do
  os=${platform%/*} arch=${platform#*/}
  echo "$platform"
  content=$folder/$os-$arch archive=$folder/kubectl-reclaim-$os-$arch.tar.gz
  mkdir "$content"
  cp "$root/LICENSE" "$here/kubectl_complete-reclaim" "$content"
  (cd "$root" && CGO_ENABLED=0 GOOS=$os GOARCH=$arch "${GO:-go}" build -trimpath -ldflags "${LDFLAGS:-}" \
    -o "$content/" ./cmd/kubectl-reclaim)
  tar -C "$content" -czf "$archive" .
  rm -r "$content"
  sum=$(sha256sum "$archive" | cut -d' ' -f1)
  sed "s|\${OS}|$os|g; s|\${ARCH}|$arch|g; s|\${VERSION}|$version|g; s|\${SHA256}|$sum|" "$here/platform.yaml" \
    >>"$folder/reclaim.yaml"
done
