#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests and times the kernels on the GPU of this machine. Needs nvcc and g++, nothing else; under six minutes.
# Usage: sh bench/gpu_run.sh [FOLDER FOR RESULTS]. Exit code 0: all passed; 1: something failed; 77: no GPU, skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-build-gpu}
mkdir -p "$out" || exit 1
failed=0

skip() {
  echo "SKIP: $*"
  exit 77
}
# step SECONDS NAME COMMAND...: a failure does not stop the steps after it, but it is remembered.
step() {
  cap=$1
  name=$2
  shift 2
  printf '\n== %s\n' "$name"
  timeout "$cap" "$@"
  code=$?
  case $code in
    0) ;;
    124) echo "FAIL: $name took more than $cap s"; failed=1 ;;
    *) echo "FAIL: $name, exit code $code"; failed=1 ;;
  esac
  return $code
}

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || skip 'there is no nvcc'
command -v g++ >/dev/null || skip 'there is no g++'
command -v nvidia-smi >/dev/null || skip 'there is no GPU: nvidia-smi is not here'
gpu=$(nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2>&1 | head -n 1)
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
case $capability in
  [0-9]*) ;;
  *) skip "there is no GPU: $gpu" ;;
esac
case $capability in
  90 | 100 | 103 | 120) arch=${capability}a ;;
  *) arch=$capability ;;
esac
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
echo "$gpu, sm_$arch, commit $commit, $date"
"$nvcc" --version | tail -n 2

build() {  # build NAME SOURCE
  "$nvcc" -std=c++20 -O3 -Iinclude -Itests/cuda -gencode "arch=compute_$arch,code=sm_$arch" -o "$out/$1" "$2"
}
build_all() {
  build device_test tests/cuda/device_test.cu & first=$!
  build gpu_bench bench/gpu_bench.cu & second=$!
  "$nvcc" -std=c++20 -O3 -Iinclude -Itests/cuda -gencode "arch=compute_$arch,code=compute_$arch" -ptx \
    -o "$out/kernels.ptx" tests/cuda/kernels.cu & third=$!
  g++ -std=c++20 -O1 -Iinclude -o "$out/run_ptx" tests/cuda/run_ptx.cpp & fourth=$!
  build compact_test tests/cuda/compact_test.cu & fifth=$!
  wait $first && wait $second && wait $third && wait $fourth && wait $fifth
}
began=$(date +%s)
printf '\n== build\n'
build_all || { echo 'FAIL: build'; exit 1; }
echo "built in $(($(date +%s) - began)) s"

step 90 'bytes: every kernel and wrapper against the library' "$out/device_test"
step 30 'bytes: compaction against loops on the host' "$out/compact_test"
# The same cases on the same PTX: where the GPU agrees with the library and the interpreter does too, they agree.
step 60 'bytes: the interpreter on the PTX that was built' "$out/run_ptx" "$out/kernels.ptx" tests/cuda/sectors.txt
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    step 60 "compute-sanitizer $tool" \
      compute-sanitizer --tool "$tool" --error-exitcode 1 --launch-count 40 "$out/device_test"
  done
else
  echo 'SKIP: compute-sanitizer is not here'
fi
if python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null; then
  step 60 'torch on the same GPU' python3 bench/gpu_torch.py
else
  echo 'SKIP: torch with CUDA is not here'
fi
step 90 'times' "$out/gpu_bench" "$out/bench.json" "$commit" "$date"
printf '\n%s in %s s; results in %s/bench.json\n' "$([ $failed -eq 0 ] && echo 'all passed' || echo 'FAILED')" \
  "$(($(date +%s) - began))" "$out"
exit $failed
