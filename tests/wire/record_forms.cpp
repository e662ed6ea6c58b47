// SPDX-License-Identifier: Apache-2.0
// Writes one update in the wire forms of other frameworks, as each of them is given it: record_forms FOLDER
#include <fstream>
#include <iostream>

#include <fp8wire/detail/json_text.hpp>

#include "forms_fixture.hpp"

namespace {

namespace fw = fp8wire;
namespace forms = fp8wire::forms;

std::string quoted(std::string_view text) {
  std::string out;
  fw::detail::append_json_string(out, text);
  return out;
}

std::string list(const std::vector<fw::i64>& shape) {
  std::string out = "[";
  for (const fw::i64 extent : shape) out.append(out.size() > 1 ? ", " : "").append(std::to_string(extent));
  return out + "]";
}

// A row as FlattenedTensorMetadata and as checkpoint-engine's worker know it.
std::string row_json(const forms::row& one) {
  return "{\"name\": " + quoted(one.name) + ", \"dtype\": " + quoted(forms::torch_name(one.dtype)) +
         ", \"shape\": " + list(one.shape) + ", \"start_idx\": " + std::to_string(one.offset) +
         ", \"end_idx\": " + std::to_string(one.offset + one.bytes) + "}";
}

class recording {
 public:
  explicit recording(std::string folder) : folder_(std::move(folder)), bytes_(test::noise_of(tensors)) {}

  // What each reader is told of a buffer: its rows, its names, or nothing.
  enum class told { rows, names, nothing };

  bool write(const std::string& form, const fw::result<fw::placement>& where, told what, const std::string& more = "") {
    if (!where) return std::cerr << form << ": " << where.error().message() << "\n", false;
    std::string buffers;
    for (fw::u32 b = 0; b < where->buffer_bytes.size(); ++b) {
      std::vector<std::byte> out(static_cast<std::size_t>(where->buffer_bytes[b]));
      const auto bytes_of = [&](fw::u32 entry) { return std::span<const std::byte>(bytes_[entry]); };
      if (fw::error wrong = forms::fill(tensors, *where, b, bytes_of, out))
        return std::cerr << form << ": " << wrong.message() << "\n", false;
      const std::string file = form + "-" + std::to_string(b) + ".bin";
      save(file, out);
      std::string rows, names;
      for (const forms::row& one : forms::rows_of(tensors, *where, b)) {
        rows.append(rows.empty() ? "" : ", ").append(row_json(one));
        names.append(names.empty() ? "" : ", ").append(quoted(one.name));
      }
      buffers.append(buffers.empty() ? "" : ",\n    ").append("{\"file\": " + quoted(file));
      if (what == told::rows) buffers.append(", \"rows\": [" + rows + "]");
      if (what == told::names) buffers.append(", \"names\": [" + names + "], \"used\": " + std::to_string(out.size()));
      buffers.append("}");
    }
    text_.append(text_.empty() ? "" : ",\n")
        .append("  " + quoted(form) + ": {" + more + "\"buffers\": [\n    " + buffers);
    text_.append("]}");
    return true;
  }
  // state_dict_info and the bytes that must come out.
  void finish() {
    std::string info;
    for (std::size_t e = 0; e < tensors.entries().size(); ++e) {
      const fw::manifest_entry& entry = tensors.entries()[e];
      info.append(info.empty() ? "" : ",\n    ");
      info.append("[" + quoted(entry.name) + ", " + quoted(forms::torch_name(entry.dtype)) + ", " + list(entry.shape));
      info.append(", " + quoted(tensors.units()[tensors.items()[entry.item].unit]) + "]");
      save("expected-" + std::to_string(e) + ".bin", bytes_[e]);
    }
    std::ofstream(folder_ + "/forms.json") << "{\"state_dict_info\": [\n    " << info << "],\n" << text_ << "\n}\n";
  }

  const fw::manifest tensors = test::odd_update();

 private:
  void save(const std::string& file, const std::vector<std::byte>& bytes) const {
    std::ofstream(folder_ + "/" + file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::string folder_, text_;
  std::vector<std::vector<std::byte>> bytes_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: record_forms FOLDER\n", 1;
  recording all(argv[1]);
  const fw::plan wire = fw::make_plan(all.tensors, {3000, 256, 2, false, false}).value();
  using told = recording::told;
  using forms::split_units;
  bool good =
      all.write("flattened", forms::flattened_buckets(all.tensors, wire, forms::bucket_padding::aligned), told::rows);
  good = good && all.write("per-dtype", forms::dtype_posts(all.tensors, wire, split_units::accept), told::rows);
  good = good && all.write("ipc", forms::ipc_groups(all.tensors, wire, 1 << 20), told::names);
  good = good && all.write("ipc-solo", forms::ipc_groups(all.tensors, wire, 4096, split_units::accept), told::names);
  for (const fw::u64 threshold : {fw::u64{100}, fw::u64{1000}, fw::u64{1} << 20})
    good = good && all.write("packed-" + std::to_string(threshold),
                             forms::packed_broadcast(all.tensors, threshold, split_units::accept), told::nothing,
                             "\"threshold\": " + std::to_string(threshold) + ", ");
  good = good && all.write("packed-safe", forms::packed_broadcast(all.tensors, wire), told::names);
  good = good && all.write("checkpoint-engine", forms::checkpoint_buckets(all.tensors, wire, 1 << 15), told::rows,
                           "\"bucket\": 32768, ");
  if (good) all.finish();
  return good ? 0 : 1;
}
