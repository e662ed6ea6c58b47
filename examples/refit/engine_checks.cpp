// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <fp8wire/format/e5m2.hpp>
#include <fp8wire/format/fnuz.hpp>
#include <fp8wire/layout/padded.hpp>
#include <fp8wire/layout/trtllm.hpp>
#include <fp8wire/wire/conditions/derived_state.hpp>
#include <fp8wire/wire/conditions/geometry.hpp>
#include <fp8wire/wire/conditions/other_state.hpp>
#include <fp8wire/wire/conditions/self_check.hpp>

#include "faults.hpp"

namespace programs {
namespace {

namespace fw = fp8wire;
using fw::i64;
using fw::u8;
using fw::testing::fault;
using shuffled = fw::mapped_rows<fw::row_major, fw::shuffle_rows<16>>;

float element_at(fw::dtype type, u8 code) noexcept {
  switch (type) {
    case fw::dtype::f8_e5m2: return fw::e5m2::decode(code);
    case fw::dtype::f8_e4m3fnuz: return fw::e4m3fnuz::decode(code);
    case fw::dtype::f8_e5m2fnuz: return fw::e5m2fnuz::decode(code);
    default: return fw::e4m3::decode(code);
  }
}

float scale_at(fw::dtype type, const std::byte* at) noexcept {
  fw::u32 bits = 0;
  switch (type) {
    case fw::dtype::f32: std::memcpy(&bits, at, 4); return fw::float_of(bits);
    case fw::dtype::bf16: std::memcpy(&bits, at, 2); return fw::float_of(bits << 16);
    default: return fw::to_float(fw::e8m0{static_cast<u8>(*at)});
  }
}

// Elements of a scale as bytes that move.
template <std::size_t Size> struct word {
  std::byte bytes[Size];
};

// One pair of the update, as an engine has it.
struct kernel_pair {
  std::string name;
  fw::u32 item = 0, entry = 0, unit = 0;
  fw::dtype element{}, scale{};
  fw::matrix_extents extents, grid;
  i64 block_rows = 0, block_cols = 0;
  std::vector<std::byte> codes, scales, kernel_codes, kernel_scales;
  fw::u32 code_number = 0, scale_number = 0;

