// SPDX-License-Identifier: Apache-2.0
/// Presets chosen at run time, for the wire: what a manifest says of one, and the sender that sends it.
#ifndef FP8WIRE_EXAMPLES_REFIT_ANY_SENDER_HPP
#define FP8WIRE_EXAMPLES_REFIT_ANY_SENDER_HPP
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/manifest.hpp>
#include <fp8wire/wire/plan.hpp>

#include "../common/quantizer.hpp"

namespace programs {

/// --via-bf16, set once like chosen_naming.
inline bool chosen_via_bf16 = false;
/// --layout as it is on the wire: canonical where ranks lay out their own slices.
inline std::string chosen_layout = "canonical";

/// What all senders of this program are made with.
struct sender_setup {
  const fp8wire::manifest* tensors = nullptr;
  const fp8wire::plan* wire = nullptr;
  fp8wire::shm_publisher* transport = nullptr;
  const quantizer* row = nullptr;
  workers* threads = nullptr;
  float amax_floor = 0;
  bool refuse_nonfinite = true;
};

/// A sender whatever its wire format.
class any_sender {
 public:
  virtual ~any_sender() = default;
  virtual fp8wire::error begin(fp8wire::u64 version) = 0;
  virtual fp8wire::error put(std::string_view weight, const weights& in) = 0;
  /// Codes and scales that are on this grid already, dense and canonical.
  virtual fp8wire::error forward(std::string_view weight, const fp8wire::matrix_extents& of, const fp8wire::u8* codes,
                                 const void* scales) = 0;
  virtual fp8wire::error keep(std::string_view name, std::span<const std::byte> bytes) = 0;
  virtual fp8wire::error finish() = 0;
  virtual void abort(const fp8wire::error& why) noexcept = 0;
  /// Time spent in quantizers since the last call.
  virtual double quantize_seconds() noexcept = 0;
};

/// What travels under chosen_layout, chosen_naming and chosen_via_bf16 when that preset makes it.
fp8wire::encoding_entry encoding_of(const quantizer& row, float amax_floor);
/// Every preset has a sender.
std::unique_ptr<any_sender> make_sender(const sender_setup& setup);

}  // namespace programs
#endif
