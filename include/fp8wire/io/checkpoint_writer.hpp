// SPDX-License-Identifier: Apache-2.0
/// A checkpoint to write: a safetensors file or a folder of them, filled in any order, in place whole or not at all.
///
/// What can be refused is refused before any work: names, header sizes, room on the disk. All files are made and mapped
/// then, so that codes and scales are quantized straight into them, also where they lie in different shards.
#ifndef FP8WIRE_IO_CHECKPOINT_WRITER_HPP
#define FP8WIRE_IO_CHECKPOINT_WRITER_HPP
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fp8wire/io/atomic_output.hpp>
#include <fp8wire/io/checkpoint.hpp>
#include <fp8wire/io/output_checks.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

FP8WIRE_ABI_BEGIN

/// One safetensors file to write.
struct shard_spec {
  std::string name;  // in the folder
  std::vector<tensor_spec> tensors;
  safetensors_metadata metadata;
};

/// A file as an index sees it.
struct indexed_shard {
  std::string_view name;
  const safetensors_header* header;
};

/// The text of model.safetensors.index.json: every name and its file, in the order of the names, and `metadata`, an
/// object or null, with the true total_size, which is that of the tensors.
inline std::string checkpoint_index(std::span<const indexed_shard> shards, json::value metadata) {
  std::vector<std::pair<std::string_view, std::string_view>> files;
  i64 total = 0;
  for (const indexed_shard& shard : shards) {
    for (const safetensors_entry& one : shard.header->tensors) {
      files.emplace_back(one.name, shard.name);
      total += one.end - one.begin;
    }
  }
  std::sort(files.begin(), files.end());
  if (!metadata.is(json::kind::object)) metadata = json::value::object();
  metadata["total_size"] = total;
  json::value map = json::value::object(), index;
  for (const auto& [name, file] : files) map.append(name) = file;
  index["metadata"] = std::move(metadata);
  index["weight_map"] = std::move(map);
  return json::write(index);
}

/// Fill every tensor's bytes, finish(), look at what lies at path() if you like, and commit(). Move-only; destroyed
/// without a commit it leaves nothing. Threads: bytes of different tensors may be written at once.
class checkpoint_writer {
 public:
  checkpoint_writer() = default;

  /// For one file at `target`.
  static result<checkpoint_writer> file(const std::string& target, existing what, std::vector<tensor_spec> tensors,
                                        safetensors_metadata metadata) {
    checkpoint_writer made;
    std::vector<shard_spec> shards;
    shards.push_back({std::filesystem::path(target).filename().string(), std::move(tensors), std::move(metadata)});
    if (error why = made.lay_out(std::move(shards))) return why;
    auto output = atomic_output::file(target, what);
    if (!output) return output.error();
    made.output_ = std::move(output).value();
    if (error why = made.make_files()) return why;
    return made;
  }

  /// For a folder at `target` with these shards, which takes all other files from `like` when it is finished, and an
  /// index where `like` has one. `like` is read in finish() for the last time.
  static result<checkpoint_writer> folder(const std::string& target, existing what, std::vector<shard_spec> shards,
                                          const checkpoint& like) {
    checkpoint_writer made;
    made.like_ = &like;
    made.disk_bytes_ = static_cast<i64>(like.config().size());
    for (const checkpoint_file& one : like.other_files()) made.disk_bytes_ += one.bytes;
    if (error why = made.lay_out(std::move(shards))) return why;
    auto output = atomic_output::folder(target, what);
    if (!output) return output.error();
    made.output_ = std::move(output).value();
    if (error why = made.make_files()) return why;
    return made;
  }

  /// Where everything is written until the commit: a file or a folder.
  const std::string& path() const noexcept { return output_.path(); }
  /// A tensor's bytes, zero until they are written; empty for a name that is not to be written. Not aligned.
  std::span<std::byte> bytes(std::string_view tensor) const {
    const auto [at, entry] = find(tensor);
    if (entry == nullptr) return {};
    return at->file.bytes().subspan(static_cast<std::size_t>(at->layout.header.data_begin + entry->begin),
                                    static_cast<std::size_t>(entry->end - entry->begin));
  }
  /// Gives a tensor's memory back; what was written stays.
  void drop(std::string_view tensor) const {
    const auto [at, entry] = find(tensor);
    if (entry != nullptr) at->file.drop(at->layout.header.data_begin + entry->begin, entry->end - entry->begin);
  }

