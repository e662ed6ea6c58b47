// SPDX-License-Identifier: Apache-2.0
// One of two translation units that include every header and are built with different flags. That they link shows that
// no header defines a plain function or variable; that they agree shows that no public type depends on the flags.
#include "facts.hpp"

std::vector<std::size_t> facts_of_one() { return facts(); }
const void* function_of_one() { return raise_address(); }
