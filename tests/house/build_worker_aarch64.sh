#!/usr/bin/env bash
# Builds the worker for 64-bit ARM, so that the tests never run an old one. Ends with 77 (skipped) where it cannot be built.
#     build_worker_aarch64.sh SOURCE_DIR BUILD_DIR LLAMA_DIR
set -euo pipefail
cd "$1"
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  if ! command -v "$tool"; then
    echo "skipped: $tool is missing; 'scripts/bootstrap --aarch64' installs it"
    exit 77
  fi
done
[[ -e $2/build.ninja ]] || cmake --preset aarch64 -B "$2" -DLINKCPP_LLAMA_DIR="$3"
CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=1 cmake --build "$2" --target linkcpp-expert-worker
