// SPDX-License-Identifier: Apache-2.0
// Every preset by every vector body against the definition, byte for byte.
#include <fp8wire/quant/presets/all.hpp>

#include "host_tensors.hpp"

using namespace fp8wire;
using namespace host_tensors;

TEST_CASE("every body makes the definition's bytes for every preset") {
  presets::for_each([]<class Preset>() {
    CAPTURE(Preset::name);
    CAPTURE(Preset::scale);
    using recipe = typename Preset::recipe;
    all_patterns<recipe, bf16>({{1, 130, 300}, {2, 16, 256, 32, 64}});
  });
}
