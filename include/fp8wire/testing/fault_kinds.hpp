// SPDX-License-Identifier: Apache-2.0
/// What can go wrong with a weight update, by name, and which of the ten conditions names it.
#ifndef FP8WIRE_TESTING_FAULT_KINDS_HPP
#define FP8WIRE_TESTING_FAULT_KINDS_HPP
#include <fp8wire/core/error.hpp>

FP8WIRE_ABI_BEGIN
namespace testing {

enum class fault : u8 {
  none,
  swallowed_layer,
  grid_floor,
  grid_f32_master,
  grid_edge_padding,
  drop,
  duplicate,
  rename,
  reorder,
  partial_experts,
  wrong_dtype,
  mixed_version,
  split_pair,
  transpose,
  transpose_square,
  shift_shard,
  swap_gate_up,
  squeezed_scale,
  stale_derived,
  double_finalize,
  repack,
  moved_pointer,
  flip_bit,
  short_buffer,
  capacity_off_by_one,
  early_ack,
  misaligned_offset,
  boundary_mismatch,
  unanswered_frame,
  version_replay,
  aborted_update,
  dead_peer,
  missed_commit,
  zero_scale,
  negative_scale,
  inf_scale,
  nan_scale,
  scale_255,
  nan_code,
  unlisted_buffer,
  changed_constant
};

/// Who makes the mistake.
enum class fault_place : u8 {
  learner,  // the bytes it makes, or what it says of them
  wire,     // on the way, after the learner has summed them
  engine    // in loader, finalizer or bookkeeping
};

struct fault_row {
  fault kind;
  std::string_view name;  // as fp8-refit --fault takes it
  condition caught_by;
  fault_place place;
  std::string_view what;
};

/// Every fault, in the order of the conditions.
inline constexpr fault_row faults[] = {
    {fault::swallowed_layer, "swallowed-layer", condition::c1_layer_set, fault_place::engine,
     "an ignore list matched as a substring: the engine holds gate and up in BF16"},
    {fault::grid_floor, "grid-floor", condition::c2_grid, fault_place::learner,
     "the exponent is rounded down where the grid says up"},
    {fault::grid_f32_master, "grid-f32-master", condition::c2_grid, fault_place::learner,
     "FP32 masters are quantized in the place of BF16 weights"},
    {fault::grid_edge_padding, "grid-edge-padding", condition::c2_grid, fault_place::learner,
     "ragged blocks see the matrix's last element"},
    {fault::drop, "drop", condition::c3_complete_pairs, fault_place::wire, "a buffer never arrives"},
    {fault::duplicate, "duplicate", condition::c3_complete_pairs, fault_place::wire, "a buffer arrives twice"},
    {fault::rename, "rename", condition::c3_complete_pairs, fault_place::learner,
     "a scale is sent under another suffix"},
    {fault::reorder, "reorder", condition::c3_complete_pairs, fault_place::wire, "two buffers change places"},
    {fault::partial_experts, "partial-experts", condition::c3_complete_pairs, fault_place::learner,
     "some experts of a layer are not sent"},
    {fault::wrong_dtype, "wrong-dtype", condition::c3_complete_pairs, fault_place::learner,
     "scales are labelled as another dtype of the same size"},
    {fault::mixed_version, "mixed-version", condition::c4_atomic_pairs, fault_place::wire,
     "a buffer of the last version comes in the place of this one's"},
    {fault::split_pair, "split-pair", condition::c4_atomic_pairs, fault_place::learner,
     "buffers are closed after the tensor that crosses the threshold: codes here, scales there"},
    {fault::transpose, "transpose", condition::c5_geometry, fault_place::engine,
     "the scales of a matrix are read by columns"},
    {fault::transpose_square, "transpose-square", condition::c5_geometry, fault_place::engine,
     "the same where the block grid is square, so that no shape shows it"},
    {fault::shift_shard, "shift-shard", condition::c5_geometry, fault_place::engine, "a shard begins 64 rows late"},
    {fault::swap_gate_up, "swap-gate-up", condition::c5_geometry, fault_place::engine,
     "the up half is loaded where the gate half belongs"},
    {fault::squeezed_scale, "squeezed-scale", condition::c5_geometry, fault_place::learner,
     "a scale of [N, 1] travels as [N]"},
    {fault::stale_derived, "stale-derived", condition::c6_derived_state, fault_place::engine,
     "swizzled scales are those of the version before"},
    {fault::double_finalize, "double-finalize", condition::c6_derived_state, fault_place::engine,
     "rows that were shuffled are shuffled again"},
    {fault::repack, "repack", condition::c6_derived_state, fault_place::engine,
     "a kernel repacked its weights without a change of shape"},
    {fault::moved_pointer, "moved-pointer", condition::c6_derived_state, fault_place::engine,
     "a buffer moved whose address a captured graph has"},
    {fault::flip_bit, "flip-bit", condition::c7_transport, fault_place::wire, "one bit changes on the way"},
    {fault::short_buffer, "short-buffer", condition::c7_transport, fault_place::wire, "the end of a buffer is missing"},
    {fault::capacity_off_by_one, "capacity-off-by-one", condition::c7_transport, fault_place::engine,
     "the ends plan with capacities that differ by one byte"},
    {fault::early_ack, "early-ack", condition::c7_transport, fault_place::engine,
     "an engine gives a buffer back before it has read it"},
    {fault::misaligned_offset, "misaligned-offset", condition::c7_transport, fault_place::learner,
     "tensors follow each other without padding, FP32 behind an odd number of bytes"},
    {fault::boundary_mismatch, "boundary-mismatch", condition::c7_transport, fault_place::wire,
     "the reader cuts the stream of bytes at other places"},
    {fault::unanswered_frame, "unanswered-frame", condition::c7_transport, fault_place::engine,
     "an engine never gives a buffer back"},
    {fault::version_replay, "version-replay", condition::c8_commit, fault_place::learner,
     "a version is sent again after a later one"},
    {fault::aborted_update, "aborted-update", condition::c8_commit, fault_place::learner,
     "an update ends half way and is committed all the same"},
    {fault::dead_peer, "dead-peer", condition::c8_commit, fault_place::learner, "the learner dies within an update"},
    {fault::missed_commit, "missed-commit", condition::c8_commit, fault_place::wire,
     "one engine does not hear the commit"},
    {fault::zero_scale, "zero-scale", condition::c9_scale_sanity, fault_place::learner, "a scale is zero"},
    {fault::negative_scale, "negative-scale", condition::c9_scale_sanity, fault_place::learner, "a scale is negative"},
    {fault::inf_scale, "inf-scale", condition::c9_scale_sanity, fault_place::learner, "a scale is infinite"},
    {fault::nan_scale, "nan-scale", condition::c9_scale_sanity, fault_place::learner, "a scale is NaN"},
    {fault::scale_255, "scale-255", condition::c9_scale_sanity, fault_place::learner, "an E8M0 scale is 255"},
    {fault::nan_code, "nan-code", condition::c9_scale_sanity, fault_place::learner, "a code is NaN"},
    {fault::unlisted_buffer, "unlisted-buffer", condition::c10_other_state, fault_place::engine,
     "the engine has state that is neither sent nor said to be constant or recomputed"},
    {fault::changed_constant, "changed-constant", condition::c10_other_state, fault_place::engine,
     "a buffer that is said to be constant changes"},
};

/// The row of that name, or nullptr.
constexpr const fault_row* find_fault(std::string_view name) noexcept {
  for (const fault_row& one : faults)
    if (one.name == name) return &one;
  return nullptr;
}

/// The row of a kind; nullptr for none.
constexpr const fault_row* row_of(fault kind) noexcept {
  for (const fault_row& one : faults)
    if (one.kind == kind) return &one;
  return nullptr;
}

}  // namespace testing
FP8WIRE_ABI_END
#endif
