// What exported programs take and get beside their training, here and in Python: sizes of inputs, fresh parameters,
// adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/utils.h>

#include "levin/accelerator/accelerator.h"
#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/models/lora.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "tests/oracle/python.h"
#include "tests/support/world.h"

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

class ExportedAdapters : public PythonTest {};

/// A parameter by its name in PEFT's files: behind "base_model.model.".
at::Tensor named(const ExportedModule& net, const std::string& name) {
  return net.named_parameters()[name.substr(name.find(".model.") + 7)];
}

/// Trains the adapter as the script does, and writes what PEFT opens.
void train_as_peft(const fs::path& folder) {
  const State reference = load_weights(folder / "reference.safetensors");
  const auto net = load_exported(folder / "net.pt2");
  lora::load(*net, folder / "adapter");
  const at::Tensor& x = reference.tensor("input");
  const auto expect_near = [&](const std::string& name, const at::Tensor& got) {
    const at::Tensor& wanted = reference.tensor(name);
    EXPECT_LE((got - wanted).abs().max().item<double>(),
              1e-5 * std::max(1e-3, wanted.abs().max().item<double>()))
        << name;
  };
  std::vector<std::string> trained;
  for (const auto& [name, value] : reference.values()) {
    if (name.starts_with("grad.")) trained.push_back(name.substr(5));
  }
  size_t num_trained = 0;
  for (const at::Tensor& each : net->parameters()) num_trained += each.requires_grad() ? 1 : 0;
  EXPECT_EQ(num_trained, trained.size());
  for (uint64_t step = 0; step < 5; ++step) {
    torch::manual_seed(100 + step);
    net->zero_grad();
    const at::Tensor out = net->forward(x);
    out.square().mean().backward();
    if (step == 0) expect_near("out", out.detach());
    const at::NoGradGuard no_grad;
    for (const std::string& name : trained) {
      at::Tensor parameter = named(*net, name);
      if (step == 0) expect_near("grad." + name, parameter.grad());
      parameter.sub_(parameter.grad(), 0.02);
    }
  }
  for (const std::string& name : trained) expect_near("after." + name, named(*net, name).detach());
  net->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor adapted = net->forward(x);
  expect_near("eval", adapted);
  lora::save(*net, folder / "back");
  save_weights(folder / "back.safetensors", State().set("input", x).set("eval", adapted));
  lora::merge(*net);
  expect_near("merged", net->forward(x));
  lora::unmerge(*net);
  EXPECT_TRUE(at::equal(net->forward(x), adapted));
}

/// What differs from PEFT after training by an Accelerator on this many ranks.
std::string difference_under(const fs::path& folder, const AcceleratorOptions& options) {
  log::set_sink([](log::Level, std::string_view) {});  // that each rank has the same data
  const State reference = load_weights(folder / "reference.safetensors");
  const auto net = load_exported(folder / "net.pt2");
  lora::load(*net, folder / "adapter");
  Accelerator accelerator(options);
  auto [prepared, sgd] = accelerator.prepare(net, optim::sgd({.lr = 0.02}));
  auto& model = prepared;
  auto& optimizer = sgd;
  auto step = accelerator.compile([&](const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model->forward(x).square().mean();
    accelerator.backward(loss);
    optimizer.step();
    return loss.detach();
  });
  for (uint64_t i = 0; i < 5; ++i) {
    torch::manual_seed(100 + i);
    step(reference.tensor("input"));
  }
  if (options.engine.compile == "replay" && step.report().replayed == 0)
    return "nothing was replayed";
  const State after = full(*net);
  std::string words;
  for (const auto& [name, value] : reference.values()) {
    if (!name.starts_with("after.")) continue;
    const at::Tensor got = after.tensor(name.substr(name.find(".model.") + 7));
    const double off = (got - reference.tensor(name)).abs().max().item<double>();
    if (!(off < 1e-5)) words += c10::str(name, " is off by ", off, "; ");
  }
  return words;
}

TEST_F(ExportedAdapters, TrainUnderEachStrategyAsPefts) {
  std::string output;
  const fs::path root = file("adapters");
  ASSERT_EQ(run("exported_adapters.py", "'" + root.string() + "'", &output), 0) << output;
  AcceleratorOptions options;
  options.engine.compile_check = "no";  // which runs the first steps twice
  options.cpu = true;
  for (const auto& [strategy, compile, ranks] :
       std::vector<std::tuple<std::string, std::string, int64_t>>{
           {"auto", "replay", 1}, {"ddp", "no", 2}, {"fsdp", "no", 2}}) {
    SCOPED_TRACE(strategy);
    options.strategy = strategy;
    options.engine.compile = compile;
    for (const char* name : {"linear_names", "head_whole"}) {
      const auto words = run_world(
          ranks, [&](int64_t, const auto&) { return difference_under(root / name, options); });
      EXPECT_THAT(words, ::testing::Each("")) << name;
    }
  }
}

TEST_F(ExportedAdapters, TrainAsPeftsAndAreOpenedByIt) {
  std::string output;
  const fs::path root = file("adapters");
  ASSERT_EQ(run("exported_adapters.py", "'" + root.string() + "'", &output), 0) << output;
  size_t num_cases = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    train_as_peft(entry.path());
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 4U);
  ASSERT_EQ(run("exported_adapters.py", "'" + root.string() + "' --back", &output), 0) << output;
}

}  // namespace
}  // namespace levin::test::exported_parts
