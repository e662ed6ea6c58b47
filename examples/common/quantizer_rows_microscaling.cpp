// SPDX-License-Identifier: Apache-2.0
#include "quantizer_rows.hpp"
std::vector<programs::numbered_row> programs::microscaling_rows() { return make_rows<row_group::microscaling>(); }
