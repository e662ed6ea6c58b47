// SPDX-License-Identifier: Apache-2.0
// Every row of the benchmark beside the memory limit of the same process: fp8wire_bench --benchmark_format=json
#include "common.hpp"

int main(int argc, char** argv) {
  bench::add_layout();
  bench::add_quant();
  bench::add_wire();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
