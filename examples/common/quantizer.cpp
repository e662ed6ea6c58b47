// SPDX-License-Identifier: Apache-2.0
#include "quantizer.hpp"

#include <algorithm>

#include "quantizer_rows.hpp"

namespace programs {

std::span<const quantizer> quantizers() {
  static const std::vector<quantizer> table = [] {
    std::vector<numbered_row> rows;
    for (const auto part : {rows_0, rows_1, rows_2, rows_3})
      for (const numbered_row& row : part()) rows.push_back(row);
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    std::vector<quantizer> sorted;
    for (const numbered_row& row : rows) sorted.push_back(row.row);
    return sorted;
  }();
  return table;
}

const quantizer* find_quantizer(std::string_view name, std::string_view scale, bool via_bf16) {
  for (const quantizer& row : quantizers())
    if (row.name == name && (scale.empty() || row.scale == scale) && row.via_bf16 == via_bf16) return &row;
  return nullptr;
}

}  // namespace programs
