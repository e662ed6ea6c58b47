// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>

#include "forms_fixture.hpp"

namespace fw = fp8wire;
namespace forms = fp8wire::forms;
using forms::split_units;
using fw::condition;
using fw::errc;

namespace {

struct update {
  fw::manifest tensors = test::odd_update();
  std::vector<std::vector<std::byte>> bytes = test::noise_of(tensors);
  fw::plan wire(fw::u64 capacity, bool split = false) const {
    return fw::make_plan(tensors, {capacity, 256, 2, split, false}).value();
  }
  auto bytes_of() const {
    return [this](fw::u32 entry) { return std::span<const std::byte>(bytes[entry]); };
  }
  std::vector<std::byte> filled(const fw::placement& where, fw::u32 buffer) const {
    std::vector<std::byte> out(static_cast<std::size_t>(where.buffer_bytes[buffer]), std::byte{0xEE});
    REQUIRE(!forms::fill(tensors, where, buffer, bytes_of(), out));
    return out;
  }
};

// Counts the rows that came back with the bytes of their tensors.
struct collector {
  const update& from;
  std::size_t right = 0;
  fw::error operator()(const forms::row& one, std::span<const std::byte> bytes) {
    const std::size_t entry = static_cast<std::size_t>(from.tensors.find(one.name));
    const auto& wanted = from.bytes[entry];
    if (std::ranges::equal(bytes, wanted)) ++right;
    return {};
  }
};

}  // namespace

TEST_CASE("every form brings every byte back through its reader") {
  const update u;
  for (const fw::u64 capacity : {fw::u64{1}, fw::u64{3000}, fw::u64{1} << 20}) {
    const fw::plan wire = u.wire(capacity);
    const auto read_all = [&](const fw::placement& where) {
      collector seen{u};
      for (fw::u32 b = 0; b < where.buffer_bytes.size(); ++b) {
        const auto rows = forms::rows_of(u.tensors, where, b);
        CHECK(!forms::read(rows, u.filled(where, b), std::ref(seen)));
      }
      CHECK(seen.right == u.tensors.entries().size());
    };
    read_all(forms::flattened_buckets(u.tensors, wire, forms::bucket_padding::aligned).value());
    read_all(forms::dtype_posts(u.tensors, wire, split_units::accept).value());
    read_all(forms::checkpoint_buckets(u.tensors, wire, 1 << 20).value());
    const fw::placement groups = forms::ipc_groups(u.tensors, wire, 1 << 20).value();
    CHECK(!fw::check_units(u.tensors, groups));
    collector seen{u};
    for (fw::u32 b = 0; b < groups.buffer_bytes.size(); ++b) {
      const auto rows = forms::rows_of(u.tensors, forms::group_of(u.tensors, groups, b));
      REQUIRE(rows);
      CHECK(*rows == forms::rows_of(u.tensors, groups, b));
      CHECK(!forms::read(*rows, u.filled(groups, b), std::ref(seen)));
    }
    CHECK(seen.right == u.tensors.entries().size());
    for (const fw::placement& packed : {forms::packed_broadcast(u.tensors, capacity, split_units::accept).value(),
                                        forms::packed_broadcast(u.tensors, wire).value()}) {
      collector all{u};
      for (fw::u32 b = 0; b < packed.buffer_bytes.size(); ++b)
        CHECK(!forms::read_packed(u.tensors, packed, b, u.filled(packed, b), std::ref(all)));
      CHECK(all.right == u.tensors.entries().size());
    }
  }
}

TEST_CASE("a bucket without padding is refused where a view would be misaligned, and taken where none is") {
  const update u;
  const fw::error wrong = forms::flattened_buckets(u.tensors, u.wire(1 << 20), forms::bucket_padding::none).error();
  CHECK(wrong.message() ==
        "C7 l0.gate_proj.weight_scale_inv: no F32 can be viewed at that offset: got 43, expected 44");
  fw::manifest even;
  REQUIRE(!even.add<test::block_wire>("a.weight", {4, 8}));
  REQUIRE(!even.keep("n", fw::dtype::bf16, {2}));
  const fw::plan wire = fw::make_plan(even, {1 << 20, 256, 2, false, false}).value();
  const fw::placement tight = forms::flattened_buckets(even, wire, forms::bucket_padding::none).value();
  CHECK(tight.buffer_bytes == std::vector<fw::u64>{40});
  CHECK(tight.tensors[1].offset == 32);
  fw::manifest six;
  REQUIRE(!six.keep("f6", fw::dtype::f6_e2m3, {4}));
  CHECK(forms::flattened_buckets(six, fw::make_plan(six, {}).value(), forms::bucket_padding::aligned).error().code ==
        errc::unsupported);
}

