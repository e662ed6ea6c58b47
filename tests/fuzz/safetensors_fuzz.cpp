// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused with a reason, or a header of which everything promised is true.
// clang++ -std=c++20 -Iinclude -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/safetensors_fuzz.cpp; the unit
// test io/safetensors_fuzz replays it over mutated files.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <fp8wire/io/safetensors.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

namespace {

void demand(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "safetensors_fuzz: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  fp8wire::safetensors_header header;
  fp8wire::error why;
  const fp8wire::safetensors_fault fault = fp8wire::read_safetensors(file, "f", header, why);
  demand(static_cast<bool>(why) == (fault != fp8wire::safetensors_fault::none), "a fault and its error come together");
  if (fault != fp8wire::safetensors_fault::none) {
    demand(header.tensors.empty() && header.metadata.empty(), "a refused header is empty");
    demand(!why.message().empty() && !fp8wire::name_of(fault).empty(), "a fault has words");
    return 0;
  }
  demand(header.file_bytes() == static_cast<fp8wire::i64>(size), "the header accounts for every byte");
  fp8wire::i64 end = 0;
  std::set<std::string> names;
  std::vector<fp8wire::tensor_spec> specs;
  for (const auto& one : header.tensors) {
    demand(one.begin == end && one.end >= end, "tensors lie without gaps");
    demand(one.end - one.begin == fp8wire::byte_count(one.dtype, one.shape), "bytes are those of dtype and shape");
    demand(names.insert(one.name).second && header.find(one.name) == &one, "names are unique and found");
    end = one.end;
    specs.push_back(one);
  }
  const auto again = fp8wire::lay_out_safetensors(specs, header.metadata, "f");
  // The writer's own limits may refuse: a header that grows over the limit when it is padded or escaped.
  if (!again.ok()) return demand(size > 1'000'000, "what was read can be written"), 0;
  std::string written = again->head;
  written.resize(static_cast<std::size_t>(again->header.file_bytes()));
  const auto reread =
      fp8wire::read_safetensors({reinterpret_cast<const std::byte*>(written.data()), written.size()}, "g");
  demand(reread.ok(), "what was written can be read");
  demand(reread->tensors == again->header.tensors && reread->metadata == header.metadata, "nothing changes on the way");
  return 0;
}
