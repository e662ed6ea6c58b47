// SPDX-License-Identifier: Apache-2.0
/// Every macro of the library. Nothing here depends on build flags except the ABI tag and the code-generation tag.
#ifndef FP8WIRE_CONFIG_HPP
#define FP8WIRE_CONFIG_HPP

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "fp8wire needs C++20: compile with -std=c++20 (nvcc: -std=c++20, Meson: cpp_std=c++20)"
// There is none: what is not found ends the compilation, where an #error alone would leave a thousand lines to follow.
#include <fp8wire_needs_cxx20>
#endif

/// major * 10000 + minor * 100 + patch. The one place of the version: version.hpp and meson.build follow it.
#define FP8WIRE_VERSION 100

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FP8WIRE_HD __host__ __device__
#else
#define FP8WIRE_HD
#endif

// A kernel body is a template over the machine it runs on: device code here, plain code in the tests' block emulator.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define FP8WIRE_BODY __device__ __forceinline__
#define FP8WIRE_UNROLL _Pragma("unroll")
#else
#define FP8WIRE_BODY inline
#define FP8WIRE_UNROLL
#endif

#define FP8WIRE_ALWAYS_INLINE inline __attribute__((always_inline))
#define FP8WIRE_NOINLINE __attribute__((noinline))

// Exceptions change function bodies, so a build without them lives in a namespace of its own: untagged, a program that
// mixes both kinds of object file would terminate where it should throw.
#if defined(__cpp_exceptions) || defined(__CUDACC__)
#define FP8WIRE_ABI v0_1
#define FP8WIRE_THROW(exception) throw exception
#else
#define FP8WIRE_ABI v0_1_nx
#define FP8WIRE_THROW(exception) (static_cast<void>(exception), ::std::terminate())
#endif
#define FP8WIRE_ABI_BEGIN \
  namespace fp8wire {     \
  inline namespace FP8WIRE_ABI {
#define FP8WIRE_ABI_END \
  }                     \
  }

// SIMD code is compiled function by function, so that a plain -O2 build holds it and picks at run time. Feature names
// are those that g++ 11 and clang 14 both know. Device passes see none of it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
#define FP8WIRE_AVX2 __attribute__((target("avx2,fma")))
#define FP8WIRE_AVX2_INLINE FP8WIRE_AVX2 inline __attribute__((always_inline))
#define FP8WIRE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define FP8WIRE_AVX512_INLINE FP8WIRE_AVX512 inline __attribute__((always_inline))
#endif

// Names the namespace of host code whose instructions follow the build flags: of two builds of one function the linker
// keeps either, and a program whose other file has -mavx2 would run AVX2 where it must not.
#if defined(__FAST_MATH__) && defined(__AVX512F__)
#define FP8WIRE_CG cg_fast_avx512
#elif defined(__FAST_MATH__) && defined(__AVX2__)
#define FP8WIRE_CG cg_fast_avx2
#elif defined(__FAST_MATH__) && defined(__AVX__)
#define FP8WIRE_CG cg_fast_avx
#elif defined(__FAST_MATH__)
#define FP8WIRE_CG cg_fast
#elif defined(__AVX512F__)
#define FP8WIRE_CG cg_avx512
#elif defined(__AVX2__)
#define FP8WIRE_CG cg_avx2
#elif defined(__AVX__)
#define FP8WIRE_CG cg_avx
#else
#define FP8WIRE_CG cg_plain
#endif

#endif
