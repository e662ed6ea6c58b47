// SPDX-License-Identifier: Apache-2.0
/// The bytes of every message but frame and release: little-endian, packed, bounds-checked, any input gives an answer.
///
/// Writers use the message's memory again; readers never read past the payload and refuse what is left over.
#ifndef FP8WIRE_WIRE_MESSAGE_CODEC_HPP
#define FP8WIRE_WIRE_MESSAGE_CODEC_HPP
#include <span>

#include <fp8wire/wire/message.hpp>

FP8WIRE_ABI_BEGIN
namespace detail {

class payload_writer {
 public:
  payload_writer(message& into, message_kind kind) : into_(into) {
    into.kind = kind;
    into.payload.clear();
  }
  template <class Unsigned> void put(Unsigned number) {
    const std::size_t at = into_.payload.size();
    into_.payload.resize(at + sizeof(Unsigned));
    store_le(into_.payload.data() + at, number);
  }
  /// u32 length, bytes.
  void put_text(std::string_view text) {
    put(static_cast<u32>(text.size()));
    for (const char c : text) into_.payload.push_back(static_cast<std::byte>(c));
  }
  void put_error(const error& one) {
    put(static_cast<u16>(one.code));
    put(static_cast<u8>(one.broken));
    put(static_cast<u8>(one.has_numbers ? 1 : 0));
    put(static_cast<u32>(one.rank));
    put(static_cast<u64>(one.got));
    put(static_cast<u64>(one.expected));
    put_text(one.tensor);
    put_text(one.what);
  }

