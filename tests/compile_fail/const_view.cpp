// SPDX-License-Identifier: Apache-2.0
// A read-only view never becomes a writable one.
// EXPECT-gcc: could not convert 'view' from 'matrix_view<const float>' to 'matrix_view<float>'
// EXPECT-clang: no viable conversion
#include <fp8wire/core/matrix_view.hpp>

fp8wire::matrix_view<float> writable(fp8wire::matrix_view<const float> view);
#ifdef FIXED
fp8wire::matrix_view<const float> read_only(fp8wire::matrix_view<float> view) { return view; }
#else
fp8wire::matrix_view<float> writable(fp8wire::matrix_view<const float> view) { return view; }
#endif