TEST_CASE("forms that would part codes from scales are refused unless told otherwise") {
  const update u;
  fw::error wrong = forms::dtype_posts(u.tensors, u.wire(1 << 20)).error();
  CHECK(wrong.code == errc::plan_mismatch);
  CHECK(wrong.broken == condition::c4_atomic_pairs);
  wrong = forms::packed_broadcast(u.tensors, fw::u64{300}).error();
  CHECK(wrong.broken == condition::c4_atomic_pairs);
  CHECK(forms::packed_broadcast(u.tensors, fw::u64{0}).error().code == errc::bad_argument);
  CHECK(forms::packed_broadcast(u.tensors, fw::u64{1} << 30).ok());  // one buffer splits nothing
  wrong = forms::ipc_groups(u.tensors, u.wire(1 << 20), 512).error();
  CHECK(wrong.code == errc::capacity);
  CHECK(wrong.broken == condition::c4_atomic_pairs);
  const fw::placement split = forms::ipc_groups(u.tensors, u.wire(1 << 20), 1024, split_units::accept).value();
  CHECK(fw::check_units(u.tensors, split).broken == condition::c4_atomic_pairs);
  std::vector<int> members(split.buffer_bytes.size());
  for (const fw::placed_tensor& one : split.tensors) ++members[one.buffer];
  for (std::size_t b = 0; b < members.size(); ++b) CHECK((split.buffer_bytes[b] <= 1024 || members[b] == 1));
}

TEST_CASE("cut pairs, small buckets and foreign shapes are refused by name") {
  const update u;
  const fw::plan cut = u.wire(8500, true);
  REQUIRE(cut.buffers().back().cut);
  for (const fw::error& wrong :
       {forms::flattened_buckets(u.tensors, cut, forms::bucket_padding::aligned).error(),
        forms::ipc_groups(u.tensors, cut, 1 << 20).error(), forms::checkpoint_buckets(u.tensors, cut, 1 << 20).error(),
        forms::packed_broadcast(u.tensors, cut).error(),
        forms::dtype_posts(u.tensors, cut, split_units::accept).error()}) {
    CHECK(wrong.code == errc::unsupported);
    CHECK(wrong.tensor == "head.weight");
  }
  CHECK(forms::checkpoint_buckets(u.tensors, u.wire(1 << 20), 4096).error().code == errc::capacity);
  CHECK(forms::checkpoint_buckets(u.tensors, u.wire(1 << 20), 1000).error().code == errc::bad_argument);
  CHECK(forms::checkpoint_buckets(u.tensors, u.wire(1 << 20), 0).error().code == errc::bad_argument);
}

TEST_CASE("readers refuse what does not fit") {
  const update u;
  const fw::placement groups = forms::ipc_groups(u.tensors, u.wire(3000), 1 << 20).value();
  forms::ipc_group group = forms::group_of(u.tensors, groups, 0);
  group.used += 512;
  CHECK(forms::rows_of(u.tensors, group).error().code == errc::wrong_size);
  group = forms::group_of(u.tensors, groups, 0);
  group.names.push_back(group.names[0]);
  CHECK(forms::rows_of(u.tensors, group).error().code == errc::duplicate);
  group.names[0] = "stranger";
  CHECK(forms::rows_of(u.tensors, group).error().code == errc::unexpected);

  const auto nothing = [](const forms::row&, std::span<const std::byte>) { return fw::error{}; };
  const fw::placement packed = forms::packed_broadcast(u.tensors, 300, split_units::accept).value();
  auto bytes = u.filled(packed, 0);
  bytes.pop_back();
  CHECK(forms::read_packed(u.tensors, packed, 0, bytes, nothing).broken == condition::c7_transport);
  CHECK(forms::read_packed(u.tensors, packed, 9999, bytes, nothing).code == errc::wrong_size);

  forms::row one{"a", fw::dtype::f32, {2}, 4, 8};
  const std::vector<std::byte> buffer(12);
  CHECK(!forms::check_row(one, buffer));
  one.offset = 2;
  CHECK(forms::check_row(one, buffer).code == errc::wrong_offset);
  CHECK(!forms::check_row(one, buffer, false));
  one.offset = 8;
  CHECK(forms::check_row(one, buffer).code == errc::wrong_size);
  one.offset = ~fw::u64{0};
  CHECK(forms::check_row(one, buffer).code == errc::wrong_size);
  one = {"a", fw::dtype::f32, {3}, 0, 8};
  CHECK(forms::check_row(one, buffer).code == errc::wrong_size);
  one.shape = {-1};
  CHECK(forms::check_row(one, buffer).code == errc::wrong_shape);
  std::vector<std::byte> short_one(10);
  CHECK(forms::fill(u.tensors, groups, 0, u.bytes_of(), short_one).code == errc::capacity);
}

TEST_CASE("a bucket is written into its half and leaves the other one alone") {
  const update u;
  const fw::u64 half = 1 << 16;
  const fw::placement where = forms::checkpoint_buckets(u.tensors, u.wire(3000), half).value();
  std::vector<std::byte> ipc(2 * half, std::byte{0x77});
  REQUIRE(!forms::fill(u.tensors, where, 1, u.bytes_of(), ipc));
  std::size_t untouched = 0;
  while (untouched < half && ipc[untouched] == std::byte{0x77}) ++untouched;
  CHECK(untouched == half);
  for (const fw::placed_tensor& one : where.tensors) {
    CHECK(one.offset % 256 == 0);
    CHECK(one.offset / half == one.buffer % 2);
  }
}
