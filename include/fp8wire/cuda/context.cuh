// SPDX-License-Identifier: Apache-2.0
/// A thread of a CUDA block as the context of a kernel body: the only place that names instructions.
///
/// Inline PTX is where a compiler flag could change bytes (-use_fast_math rewrites products and conversions written in
/// C++) or where a vector access must stay one. What an architecture lacks has a software twin with the same bytes.
#ifndef FP8WIRE_CUDA_CONTEXT_CUH
#define FP8WIRE_CUDA_CONTEXT_CUH
#include <fp8wire/quant/kernel/element.hpp>

FP8WIRE_ABI_BEGIN
namespace cuda {

/// What the architecture being compiled has. On the host: nothing, since no body is run there.
#if defined(__CUDA_ARCH__)
inline constexpr int arch = __CUDA_ARCH__;
#else
inline constexpr int arch = 0;
#endif
inline constexpr bool has_fp8_conversions = arch >= 890;
inline constexpr bool has_packed_max = arch >= 900;
inline constexpr bool has_pairs_of_floats = arch >= 1000 && arch < 1200;
inline constexpr bool has_wide_loads = arch >= 1000 && arch < 1200;
inline constexpr bool has_bulk_copies = arch >= 900;

/// The context of one thread. One dimension of threads, one of blocks.
struct context {
  static constexpr int vector_bytes = has_wide_loads ? 32 : 16;
  static constexpr bool bulk_copies = has_bulk_copies;

  FP8WIRE_BODY int thread() const { return static_cast<int>(threadIdx.x); }
  FP8WIRE_BODY i64 block() const { return static_cast<i64>(blockIdx.x); }
  FP8WIRE_BODY i64 blocks() const { return static_cast<i64>(gridDim.x); }
  FP8WIRE_BODY void sync() const { __syncthreads(); }
  FP8WIRE_BODY bool sync_or(bool yes) const { return __syncthreads_or(yes ? 1 : 0) != 0; }
  FP8WIRE_BODY u32 warp_max(u32 value) const { return __reduce_max_sync(0xFFFFFFFFu, value); }
  FP8WIRE_BODY int warp_count(bool yes) const { return __popc(__ballot_sync(0xFFFFFFFFu, yes ? 1 : 0)); }
  FP8WIRE_BODY u64 from_lane(u64 value, int lane) const {
    return __shfl_sync(0xFFFFFFFFu, static_cast<unsigned long long>(value), lane);
  }

