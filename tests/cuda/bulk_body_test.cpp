// SPDX-License-Identifier: Apache-2.0
// The body that moves by bulk copies, thread by thread on the CPU, and the checks of bulk copies themselves.
#include <doctest/doctest.h>

#include <fp8wire/quant/kernel/quantize_bulk.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>

#include "block_emulator.hpp"
#include "host_memory.hpp"

namespace {

using namespace fp8wire;
using samples::buffer;
using device = emulator::context<16>;
static_assert(kernel::bulk_context<device>);

/// A device that has no bulk copies: its threads load and store.
struct plain_device : device {
  static constexpr bool bulk_copies = false;
};

template <class Recipe, class In> struct job {
  matrix_extents shape;
  buffer<In> weights;
  buffer<u8> codes;
  buffer<stored_t<Recipe>> scales;
  buffer<u64> status;

  explicit job(matrix_extents e)
      : shape(e),
        weights(samples::weights<In>(e.batch * e.rows * e.cols, 11)),
        codes(weights.size()),
        scales(weights.size() / 32),
        status(1, kernel::no_index) {}
  kernel::quantize_task<Recipe, In> task() {
    return {dense(static_cast<const In*>(weights.data()), shape.rows, shape.cols, shape.batch),
            dense(codes.data(), shape.rows, shape.cols, shape.batch),
            dense(scales.data(), shape.rows, shape.cols / 32, shape.batch),
            status.data(),
            0,
            Recipe::num.amax_floor,
            0};
  }
  template <class Context> emulator::counters run(i64 blocks) {
    using task_type = kernel::bulk_task<Recipe, In>;
    emulator::device_memory memory;
    memory.input(weights);
    memory.output(codes);
    memory.output(scales);
    memory.both(status);
    REQUIRE(kernel::fits_bulk(task()));
    return emulator::launch<kernel::bulk_body<task_type>, Context>(blocks, kernel::bulk_of(task()), memory);
  }
  void check() {
    const samples::expected<Recipe, In> right(task().in);
    CHECK(codes == right.codes);
    CHECK((scales.empty() || std::memcmp(scales.data(), right.scales.data(), scales.size() * sizeof(scales[0])) == 0));
    CHECK(static_cast<i64>(status[0]) == right.first_nonfinite);
  }
};

using mx = presets::te_mxfp8::recipe;
using mx_fma = presets::te_mxfp8_fma::recipe;

/// One piece, several pieces a block, ends that no piece fits, less than a piece, one block of weights, none.
constexpr matrix_extents shapes[] = {{1, 128, 32}, {1, 160, 128}, {2, 35, 160}, {1, 3, 64}, {1, 1, 32}, {3, 0, 32}};

template <class Recipe, class In, class Context> void quantize_and_check(u32 spoil) {
  for (const matrix_extents& shape : shapes) {
    for (const i64 blocks : {1, 2, 7}) {
      job<Recipe, In> work(shape);
      if (spoil != 0 && !work.weights.empty()) work.weights[work.weights.size() / 2] = from_float<In>(float_of(spoil));
      CAPTURE(shape.rows);
      CAPTURE(blocks);
      work.template run<Context>(blocks);
      work.check();
    }
  }
}

TEST_CASE("bulk copies make the bytes of the definition, however many blocks share a run") {
  quantize_and_check<mx, bf16, device>(0);
  quantize_and_check<mx_fma, fp16, device>(0);
  quantize_and_check<mx, float, device>(0);
}

TEST_CASE("NaN and Inf get the definition's bytes and a status word in a run, too") {
  for (const u32 spoil : {f32::infinity, 0x7FC00000u, 0xFFC00000u}) {
    quantize_and_check<mx, bf16, device>(spoil);
    quantize_and_check<mx_fma, float, device>(spoil);
  }
}

TEST_CASE("a device without bulk copies makes the same bytes") {
  quantize_and_check<mx, bf16, plain_device>(0);
  quantize_and_check<mx, fp16, plain_device>(0x7F800000u);
}

TEST_CASE("every weight is read once and every code written once by bulk copies") {
  job<mx, bf16> work({1, 128, 128});
  const auto count = work.run<device>(2);
  CHECK(count.load_bytes == 128 * 128 * 2);
  CHECK(count.loads == 4);
  CHECK(count.store_bytes == 128 * 128 + 128 * 4);
  CHECK(count.stores == 8);
}

TEST_CASE("gaps, ragged rows and odd addresses do not fit bulk copies") {
  job<mx, bf16> work({2, 4, 96});
  const auto task = work.task();
  CHECK(kernel::fits_bulk(task));
  auto other = task;
  other.in.row_stride = 128;
  CHECK_FALSE(kernel::fits_bulk(other));
  other = task;
  other.codes.batch_stride = 512;
  CHECK_FALSE(kernel::fits_bulk(other));
  other = task;
  other.in.col_stride = 2;
  CHECK_FALSE(kernel::fits_bulk(other));
  other = task;
  other.in.data += 4;
  CHECK_FALSE(kernel::fits_bulk(other));
  other = task;
  other.scales.data += 8;
  CHECK_FALSE(kernel::fits_bulk(other));
  other = task;
  other.in.cols = 80;
  other.in.row_stride = 80;
  CHECK_FALSE(kernel::fits_bulk(other));
}

// ---- devices that forget something
struct no_wait_for_bytes : device {
  void wait(u64*, u32) {}
};
struct no_wait_for_reads : device {
  void sent() {}
};
struct no_wait_at_the_end : device {
  void finish() {}
};
struct no_fence : device {
  void show() {}
};
struct no_barrier : device {
  void sync() {}
};
struct fewer_bytes : device {
  void fetch(void* to, const void* from, int bytes, u64* barrier) {
    all.copies().arrive(all.place(barrier), static_cast<u64>(bytes) - 16, rank);
    all.copies().fetch(all.place(to), from, static_cast<u64>(bytes), all.place(barrier), rank);
  }
};
struct odd_bytes : device {
  void send(void* to, const void* from, int bytes) { device::send(to, from, bytes - 8); }
};

/// What the emulator says of a device.
template <class Context> std::string fault_of() {
  job<mx, bf16> work({1, 128, 160});
  try {
    work.run<Context>(1);
  } catch (const emulator::fault& wrong) {
    return wrong.what();
  }
  return "";
}

TEST_CASE("the emulator finds what a device forgets about bulk copies") {
  CHECK(fault_of<device>() == "");
  CHECK(fault_of<no_wait_for_bytes>() == "shared memory that a bulk copy still fills");
  CHECK(fault_of<no_wait_for_reads>() == "a write to shared memory that a bulk store still reads");
  CHECK(fault_of<no_wait_at_the_end>() == "a block ends before a bulk store has read its shared memory");
  CHECK(fault_of<no_fence>() == "a bulk store of shared memory written without fence.proxy.async");
  CHECK(fault_of<no_barrier>() != "");
  CHECK(fault_of<fewer_bytes>() == "an mbarrier expects 8176 bytes, and bulk copies bring 8192");
  CHECK(fault_of<odd_bytes>() == "a bulk copy whose addresses or size are no multiples of 16 bytes");
}

// ---- the checks, call by call
struct bench {
  alignas(16) u8 shared[64] = {};
  buffer<u8> in = buffer<u8>(32, u8{7}), out = buffer<u8>(32, u8{0});
  emulator::device_memory memory;
  emulator::shared_shadow shadow;
  checks::bulk_copies copies{memory, shadow};

