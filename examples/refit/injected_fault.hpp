// SPDX-License-Identifier: Apache-2.0
/// The one fault that --fault puts into an update.
#ifndef FP8WIRE_EXAMPLES_REFIT_INJECTED_FAULT_HPP
#define FP8WIRE_EXAMPLES_REFIT_INJECTED_FAULT_HPP
#include <string>

#include <fp8wire/testing/fault_kinds.hpp>

namespace programs {

/// `on`: --fault was given, and engines check their live state; "none" does that and nothing else.
struct injected_fault {
  fp8wire::testing::fault kind = fp8wire::testing::fault::none;
  fp8wire::u64 round = 2;  // faults of the handshake come before the first
  bool on = false;
  bool due(fp8wire::u64 version) const noexcept { return on && version == round; }
};

/// KIND[@ROUND]; wrong usage where there is no such fault or round.
injected_fault parse_fault(const std::string& text, int rounds);
/// --list-faults: name, condition, who makes the mistake, what it is.
std::string fault_list();

}  // namespace programs
#endif