 private:
  message& into_;
};

/// Reads past the end give 0 and are remembered.
class payload_reader {
 public:
  explicit payload_reader(const message& from) : left_(from.payload) {}
  template <class Unsigned> Unsigned take() noexcept {
    if (left_.size() < sizeof(Unsigned)) {
      left_ = {};
      failed_ = true;
      return 0;
    }
    const Unsigned number = load_le<Unsigned>(left_.data());
    left_ = left_.subspan(sizeof(Unsigned));
    return number;
  }
  std::string_view take_text() noexcept {
    const u32 size = take<u32>();
    if (left_.size() < size) {
      failed_ = true;
      return {};
    }
    const std::string_view text(reinterpret_cast<const char*>(left_.data()), size);
    left_ = left_.subspan(size);
    return text;
  }
  /// Codes and conditions of a later version become `aborted` and none: the words still say what happened.
  error take_error() {
    error one;
    const u16 code = take<u16>();
    const u8 broken = take<u8>();
    one.code = code <= static_cast<u16>(errc::unsupported) ? static_cast<errc>(code) : errc::aborted;
    one.broken =
        broken <= static_cast<u8>(condition::c10_other_state) ? static_cast<condition>(broken) : condition::none;
    one.has_numbers = take<u8>() != 0;
    one.rank = static_cast<i32>(take<u32>());
    one.got = static_cast<i64>(take<u64>());
    one.expected = static_cast<i64>(take<u64>());
    one.tensor = take_text();
    one.what = take_text();
    return one;
  }
  std::size_t left() const noexcept { return left_.size(); }
  /// True when every byte was there and none is left.
  bool done() const noexcept { return !failed_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool failed_ = false;
};

inline error malformed(const message& received) {
  return make_error(errc::wrong_size, "",
                    "a message is malformed; kind " + std::to_string(static_cast<int>(received.kind)) + ", its bytes",
                    static_cast<i64>(received.payload.size()), 0, condition::c7_transport);
}

inline error expect_kind(const message& received, message_kind wanted) {
  if (received.kind == wanted) return {};
  return make_error(errc::unexpected, "", "another kind of message was expected; the kind",
                    static_cast<i64>(received.kind), static_cast<i64>(wanted), condition::c7_transport);
}

}  // namespace detail

/// begin, commit: u64 weight_version. bye: nothing.
inline void encode_version(message_kind kind, u64 weight_version, message& into) {
  detail::payload_writer(into, kind).put(weight_version);
}
inline error decode_version(const message& received, u64& weight_version) {
  detail::payload_reader from(received);
  weight_version = from.take<u64>();
  return from.done() ? error{} : detail::malformed(received);
}

/// vote, committed, abort: u64 weight_version, u8 1 if an error follows, the error.
inline void encode_verdict(message_kind kind, u64 weight_version, const error& verdict, message& into) {
  detail::payload_writer to(into, kind);
  to.put(weight_version);
  to.put(static_cast<u8>(verdict ? 1 : 0));
  if (verdict) to.put_error(verdict);
}
/// `verdict` is empty for yes.
inline error decode_verdict(const message& received, u64& weight_version, error& verdict) {
  detail::payload_reader from(received);
  weight_version = from.take<u64>();
  verdict = {};
  if (from.take<u8>() != 0) {
    verdict = from.take_error();
    if (!verdict) verdict = make_error(errc::aborted, "", "refused without a reason", condition::c8_commit);
  }
  return from.done() ? error{} : detail::malformed(received);
}

/// finish: u64 weight_version, u32 pieces, u32 items, u64 checksum of each piece, i64 status of each item.
inline void encode_finish(u64 weight_version, std::span<const u64> sums, std::span<const i64> statuses, message& into) {
  into.kind = message_kind::finish;
  into.payload.resize(16 + 8 * (sums.size() + statuses.size()));
  std::byte* at = into.payload.data();
  detail::store_le(at, weight_version);
  detail::store_le(at + 8, static_cast<u32>(sums.size()));
  detail::store_le(at + 12, static_cast<u32>(statuses.size()));
  at += 16;
  for (const u64 sum : sums) detail::store_le(at, sum), at += 8;
  for (const i64 status : statuses) detail::store_le(at, static_cast<u64>(status)), at += 8;
}
inline error decode_finish(const message& received, u64& weight_version, std::vector<u64>& sums,
                           std::vector<i64>& statuses) {
  detail::payload_reader from(received);
  weight_version = from.take<u64>();
  const u64 pieces = from.take<u32>(), items = from.take<u32>();
  sums.clear();
  statuses.clear();
  if (from.left() != 8 * (pieces + items)) return detail::malformed(received);
  for (u64 i = 0; i < pieces; ++i) sums.push_back(from.take<u64>());
  for (u64 i = 0; i < items; ++i) statuses.push_back(static_cast<i64>(from.take<u64>()));
  return from.done() ? error{} : detail::malformed(received);
}

/// refuse: u32 count, the errors.
inline void encode_refusal(std::span<const error> reasons, message& into) {
  detail::payload_writer to(into, message_kind::refuse);
  to.put(static_cast<u32>(reasons.size()));
  for (const error& one : reasons) to.put_error(one);
}
inline error decode_refusal(const message& received, std::vector<error>& reasons) {
  detail::payload_reader from(received);
  const u32 count = from.take<u32>();
  reasons.clear();
  for (u32 i = 0; i < count && from.left() > 0; ++i) reasons.push_back(from.take_error());
  return from.done() && reasons.size() == count ? error{} : detail::malformed(received);
}

/// hello, accept: the text, nothing else.
inline void encode_text(message_kind kind, std::string_view text, message& into) {
  into.kind = kind;
  into.payload.assign(reinterpret_cast<const std::byte*>(text.data()),
                      reinterpret_cast<const std::byte*>(text.data()) + text.size());
}
inline std::string_view decode_text(const message& received) noexcept {
  return {reinterpret_cast<const char*>(received.payload.data()), received.payload.size()};
}

/// On a byte stream a message is u32 magic, u16 kind, u16 zero, u64 payload bytes, payload.
inline constexpr u32 message_magic = 0x57385046;  // "FP8W"
inline constexpr std::size_t message_header_bytes = 16;

inline void encode_header(const message& sent, std::span<std::byte, message_header_bytes> into) noexcept {
  detail::store_le(into.data(), message_magic);
  detail::store_le(into.data() + 4, static_cast<u16>(sent.kind));
  detail::store_le(into.data() + 6, u16{0});
  detail::store_le(into.data() + 8, static_cast<u64>(sent.payload.size()));
}
/// Kind into `into.kind`, payload bytes into `bytes`; memory is the caller's decision. Errors: protocol_mismatch.
inline error decode_header(std::span<const std::byte, message_header_bytes> from, message& into, u64& bytes) {
  const u32 magic = detail::load_le<u32>(from.data());
  if (magic != message_magic)
    return make_error(errc::protocol_mismatch, "", "the peer does not speak this protocol; the magic", magic,
                      message_magic, condition::c7_transport);
  const u16 zero = detail::load_le<u16>(from.data() + 6);
  if (zero != 0)
    return make_error(errc::protocol_mismatch, "", "a message header's spare field is set", zero, 0,
                      condition::c7_transport);
  into.kind = static_cast<message_kind>(detail::load_le<u16>(from.data() + 4));
  bytes = detail::load_le<u64>(from.data() + 8);
  return {};
}

FP8WIRE_ABI_END
#endif
