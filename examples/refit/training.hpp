// SPDX-License-Identifier: Apache-2.0
/// A stand-in for training: FP32 masters that every step moves by about the learning rate, the same on every machine.
#ifndef FP8WIRE_EXAMPLES_REFIT_TRAINING_HPP
#define FP8WIRE_EXAMPLES_REFIT_TRAINING_HPP
#include <cstddef>
#include <vector>

#include <fp8wire/format/fp32.hpp>

#include "../common/quantizer.hpp"

namespace programs {

/// Uniform in [-1, 1) from a counter: no state, so that any process can ask for any weight of any step.
inline double uniform(fp8wire::u64 seed, fp8wire::u64 tensor, fp8wire::u64 step, fp8wire::u64 element) {
  // splitmix64's finalizer over the counter.
  fp8wire::u64 state = seed * 0x9E3779B97F4A7C15u + tensor * 0xD1B54A32D192ED03u + step * 0x8CB92BA72F3D8DD7u + element;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  state = (state ^ state >> 27) * 0x94D049BB133111EBu;
  state ^= state >> 31;
  return static_cast<double>(state >> 11) * 0x1p-52 - 1.0;
}

/// One step of one master.
inline float stepped(float master, double rate, fp8wire::u64 seed, fp8wire::u64 tensor, fp8wire::u64 step,
                     fp8wire::u64 element) {
  return static_cast<float>(static_cast<double>(master) * (1.0 + rate * uniform(seed, tensor, step, element)));
}

/// Weights of a checkpoint as training moves them: version 1 is the checkpoint, and between two versions every master m
/// becomes m + m * rate * u with u uniform in [-1, 1). Masters are FP32 and kept from step to step; what is exported is
/// the master rounded to the checkpoint's dtype.
class trained_tensor {
 public:
  /// `number` tells tensors apart in the random sequence. Of several learners each keeps the masters of one range of
  /// elements; their exports meet in `shared`, as many bytes as the checkpoint's.
  trained_tensor(weights checkpoint, fp8wire::u64 seed, fp8wire::u64 number, int learner = 0, int learners = 1,
                 std::byte* shared = nullptr)
      : checkpoint_(checkpoint), seed_(seed), number_(number), out_(shared) {
    const std::size_t all = static_cast<std::size_t>(checkpoint.extents.batch * checkpoint.extents.rows *
                                                     checkpoint.extents.cols),
                      share = all / static_cast<std::size_t>(learners), rank = static_cast<std::size_t>(learner);
    begin_ = share * rank;
    end_ = learner + 1 == learners ? all : begin_ + share;
  }

  /// The weights of a version, valid until the next call; of several learners once all have called. rate 0: the
  /// checkpoint's own bytes. Versions must be asked for in rising order.
  weights at(fp8wire::u64 version, double rate, workers& threads) {
    if (rate == 0) return checkpoint_;
    switch (checkpoint_.type) {
      case fp8wire::dtype::bf16: return exported<fp8wire::bf16>(version, rate, threads);
      case fp8wire::dtype::f16: return exported<fp8wire::fp16>(version, rate, threads);
      default: return exported<float>(version, rate, threads);
    }
  }

 private:
  template <class Value> weights exported(fp8wire::u64 version, double rate, workers& threads) {
    const auto* original = static_cast<const Value*>(checkpoint_.data);
    const std::size_t elements = end_ - begin_;
    if (masters_.empty()) {
      masters_.resize(elements);
      if (out_ == nullptr) {
        own_.resize(elements * sizeof(Value));
        out_ = own_.data();
      }
      for (std::size_t i = 0; i < elements; ++i) masters_[i] = fp8wire::to_float(original[begin_ + i]);
      version_ = 1;
    }
    auto* out = reinterpret_cast<Value*>(out_) + begin_;
    constexpr std::size_t chunk = 65536;
    const fp8wire::u64 first = version_;
    threads.run(static_cast<fp8wire::i64>((elements + chunk - 1) / chunk), [&](fp8wire::i64 job) {
      const std::size_t begin = static_cast<std::size_t>(job) * chunk,
                        end = begin + chunk < elements ? begin + chunk : elements;
      for (std::size_t i = begin; i < end; ++i) {
        float master = masters_[i];
        for (fp8wire::u64 step = first; step < version; ++step)
          master = stepped(master, rate, seed_, number_, step, begin_ + i);
        masters_[i] = master;
        out[i] = fp8wire::from_float<Value>(master);
      }
    });
    version_ = version;
    return {checkpoint_.type, out_, checkpoint_.extents};
  }

  weights checkpoint_;
  fp8wire::u64 seed_, number_, version_ = 1;
  std::size_t begin_ = 0, end_ = 0;  // of the elements whose masters are here
  std::vector<float> masters_;
  std::vector<std::byte> own_;
  std::byte* out_ = nullptr;
};

}  // namespace programs
#endif
