// SPDX-License-Identifier: Apache-2.0
/// A checkpoint to read: one safetensors file, or a Hugging Face folder of them, as one ordered list of tensors.
///
/// Where a folder has an index, each name is read only from the file that the index gives: a weight and its scales may
/// lie in different shards, and a tensor that lies elsewhere too is ignored there. `total_size` is not believed.
#ifndef FP8WIRE_IO_CHECKPOINT_HPP
#define FP8WIRE_IO_CHECKPOINT_HPP
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fp8wire/io/json.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors.hpp>

FP8WIRE_ABI_BEGIN

/// A tensor of a checkpoint.
struct checkpoint_tensor : tensor_spec {
  std::size_t shard = 0;  // index into shards()
  i64 offset = 0;  // of its bytes in the shard's file
  std::span<const std::byte> bytes;  // mapped; nothing says that they are aligned
};

/// One safetensors file of a checkpoint.
struct checkpoint_shard {
  std::string name;  // in the folder
  std::string path;  // of the file, links resolved
  safetensors_metadata metadata;
  mapped_file file;
};

/// A file of the folder that holds no tensors.
struct checkpoint_file {
  std::string name;  // relative to the folder
  std::string path;  // of the file, links resolved
  i64 bytes = 0;
};

inline constexpr std::string_view checkpoint_index_name = "model.safetensors.index.json";

namespace detail {

/// torch.save's containers by name, which run code when they are loaded.
inline bool is_pickle_name(const std::filesystem::path& name) {
  const std::string ending = name.extension().string();
  return ending == ".bin" || ending == ".pt" || ending == ".pth" || ending == ".ckpt" || ending == ".pkl";
}
/// The same by their first bytes: a zip archive, or a pickle of protocol 2 to 5.
inline bool is_pickle(std::span<const std::byte> bytes) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(bytes[i]); };
  if (bytes.size() < 4) return false;
  return (at(0) == 'P' && at(1) == 'K' && at(2) == 3 && at(3) == 4) || (at(0) == 0x80 && at(1) >= 2 && at(1) <= 5);
}
inline error pickle_error(const std::string& path) {
  return make_error(errc::unsupported, path,
                    "is a pickle, which can run code when it is loaded: convert it to safetensors first");
}

/// A file name and nothing else, so that no index leads out of its folder.
inline bool is_plain_name(std::string_view name) noexcept {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// The file that `name` stands for in `folder`, which is canonical. A link may lead elsewhere in the folder, or, from a
/// snapshot of a Hugging Face cache (snapshots/REVISION), to that cache's own blobs; nowhere else.
inline result<std::string> resolve_in(const std::filesystem::path& folder, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path real = fs::canonical(folder / name, failed);
  if (failed) return system_error((folder / name).string(), "cannot open", failed.value());
  const auto within = [&](const fs::path& outer) {
    return std::mismatch(outer.begin(), outer.end(), real.begin(), real.end()).first == outer.end();
  };
  const fs::path snapshots = folder.parent_path();
  if (within(folder) || (snapshots.filename() == "snapshots" && within(snapshots.parent_path() / "blobs")))
    return real.string();
  return make_error(errc::bad_file, (folder / name).string(),
                    "is a link that leads out of the folder, to " + real.string());
}

}  // namespace detail

/// Tensors, and everything else that a copy of the checkpoint needs. Move-only; spans stay good when it is moved.
/// All shards stay mapped: pages come in when bytes are touched and go with drop(). Threads: const calls may run at
/// once.
class checkpoint {
 public:
  checkpoint() = default;

  /// Reads every header, and no tensor. `path`: a safetensors file, or a folder with model.safetensors.index.json or
  /// else model.safetensors. Refused: pickles, malformed files, an index that names a file outside the folder or a
  /// tensor that its file does not have, and links that lead out of the folder.
  static result<checkpoint> open(const std::string& path) {
    std::error_code failed;
    checkpoint made;
    made.folder_ = std::filesystem::is_directory(path, failed);
    error why = made.folder_ ? made.open_folder(path) : made.open_file(path);
    if (why) return why;
    const auto name_at = [&](std::size_t i) -> const std::string& { return made.tensors_[i].name; };
    made.by_name_ = detail::name_order(made.tensors_.size(), name_at);
    return made;
  }

