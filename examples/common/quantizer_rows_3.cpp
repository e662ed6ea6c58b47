// SPDX-License-Identifier: Apache-2.0
#include "quantizer_rows.hpp"
std::vector<programs::numbered_row> programs::rows_3() { return make_rows<3, 4>(); }
