// SPDX-License-Identifier: Apache-2.0
#include <all_headers.hpp>  // generated: every header that needs the standard library only

#include <cstddef>
#include <type_traits>
#include <vector>

/// Sizes of what crosses the boundary of a translation unit.
inline std::vector<std::size_t> facts() {
  return {sizeof(fp8wire::error), sizeof(fp8wire::result<int>), sizeof(fp8wire::result<std::vector<int>>),
          sizeof(fp8wire::precondition_error), sizeof(fp8wire::matrix_view<float>), sizeof(fp8wire::slice)};
}

/// The address of one inline function of the library: the same in both, since the linker keeps one of the two copies.
inline const void* raise_address() { return reinterpret_cast<const void*>(&fp8wire::detail::raise); }

/// The ABI tag is an inline namespace: users never spell it.
static_assert(std::is_same_v<fp8wire::v0_1::error, fp8wire::error>);