  bool is_folder() const noexcept { return folder_; }
  bool has_index() const noexcept { return has_index_; }
  /// By shard, and in a shard in the order of the bytes: so a pass over them reads forwards.
  const std::vector<checkpoint_tensor>& tensors() const noexcept { return tensors_; }
  /// The tensor of that name, or nullptr. Cost: logarithmic.
  const checkpoint_tensor* find(std::string_view name) const {
    const i64 at = by_name_.find(name, [this](std::size_t i) -> const std::string& { return tensors_[i].name; });
    return at < 0 ? nullptr : &tensors_[static_cast<std::size_t>(at)];
  }
  /// In the order of their names.
  const std::vector<checkpoint_shard>& shards() const noexcept { return shards_; }
  /// Gives a tensor's memory back; its bytes stay readable.
  void drop(const checkpoint_tensor& one) const noexcept {
    shards_[one.shard].file.drop(one.offset, static_cast<i64>(one.bytes.size()));
  }
  /// Tensors that lie in a shard but are not its to give: {shard, name}.
  const std::vector<std::pair<std::string, std::string>>& ignored() const noexcept { return ignored_; }
  /// The text of config.json; empty where there is none.
  const std::string& config() const noexcept { return config_; }
  /// The index's "metadata", as it stands; null where there is none.
  const json::value& index_metadata() const noexcept { return index_metadata_; }
  /// Everything else in the folder, in the order of the names, but not what lies in folders whose name begins with a
  /// dot (.git, .cache) or behind a link to a folder. Shards, index and config.json are not among them.
  const std::vector<checkpoint_file>& other_files() const noexcept { return other_files_; }

 private:
  using fs_path = std::filesystem::path;

  error open_file(const std::string& path) {
    if (detail::is_pickle_name(path)) return detail::pickle_error(path);
    return add_shard(fs_path(path).filename().string(), path, nullptr);
  }

  error open_folder(const std::string& path) {
    std::error_code failed;
    const fs_path folder = std::filesystem::canonical(path, failed);
    if (failed) return detail::system_error(path, "cannot open", failed.value());
    has_index_ = std::filesystem::exists(folder / checkpoint_index_name, failed);
    std::map<std::string, std::set<std::string>> wanted;  // file -> names
    if (has_index_) {
      if (error why = read_index(folder, wanted)) return why;
    } else if (std::filesystem::exists(folder / "model.safetensors", failed)) {
      wanted["model.safetensors"];
    } else {
      return nothing_in(folder);
    }
    for (const auto& [name, names] : wanted) {
      if (!std::filesystem::exists(folder / name, failed))
        return make_error(errc::missing, name, "the index names this file, and the folder does not have it");
      const auto file = detail::resolve_in(folder, name);
      if (!file) return file.error();
      if (error why = add_shard(name, *file, has_index_ ? &names : nullptr)) return why;
    }
    if (std::filesystem::exists(folder / "config.json", failed)) {
      if (error why = read_text(folder, "config.json", config_)) return why;
      if (config_.empty()) return make_error(errc::bad_file, (folder / "config.json").string(), "is empty");
    }
    return list_others(folder, wanted);
  }

