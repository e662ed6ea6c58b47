// SPDX-License-Identifier: Apache-2.0
/// What an engine serves, as the file that fp8-convert would have written.
#ifndef FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#define FP8WIRE_EXAMPLES_REFIT_SERVED_DUMP_HPP
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include <fp8wire/io/atomic_output.hpp>
#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors_writer.hpp>
#include <fp8wire/wire/manifest.hpp>

#include "../common/program.hpp"
#include "update_source.hpp"

namespace programs {

/// What stands in the file: tensors in canonical layout, and what it says about itself.
struct dump_settings {
  fp8wire::safetensors_metadata metadata;
  const fp8wire::manifest* canonical = nullptr;
};

/// DIR/engine<E>-v<V>.safetensors, whole or not there at all. fill(item, first, second) writes the bytes of one item of
/// the canonical manifest: codes and scales, or those of a kept tensor and nothing.
template <class Fill> fp8wire::error write_dump(int engine, fp8wire::u64 version, const dump_settings& dump,
                                                const refit_settings& settings, const Fill& fill) {
  const std::string path = fmt::format("{}/engine{}-v{}.safetensors", settings.dump_folder, engine, version);
  const fp8wire::manifest& tensors = *dump.canonical;
  std::vector<fp8wire::tensor_spec> specs;
  for (const fp8wire::manifest_entry& entry : tensors.entries())
    specs.push_back({entry.name, entry.dtype, entry.shape});
  const auto layout = fp8wire::lay_out_safetensors(std::move(specs), dump.metadata, path);
  if (!layout) return layout.error();
  const fp8wire::safetensors_header& header = layout->header;
  const fp8wire::i64 data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;

  // Nobody asked for the temporary: errors are about the file.
  const auto about_target = [&](fp8wire::error why) {
    if (why) why.tensor = path;
    return why;
  };
  auto target = fp8wire::atomic_output::file(path, fp8wire::existing::replace);
  if (!target) return about_target(target.error());
  auto file = fp8wire::mapped_output::create(target->path(), header.data_begin + data_bytes);
  if (!file) return about_target(file.error());
  std::memcpy(file->bytes().data(), layout->head.data(), layout->head.size());
  std::vector<std::span<std::byte>> places(tensors.entries().size());
  for (const fp8wire::safetensors_entry& one : header.tensors)
    places[static_cast<std::size_t>(tensors.find(one.name))] = file->bytes().subspan(
        static_cast<std::size_t>(header.data_begin + one.begin), static_cast<std::size_t>(one.end - one.begin));
  for (std::size_t item = 0; item < tensors.items().size(); ++item) {
    const fp8wire::manifest_item& one = tensors.items()[item];
    if (fp8wire::error wrong = fill(item, places[one.first_entry],
                                    one.entries == 2 ? places[one.first_entry + 1] : std::span<std::byte>{}))
      return wrong;
  }
  *file = fp8wire::mapped_output();
  return about_target(target->commit());
}

/// --dump DIR, made if it is not there. What dead engines left half-written in it goes at the beginning and at the end,
/// and so does a folder that was made for nothing.
class dump_folder {
 public:
  explicit dump_folder(std::string folder) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    made_ = ::mkdir(folder_.c_str(), 0777) == 0;
    if (!made_ && errno != EEXIST) refuse("{}: cannot make the folder: {}", folder_, std::strerror(errno));
    struct stat status{};
    if (::stat(folder_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) refuse("{}: is no folder", folder_);
    if (::access(folder_.c_str(), W_OK | X_OK) != 0)
      refuse("{}: nothing can be written there: {}", folder_, std::strerror(errno));
    sweep();
  }
  dump_folder(const dump_folder&) = delete;
  dump_folder& operator=(const dump_folder&) = delete;
  ~dump_folder() {
    if (folder_.empty()) return;
    sweep();
    if (made_) ::rmdir(folder_.c_str());  // fails where there are dumps
  }

 private:
  void sweep() const {
    namespace fs = std::filesystem;
    std::error_code failed;
    std::vector<fs::path> found;
    for (fs::directory_iterator at(folder_, failed); !failed && at != fs::directory_iterator(); at.increment(failed)) {
      const std::string name = at->path().filename().string();
      const std::size_t digits = name.rfind(".tmp-");
      if (name.starts_with(".engine") && digits != name.npos &&
          fp8wire::detail::is_left_over(at->path().string(), std::string_view(name).substr(digits + 5)))
        found.push_back(at->path());
    }
    for (const fs::path& path : found) fs::remove(path, failed);
  }
  std::string folder_;
  bool made_ = false;
};

}  // namespace programs
#endif
