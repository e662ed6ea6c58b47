// SPDX-License-Identifier: Apache-2.0
#include "update_format_rows.hpp"

std::vector<programs::update_format> programs::update_formats_1() { return make_update_formats<1, 4>(); }
