// SPDX-License-Identifier: Apache-2.0
// The fastest streaming kernels with a given mix of reads and writes: what memory allows, to be measured beside each
// row.
#pragma once
#include <cstdint>
#include <cstring>
#include <fp8wire/quant/host/isa.hpp>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {

using fp8wire::i64;
using fp8wire::u8;

/// What moves past the core: bytes read and bytes written, a chunk of `read` bytes for every 64 written.
enum class mix { two_to_one, four_to_one, one_to_two, one_to_four, three_to_one_and_bits };

/// How the stores are made and whether software looks ahead; which one is fastest depends on the processor.
enum class manner { streamed, streamed_ahead, plain, plain_ahead };
inline constexpr manner manners[] = {manner::streamed, manner::streamed_ahead, manner::plain, manner::plain_ahead};

#if defined(__x86_64__)

template <manner How> __attribute__((target("avx2"))) inline void put(u8* to, __m256i value) {
  if constexpr (How == manner::streamed || How == manner::streamed_ahead)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
  else _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}
__attribute__((target("avx2"))) inline __m256i get(const u8* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
template <manner How> inline void look(const u8* at) {
  if constexpr (How == manner::streamed_ahead || How == manner::plain_ahead) __builtin_prefetch(at + 4096);
}

/// Streams `count` elements: `in` and `before` are read, `out` and `bits` written, as the mix says.
template <mix Mix, manner How>
__attribute__((target("avx2"), noinline)) void stream(const u8* in, const u8* before, u8* out, u8* bits, i64 count) {
  if constexpr (Mix == mix::two_to_one) {
    for (i64 i = 0; i < count; i += 32) {
      look<How>(in + 2 * i);
      put<How>(out + i, _mm256_packus_epi16(get(in + 2 * i), get(in + 2 * i + 32)));
    }
  } else if constexpr (Mix == mix::four_to_one) {
    for (i64 i = 0; i < count; i += 32) {
      const u8* p = in + 4 * i;
      look<How>(p), look<How>(p + 64);
      put<How>(out + i, _mm256_packus_epi16(_mm256_packus_epi32(get(p), get(p + 32)),
                                            _mm256_packus_epi32(get(p + 64), get(p + 96))));
    }
  } else if constexpr (Mix == mix::one_to_two) {
    for (i64 i = 0; i < count; i += 32) {
      look<How>(in + i);
      const __m256i v = get(in + i);
      put<How>(out + 2 * i, _mm256_unpacklo_epi8(v, v)), put<How>(out + 2 * i + 32, _mm256_unpackhi_epi8(v, v));
    }
  } else if constexpr (Mix == mix::one_to_four) {
    for (i64 i = 0; i < count; i += 32) {
      look<How>(in + i);
      const __m256i v = get(in + i);
      for (int part = 0; part < 4; ++part) put<How>(out + 4 * i + 32 * part, v);
    }
  } else {
    for (i64 i = 0; i < count; i += 32) {
      look<How>(in + 2 * i), look<How>(before + i);
      const __m256i v = _mm256_packus_epi16(get(in + 2 * i), get(in + 2 * i + 32));
      const int same = _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, get(before + i)));
      std::memcpy(bits + i / 8, &same, 4);
      put<How>(out + i, v);
    }
  }
  _mm_sfence();
}

#else

template <mix Mix, manner How> void stream(const u8* in, const u8* before, u8* out, u8* bits, i64 count) {
  const i64 read = Mix == mix::four_to_one ? 4 : Mix == mix::two_to_one || Mix == mix::three_to_one_and_bits ? 2 : 1;
  const i64 written = Mix == mix::one_to_two ? 2 : Mix == mix::one_to_four ? 4 : 1;
  for (i64 i = 0; i < count; i += 64) {
    for (i64 part = 0; part < read || part < written; ++part)
      std::memcpy(out + i * written + 64 * (part % written), in + i * read + 64 * (part % read), 64);
    if (Mix == mix::three_to_one_and_bits) bits[i / 8] = before[i];
  }
}

#endif

/// Bytes that cross the memory bus for one element.
constexpr double bytes_per_element(mix which) {
  switch (which) {
    case mix::two_to_one: return 3;
    case mix::four_to_one: return 5;
    case mix::one_to_two: return 3;
    case mix::one_to_four: return 5;
    default: return 4.125;
  }
}

}  // namespace bench
