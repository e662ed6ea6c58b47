// SPDX-License-Identifier: Apache-2.0
/// A checkpoint becomes another one: planned from headers and config.json, then made in one pass over its tensors.
#ifndef FP8WIRE_EXAMPLES_CONVERT_CONVERSION_HPP
#define FP8WIRE_EXAMPLES_CONVERT_CONVERSION_HPP
#include <string>
#include <vector>

#include <fp8wire/io/checkpoint.hpp>
#include <fp8wire/io/checkpoint_writer.hpp>

#include "../common/measure.hpp"
#include "../common/options.hpp"
#include "../common/progress.hpp"
#include "../common/selection.hpp"
#include "../common/workers.hpp"

namespace programs {

/// What happens to one tensor.
struct tensor_plan {
  const fp8wire::checkpoint_tensor* in = nullptr;
  fp8wire::decision choice;
  fp8wire::matrix_extents extents;  // of a quantized tensor
  std::string scale_name;           // empty unless quantized
  fp8wire::i64 bytes_out = 0;       // codes and scales, or the copy
  deviation measured;
};

/// Everything that will be done, decided before the first byte is written.
struct conversion_plan {
  fp8wire::checkpoint input;
  format how;
  selection select;
  std::vector<tensor_plan> tensors;  // in the order of the input's bytes
  std::vector<fp8wire::shard_spec> shards;
  fp8wire::json::value config;         // of the output; null where there is none
  fp8wire::json::value modelopt_file;  // hf_quant_config.json beside it; null for other engines
  fp8wire::i64 bytes_in = 0, bytes_out = 0;
};

/// Refuses what cannot be converted, with a hint where there is one.
conversion_plan plan_conversion(const std::string& input, const std::string& output, const format_options& options);

/// Fills the output. Refuses NaN and Inf unless told otherwise.
void fill(conversion_plan& plan, const fp8wire::checkpoint_writer& output, bool measure_errors, workers& threads);

/// Reads what lies at `path` back and compares every byte with the input and the scalar reference.
void verify(const conversion_plan& plan, const std::string& path, workers& threads);

/// What was done and how to serve it, in one line.
std::string closing_line(const conversion_plan& plan, const std::string& output, bool verified, double seconds);

}  // namespace programs
#endif
