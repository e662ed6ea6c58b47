// SPDX-License-Identifier: Apache-2.0
/// The layer audit of a folder: its tensors, what config.json tells an engine, and the rules of the model's family.
#ifndef FP8WIRE_EXAMPLES_INSPECT_AUDIT_HPP
#define FP8WIRE_EXAMPLES_INSPECT_AUDIT_HPP
#include <string>
#include <vector>

#include <fp8wire/core/error.hpp>
#include <fp8wire/io/checkpoint.hpp>

namespace programs {

/// What the three sides say of each engine parameter.
struct audit_report {
  std::string family;                        // whose rules; empty where there was no audit
  std::string skipped;                       // why there was none; empty where there was one
  fp8wire::u64 parameters = 0, in_fp8 = 0;   // of the engine, fused ones counted once
  std::vector<fp8wire::error> disagreements;  // sorted by parameter
};

/// Audits a folder whose config.json has a quantization_config and a model_type that a family is known for.
///
/// An engine builds in FP8 what the family's rules name, less what config.json ignores. A weight that config.json
/// ignores and that is no FP8 was left out on purpose: the rules are not held against it.
audit_report audit_checkpoint(const fp8wire::checkpoint& from);

}  // namespace programs
#endif
