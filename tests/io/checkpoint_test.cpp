// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/checkpoint.hpp>
#include <fp8wire/io/safetensors_writer.hpp>

#include <sys/stat.h>

#include "support.hpp"

namespace {
namespace fs = std::filesystem;
using fp8wire::checkpoint;
using fp8wire::dtype;
using fp8wire::errc;
using fp8wire::i64;

/// A file of U8 vectors whose bytes are the last letter of their name.
std::string shard_of(const std::vector<std::string>& names, i64 size = 2) {
  std::vector<fp8wire::tensor_spec> specs;
  for (const std::string& name : names) specs.push_back({name, dtype::uint8, {size}});
  const auto made = fp8wire::lay_out_safetensors(specs, {{"format", "pt"}}, "f");
  REQUIRE(made.ok());
  std::string file = made->head;
  for (const auto& one : made->header.tensors)
    file.append(static_cast<std::size_t>(one.end - one.begin), one.name.back());
  return file;
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string refusal(const fs::path& path) {
  const auto opened = checkpoint::open(path.string());
  return opened.ok() ? "" : opened.error().message();
}
void write_index(const io_test::folder& dir, std::string_view weight_map) {
  io_test::write_file(dir / "model.safetensors.index.json",
                      "{\"metadata\": {\"total_size\": 1}, \"weight_map\": " + std::string(weight_map) + "}");
}
}  // namespace

TEST_CASE("a single file is a checkpoint of one shard") {
  const io_test::folder dir;
  io_test::write_file(dir / "x.safetensors", shard_of({"b", "a"}));
  auto opened = checkpoint::open((dir / "x.safetensors").string());
  REQUIRE(opened.ok());
  const checkpoint moved = std::move(opened).value();
  CHECK_FALSE(moved.is_folder());
  REQUIRE(moved.tensors().size() == 2);
  CHECK(moved.tensors()[0].name == "a");
  CHECK(moved.find("b") == &moved.tensors()[1]);
  CHECK(moved.find("c") == nullptr);
  CHECK(text_of(moved.find("b")->bytes) == "bb");
  moved.drop(*moved.find("b"));
  CHECK(text_of(moved.find("b")->bytes) == "bb");
  REQUIRE(moved.shards().size() == 1);
  CHECK(moved.shards()[0].name == "x.safetensors");
  CHECK(moved.shards()[0].metadata == fp8wire::safetensors_metadata{{"format", "pt"}});
  CHECK(moved.other_files().empty());
  CHECK(moved.config().empty());
}

TEST_CASE("a folder without an index is its model.safetensors") {
  const io_test::folder dir;
  io_test::write_file(dir / "model.safetensors", shard_of({"a"}));
  io_test::write_file(dir / "config.json", "{\"model_type\": \"qwen3\"}");
  io_test::write_file(dir / "tokenizer.json", "12345");
  fs::create_directories(dir / "sub" / "deep");
  io_test::write_file(dir / "sub" / "deep" / "x", "x");
  fs::create_directories(dir / ".git");
  io_test::write_file(dir / ".git" / "x", "x");
  io_test::write_file(dir / ".gitattributes", "x");
  io_test::write_file(dir / "sub" / "config.json", "x");
  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  const auto opened = checkpoint::open(dir.path().string() + "/");
  REQUIRE(opened.ok());
  CHECK(opened->is_folder());
  CHECK_FALSE(opened->has_index());
  CHECK(opened->index_metadata().is(fp8wire::json::kind::null));
  CHECK(opened->config() == "{\"model_type\": \"qwen3\"}");
  std::vector<std::string> names;
  for (const auto& one : opened->other_files()) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{".gitattributes", "sub/config.json", "sub/deep/x", "tokenizer.json"});
  CHECK(opened->other_files()[3].bytes == 5);
  CHECK(opened->other_files()[3].path == (dir / "tokenizer.json").string());
}

