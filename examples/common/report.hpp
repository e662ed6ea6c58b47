// SPDX-License-Identifier: Apache-2.0
/// Where reports go: a file or standard output, and what measured errors look like in them.
#ifndef FP8WIRE_EXAMPLES_REPORT_HPP
#define FP8WIRE_EXAMPLES_REPORT_HPP
#include <string>

#include <fp8wire/io/json.hpp>
#include <fp8wire/model/tensor_spec.hpp>

#include "measure.hpp"

namespace programs {

namespace json = fp8wire::json;

inline json::value shape_json(const std::vector<fp8wire::i64>& shape) {
  json::value list = json::value::array();
  for (const fp8wire::i64 extent : shape) list.push_back(extent);
  return list;
}

/// Errors of a tensor or of all; "sqnr_db" is null where nothing was lost or nothing was there.
inline void add_deviation(json::value& to, const deviation& measured) {
  to["blocks"] = measured.blocks;
  to["zero_blocks"] = measured.zero_blocks;
  to["saturated"] = measured.saturated;
  to["nonfinite"] = measured.nonfinite;
  to["max_abs_error"] = measured.largest;
  to["mse"] = measured.mse();
  to["sqnr_db"] = measured.sqnr_db();
}

/// "1.5 GiB".
inline std::string size_text(fp8wire::i64 bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(units)) size /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, units[unit]);
}

}  // namespace programs
#endif
