// Which sizes of inputs an exported program takes, and what fresh parameters it gets, here and in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/utils.h>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/interchange/reset_parameters.h"
#include "tests/oracle/python.h"

namespace levin::test::exported_parts {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// forward's arguments by place: "nested" takes its last two as a pair.
std::vector<c10::IValue> arguments_of(const json& sizes, bool has_pair) {
  std::vector<c10::IValue> arguments;
  for (const json& each : sizes) arguments.emplace_back(at::ones(each.get<std::vector<int64_t>>()));
  if (!has_pair) return arguments;
  return {arguments[0], c10::ivalue::Tuple::create({arguments[1], arguments[2]})};
}

class ExportedGuards : public PythonTest {};

TEST_F(ExportedGuards, TakeTheSizesThatPythonTakes) {
  std::string output;
  const fs::path folder = file("guards");
  ASSERT_EQ(run("exported_guards.py", "'" + folder.string() + "'", &output), 0) << output;
  std::vector<std::string> warnings;
  const log::Sink before = log::set_sink([&](log::Level level, std::string_view text) {
    if (level == log::Level::kWarn) warnings.emplace_back(text);
  });
  size_t num_taken = 0, num_refused = 0;
  const json taken = json::parse(bytes_of(folder / "taken.json"));
  for (const auto& [name, tries] : taken.items()) {
    SCOPED_TRACE(name);
    const auto net = load_exported(folder / (name + ".pt2"));
    for (const json& tried : tries) {
      std::string id;
      try {
        net->run(arguments_of(tried[0], name == "nested"));
      } catch (const Error& error) {
        id = error.id();
      }
      EXPECT_EQ(id, tried[1].get<bool>() ? "" : "interchange.input") << tried[0];
      ++(id.empty() ? num_taken : num_refused);
    }
  }
  log::set_sink(before);
  EXPECT_GT(num_taken, 300U);
  EXPECT_GT(num_refused, 700U);
  EXPECT_THAT(warnings, ::testing::IsEmpty());
}

class ExportedInit : public PythonTest {};

TEST_F(ExportedInit, DrawsTheValuesThatPythonDrawsOfTheSameSeed) {
  std::string output;
  const fs::path folder = file("init");
  ASSERT_EQ(run("exported_init.py", "'" + folder.string() + "'", &output), 0) << output;
  size_t num_compared = 0;
  for (const char* name : {"convolutions", "language", "translation"}) {
    SCOPED_TRACE(name);
    const auto net = load_exported(folder / (std::string(name) + ".pt2"));
    torch::manual_seed(5);
    reset_parameters(*net);
    const State python = load_weights(folder / (std::string(name) + ".safetensors"));
    std::map<std::string, at::Tensor> own;
    for (const auto& each : net->named_parameters()) own[each.key()] = each.value().detach();
    for (const auto& each : net->named_buffers()) own[each.key()] = each.value();
    for (const auto& [tensor, value] : python.values()) {
      EXPECT_TRUE(at::equal(own[tensor], python.tensor(tensor))) << tensor;
      ++num_compared;
    }
    EXPECT_EQ(own.size(), python.values().size());
  }
  EXPECT_GT(num_compared, 80U);
}

}  // namespace
}  // namespace levin::test::exported_parts