TEST_CASE("every index case of the vectors: each name is read from the file that the index gives, and only there") {
  int seen = 0;
  for (const auto& one : io_test::vectors("safetensors_cases.json")) {
    if (io_test::member(one, "kind").text() != "index_check") continue;
    const std::string id = io_test::member(one, "id").text();
    CAPTURE(id);
    const io_test::folder dir;
    const auto& input = io_test::member(one, "input");
    const auto& files = io_test::member(input, "files");
    for (std::size_t i = 0; i < files.keys().size(); ++i) {
      std::vector<std::string> names;
      for (const auto& name : files.items()[i].items()) names.push_back(name.text());
      io_test::write_file(dir / files.keys()[i], shard_of(names));
    }
    const auto& map = io_test::member(input, "weight_map");
    write_index(dir, fp8wire::json::write(map));
    const auto opened = checkpoint::open(dir.path().string());
    REQUIRE(opened.ok());
    CHECK(opened->tensors().size() == map.keys().size());
    const auto& expect = io_test::member(one, "expect");
    if (const auto* load = expect.find("load")) {
      for (std::size_t i = 0; i < load->keys().size(); ++i)
        CHECK(opened->shards()[opened->find(load->keys()[i])->shard].name == load->items()[i].text());
    }
    if (const auto* ignored = expect.find("ignored")) {
      std::vector<std::pair<std::string, std::string>> pairs;
      for (const auto& pair : ignored->items()) pairs.emplace_back(pair.items()[0].text(), pair.items()[1].text());
      CHECK(opened->ignored() == pairs);
    }
    if (const auto* pairs = expect.find("pairs")) {
      for (const auto& pair : pairs->items())
        CHECK(opened->find(pair.items()[0].text())->shard != opened->find(pair.items()[1].text())->shard);
    }
    ++seen;
  }
  CHECK(seen == 2);
}

TEST_CASE("an index and its files must agree, and total_size is not believed") {
  const io_test::folder dir;
  io_test::write_file(dir / "m-1.safetensors", shard_of({"a"}));
  io_test::write_file(dir / "m-2.safetensors", shard_of({"b"}));
  io_test::write_file(dir / "model.safetensors", "not read where there is an index");
  write_index(dir, R"({"b": "m-2.safetensors", "a": "m-1.safetensors"})");
  {
    const auto opened = checkpoint::open(dir.path().string());
    REQUIRE(opened.ok());
    CHECK(opened->shards()[0].name == "m-1.safetensors");
    CHECK(opened->tensors()[0].name == "a");
    CHECK(opened->tensors()[1].shard == 1);
    CHECK(opened->index_metadata().find("total_size")->text() == "1");
    REQUIRE(opened->other_files().size() == 1);
    CHECK(opened->other_files()[0].name == "model.safetensors");
  }
  write_index(dir, R"({"a": "m-1.safetensors", "c": "m-2.safetensors"})");
  CHECK(refusal(dir.path()) == "c: the index says that it is in m-2.safetensors, and it is not");
  write_index(dir, R"({"a": "m-1.safetensors", "b": "m-3.safetensors"})");
  CHECK(refusal(dir.path()) == "m-3.safetensors: the index names this file, and the folder does not have it");
  for (const char* map : {"{}", "[]", "null", "{\"a\": 1}", "{\"a\": {}}",
                          "{\"a\": \"m-1.safetensors\", \"a\": \"m-2.safetensors\"}", "{"}) {
    CAPTURE(map);
    write_index(dir, map);
    CHECK_FALSE(refusal(dir.path()).empty());
  }
}

TEST_CASE("no index and no link leads out of the folder") {
  const io_test::folder dir, elsewhere;
  io_test::write_file(elsewhere / "secret.safetensors", shard_of({"a"}));
  for (const std::string& name :
       {elsewhere.path().string() + "/secret.safetensors",
        "../" + elsewhere.path().filename().string() + "/secret.safetensors", std::string("./m.safetensors"),
        std::string("sub/m.safetensors"), std::string(".."), std::string("."), std::string()}) {
    CAPTURE(name);
    write_index(dir, "{\"a\": \"" + name + "\"}");
    CHECK(refusal(dir.path()).find("a: the index gives no file of this folder for it") == 0);
  }
  write_index(dir, "{\"a\": \"m.safetensors\"}");
  fs::create_symlink(elsewhere / "secret.safetensors", dir / "m.safetensors");
  CHECK(refusal(dir.path()).find("is a link that leads out of the folder") != std::string::npos);
  fs::remove(dir / "m.safetensors");
  io_test::write_file(dir / "real.safetensors", shard_of({"a"}));
  fs::create_symlink("real.safetensors", dir / "m.safetensors");
  CHECK(refusal(dir.path()).empty());
  fs::create_symlink(elsewhere / "secret.safetensors", dir / "tokenizer.json");
  CHECK(refusal(dir.path()).find("is a link that leads out of the folder") != std::string::npos);
  fs::remove(dir / "tokenizer.json");
  fs::create_symlink("nowhere", dir / "tokenizer.json");
  CHECK(refusal(dir.path()).find("cannot open: No such file") != std::string::npos);
}

