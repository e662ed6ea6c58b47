// SPDX-License-Identifier: Apache-2.0
#include "any_sender.hpp"

#include <fp8wire/layout/row_major.hpp>
#include <fp8wire/quant/presets/all.hpp>

#include "../common/program.hpp"
#include "typed_sender.hpp"

namespace programs {

fp8wire::encoding_entry encoding_of(const quantizer& row, float amax_floor) {
  const std::string_view layout = chosen_layout == "canonical" ? fp8wire::row_major::id : chosen_layout;
  std::string text = fmt::format("{};codes={};scales={};naming={}", row.grid_text(amax_floor, chosen_via_bf16), layout,
                                 layout, chosen_naming.id);
  const fp8wire::u64 id = fp8wire::hash(text);
  return {id, row.grid_id(amax_floor, chosen_via_bf16), std::move(text), std::string(row.name)};
}

std::unique_ptr<any_sender> make_sender(const sender_setup& setup) {
  std::unique_ptr<any_sender> made;
  fp8wire::presets::for_each([&]<class Preset>() {
    using recipe = typename Preset::recipe;
    const quantizer& row = *setup.row;
    if (made != nullptr || Preset::name != row.name || Preset::scale != row.scale ||
        recipe::element::id != row.element || recipe::block::rows != row.block_rows ||
        recipe::block::cols != row.block_cols)
      return;
    using wire = program_wire<typename recipe::block, fp8wire::stored_t<recipe>>;
    wire::row = &row;
    made = std::make_unique<typed_sender<wire>>(setup);
  });
  if (made == nullptr) refuse("{}: no sender for this preset", setup.row->name);
  return made;
}

}  // namespace programs
