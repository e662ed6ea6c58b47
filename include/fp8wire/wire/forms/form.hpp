// SPDX-License-Identifier: Apache-2.0
/// What the wire forms of other frameworks share: rows that describe a buffer, filling it, reading it back.
///
/// A form decides where in a buffer tensors lie and what is said about them. Which tensors go together stays with the
/// plan of this library, so that weight and scale travel together in these forms too; where a framework's own
/// boundaries are wanted, whoever asks for them says that units may be split.
#ifndef FP8WIRE_WIRE_FORMS_FORM_HPP
#define FP8WIRE_WIRE_FORMS_FORM_HPP
#include <span>

#include <fp8wire/wire/placement.hpp>

FP8WIRE_ABI_BEGIN
namespace forms {

/// Whether codes may lie in one buffer and their scales in another: for consumers that finalize once at the end and
/// serve nothing in between.
enum class split_units : u8 { refuse, accept };

/// One tensor of a buffer, as its reader is told.
struct row {
  std::string name;
  fp8wire::dtype dtype{};
  std::vector<i64> shape;
  u64 offset = 0, bytes = 0;
  bool operator==(const row&) const = default;
};

/// "torch.float8_e4m3fn": how torch spells a dtype; empty for those it does not have.
constexpr std::string_view torch_name(dtype type) noexcept {
  switch (type) {
    case dtype::boolean: return "torch.bool";
    case dtype::uint8: return "torch.uint8";
    case dtype::int8: return "torch.int8";
    case dtype::f8_e5m2: return "torch.float8_e5m2";
    case dtype::f8_e4m3: return "torch.float8_e4m3fn";
    case dtype::f8_e8m0: return "torch.float8_e8m0fnu";
    case dtype::f8_e4m3fnuz: return "torch.float8_e4m3fnuz";
    case dtype::f8_e5m2fnuz: return "torch.float8_e5m2fnuz";
    case dtype::int16: return "torch.int16";
    case dtype::uint16: return "torch.uint16";
    case dtype::f16: return "torch.float16";
    case dtype::bf16: return "torch.bfloat16";
    case dtype::int32: return "torch.int32";
    case dtype::uint32: return "torch.uint32";
    case dtype::f32: return "torch.float32";
    case dtype::c64: return "torch.complex64";
    case dtype::f64: return "torch.float64";
    case dtype::int64: return "torch.int64";
    case dtype::uint64: return "torch.uint64";
    default: return {};
  }
}

/// `bytes` rounded up to a multiple. Expects: sizes of a manifest, which stay below 2^62.
constexpr u64 round_up(u64 bytes, u64 multiple) noexcept { return (bytes + multiple - 1) / multiple * multiple; }

/// The buffers of a plan, each tensor at the next multiple of `alignment`; sizes are rounded up too with `pad_end`.
/// Errors: unsupported for a plan that cuts pairs: no other form has pieces of tensors.
inline result<placement> aligned(const manifest& update, const plan& wire, u64 alignment, bool pad_end = true) {
  placement made;
  for (u32 b = 0; b < wire.buffers().size(); ++b) {
    const plan_buffer& buffer = wire.buffers()[b];
    if (buffer.cut)
      return make_error(errc::unsupported, update.entries()[wire.pieces()[buffer.first].entry].name,
                        "is cut between buffers, and this form carries whole tensors");
    u64 end = 0;
    for (u32 i = buffer.first; i < buffer.first + buffer.count; ++i) {
      const plan_piece& piece = wire.pieces()[i];
      const u64 offset = round_up(end, alignment);
      made.tensors.push_back({piece.entry, b, offset, piece.bytes});
      end = pad_end ? round_up(offset + piece.bytes, alignment) : offset + piece.bytes;
    }
    made.buffer_bytes.push_back(end);
  }
  return made;
}

/// Rows of one buffer, in its order.
inline std::vector<row> rows_of(const manifest& update, const placement& where, u32 buffer) {
  std::vector<row> made;
  for (const placed_tensor& one : where.tensors) {
    if (one.buffer != buffer) continue;
    const manifest_entry& entry = update.entries()[one.entry];
    made.push_back({entry.name, entry.dtype, entry.shape, one.offset, one.bytes});
  }
  return made;
}

/// Writes one buffer; padding becomes zero. `bytes_of(entry index)`: the span of its bytes.
/// Errors: wrong_size (C7) for tensors of another size, capacity (C7) for a buffer that is too small.
template <class BytesOf>
error fill(const manifest& update, const placement& where, u32 buffer, const BytesOf& bytes_of,
           std::span<std::byte> out) {
  const u64 size = where.buffer_bytes[buffer];
  if (out.size() < size)
    return make_error(errc::capacity, "buffer " + std::to_string(buffer), "is smaller than what goes into it",
                      static_cast<i64>(out.size()), static_cast<i64>(size), condition::c7_transport);
  // From the first tensor on: what lies before it may be the other half of the buffer.
  const auto clear = [&](u64 from, u64 to) {
    if (to > from) __builtin_memset(out.data() + from, 0, static_cast<std::size_t>(to - from));
  };
  u64 end = size;
  bool any = false;
  for (const placed_tensor& one : where.tensors) {
    if (one.buffer != buffer) continue;
    const std::span<const std::byte> from = bytes_of(one.entry);
    if (from.size() != one.bytes)
      return make_error(errc::wrong_size, update.entries()[one.entry].name, "its bytes differ from the manifest",
                        static_cast<i64>(from.size()), static_cast<i64>(one.bytes), condition::c7_transport);
    if (any) clear(end, one.offset);
    if (!from.empty()) __builtin_memcpy(out.data() + one.offset, from.data(), from.size());
    end = one.offset + one.bytes;
    any = true;
  }
  clear(end, size);
  return {};
}

/// Judges one row against its buffer: what a typed view at that place needs.
/// Errors: unsupported, wrong_shape (C5), wrong_size, wrong_offset (C7).
inline error check_row(const row& one, std::span<const std::byte> buffer, bool needs_view = true) {
  const auto size = stored_bytes(one.name, one.dtype, one.shape);
  if (!size) return size.error();
  if (one.bytes != *size)
    return make_error(errc::wrong_size, one.name, "its range is not what dtype and shape need",
                      static_cast<i64>(one.bytes), static_cast<i64>(*size), condition::c7_transport);
  if (one.offset > buffer.size() || one.bytes > buffer.size() - one.offset)
    return make_error(errc::wrong_size, one.name, "ends behind its buffer", static_cast<i64>(one.offset + one.bytes),
                      static_cast<i64>(buffer.size()), condition::c7_transport);
  return needs_view ? check_offset(one.name, one.dtype, one.offset) : error{};
}

/// Reads a buffer by its rows: see(row, bytes) for each, until it answers an error. All rows are judged first.
template <class See> error read(std::span<const row> rows, std::span<const std::byte> buffer, const See& see) {
  for (const row& one : rows)
    if (error wrong = check_row(one, buffer)) return wrong;
  for (const row& one : rows)
    if (error wrong =
            see(one, buffer.subspan(static_cast<std::size_t>(one.offset), static_cast<std::size_t>(one.bytes))))
      return wrong;
  return {};
}

}  // namespace forms
FP8WIRE_ABI_END
#endif
