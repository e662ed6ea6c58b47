// SPDX-License-Identifier: Apache-2.0
#include "quantizer_rows.hpp"
std::vector<programs::numbered_row> programs::rows_1() { return make_rows<1, 4>(); }