  /// Ends the writing of tensors and adds the other files, `config` as config.json unless it is empty, and the index.
  error finish(std::string_view config = {}) {
    for (shard& one : shards_) one.file = {};
    if (like_ == nullptr) return {};
    for (const checkpoint_file& one : like_->other_files()) {
      const std::filesystem::path to = std::filesystem::path(path()) / one.name;
      std::error_code failed;
      std::filesystem::create_directories(to.parent_path(), failed);
      if (!failed) std::filesystem::copy_file(one.path, to, failed);
      if (failed) return detail::system_error(to.string(), "cannot copy from " + one.path, failed.value());
    }
    if (!config.empty()) {
      if (error why = write_text("config.json", config)) return why;
    }
    if (!like_->has_index()) return {};
    std::vector<indexed_shard> indexed;
    for (const shard& one : shards_) indexed.push_back({one.name, &one.layout.header});
    return write_text(checkpoint_index_name, checkpoint_index(indexed, like_->index_metadata()));
  }
  /// Puts everything in place. Expects: finish() succeeded.
  error commit() { return output_.commit(); }

 private:
  struct shard {
    std::string name;
    safetensors_layout layout;
    mapped_output file;
  };

  error lay_out(std::vector<shard_spec> specs) {
    for (shard_spec& spec : specs) {
      if (!detail::is_plain_name(spec.name)) return make_error(errc::bad_argument, spec.name, "is no name for a shard");
      auto layout = lay_out_safetensors(std::move(spec.tensors), std::move(spec.metadata), spec.name);
      if (!layout) return layout.error();
      if (__builtin_add_overflow(disk_bytes_, layout->header.file_bytes(), &disk_bytes_))
        return make_error(errc::overflow, spec.name, "more than 2^63 bytes with the shards before it");
      shards_.push_back({std::move(spec.name), std::move(layout).value(), {}});
    }
    for (std::size_t i = 0; i < shards_.size(); ++i)
      for (std::size_t j = 0; j < shards_[i].layout.header.tensors.size(); ++j) places_.emplace_back(i, j);
    by_name_ = detail::name_order(places_.size(), name_at());
    if (const i64 twice = by_name_.duplicate(name_at()); twice >= 0)
      return make_error(errc::duplicate, name_at()(static_cast<std::size_t>(twice)), "stands in two shards");
    return {};
  }

  error make_files() {
    const std::filesystem::path parent = std::filesystem::path(output_.path()).parent_path();
    if (error why = check_free_space(parent.empty() ? "." : parent.string(), disk_bytes_)) return why;
    for (shard& one : shards_) {
      auto file =
          mapped_output::create(like_ == nullptr ? path() : path() + "/" + one.name, one.layout.header.file_bytes());
      if (!file) return file.error();
      one.file = std::move(file).value();
      std::memcpy(one.file.bytes().data(), one.layout.head.data(), one.layout.head.size());
    }
    return {};
  }

  error write_text(std::string_view name, std::string_view text) const {
    const auto file = mapped_output::create(path() + "/" + std::string(name), static_cast<i64>(text.size()));
    if (!file) return file.error();
    std::memcpy(file->bytes().data(), text.data(), text.size());
    return {};
  }

  struct name_reader {
    const checkpoint_writer* from;
    const std::string& operator()(std::size_t i) const {
      const auto [at, tensor] = from->places_[i];
      return from->shards_[at].layout.header.tensors[tensor].name;
    }
  };
  name_reader name_at() const noexcept { return {this}; }
  std::pair<const shard*, const safetensors_entry*> find(std::string_view tensor) const {
    const i64 found = by_name_.find(tensor, name_at());
    if (found < 0) return {nullptr, nullptr};
    const auto [at, place] = places_[static_cast<std::size_t>(found)];
    return {&shards_[at], &shards_[at].layout.header.tensors[place]};
  }

  const checkpoint* like_ = nullptr;
  atomic_output output_;
  std::vector<shard> shards_;
  i64 disk_bytes_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // shard and tensor
  detail::name_order by_name_;
};

FP8WIRE_ABI_END
#endif
