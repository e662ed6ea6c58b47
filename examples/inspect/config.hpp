// SPDX-License-Identifier: Apache-2.0
/// --check-config and --align: what a training run's configuration breaks, and how far its tools pad sequences.
#ifndef FP8WIRE_EXAMPLES_INSPECT_CONFIG_HPP
#define FP8WIRE_EXAMPLES_INSPECT_CONFIG_HPP
#include <string>
#include <vector>

namespace programs {

/// Prints every violation of the configuration in a JSON file, and what to set in the environment where there is none.
/// `report`: a file for the same as JSON, "-" for standard output instead, or empty. Returns the exit code.
int check_config(const std::string& path, const std::string& report);

/// words: TOOL,RECIPE,TP,CP and lengths. Prints padded lengths and where the sequences of a pack begin.
int align(const std::vector<std::string>& words, const std::string& report);

}  // namespace programs
#endif
