#!/usr/bin/env bash
# Installs into a staging folder, moves the result somewhere else and runs it there, with nothing of the build in reach.
#
#   install_test.sh BUILD SOURCE PROGRAM…
set -euo pipefail
build=$1 source=$2
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

DESTDIR=$work/stage cmake --install "$build" --prefix /opt/some/where >"$work/log"
mkdir "$work/moved"
mv "$work/stage/opt/some/where" "$work/moved/home"
[ -z "$(find "$work/stage" -type f -o -type l)" ] || fail "files were installed outside of the prefix"
cd "$work/moved/home"
home=$work/moved/home/lib/linkcpp

stray=$(find . \( -type f -o -type l \) -not -path './lib/linkcpp/*' -not -path './bin/linkcpp*' -not -path './share/doc/linkcpp/*')
[ -z "$stray" ] || fail "unexpected files: $stray"
stray=$(find lib -name '*.h' -o -name '*.a' -o -name '*.cmake' -o -name '*.pc')
[ -z "$stray" ] || fail "files for developers in an installation: $stray"
[ -f share/doc/linkcpp/LICENSE ] || fail "no licence"

# Every library is found, ours and llama.cpp's in the moved folder, and nothing points back into the build.
for file in lib/linkcpp/*; do
  [ -f "$file" ] && [ ! -L "$file" ] || continue
  needs=$(env -i ldd "$file")
  ! grep -F 'not found' <<<"$needs" || fail "$file lacks a library"
  elsewhere=$(grep -E '^\s*lib(ggml|llama|mtmd)' <<<"$needs" | grep -vF "=> $home/" || true)
  [ -z "$elsewhere" ] || fail "$file finds a library elsewhere: $elsewhere"
  runpath=$(readelf -d "$file" | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]/\2/p')
  [ -z "$runpath" ] || [ "$runpath" = '$ORIGIN' ] || fail "$file looks for libraries in $runpath"
done

for program in "$@"; do
  [ "$(readlink "bin/$program")" = "../lib/linkcpp/$program" ] || fail "bin/$program is no relative link"
  env -i "bin/$program" --version || fail "bin/$program does not run"
done

# A tool as published finds ggml's CPU backend there, and can decode.
model=$(ls "$source"/models/*.gguf | head -n 1)
env -i lib/linkcpp/llama-completion -m "$model" -p "The capital" -n 2 -no-cnv -t 1 >"$work/out" 2>&1 </dev/null ||
  { tail -n 20 "$work/out"; fail "llama-completion does not run"; }
echo "installed, moved and run: $(ls lib/linkcpp | wc -l) files"
