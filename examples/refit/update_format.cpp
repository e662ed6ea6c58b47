// SPDX-License-Identifier: Apache-2.0
#include "update_format.hpp"

#include "../common/program.hpp"
#include "update_format_rows.hpp"

const programs::update_format& programs::update_format_of(const quantizer& row) {
  static const std::vector<update_format> all = [] {
    std::vector<update_format> joined;
    for (const auto& part : {update_formats_0(), update_formats_1(), update_formats_2(), update_formats_3()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  for (const update_format& one : all)
    if (one.name == row.name && one.scale == row.scale && one.element == row.element &&
        one.block_rows == row.block_rows && one.block_cols == row.block_cols)
      return one;
  refuse("{}: no update format for this preset", row.name);
}
