// SPDX-License-Identifier: Apache-2.0
/// One safetensors file becomes another: planned from its header, then filled in one pass over its tensors.
#ifndef FP8WIRE_EXAMPLES_CONVERT_SHARD_HPP
#define FP8WIRE_EXAMPLES_CONVERT_SHARD_HPP
#include <set>
#include <string>
#include <vector>

#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

#include "../common/measure.hpp"
#include "../common/options.hpp"
#include "../common/progress.hpp"
#include "../common/selection.hpp"
#include "../common/workers.hpp"

namespace programs {

/// What happens to one tensor. Places are in the file's bytes.
struct tensor_plan {
  fp8wire::tensor_spec in;
  decision choice;
  fp8wire::matrix_extents extents;      // of a quantized tensor
  fp8wire::i64 in_at = 0, in_bytes = 0;
  fp8wire::i64 out_at = 0, out_bytes = 0;        // the codes, or the copy
  fp8wire::i64 scales_at = 0, scales_bytes = 0;  // none unless quantized
  deviation measured;
};

/// What happens to one file.
struct shard_plan {
  std::string input, name;  // the path, and the name under which it is written
  fp8wire::safetensors_layout out;
  std::vector<tensor_plan> tensors;  // in the order of the input's bytes
  fp8wire::i64 in_bytes = 0, out_bytes = 0;
};

/// How the tensors are made.
struct conversion {
  format how;
  bool measure = false;
  workers* threads = nullptr;
};

/// Decides where everything goes; touches no tensor bytes. Refuses shapes that the preset cannot take.
/// `listed`, where an index gives it, names the tensors that are this file's: others in it are nobody's and left out.
shard_plan plan_shard(const std::string& input, const std::string& name, const selection& select, const format& how,
                      const std::set<std::string>* listed = nullptr);

/// Makes the file at `path`, which must not exist. Refuses NaN and Inf unless told otherwise.
void write_shard(shard_plan& shard, const std::string& path, const conversion& how, progress& bar);

/// Reads `path` back and compares every byte with the input and the scalar reference.
void verify_shard(const shard_plan& shard, const std::string& path, const conversion& how, progress& bar);

}  // namespace programs
#endif
