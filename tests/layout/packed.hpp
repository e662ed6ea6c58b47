// SPDX-License-Identifier: Apache-2.0
// Canonical bytes in a layout, over old bytes that must not survive.
#pragma once
#include "oracle.hpp"

#include <fp8wire/layout/relayout.hpp>

template <class Layout>
oracle::bytes packed(const oracle::bytes& in, fp8wire::i64 rows, fp8wire::i64 cols, fp8wire::i64 batch = 1) {
  using namespace fp8wire;
  oracle::bytes out(static_cast<std::size_t>(typename Layout::mapping{batch, rows, cols}.size()), 0xAA);
  relayout(laid_out<row_major, const u8>{in.data(), batch, rows, cols},
           laid_out<Layout, u8>{out.data(), batch, rows, cols});
  return out;
}
