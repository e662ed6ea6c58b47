// SPDX-License-Identifier: Apache-2.0
/// How independent pieces of host work are run: an executor is a type with `run(count, work)`.
#ifndef FP8WIRE_CORE_EXECUTOR_HPP
#define FP8WIRE_CORE_EXECUTOR_HPP
#include <concepts>

#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

namespace detail {
struct any_work {
  void operator()(i64) const noexcept {}
};
}  // namespace detail

/// run(n, work) calls work(0) ... work(n - 1), each once, in any order and on any thread, and returns when all
/// returned. An optional member concurrency() says how many run at a time, so that work is cut into no more pieces than
/// pay.
template <class Executor> concept executor =
    requires(Executor& e, i64 count, const detail::any_work& work) { e.run(count, work); };

/// The calling thread, in order. interop/openmp.hpp has the parallel one.
struct serial {
  static constexpr i64 concurrency() noexcept { return 1; }
  template <class Work> constexpr void run(i64 count, const Work& work) const {
    for (i64 i = 0; i < count; ++i) work(i);
  }
};

FP8WIRE_ABI_END
#endif
