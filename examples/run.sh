#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job on a fresh Debian: installs what is missing (as root or through sudo), builds the programs into
# build/examples, converts a checkpoint to FP8, and updates two serving engines with it, three versions in a row.
# Usage: sh examples/run.sh [CHECKPOINT | --build-only]
#   CHECKPOINT: a .safetensors file or a Hugging Face folder of BF16, FP16 or FP32 weights; none: a small one is made.
set -eu
usage() {
  echo 'Usage: sh examples/run.sh [CHECKPOINT | --build-only]' >&2
  exit 2
}
[ $# -le 1 ] || usage
case ${1-} in
  '' | --build-only) ;;
  -*) usage ;;
  *)
    case $1 in /*) ;; *) set -- "$PWD/$1" ;; esac
    if [ ! -e "$1" ]; then
      echo "examples/run.sh: $1: no such file or folder" >&2
      exit 1
    fi
    ;;
esac
cd "$(dirname "$0")/.."
. examples/setup.sh

# shellcheck disable=SC2086  # lists of words
install_missing $program_packages
configure build -Dtests=disabled -Dexamples=enabled -Dbench=disabled
meson compile -C build
[ "${1-}" != --build-only ] || exit 0

programs=build/examples
work=build/demo
mkdir -p "$work"
rm -rf "$work/fp8" "$work/fp8.safetensors" "$work/served"
say() { printf '\n== %s\n' "$*"; }

checkpoint=${1-}
if [ -z "$checkpoint" ]; then
  checkpoint=$work/checkpoint
  say "A small Qwen3.5-shaped BF16 checkpoint, seeded, two of its MLPs ragged on purpose: $checkpoint"
  "$programs/make_checkpoint" --force --shards 2 "$checkpoint"
fi
case $checkpoint in
  *.safetensors) converted=$work/fp8.safetensors ;;
  *) converted=$work/fp8 ;;
esac

say "Converted to FP8 as vLLM quantizes, every byte proven: $converted"
"$programs/fp8-convert" --verify --json "$work/convert.json" "$checkpoint" "$converted"

# Steps below about 2e-3 vanish in the rounding to BF16: at fp8-refit's own rate all versions would be equal.
say 'Three weight versions into two serving engines, each version whole or not at all; weights move by 1 %'
"$programs/fp8-refit" --engines 2 --rounds 3 --lr 0.01 --dump "$work/served" --plan "$work/plan.json" \
  --json "$work/refit.json" "$checkpoint"
ls "$work/served"

say 'What an engine serves now'
"$programs/fp8-inspect" "$work/served/engine0-v3.safetensors" | tail -n 8
printf '\nReports and plan are in %s.\n' "$work"