TEST_CASE("a snapshot of a Hugging Face cache is read through its links to the cache's blobs, and to those only") {
  const io_test::folder dir;
  fs::create_directories(dir / "models--x" / "snapshots" / "abc");
  fs::create_directories(dir / "models--x" / "blobs");
  fs::create_directories(dir / "models--y" / "blobs");
  const fs::path snapshot = dir / "models--x" / "snapshots" / "abc";
  io_test::write_file(dir / "models--x" / "blobs" / "0123", shard_of({"a"}));
  io_test::write_file(dir / "models--y" / "blobs" / "0123", shard_of({"a"}));
  fs::create_symlink("../../blobs/0123", snapshot / "model.safetensors");
  const auto opened = checkpoint::open(snapshot.string());
  REQUIRE(opened.ok());
  CHECK(opened->shards()[0].name == "model.safetensors");
  CHECK(text_of(opened->find("a")->bytes) == "aa");
  fs::create_directories(dir / "models--x" / "revisions" / "abc");  // the same by another name is no cache
  fs::create_symlink("../../blobs/0123", dir / "models--x" / "revisions" / "abc" / "model.safetensors");
  CHECK(refusal(dir / "models--x" / "revisions" / "abc").find("leads out of the folder") != std::string::npos);
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../models--y/blobs/0123", snapshot / "model.safetensors");
  CHECK(refusal(snapshot).find("is a link that leads out of the folder") != std::string::npos);
}

TEST_CASE("pickles are answered with what to do about them") {
  const io_test::folder dir;
  const auto told = [](const std::string& message) {
    return message.find("convert it to safetensors first") != std::string::npos;
  };
  io_test::write_file(dir / "pytorch_model.bin", "PK\3\4");
  CHECK(told(refusal(dir.path())));
  for (const char* name : {"a.bin", "a.pt", "a.pth", "a.ckpt", "a.pkl"}) {
    io_test::write_file(dir / name, "x");
    CHECK(told(refusal(dir / name)));
  }
  io_test::write_file(dir / "renamed.safetensors", std::string("PK\3\4", 4) + std::string(100, '\0'));
  CHECK(told(refusal(dir / "renamed.safetensors")));
  io_test::write_file(dir / "old.safetensors", std::string("\x80\2}q", 4) + std::string(100, '\0'));
  CHECK(told(refusal(dir / "old.safetensors")));
  write_index(dir, "{\"a\": \"pytorch_model.bin\"}");
  CHECK(told(refusal(dir.path())));
}

TEST_CASE("what is no checkpoint is refused by name") {
  const io_test::folder dir;
  CHECK(refusal(dir.path()) ==
        dir.path().string() + ": has neither model.safetensors.index.json nor model.safetensors");
  CHECK(refusal(dir / "missing") == (dir / "missing").string() + ": cannot open: No such file or directory");
  io_test::write_file(dir / "model.safetensors", "");
  CHECK(refusal(dir.path()) == "model.safetensors: the file has no room for a header: got 0, expected 8");
  fs::remove(dir / "model.safetensors");
  fs::create_directory(dir / "model.safetensors");
  CHECK_FALSE(refusal(dir.path()).empty());
}

TEST_CASE("tensors beyond 4 GiB are reached in a sparse file") {
  const io_test::folder dir;
  const i64 size = (i64{4} << 30) + 7;
  const auto made = fp8wire::lay_out_safetensors(
      {{"big", dtype::uint8, {size}}, {"a", dtype::bf16, {1}}, {"z", dtype::boolean, {3}}}, {}, "f");
  REQUIRE(made.ok());
  const std::string path = (dir / "model.safetensors").string();
  io_test::write_file(path, made->head);
  REQUIRE(truncate(path.c_str(), made->header.file_bytes()) == 0);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(made->header.data_begin + made->header.find("z")->begin);
    file << "xyz";
  }
  const auto opened = checkpoint::open(dir.path().string());
  REQUIRE(opened.ok());
  CHECK(opened->find("big")->bytes.size() == static_cast<std::size_t>(size));
  CHECK(opened->find("big")->bytes.back() == std::byte{0});
  CHECK(text_of(opened->find("z")->bytes) == "xyz");
  CHECK(opened->find("z")->offset == made->header.data_begin + 2 + size);
}
