// SPDX-License-Identifier: Apache-2.0
/// What a checkpoint sends in every update, and as what.
#ifndef FP8WIRE_EXAMPLES_REFIT_UPDATE_SOURCE_HPP
#define FP8WIRE_EXAMPLES_REFIT_UPDATE_SOURCE_HPP
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include <fp8wire/model/tensor_spec.hpp>
#include <fp8wire/wire/sink.hpp>

#include "injected_fault.hpp"

namespace programs {

/// One tensor of the checkpoint, its bytes in a mapped file.
struct source_tensor {
  fp8wire::tensor_spec spec;
  std::span<const std::byte> bytes;
  bool quantized = false;
  std::string fused_with;  // the engine parameter it is a part of; empty: itself
};

/// Everything that learner and engines are started with.
struct refit_settings {
  int engines = 1, engine_tp = 1, learners = 1, rounds = 3, threads = 1;
  fp8wire::commit_mode mode = fp8wire::commit_mode::staged;
  std::chrono::milliseconds timeout{10000};
  double learning_rate = 1e-6;
  fp8wire::u64 seed = 0;
  std::string dump_folder;  // empty: no dumps
  std::string socket_name;
  injected_fault fault;
};

}  // namespace programs
#endif
