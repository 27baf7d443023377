#!/usr/bin/env bash
# Makes the plugin's archives, one of its man pages and shell completions, and its krew manifest: build.sh VERSION FOLDER OS/ARCH... ("make krew").
# GO and LDFLAGS are the go command and its linker flags. Replaces the content of FOLDER. SOURCE_DATE_EPOCH is the time in the
# archives, in seconds since 1970; by default the time of the commit. The same commit gives the same archives.
set -euo pipefail
version=$1 folder=$2
shift 2
here=$(dirname "$0") root=$(dirname "$0")/../..

number='(0|[1-9][0-9]*)'
if ! [[ $version =~ ^v$number\.$number\.$number([-+][0-9A-Za-z.+-]+)?$ ]]; then
  echo "krew takes no version like $version: make krew VERSION=vX.Y.Z" >&2
  exit 1
fi
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" show --no-patch --no-show-signature --format=%ct HEAD 2>/dev/null || echo 0)}

# No archive has the owner, the modes or the times of this machine. The two kinds of tar spell that differently.
case $(tar --version) in
*GNU*) nobody=(--format=ustar --owner=0 --group=0 --numeric-owner) when=@$epoch ;;
*) nobody=(--format=ustar --uid 0 --gid 0 --uname '' --gname '') when= ;;
esac
stamp() { # A file's time; GNU's touch takes seconds, others a date.
  touch -d "${when:-$(date -u -r "$epoch" +%Y-%m-%dT%H:%M:%SZ)}" "$@"
}

pack() { # FOLDER ARCHIVE: packs the files of the folder, and removes the folder.
  stamp "$1"/*
  (cd "$1" && LC_ALL=C tar "${nobody[@]}" -cf - ./*) | gzip -n >"$2"
  rm -r "$1"
}

rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sed "s|\${VERSION}|$version|" "$here/reclaim.yaml" >"$folder/reclaim.yaml"
for platform in "$@"; do
  os=${platform%/*} arch=${platform#*/}
  echo "$platform"
  content=$folder/$os-$arch archive=$folder/kubectl-reclaim-$os-$arch.tar.gz exe=
  mkdir "$content"
  case $os in
  windows) exe=.exe ;; # kubectl does not run the script there
  *) cp "$here/kubectl_complete-reclaim" "$content" ;;
  esac
  cp "$root/LICENSE" "$content"
  (cd "$root" && CGO_ENABLED=0 GOOS=$os GOARCH=$arch "${GO:-go}" build -trimpath -buildvcs=false \
    -ldflags "${LDFLAGS:-}" -o "$content/" ./cmd/kubectl-reclaim)
  chmod 0755 "$content"/*
  chmod 0644 "$content/LICENSE"
  pack "$content" "$archive"
  sum=$(sha256sum "$archive" | cut -d' ' -f1)
  sed "s|\${OS}|$os|g; s|\${ARCH}|$arch|g; s|\${VERSION}|$version|g; s|\${SHA256}|$sum|; s|\${EXE}|$exe|" \
    "$here/platform.yaml" \
    >>"$folder/reclaim.yaml"
done

echo "man pages and completions"
documents=$folder/documents
mkdir "$documents"
plugin() {
  (cd "$root" && CGO_ENABLED=0 SOURCE_DATE_EPOCH=$epoch "${GO:-go}" run -trimpath -buildvcs=false \
    -ldflags "${LDFLAGS:-}" ./cmd/kubectl-reclaim "$@")
}
plugin man "$documents"
plugin completion bash >"$documents/kubectl-reclaim.bash"
plugin completion zsh >"$documents/_kubectl-reclaim"
plugin completion fish >"$documents/kubectl-reclaim.fish"
plugin completion powershell >"$documents/kubectl-reclaim.ps1"
chmod 0644 "$documents"/*
pack "$documents" "$folder/kubectl-reclaim-documents.tar.gz"