  bench() {
    memory.input(in);
    memory.output(out);
    shadow.reset(sizeof(shared));
    copies.reset(shared, 2, true);
    copies.init(48, 1, 0);
    copies.fence(0);
    meet();
  }
  void meet() {
    shadow.barrier();
    copies.met();
  }
  void fetch() {
    copies.arrive(48, 32, 0);
    copies.fetch(0, in.data(), 32, 48, 0);
  }
};

TEST_CASE("what a bulk copy brought is there for those who waited, or met somebody who had") {
  bench b;
  b.fetch();
  CHECK_FALSE(b.copies.over(48, 0, 0));
  CHECK(b.shared[0] == 0xCD);
  CHECK(b.copies.land());
  CHECK(b.copies.over(48, 0, 0));
  CHECK(b.shared[31] == 7);
  CHECK_NOTHROW(b.copies.touch(0, 16, 0, false));
  CHECK_THROWS_WITH(b.copies.touch(0, 16, 1, false),
                    "shared memory that a bulk copy filled, without a wait for its mbarrier");
  b.meet();
  CHECK_NOTHROW(b.copies.touch(0, 16, 1, false));
}

TEST_CASE("a bulk store takes its bytes when its thread waits, and writes them when it waits for that") {
  bench b;
  b.copies.touch(0, 16, 0, true);
  b.shadow.touch(0, 16, 0, true);
  b.shared[3] = 9;
  b.copies.fence(0);
  b.copies.send(b.out.data(), 0, 16, 0);
  b.copies.commit(0);
  CHECK_THROWS_WITH(b.copies.touch(0, 1, 0, true), "a write to shared memory that a bulk store still reads");
  CHECK_THROWS_WITH(b.copies.finish(), "a block ends before a bulk store has read its shared memory");
  b.copies.wait(0, true, 0);
  CHECK(b.out[3] == 0);
  b.copies.wait(0, false, 0);
  CHECK(b.out[3] == 9);
  CHECK_NOTHROW(b.copies.finish());
}

TEST_CASE("a wait leaves out the newest groups it may, and what is not committed") {
  bench b;
  b.copies.touch(0, 32, 0, true);
  b.shadow.run(0, 32, 0, true);
  b.copies.fence(0);
  b.copies.send(b.out.data(), 0, 16, 0);
  b.copies.commit(0);
  b.copies.send(b.out.data() + 16, 16, 16, 0);
  b.copies.wait(0, false, 0);
  CHECK_THROWS_AS(b.copies.touch(16, 1, 0, true), emulator::fault);
  CHECK_NOTHROW(b.copies.touch(0, 1, 0, true));
  b.copies.commit(0);
  b.copies.wait(1, false, 0);
  CHECK_THROWS_AS(b.copies.touch(16, 1, 0, true), emulator::fault);
  b.copies.wait(0, false, 0);
  CHECK_NOTHROW(b.copies.touch(16, 1, 0, true));
}

TEST_CASE("bulk copies into memory in use, outside of memory and across mbarriers are refused") {
  bench b;
  CHECK_THROWS_AS(b.copies.fetch(48, b.in.data(), 16, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.fetch(0, b.in.data(), 64, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.fetch(8, b.in.data(), 16, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.fetch(0, b.in.data() + 8, 16, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.fetch(0, b.in.data(), 24, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.fetch(0, b.in.data(), 16, 40, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.send(b.in.data(), 0, 16, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.touch(48, 8, 0, false), emulator::fault);
  b.fetch();
  CHECK_THROWS_AS(b.copies.fetch(16, b.in.data(), 16, 48, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.arrive(48, 32, 0), emulator::fault);
  CHECK_THROWS_AS(b.copies.finish(), emulator::fault);
}

}  // namespace
