// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <fp8wire/layout/swizzle.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/model/tagged.hpp>

using namespace fp8wire;

namespace {

std::vector<u8> ramp(i64 rows, i64 cols) {
  std::vector<u8> bytes;
  for (i64 m = 0; m < rows; ++m)
    for (i64 k = 0; k < cols; ++k) bytes.push_back(static_cast<u8>(7 * m + 13 * k + 1));
  return bytes;
}

}  // namespace

TEST_CASE("a tagged buffer is handed only to who reads its layout") {
  std::vector<u8> bytes = ramp(128, 4);
  const tagged<u8> canonical = tag(laid_out<row_major, u8>{bytes.data(), 1, 128, 4});
  CHECK(untag<row_major>(canonical, "w").ok());
  const auto wrong = untag<swizzle_128x4>(canonical, "layers.0.w");
  REQUIRE(!wrong.ok());
  CHECK(wrong.error().code == errc::format_mismatch);
  CHECK(wrong.error().message() == "C6 layers.0.w: is laid out as row-major, its reader expects swizzle-128x4");
}

TEST_CASE("swizzling what is swizzled is refused, finalizing it again changes nothing") {
  std::vector<u8> bytes = ramp(128, 4), scratch(512);
  tagged<u8> buffer = tag(laid_out<row_major, u8>{bytes.data(), 1, 128, 4});
  REQUIRE(!finalize<swizzle_128x4>(buffer, scratch.data(), "w"));
  CHECK(buffer.layout_id == "swizzle-128x4");
  const std::vector<u8> once = bytes;
  CHECK(once != ramp(128, 4));
  CHECK(!finalize<swizzle_128x4>(buffer, scratch.data(), "w"));
  CHECK(bytes == once);
  CHECK(untag<row_major>(buffer, "w").error().code == errc::format_mismatch);  // no second swizzle by hand either
  const error other = finalize<trtllm_mxfp8_codes>(buffer, scratch.data(), "w");
  CHECK(other.code == errc::format_mismatch);
  CHECK(bytes == once);
  CHECK(buffer.layout_id == "swizzle-128x4");
}

TEST_CASE("a shape that the layout does not take leaves buffer and tag alone") {
  std::vector<u8> bytes = ramp(100, 4), scratch(400);
  const std::vector<u8> before = bytes;
  tagged<u8> buffer = tag(laid_out<row_major, u8>{bytes.data(), 1, 100, 4});
  const error padded = finalize<swizzle_128x4>(buffer, scratch.data(), "w");
  CHECK(padded.message() == "C5 w: its layout needs padding and no room is there; elements: got 512, expected 400");
  const error ragged = finalize<trtllm_mxfp8_codes>(buffer, scratch.data(), "w");
  CHECK(ragged.message() == "C5 w: rows are not a multiple of the shuffle block: got 100, expected 128");
  CHECK(bytes == before);
  CHECK(buffer.layout_id == "row-major");
}
