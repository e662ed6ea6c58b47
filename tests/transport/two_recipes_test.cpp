// SPDX-License-Identifier: Apache-2.0
// A learner and an engine as two processes that were built from different recipes.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>

#include <fp8wire/io/hello_json.hpp>
#include <fp8wire/model/wire_format.hpp>
#include <fp8wire/quant/presets/transformer_engine.hpp>
#include <fp8wire/quant/presets/vllm.hpp>
#include <fp8wire/transport/shm.hpp>
#include <fp8wire/wire/handshake.hpp>

namespace fw = fp8wire;

namespace {

template <class Recipe> fw::manifest manifest_of(std::string_view label) {
  using wire = fw::wire_format<Recipe, fw::namings::vllm>;
  fw::manifest made;
  if (fw::error wrong = made.add<wire>("a.weight", {256, 128})) MESSAGE(wrong.message());
  made.label(wire::id(), label);
  return made;
}

/// What the engine, another process, was told; it answers through a pipe.
int engine_process(const std::string& name, int out) {
  auto link = fw::shm_subscriber::connect(name, 0);
  if (!link) return 2;
  fw::agreement agreed;
  std::vector<fw::error> reasons;
  const fw::error wrong = fw::join<fw::json_text>(*link, manifest_of<fw::presets::te_block::recipe>("te-block"),
                                                  fw::engine_terms{}, agreed, reasons);
  const std::string said = wrong.message();
  return ::write(out, said.data(), said.size()) == static_cast<ssize_t>(said.size()) && wrong ? 0 : 3;
}

}  // namespace

TEST_CASE("two processes built from different recipes refuse each other with both names in the message") {
  const std::string name =
      "@fp8wire-two-recipes-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}());
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  auto link = fw::shm_publisher::listen(name, 1);
  REQUIRE(link);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(engine_process(name, ends[1]));
  ::close(ends[1]);
  fw::agreement agreed;
  std::vector<fw::error> reasons;
  fw::error wrong = link->accept();
  REQUIRE(!wrong);
  wrong = fw::offer<fw::json_text>(*link, manifest_of<fw::presets::vllm_block::recipe>("vllm-block"), {}, "", agreed,
                                   reasons);
  CHECK(wrong.code == fw::errc::grid_mismatch);
  CHECK(wrong.broken == fw::condition::c2_grid);
  char heard[4096];
  const ssize_t size = ::read(ends[0], heard, sizeof heard);
  REQUIRE(size > 0);
  ::close(ends[0]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const std::string learner = wrong.message(), engine(heard, static_cast<std::size_t>(size));
  INFO(learner);
  INFO(engine);
  for (const std::string& message : {learner, engine}) {
    CHECK(message.find("vllm-block") != std::string::npos);
    CHECK(message.find("te-block") != std::string::npos);
  }
}
