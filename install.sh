#!/bin/sh
# Builds gus from this folder and installs it. Run it again to upgrade.
set -eu

usage() {
	cat <<'TEXT'
usage: sh install.sh [--prefix DIR] [--dry-run]

Builds gus with Go 1.26 or newer and installs the one binary as DIR/bin/gus.

  --prefix DIR   where to (default: /usr/local for root, otherwise ~/.local)
  --dry-run      say what would be done, and do nothing
  --help         this text
TEXT
}

fail() { # message, exit code
	printf 'install.sh: %s\n' "$1" >&2
	exit "$2"
}

prefix=
dry=
while [ $# -gt 0 ]; do
	case $1 in
	--prefix)
		[ $# -ge 2 ] || fail "--prefix wants a folder: --prefix ~/.local" 2
		prefix=$2
		shift
		;;
	--prefix=*) prefix=${1#--prefix=} ;;
	--dry-run) dry=1 ;;
	-h | --help)
		usage
		exit 0
		;;
	*) fail "unknown argument '$1': see sh install.sh --help" 2 ;;
	esac
	shift
done
if [ -z "$prefix" ]; then
	if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi

cd "$(dirname "$0")"
if [ ! -f go.mod ] || [ ! -f main.go ]; then
	fail "there is no source of gus beside this script: run it from its own folder" 1
fi
command -v go >/dev/null 2>&1 || fail "no Go found: install Go 1.26 or newer, see https://go.dev/dl" 1

bin=$prefix/bin/gus
if [ -n "$dry" ]; then
	printf 'would build gus with %s\nwould install it as %s\n' "$(go version | cut -d' ' -f3)" "$bin"
	exit 0
fi

mkdir -p "$prefix/bin" || fail "cannot make $prefix/bin: choose another place with --prefix" 1
# Built beside its place and renamed into it: a running agent keeps its file,
# and a build that fails changes nothing.
new=$bin.new.$$
trap 'rm -f "$new"' EXIT
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$new" . || fail "the build failed: Go 1.26 or newer is needed, this is $(go version | cut -d' ' -f3)" 1
mv -f "$new" "$bin"
printf 'installed %s\n' "$bin"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) printf 'note: %s is not in your PATH\n' "$prefix/bin" ;;
esac
