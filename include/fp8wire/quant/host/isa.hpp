// SPDX-License-Identifier: Apache-2.0
/// Which vector instructions the host path uses, found at run time, and the floating-point mode it computes in.
#ifndef FP8WIRE_QUANT_HOST_ISA_HPP
#define FP8WIRE_QUANT_HOST_ISA_HPP
#include <fp8wire/core/bits.hpp>

FP8WIRE_ABI_BEGIN

/// One body of the host path. All give the same bytes; `best_isa` picks, tests and benchmarks force.
enum class isa : u8 {
  scalar,    // the definition itself, quant/reference.hpp
  portable,  // 16-byte GNU vectors: SSE2 on x86-64, NEON on aarch64
  avx2,      // AVX2 and FMA
  avx512     // AVX-512 F, BW, VL and VBMI
};

namespace detail {
namespace FP8WIRE_CG {

// No cache of ours: the builtin reads a table that the compiler's runtime filled at start-up (1.8-3.5 ns), which knows
// what the system saves, too. CPUID itself traps in virtual machines.
FP8WIRE_ALWAYS_INLINE constexpr bool cpu_has(isa which) noexcept {
#if defined(FP8WIRE_AVX2)
  if (which == isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (which == isa::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
#endif
  return which == isa::scalar || which == isa::portable;
}

/// Whether this is a processor of AMD's, from the same table.
inline bool on_amd() noexcept {
#if defined(FP8WIRE_AVX2)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/// Bytes of this core's second-level cache; 0 where nothing tells. One or two microseconds in a virtual machine.
inline i64 second_level_cache() noexcept {
#if defined(__x86_64__)
  u32 leaf = 0x80000006, size = 0;
  asm volatile("cpuid" : "+a"(leaf), "+c"(size) : : "rbx", "rdx");
  return i64{size >> 16} << 10;
#else
  return 0;
#endif
}

/// Round to nearest, subnormals kept, traps masked while it lives; the caller's mode comes back at the end.
/// The compiler may move arithmetic across the change, so that what needs the mode sits behind a noinline call.
class exact_mode {
 public:
#if defined(__x86_64__)
  exact_mode() noexcept {
    asm volatile("stmxcsr %0" : "=m"(saved_));
    const u32 mode = 0x1F80;
    asm volatile("ldmxcsr %0" : : "m"(mode));
  }
  ~exact_mode() { asm volatile("ldmxcsr %0" : : "m"(saved_)); }

 private:
  u32 saved_ = 0;
#elif defined(__aarch64__)
  exact_mode() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(u64{0}));
  }
  ~exact_mode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  u64 saved_ = 0;
#else
  exact_mode() noexcept {}
#endif

 public:
  exact_mode(const exact_mode&) = delete;
  exact_mode& operator=(const exact_mode&) = delete;
};

}  // namespace FP8WIRE_CG
}  // namespace detail

/// Whether this processor and system can run that body.
FP8WIRE_ALWAYS_INLINE constexpr bool can_run(isa which) noexcept { return detail::FP8WIRE_CG::cpu_has(which); }

/// The widest body that can run here; in constant evaluation the scalar one.
FP8WIRE_ALWAYS_INLINE constexpr isa best_isa() noexcept {
  if (__builtin_is_constant_evaluated()) return isa::scalar;
  if (can_run(isa::avx512)) return isa::avx512;
  if (can_run(isa::avx2)) return isa::avx2;
  return isa::portable;
}

FP8WIRE_ABI_END
#endif
