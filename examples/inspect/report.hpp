// SPDX-License-Identifier: Apache-2.0
/// What was found, as JSON, as text and as a page.
#ifndef FP8WIRE_EXAMPLES_INSPECT_REPORT_HPP
#define FP8WIRE_EXAMPLES_INSPECT_REPORT_HPP
#include <string>
#include <vector>

#include <fp8wire/io/json.hpp>

#include "compare.hpp"
#include "pairs.hpp"

namespace programs {

fp8wire::json::value report_of(const std::string& path, const std::string& original, const fp8wire::checkpoint& from,
                               const inspection& found, const std::vector<pair_error>& errors);
fp8wire::json::value report_of(const std::string& a, const std::string& b, const comparison& found);

std::string text_of(const inspection& found, const std::vector<pair_error>& errors);
std::string text_of(const comparison& found);

/// One HTML file that holds the report and draws it; nothing is fetched from anywhere.
std::string page_of(const fp8wire::json::value& report);

}  // namespace programs
#endif