  std::size_t width() const noexcept { return static_cast<std::size_t>(fw::bit_width(scale)) / 8; }
  bool shuffles() const noexcept { return extents.rows % 16 == 0; }
  template <class Layout, class Value> fw::laid_out<Layout, Value> of_codes(Value* data) const noexcept {
    return {data, extents.batch, extents.rows, extents.cols};
  }
  // Calls see.operator()<Word>() for the scales' width.
  template <class See> auto with_word(const See& see) const {
    return width() == 4   ? see.template operator()<word<4>>()
           : width() == 2 ? see.template operator()<word<2>>()
                          : see.template operator()<word<1>>();
  }
  template <class Word, class Layout, class Byte> auto of_scales(Byte* data) const noexcept {
    using value = std::conditional_t<std::is_const_v<Byte>, const Word, Word>;
    return fw::laid_out<Layout, value>{reinterpret_cast<value*>(data), grid.batch, grid.rows, grid.cols};
  }
  i64 scale_index(i64 b, i64 row, i64 col) const noexcept {
    return (b * grid.rows + row / block_rows) * grid.cols + col / block_cols;
  }
  float value(const std::vector<std::byte>& all_codes, const std::vector<std::byte>& all_scales, i64 b, i64 row,
              i64 col) const {
    const std::size_t at = static_cast<std::size_t>((b * extents.rows + row) * extents.cols + col);
    const std::size_t block = static_cast<std::size_t>(scale_index(b, row, col)) * width();
    return fw::ieee::mul(element_at(element, static_cast<u8>(all_codes[at])),
                         scale_at(scale, all_scales.data() + block));
  }
  // Where the kernel finds the element.
  float live(i64 b, i64 row, i64 col) const {
    const i64 code = shuffles() ? of_codes<shuffled>(kernel_codes.data()).mapping().offset({b, row, col})
                                : of_codes<fw::row_major>(kernel_codes.data()).mapping().offset({b, row, col});
    const i64 block =
        fw::col_major<>::mapping{grid.batch, grid.rows, grid.cols}.offset({b, row / block_rows, col / block_cols});
    return fw::ieee::mul(element_at(element, static_cast<u8>(kernel_codes[static_cast<std::size_t>(code)])),
                         scale_at(scale, kernel_scales.data() + static_cast<std::size_t>(block) * width()));
  }
};

// "block=128x128" of an encoding's text; 0 covers the matrix.
i64 block_extent(std::string_view text, int axis, i64 whole) {
  std::size_t at = text.find(";block=");
  if (at == text.npos) return whole;
  at += 7;
  if (axis == 1) at = text.find('x', at) + 1;
  i64 extent = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') extent = 10 * extent + (text[at++] - '0');
  return extent == 0 ? (whole > 0 ? whole : 1) : extent;
}

}  // namespace

struct engine_checks::state {
  const fw::manifest& tensors;
  const fw::plan& wire;
  fault_session& session;
  std::vector<std::vector<std::byte>> loaded;  // one an entry
  std::vector<kernel_pair> pairs;
  fw::derived_state book;
  float rotary[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  fw::u64 rotary_sum = fw::checksum(rotary, sizeof(rotary));

  // The first pair for which `fits` holds; whoever asks is about to break it.
  template <class Fits> kernel_pair* victim(fault kind, const Fits& fits) {
    if (!session.due(kind)) return nullptr;
    for (kernel_pair& one : pairs)
      if (fits(one)) return session.injected = true, &one;
    return nullptr;
  }

  void fuse() {
    for (kernel_pair& one : pairs) one.codes = loaded[one.entry], one.scales = loaded[one.entry + 1];
    const auto turn = [&](kernel_pair* one) {
      if (one == nullptr) return;
      const std::size_t width = one->width();
      for (i64 b = 0; b < one->grid.batch; ++b)
        for (i64 row = 0; row < one->grid.rows; ++row)
          for (i64 col = 0; col < one->grid.cols; ++col) {
            const i64 first = b * one->grid.rows * one->grid.cols;
            std::memcpy(
                one->scales.data() + static_cast<std::size_t>(first + row * one->grid.cols + col) * width,
                loaded[one->entry + 1].data() + static_cast<std::size_t>(first + col * one->grid.rows + row) * width,
                width);
          }
    };
    const auto several = [](const kernel_pair& p) { return p.grid.rows > 1 && p.grid.cols > 1; };
    turn(victim(fault::transpose, [&](const auto& p) { return several(p) && p.grid.rows != p.grid.cols; }));
    turn(victim(fault::transpose_square, [&](const auto& p) { return several(p) && p.grid.rows == p.grid.cols; }));
    if (kernel_pair* one = victim(fault::shift_shard, [](const auto& p) { return p.extents.rows > 1; })) {
      const i64 rows = one->extents.rows, shift = rows > 64 ? 64 : rows / 2;
      const std::size_t line = static_cast<std::size_t>(one->extents.cols);
      for (i64 row = 0; row < rows; ++row)
        std::memcpy(one->codes.data() + static_cast<std::size_t>(row) * line,
                    loaded[one->entry].data() + static_cast<std::size_t>((row + shift) % rows) * line, line);
    }
    // Gate and up by name; where there are none, two parts of another parameter that look alike.
    for (const bool named : {true, false}) {
      if (!session.due(fault::swap_gate_up)) break;
      for (std::size_t i = 1; i < pairs.size() && !session.injected; ++i) {
        kernel_pair &gate = pairs[i - 1], &up = pairs[i];
        if (gate.unit != up.unit || gate.extents != up.extents) continue;
        if (named && gate.name.find("gate") == std::string::npos && up.name.find("gate") == std::string::npos) continue;
        session.injected = true;
        std::swap(gate.codes, up.codes);
        std::swap(gate.scales, up.scales);
      }
    }
  }

  fw::error derive(kernel_pair& one) {
    const auto any = [&](const kernel_pair& p) { return &p == &one; };
    const auto shuffles = [&](const kernel_pair& p) { return &p == &one && p.shuffles() && p.extents.cols > 0; };
    if (!session.injected && victim(fault::moved_pointer, any) != nullptr) {
      std::vector<std::byte> elsewhere(one.kernel_codes);
      one.kernel_codes.swap(elsewhere);
    }
    const std::byte* from = one.codes.data();
    std::byte* to = one.kernel_codes.data();
    if (one.shuffles()) fw::relayout(one.of_codes<fw::row_major>(from), one.of_codes<shuffled>(to));
    else fw::relayout(one.of_codes<fw::row_major>(from), one.of_codes<fw::row_major>(to));
    if (fw::error wrong = book.made(one.code_number, to, session.version)) return wrong;
    std::vector<std::byte> scratch(one.codes.size());
    if (!session.injected && victim(fault::double_finalize, shuffles) != nullptr) {
      fw::relayout_in_place<shuffled>(one.of_codes<fw::row_major>(to), scratch.data());
      if (fw::error wrong = book.made(one.code_number, to, session.version)) return wrong;
    }
    if (!session.injected && victim(fault::repack, shuffles) != nullptr)
      fw::relayout_in_place<shuffled>(one.of_codes<fw::row_major>(to), scratch.data());
    if (!session.injected && victim(fault::stale_derived, any) != nullptr) return {};
    one.with_word([&]<class Word>() {
      fw::relayout(one.of_scales<Word, fw::row_major>(static_cast<const std::byte*>(one.scales.data())),
                   one.of_scales<Word, fw::col_major<>>(one.kernel_scales.data()));
    });
    return book.made(one.scale_number, one.kernel_scales.data(), session.version);
  }

  fw::error check(const kernel_pair& one) const {
    const std::byte* const to = one.kernel_codes.data();
    const auto codes = one.of_codes<fw::row_major>(one.codes.data());
    if (fw::error wrong = one.shuffles() ? fw::check_derived(one.name, codes, one.of_codes<shuffled>(to))
                                         : fw::check_derived(one.name, codes, one.of_codes<fw::row_major>(to)))
      return wrong;
    fw::error wrong = one.with_word([&]<class Word>() {
      return fw::check_derived(tensors.entries()[one.entry + 1].name,
                               one.of_scales<Word, fw::row_major>(one.scales.data()),
                               one.of_scales<Word, fw::col_major<>>(one.kernel_scales.data()));
    });
    if (wrong) return wrong;
    return fw::check_geometry(
        one.name, fw::geometry_probes(one.extents, one.block_rows, one.block_cols),
        [&](i64 b, i64 row, i64 col) { return one.value(loaded[one.entry], loaded[one.entry + 1], b, row, col); },
        [&](i64 b, i64 row, i64 col) { return one.live(b, row, col); });
  }

  fw::error multiply(const kernel_pair& one) const {
    if (one.extents.batch == 0) return {};
    const i64 b = static_cast<i64>(session.version) % one.extents.batch;
    return fw::self_check(
        one.name, one.extents.rows, one.extents.cols,
        [&](i64 row, i64 col) { return one.value(loaded[one.entry], loaded[one.entry + 1], b, row, col); },
        [&](std::span<const float> input, std::span<float> output) {
          for (i64 row = 0; row < one.extents.rows; ++row) {
            double sum = 0;
            for (i64 col = 0; col < one.extents.cols; ++col)
              sum += static_cast<double>(one.live(b, row, col)) *
                     static_cast<double>(input[static_cast<std::size_t>(col)]);
            output[static_cast<std::size_t>(row)] = static_cast<float>(sum);
          }
        },
        1e-4f);
  }
};

engine_checks::engine_checks(const fw::manifest& tensors, const fw::plan& wire, fault_session& session)
    : state_(new state{tensors, wire, session, {}, {}, {}}) {
  for (const fw::manifest_entry& entry : tensors.entries())
    state_->loaded.emplace_back(static_cast<std::size_t>(entry.bytes));
  for (fw::u32 i = 0; i < tensors.items().size(); ++i) {
    const fw::manifest_item& item = tensors.items()[i];
    if (item.encoding < 0) continue;
    const std::string_view text = tensors.encodings()[static_cast<std::size_t>(item.encoding)].text;
    if (text.find(";codes=row-major;scales=row-major") == text.npos)
      continue;  // laid out already: kernels read it as it is
    kernel_pair& one = state_->pairs.emplace_back();
    one.name = tensors.entries()[item.first_entry].name;
    one.item = i, one.entry = item.first_entry, one.unit = item.unit;
    one.element = tensors.entries()[item.first_entry].dtype;
    one.scale = tensors.entries()[item.first_entry + 1].dtype;
    one.extents = item.facts.extents;
    one.block_rows = block_extent(text, 0, one.extents.rows);
    one.block_cols = block_extent(text, 1, one.extents.cols);
    one.grid = {one.extents.batch, fw::ceil_div(one.extents.rows, one.block_rows),
                fw::ceil_div(one.extents.cols, one.block_cols)};
    one.kernel_codes.resize(state_->loaded[one.entry].size());
    one.kernel_scales.resize(state_->loaded[one.entry + 1].size());
    one.code_number = state_->book.list(one.name + " (kernel codes)");
    one.scale_number = state_->book.list(one.name + " (kernel scales)");
  }
}

engine_checks::~engine_checks() = default;

void engine_checks::take(fw::u32 piece, std::span<const std::byte> bytes) {
  const fw::plan_piece& where = state_->wire.pieces()[piece];
  if (!bytes.empty()) std::memcpy(state_->loaded[where.entry].data() + where.from, bytes.data(), bytes.size());
}

fw::error engine_checks::judge() {
  state& all = *state_;
  all.fuse();
  fw::error first;
  for (kernel_pair& one : all.pairs)
    if (fw::error wrong = all.derive(one); wrong && !first) first = std::move(wrong);
  if (first) return first;
  if (fw::error wrong = all.book.check(all.session.version)) return wrong;
  if (all.session.due(fault::changed_constant)) all.rotary[3] += 1, all.session.injected = true;
  if (fw::error wrong = fw::check_constant("rotary_emb.inv_freq", std::as_bytes(std::span(all.rotary)), all.rotary_sum))
    return wrong;
  for (const kernel_pair& one : all.pairs)
    if (fw::error wrong = all.check(one)) return wrong;
  const std::vector<fw::u32> products = fw::self_check_items(all.tensors, all.session.version);
  for (const kernel_pair& one : all.pairs)
    for (const fw::u32 item : products)
      if (item == one.item)
        if (fw::error wrong = all.multiply(one)) return wrong;
  all.book.capture();
  const auto* row = fw::testing::row_of(all.session.fault.kind);
  const bool mine = row != nullptr && all.session.due(all.session.fault.kind) && !all.session.injected &&
                    all.session.fault.kind != fault::missed_commit && all.session.fault.kind != fault::unanswered_frame;
  if (!mine) return {};
  return fw::make_error(fw::errc::unsupported, std::string("--fault ").append(row->name),
                        "nothing in this update can take this fault");
}

}  // namespace programs
