// SPDX-License-Identifier: Apache-2.0
#include <fp8wire/io/checkpoint_writer.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "support.hpp"

namespace {
namespace fs = std::filesystem;
using fp8wire::checkpoint;
using fp8wire::checkpoint_writer;
using fp8wire::dtype;
using fp8wire::errc;
using fp8wire::existing;
using fp8wire::i64;

void fill(const checkpoint_writer& writer, const std::string& tensor, char with) {
  const auto bytes = writer.bytes(tensor);
  REQUIRE_FALSE(bytes.empty());
  std::memset(bytes.data(), with, bytes.size());
  writer.drop(tensor);
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::size_t entries_of(const io_test::folder& dir) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()));
}

/// A folder of two shards with an index, to be like.
struct original {
  io_test::folder dir;
  checkpoint read;
  original() {
    fs::create_directories(dir / "in" / "sub");
    const std::string tensor = R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
    const std::string other = R"({"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
    io_test::write_file(dir / "in" / "m-1.safetensors", io_test::file_of(tensor, "11"));
    io_test::write_file(dir / "in" / "m-2.safetensors", io_test::file_of(other, "22"));
    io_test::write_file(dir / "in" / "model.safetensors.index.json",
                        R"({"metadata": {"total_size": 99, "note": "kept"},)"
                        R"( "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
    io_test::write_file(dir / "in" / "config.json", "{}");
    io_test::write_file(dir / "in" / "tokenizer.json", "tokens");
    io_test::write_file(dir / "in" / "sub" / "empty", "");
    auto opened = checkpoint::open((dir / "in").string());
    REQUIRE(opened.ok());
    read = std::move(opened).value();
  }
};
std::vector<fp8wire::shard_spec> two_shards() {
  return {{"m-1.safetensors", {{"a", dtype::f8_e4m3, {3, 5}}, {"n", dtype::f32, {0}}}, {{"format", "pt"}}},
          {"m-2.safetensors", {{"a_scale", dtype::f32, {1, 1}}, {"b", dtype::bf16, {}}}, {}}};
}
}  // namespace

TEST_CASE("a file is filled in any order and is the safetensors file of its tensors") {
  const io_test::folder dir;
  auto writer = checkpoint_writer::file((dir / "out.safetensors").string(), existing::refuse,
                                        {{"w", dtype::f8_e4m3, {5}}, {"s", dtype::f32, {2}}}, {{"k", "v"}});
  REQUIRE(writer.ok());
  CHECK(entries_of(dir) == 1);
  fill(*writer, "w", 'w');
  fill(*writer, "s", 's');
  CHECK(writer->bytes("x").empty());
  CHECK_FALSE(writer->finish());
  CHECK(checkpoint::open(writer->path()).ok());
  CHECK_FALSE(fs::exists(dir / "out.safetensors"));
  CHECK_FALSE(writer->commit());
  const auto read = checkpoint::open((dir / "out.safetensors").string());
  REQUIRE(read.ok());
  CHECK(text_of(read->find("w")->bytes) == "wwwww");
  CHECK(text_of(read->find("s")->bytes) == "ssssssss");
  CHECK(read->shards()[0].metadata == fp8wire::safetensors_metadata{{"k", "v"}});
  CHECK(entries_of(dir) == 1);
}

TEST_CASE("a folder keeps its shards and other files and gets a config and an index with the true size") {
  const original in;
  const std::string target = (in.dir / "out").string();
  auto made = checkpoint_writer::folder(target, existing::refuse, two_shards(), in.read);
  REQUIRE(made.ok());
  checkpoint_writer writer = std::move(made).value();
  fill(writer, "b", 'b');
  fill(writer, "a", 'a');
  fill(writer, "a_scale", 's');
  CHECK(writer.bytes("n").empty());
  CHECK_FALSE(writer.finish("{\"quantized\": true}"));
  CHECK_FALSE(writer.commit());
  CHECK(io_test::read_file(target + "/config.json") == "{\"quantized\": true}");
  CHECK(io_test::read_file(target + "/tokenizer.json") == "tokens");
  CHECK(io_test::read_file(target + "/sub/empty").empty());
  CHECK(io_test::read_file(target + "/model.safetensors.index.json") ==
        "{\n  \"metadata\": {\n    \"total_size\": 21,\n    \"note\": \"kept\"\n  },\n  \"weight_map\": {\n"
        "    \"a\": \"m-1.safetensors\",\n    \"a_scale\": \"m-2.safetensors\",\n    \"b\": \"m-2.safetensors\",\n"
        "    \"n\": \"m-1.safetensors\"\n  }\n}\n");
  const auto read = checkpoint::open(target);
  REQUIRE(read.ok());
  CHECK(text_of(read->find("a")->bytes) == std::string(15, 'a'));
  CHECK(text_of(read->find("a_scale")->bytes) == "ssss");
  CHECK(text_of(read->find("b")->bytes) == "bb");
  CHECK(read->find("n")->bytes.empty());
  CHECK(read->other_files().size() == 2);
  CHECK(read->ignored().empty());
}

TEST_CASE("what cannot be written is refused before any work and leaves nothing") {
  const original in;
  const std::string target = (in.dir / "out").string();
  const auto refused = [&](std::vector<fp8wire::shard_spec> shards) {
    const auto made = checkpoint_writer::folder(target, existing::refuse, std::move(shards), in.read);
    CHECK(entries_of(in.dir) == 1);
    return made.error().code;
  };
  auto shards = two_shards();
  shards[1].tensors.push_back({"a", dtype::uint8, {1}});
  CHECK(refused(shards) == errc::duplicate);
  shards = two_shards();
  shards[1].name = shards[0].name;
  CHECK(refused(shards) == errc::bad_file);
  for (const char* name : {"", "..", "sub/m.safetensors", "/m.safetensors"}) {
    shards[1].name = name;
    CHECK(refused(shards) == errc::bad_argument);
  }
  shards = two_shards();
  shards[0].tensors[0].shape = {i64{1} << 59};
  const auto full = checkpoint_writer::folder(target, existing::refuse, shards, in.read);
  CHECK(full.error().code == errc::capacity);
  CHECK(full.error().expected > i64{1} << 59);
  CHECK(entries_of(in.dir) == 1);
  shards.clear();
  for (int i = 0; i < 17; ++i)
    shards.push_back({std::to_string(i), {{std::to_string(i), dtype::uint8, {i64{1} << 59}}}, {}});
  CHECK(refused(shards) == errc::overflow);
  const auto again = checkpoint_writer::folder((in.dir / "in").string(), existing::refuse, two_shards(), in.read);
  CHECK(again.error().what == "exists already");
}

TEST_CASE("a disk that fills after the check is an error, and leaves nothing") {
  const original in;
  const std::string target = (in.dir / "out").string();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit few{1 << 16, 1 << 16};
    if (setrlimit(RLIMIT_FSIZE, &few) != 0) _exit(2);
    auto shards = two_shards();
    shards[1].tensors.push_back({"big", dtype::uint8, {1 << 20}});
    _exit(checkpoint_writer::folder(target, existing::refuse, shards, in.read).ok() ? 1 : 0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(entries_of(in.dir) == 1);
}
