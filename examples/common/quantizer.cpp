// SPDX-License-Identifier: Apache-2.0
#include "quantizer.hpp"

#include <algorithm>

#include "quantizer_rows.hpp"

namespace programs {

std::span<const quantizer> quantizers() {
  static const std::vector<quantizer> table = [] {
    std::vector<numbered_row> rows;
    for (const auto part : {microscaling_rows, multiplied_rows, divided_rows})
      for (const numbered_row& row : part()) rows.push_back(row);
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    std::vector<quantizer> sorted;
    for (const numbered_row& row : rows) sorted.push_back(row.row);
    return sorted;
  }();
  return table;
}

const quantizer* find_quantizer(std::string_view name, std::string_view scale, std::string_view element,
                                std::string_view block) {
  const quantizer* found = nullptr;
  fp8wire::presets::visit({name, scale, element, block}, [&]<class Preset>() {
    for (const quantizer& row : quantizers())
      if (found == nullptr && row.name == Preset::name && row.scale == Preset::scale &&
          row.element == Preset::recipe::element::id &&
          row.block == fp8wire::block_name<typename Preset::recipe::block>())
        found = &row;
  });
  return found;
}

}  // namespace programs