  static error nothing_in(const fs_path& folder) {
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder, failed); !failed && at != std::filesystem::directory_iterator();
         at.increment(failed))
      if (detail::is_pickle_name(at->path())) return detail::pickle_error(at->path().string());
    return make_error(errc::missing, folder.string(), "has neither model.safetensors.index.json nor model.safetensors");
  }

  static error read_text(const fs_path& folder, const std::string& name, std::string& text) {
    const auto path = detail::resolve_in(folder, name);
    if (!path) return path.error();
    const auto file = mapped_file::open(*path);
    if (!file) return file.error();
    const auto bytes = file->bytes();
    if (const json::limits most; bytes.size() > static_cast<u64>(most.bytes))
      return make_error(errc::bad_file, *path, "is too large", static_cast<i64>(bytes.size()), most.bytes);
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

  error read_index(const fs_path& folder, std::map<std::string, std::set<std::string>>& wanted) {
    std::string text;
    if (error why = read_text(folder, std::string(checkpoint_index_name), text)) return why;
    const auto index = json::parse(text, checkpoint_index_name);
    if (!index) return index.error();
    const json::value* map = index->find("weight_map");
    if (map == nullptr || !map->is(json::kind::object) || map->items().empty())
      return make_error(errc::bad_header, std::string(checkpoint_index_name), "has no weight_map of names to files");
    for (std::size_t i = 0; i < map->keys().size(); ++i) {
      const std::string& name = map->keys()[i];
      const json::value& file = map->items()[i];
      if (!file.is(json::kind::string) || !detail::is_plain_name(file.text()))
        return make_error(
            errc::bad_file, name,
            "the index gives no file of this folder for it, but " + (file.text().empty() ? "nothing" : file.text()));
      if (detail::is_pickle_name(file.text())) return detail::pickle_error(file.text());
      wanted[file.text()].insert(name);
    }
    if (const json::value* metadata = index->find("metadata")) index_metadata_ = *metadata;
    return {};
  }

  /// `wanted`: the names that are this file's to give, or nullptr for all.
  error add_shard(const std::string& name, const std::string& path, const std::set<std::string>* wanted) {
    auto file = mapped_file::open(path);
    if (!file) return file.error();
    const auto bytes = file->bytes();
    auto header = read_safetensors(bytes, name);
    if (!header) return detail::is_pickle(bytes) ? detail::pickle_error(path) : header.error();
    if (wanted != nullptr) {
      for (const std::string& one : *wanted)
        if (header->find(one) == nullptr)
          return make_error(errc::missing, one, "the index says that it is in " + name + ", and it is not");
    }
    for (safetensors_entry& one : header->tensors) {
      if (wanted != nullptr && !wanted->contains(one.name)) {
        ignored_.emplace_back(name, one.name);
        continue;
      }
      const i64 offset = header->data_begin + one.begin;
      const auto part = bytes.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(one.end - one.begin));
      tensors_.push_back({std::move(static_cast<tensor_spec&>(one)), shards_.size(), offset, part});
    }
    shards_.push_back({name, path, std::move(header->metadata), std::move(file).value()});
    return {};
  }

  error list_others(const fs_path& folder, const std::map<std::string, std::set<std::string>>& shards) {
    namespace fs = std::filesystem;
    std::error_code failed;
    fs::recursive_directory_iterator at(folder, failed);
    for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
      std::error_code unknown;
      if (at->is_directory(unknown)) {
        if (at->path().filename().string().starts_with('.')) at.disable_recursion_pending();
        continue;
      }
      const std::string name = at->path().lexically_relative(folder).string();
      if (shards.contains(name) || name == "config.json" || name == checkpoint_index_name) continue;
      if (!at->is_symlink(unknown) && !at->is_regular_file(unknown)) continue;  // a socket is not data
      const auto path = detail::resolve_in(folder, name);
      if (!path) return path.error();
      const auto bytes = fs::file_size(*path, unknown);
      if (unknown) return detail::system_error(*path, "cannot open", unknown.value());
      other_files_.push_back({name, *path, static_cast<i64>(bytes)});
    }
    if (failed) return detail::system_error(folder.string(), "cannot list", failed.value());
    std::sort(other_files_.begin(), other_files_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return {};
  }

  bool folder_ = false, has_index_ = false;
  std::vector<checkpoint_tensor> tensors_;
  std::vector<checkpoint_shard> shards_;
  std::vector<std::pair<std::string, std::string>> ignored_;
  std::vector<checkpoint_file> other_files_;
  std::string config_;
  json::value index_metadata_;
  detail::name_order by_name_;
};

FP8WIRE_ABI_END
#endif
