#!/usr/bin/env bash
# What scripts/bootstrap finds missing on machines of every kind, asked of the real dpkg-query on a database of packages made
# here; apt-get only writes down what it was told.
#
#   bootstrap_test.sh SOURCE
set -euo pipefail
source=$1
command -v dpkg-query || { echo "skipped: this is not Debian"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bootstrap_test: $*" >&2; cat "$work/log" >&2; exit 1; }

mkdir -p "$work/bin" "$work/db/info" "$work/db/updates"
printf '#!/bin/sh\n"$@"\n' >"$work/bin/sudo"
printf '#!/bin/sh\necho "$@" >>"%s/apt"\n' "$work" >"$work/bin/apt-get"
printf '#!/bin/sh\nexec "%s" --admindir="%s" "$@"\n' "$(command -v dpkg-query)" "$work/db" >"$work/bin/dpkg-query"
chmod +x "$work"/bin/*

package() { printf 'Package: %s\nStatus: %s\nArchitecture: all\nMaintainer: nobody\nVersion: 1\nDescription: none\n\n' "$@"; }
all=$(sed -nE 's/^build +\| ([a-z0-9.+-]+) .*/\1/p' "$source/scripts/bootstrap" | grep -vx npm)

# bootstrap_finds WHAT EXPECTED < the packages' states: exactly EXPECTED is installed, and that is a success.
bootstrap_finds() {
  cat >"$work/db/status"
  rm -f "$work/apt"
  PATH=$work/bin:$PATH "$source/scripts/bootstrap" >"$work/log" 2>&1 || fail "$1: exit code $?"
  # No such file, or no package but npm: nothing would be installed, which is an answer.
  local told
  told=$(sed -nE '/ install /s/.*--no-install-recommends //p' "$work/apt" 2>/dev/null | tr ' ' '\n' | grep -vx npm | sort | xargs) || true
  [ "$told" = "$(sort <<<"$2" | xargs)" ] || fail "$1: '$told' would be installed, not '$2'"
}

every() { for name in $all; do [ "$name" = "${1:-}" ] || package "$name" 'install ok installed'; done; }

bootstrap_finds "a machine without any of them" "$all" </dev/null
bootstrap_finds "one that is not known" ccache < <(every ccache)
bootstrap_finds "one that was removed" ccache < <(every ccache; package ccache 'deinstall ok config-files')
bootstrap_finds "one that is known, and never was there" ccache < <(every ccache; package ccache 'unknown ok not-installed')
# npm, if there is none, is a command and not a package for this test.
bootstrap_finds "all of them" "" < <(every; package npm 'install ok installed')
echo "bootstrap finds what is missing"
