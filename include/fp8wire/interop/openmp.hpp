// SPDX-License-Identifier: Apache-2.0
/// An executor that shares pieces of host work among OpenMP threads.
#ifndef FP8WIRE_INTEROP_OPENMP_HPP
#define FP8WIRE_INTEROP_OPENMP_HPP
#include <omp.h>

#include <fp8wire/core/executor.hpp>

FP8WIRE_ABI_BEGIN

/// run(count, work) on `threads` OpenMP threads, 0 meaning omp_get_max_threads(); needs -fopenmp.
/// Pieces go to whoever is free, so that a thread that the system holds up is helped. Inside a parallel region it is
/// serial unless nesting is on.
struct openmp {
  int threads = 0;

  i64 concurrency() const noexcept { return threads > 0 ? threads : omp_get_max_threads(); }
  /// Expects: work does not throw.
  template <class Work> void run(i64 count, const Work& work) const {
    [[maybe_unused]] const int team = static_cast<int>(concurrency());
#pragma omp parallel for schedule(dynamic) num_threads(team)
    for (i64 i = 0; i < count; ++i) work(i);
  }
};

FP8WIRE_ABI_END
#endif