  template <class Value> FP8WIRE_BODY Value load(const Value* at) const { return *at; }
  FP8WIRE_BODY kernel::words<4> load(const kernel::words<4>* at) const {
    kernel::words<4> made;
    asm volatile("ld.global.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(made.at[0]), "=r"(made.at[1]), "=r"(made.at[2]), "=r"(made.at[3])
                 : "l"(__cvta_generic_to_global(at)));
    return made;
  }
  FP8WIRE_BODY kernel::words<8> load(const kernel::words<8>* at) const {
    kernel::words<8> made;
    asm volatile("ld.global.v8.b32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
                 : "=r"(made.at[0]), "=r"(made.at[1]), "=r"(made.at[2]), "=r"(made.at[3]), "=r"(made.at[4]),
                   "=r"(made.at[5]), "=r"(made.at[6]), "=r"(made.at[7])
                 : "l"(__cvta_generic_to_global(at)));
    return made;
  }
  template <class Value> FP8WIRE_BODY void store(Value* at, const Value& value) const { *at = value; }
  FP8WIRE_BODY void store(u64* at, u64 value) const {
    asm volatile("st.global.b64 [%0], %1;" : : "l"(__cvta_generic_to_global(at)), "l"(value) : "memory");
  }
  FP8WIRE_BODY void store(kernel::words<4>* at, const kernel::words<4>& value) const {
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};"
                 :
                 : "l"(__cvta_generic_to_global(at)), "r"(value.at[0]), "r"(value.at[1]), "r"(value.at[2]),
                   "r"(value.at[3])
                 : "memory");
  }
  template <class Value> FP8WIRE_BODY Value read(const Value* at) const { return *at; }
  template <class Value> FP8WIRE_BODY void write(Value* at, const Value& value) const { *at = value; }

  FP8WIRE_BODY void shared_max(u32* at, u32 value) const { atomicMax(at, value); }
  FP8WIRE_BODY void global_max(u32* at, u32 value) const { atomicMax(at, value); }
  FP8WIRE_BODY void global_min(u64* at, u64 value) const {
    atomicMin(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
  }
  FP8WIRE_BODY void global_add(u64* at, u64 value) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
  }

  // Bulk copies, from sm_90 on. They reach shared memory by a way of their own, and see what threads wrote there after
  // a fence only: barriers too.
  FP8WIRE_BODY void arm(u64* barrier) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barrier)) : "memory");
    show();
  }
  FP8WIRE_BODY void fetch(void* to, const void* from, int bytes, u64* barrier) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(barrier))
                 : "memory");
  }
  FP8WIRE_BODY void wait(u64* barrier, u32 parity) const {
    u32 there;
    do {
      asm volatile(
          "{.reg .pred p;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
          "selp.b32 %0, 1, 0, p;}"
          : "=r"(there)
          : "r"(shared_address(barrier)), "r"(parity)
          : "memory");
    } while (there == 0);
  }
  FP8WIRE_BODY void show() const { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
  FP8WIRE_BODY void send(void* to, const void* from, int bytes) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
  }
  FP8WIRE_BODY void sent() const { asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory"); }
  FP8WIRE_BODY void finish() const { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }

  static FP8WIRE_BODY u32 max_halves(u32 a, u32 b) {
    u32 larger;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
#else
    larger = max(a & 0xFFFFu, b & 0xFFFFu) | max(a & 0xFFFF0000u, b & 0xFFFF0000u);
#endif
    return larger;
  }
  static FP8WIRE_BODY void multiply2(float a, float b, float by_a, float by_b, float& first, float& second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
    asm("{.reg .b64 x, y, z;\n\t"
        "mov.b64 x, {%2, %3};\n\t"
        "mov.b64 y, {%4, %5};\n\t"
        "mul.rn.f32x2 z, x, y;\n\t"
        "mov.b64 {%0, %1}, z;}"
        : "=f"(first), "=f"(second)
        : "f"(a), "f"(b), "f"(by_a), "f"(by_b));
#else
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(first) : "f"(a), "f"(by_a));
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(second) : "f"(b), "f"(by_b));
#endif
  }

  static FP8WIRE_BODY float widen(fp16 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return value;
  }
  template <class Element> static FP8WIRE_BODY u32 convert2(float low, float high) {
    static_assert(kernel::converts_finite<Element>);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 codes;
    if constexpr (same_for_finite<Element, e4m3>)
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
#else
    return Element::encode(low) | static_cast<u32>(Element::encode(high)) << 8;
#endif
  }
  /// The values of two codes. NaN becomes some NaN.
  template <class Element> static FP8WIRE_BODY void values2(u32 codes, float& low, float& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (Element::shape.kind != specials::fnuz) {
      // Both formats fit FP16 exactly.
      u32 halves;
      if constexpr (Element::shape.kind == specials::fn)
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(codes)));
      else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(codes)));
      asm("{.reg .b16 a, b;\n\t"
          "mov.b32 {a, b}, %2;\n\t"
          "cvt.f32.f16 %0, a;\n\t"
          "cvt.f32.f16 %1, b;}"
          : "=f"(low), "=f"(high)
          : "r"(halves));
      return;
    }
#endif
    low = Element::decode(static_cast<u8>(codes));
    high = Element::decode(static_cast<u8>(codes >> 8));
  }

 private:
  static FP8WIRE_BODY u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }
};

static_assert(kernel::bulk_context<context>);

}  // namespace cuda
FP8WIRE_ABI_END
#endif
