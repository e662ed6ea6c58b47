// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <fp8wire/model/name_pattern.hpp>

using fp8wire::matches;

TEST_CASE("a pattern fits whole segments and whole names only") {
  struct row {
    const char *pattern, *name;
    bool fits;
  };
  const row rows[] = {
      {"mlp.gate", "mlp.gate", true},
      {"mlp.gate", "mlp.gate_up_proj", false},
      {"mlp.gate", "mlp.gate.x", false},
      {"mlp.gate", "a.mlp.gate", false},
      {"**.mlp.gate", "a.b.mlp.gate", true},
      {"**.mlp.gate", "mlp.gate", true},
      {"**.mlp.gate", "a.xmlp.gate", false},
      {"model.**", "model.a.b", true},
      {"model.**", "model", true},
      {"model.**", "models.a", false},
      {"**", "", true},
      {"**", "a.b.c", true},
      {"a.*.c", "a.b.c", true},
      {"a.*.c", "a.c", false},
      {"a.*.c", "a.b.b.c", false},
      {"a.**.c", "a.c", true},
      {"a.**.c", "a.c.c.c", true},
      {"a.**.c", "a.c.d", false},
      {"a.**.b.**.c", "a.b.x.b.c", true},
      {"a.**.b.**.c", "a.x.c", false},
      {"experts.#.w1", "experts.17.w1", true},
      {"experts.#.w1", "experts.x7.w1", false},
      {"experts.#.w1", "experts..w1", false},
      {"q|k|v", "k", true},
      {"q|k|v", "q|k", false},
      {"~norm", "input_norm", true},
      {"~norm", "norm1", true},
      {"~norm", "norm_f", true},
      {"~norm", "enormous", false},
      {"~norm", "layernorm", false},
      {"~layernorm", "LayerNorm", true},
      {"~embeddings", "token_type_embeddings", true},
      {"~embed", "embedder", false},
      {"a", "", false},
      {"", "", true},
      {"*", "", true},
      {"a.", "a", false},
  };
  for (const row& one : rows) {
    CAPTURE(one.pattern);
    CAPTURE(one.name);
    CHECK(matches(one.pattern, one.name) == one.fits);
  }
  static_assert(matches("**.gate|router", "a.router"));
}

namespace {
std::vector<std::string> segments(const std::string& text) {
  std::vector<std::string> all(1);
  for (const char c : text) {
    if (c == '.')
      all.emplace_back();
    else
      all.back() += c;
  }
  return all;
}
// The definition, word by word: exponential and obviously right.
bool fits(const std::vector<std::string>& p, std::size_t i, const std::vector<std::string>& n, std::size_t j) {
  if (i == p.size()) return j == n.size();
  if (p[i] == "**") return fits(p, i + 1, n, j) || (j < n.size() && fits(p, i, n, j + 1));
  return j < n.size() && (p[i] == "*" || p[i] == n[j]) && fits(p, i + 1, n, j + 1);
}
}  // namespace

TEST_CASE("all short patterns over two segments agree with the definition") {
  const std::string pieces[] = {"a", "b", "*", "**"};
  std::vector<std::string> patterns, names;
  for (int length = 1, count = 4; length <= 5; ++length, count *= 4)
    for (int code = 0; code < count; ++code) {
      std::string text;
      for (int i = 0, rest = code; i < length; ++i, rest /= 4) text += (i == 0 ? "" : ".") + pieces[rest % 4];
      patterns.push_back(text);
    }
  for (int length = 1, count = 2; length <= 6; ++length, count *= 2)
    for (int code = 0; code < count; ++code) {
      std::string text;
      for (int i = 0, rest = code; i < length; ++i, rest /= 2) text += (i == 0 ? "" : ".") + pieces[rest % 2];
      names.push_back(text);
    }
  int wrong = 0, fitting = 0;
  for (const std::string& pattern : patterns)
    for (const std::string& name : names) {
      const bool expected = fits(segments(pattern), 0, segments(name), 0);
      fitting += expected ? 1 : 0;
      if (matches(pattern, name) != expected && ++wrong < 5) MESSAGE(pattern, " ", name, " ", expected);
    }
  CHECK(wrong == 0);
  CHECK(fitting > 10000);
}
