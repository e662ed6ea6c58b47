// SPDX-License-Identifier: Apache-2.0
/// A file or a whole Hugging Face folder: its shards, what else is copied, and what config.json says afterwards.
#ifndef FP8WIRE_EXAMPLES_CONVERT_FOLDER_HPP
#define FP8WIRE_EXAMPLES_CONVERT_FOLDER_HPP
#include <string>
#include <vector>

#include <fp8wire/io/json.hpp>

#include "shard.hpp"

namespace programs {

/// Everything that will be done, decided from headers and config.json before the first byte is written.
struct conversion_plan {
  bool folder = false;
  std::string input;
  selection select;
  std::vector<shard_plan> shards;
  std::vector<std::string> other_files;  // relative to the folder
  fp8wire::json::value config;           // of the output; null where there is none
  bool has_index = false;
  fp8wire::json::value index_metadata;   // of the input's index

  fp8wire::i64 in_bytes() const;
  fp8wire::i64 out_bytes() const;
};

/// Refuses what cannot be converted, with a hint where there is one.
conversion_plan plan_conversion(const std::string& input, const std::string& output, const format_options& options,
                                const format& how);

/// Makes the output at `path`: a file that does not exist, or an empty folder.
void run_conversion(conversion_plan& plan, const std::string& path, const conversion& how, bool verify);

/// What was done and how to serve it, in one line.
std::string closing_line(const conversion_plan& plan, const format& how, const std::string& output, bool verified,
                         double seconds);

}  // namespace programs
#endif
