// SPDX-License-Identifier: Apache-2.0
#include "update_format_rows.hpp"

std::vector<programs::update_format> programs::update_formats_3() { return make_update_formats<3, 4>(); }
