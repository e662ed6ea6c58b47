// SPDX-License-Identifier: Apache-2.0
/// A checkpoint to read: one safetensors file, or a folder of shards under one name.
#ifndef FP8WIRE_EXAMPLES_SOURCE_HPP
#define FP8WIRE_EXAMPLES_SOURCE_HPP
#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fp8wire/io/mapped_file.hpp>
#include <fp8wire/io/safetensors.hpp>

#include "program.hpp"

namespace programs {

/// Tensors by name, mapped; read-only.
class source {
 public:
  struct tensor {
    fp8wire::tensor_spec spec;
    std::span<const std::byte> bytes;
    std::size_t file = 0;
    fp8wire::i64 at = 0;
  };

  explicit source(const std::string& path) {
    namespace fs = std::filesystem;
    std::vector<std::string> paths;
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::directory_iterator(path))
        if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
      std::sort(paths.begin(), paths.end());
      if (paths.empty()) refuse("{}: no *.safetensors file in it", path);
    } else {
      paths.push_back(path);
    }
    for (const std::string& one : paths) {
      files_.push_back(must(fp8wire::mapped_file::open(one)));
      const auto bytes = files_.back().bytes();
      const auto header = must(fp8wire::read_safetensors(bytes, one));
      for (const auto& [key, value] : header.metadata) metadata_[key] = value;
      for (const auto& entry : header.tensors) {
        const fp8wire::i64 at = header.data_begin + entry.begin;
        const bool fresh =
            tensors_
                .emplace(entry.name, tensor{entry,
                                            bytes.subspan(static_cast<std::size_t>(at),
                                                          static_cast<std::size_t>(entry.end - entry.begin)),
                                            files_.size() - 1, at})
                .second;
        if (!fresh) refuse("{}: stands in two files of {}", entry.name, path);
      }
    }
  }

  const std::map<std::string, tensor>& tensors() const { return tensors_; }
  const tensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Gives a tensor's memory back.
  void drop(const tensor& one) const { files_[one.file].drop(one.at, static_cast<fp8wire::i64>(one.bytes.size())); }

 private:
  std::vector<fp8wire::mapped_file> files_;
  std::map<std::string, tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace programs
#endif
