// Programs of torch.export, trained here and by the modules that they were made of.
#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <set>

#include "levin/accelerator/accelerator.h"
#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/export_program.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "tests/oracle/exported_values.h"
#include "tests/oracle/python.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace levin::test::exported {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// An argument as case.json writes it.
c10::IValue argument_of(const json& written, const State& tensors, at::Device device) {
  if (written.contains("tensor")) {
    return tensors.tensor(written["tensor"].get<std::string>()).to(device);
  }
  if (written.contains("dict")) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    for (const auto& [key, item] : written["dict"].items()) {
      dict.insert(key, argument_of(item, tensors, device));
    }
    return dict;
  }
  for (const char* kind : {"list", "tuple"}) {
    if (!written.contains(kind)) continue;
    std::vector<c10::IValue> items;
    for (const json& item : written[kind]) items.push_back(argument_of(item, tensors, device));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  const json& value = written["value"];
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return {};
}

class Program {
 public:
  explicit Program(const fs::path& folder)
      : told_(json::parse(bytes_of(folder / "case.json"))),
        reference_(load_weights(folder / "reference.safetensors")),
        file_(folder / "net.pt2") {}

  bool is_refused() const { return !told_["refused"].is_null(); }
  std::string refused() const { return told_["refused"].get<std::string>(); }
  std::shared_ptr<ExportedModule> load() const {
    const json& how = told_["evaluation"];
    ExportedOptions options;
    if (how == "twice") options.evaluation = file_.parent_path() / "net_eval.pt2";
    options.same_in_evaluation = how == "same";
    return load_exported(file_, options);
  }
  /// What eval() says of the training program alone.
  std::string of_evaluation() const {
    try {
      load_exported(file_)->eval();
    } catch (const levin::Error& error) {
      return error.id();
    }
    return "";
  }
  bool has_evaluation() const { return !told_["evaluation"].is_null(); }

  int64_t steps() const { return told_["steps"].get<int64_t>(); }
  double rate() const { return told_["rate"].get<double>(); }

  /// net: an ExportedModule, or what the Accelerator made of it.
  template <class Net>
  std::vector<at::Tensor> outputs(const Net& net, at::Device device = at::kCPU) const {
    std::vector<c10::IValue> arguments;
    ExportedInputs named;
    for (const json& each : told_["args"])
      arguments.push_back(argument_of(each, reference_, device));
    for (const auto& [key, each] : told_["kwargs"].items()) {
      named.emplace(key, argument_of(each, reference_, device));
    }
    std::vector<at::Tensor> tensors;
    add_tensors(net->run(arguments, named).value(), tensors);
    return tensors;
  }

  /// What differs from Python after training; empty: nothing.
  std::string difference_from_python(const State& state, const std::string& reference,
                                     double tolerance) const {
    std::string words;
    for (const auto& [name, value] : state.values()) {
      words += difference(name, state.tensor(name).cpu(), reference_.tensor(reference + name), 1,
                          tolerance);
    }
    return words.empty() && state.values().empty() ? "nothing was trained" : words;
  }

  /// What differs from Python; empty: nothing.
  std::string differences() const {
    const auto net = load();
    std::string words;
    const auto compare = [&](const std::string& name, const at::Tensor& got) {
      words += difference(name, got, reference_.tensor(name), name.starts_with("eval.") ? 1 : 1e-3);
    };
    if (!net->is_training()) words += "not in training mode; ";
    for (int64_t step = 0; step < told_["steps"]; ++step) {
      torch::manual_seed(static_cast<uint64_t>(100 + step));
      net->zero_grad();
      const auto out = outputs(net);
      const at::Tensor loss = loss_of(out);
      if (loss.requires_grad()) loss.backward();
      if (step == 0) {
        for (size_t i = 0; i < out.size(); ++i) compare("out." + std::to_string(i), out[i]);
        compare("loss", loss);
        for (const NamedTensor& each : named_parameters(*net)) {
          if (each.tensor.grad().defined()) compare("grad." + each.name, each.tensor.grad());
        }
      }
      const at::NoGradGuard no_grad;
      for (const NamedTensor& each : named_parameters(*net)) {
        at::Tensor parameter = each.tensor;
        if (parameter.grad().defined())
          parameter.add_(parameter.grad(), -told_["rate"].get<double>());
      }
    }
    words += states(*net);
    net->eval();
    const at::NoGradGuard no_grad;
    torch::manual_seed(7);
    const auto out = outputs(net);
    for (size_t i = 0; i < out.size(); ++i) compare("eval." + std::to_string(i), out[i]);
    return words;
  }

 private:
  /// Parameters and buffers under Python's names, and no others.
  std::string states(const ExportedModule& net) const {
    std::string words;
    std::map<std::string, at::Tensor> own;
    for (const auto& each : net.named_parameters()) own[each.key()] = each.value().detach();
    for (const auto& each : net.named_buffers()) own[each.key()] = each.value();
    for (const auto& [name, tensor] : own) {
      if (!reference_.contains("after." + name)) words += "no " + name + " in Python; ";
    }
    for (const auto& [name, value] : reference_.values()) {
      if (!name.starts_with("after.")) continue;
      const auto found = own.find(name.substr(6));
      words += found == own.end()
                   ? name + ": none; "
                   : difference(name, found->second, reference_.tensor(name), /*least=*/1);
    }
    return words;
  }

  json told_;
  State reference_;
  fs::path file_;
};

class ExportedPrograms : public PythonTest {};

struct Conditions {
  std::string name;
  AcceleratorOptions options = {};
  int64_t ranks = 1;
  std::string reference = "after.";  ///< before the names of Python's values
  double tolerance = kOfTheLargest;
  /// Programs that this does not train to the same values, for the reason that stands beside the row.
  std::set<std::string> except = {};
};

AcceleratorOptions options_of(const std::string& strategy, const std::string& compile = "no",
                              const std::string& backend = "auto") {
  AcceleratorOptions options;
  options.cpu = true;
  options.strategy = strategy;
  options.engine.compile = compile;
  options.engine.comm.backend = backend;
  return options;
}
AcceleratorOptions accumulated() {
  AcceleratorOptions options = options_of("auto");
  options.gradient_accumulation_steps = 2;
  return options;
}
AcceleratorOptions in_bf16(const std::string& compile) {
  AcceleratorOptions options = options_of("auto", compile);
  options.mixed_precision = "bf16";
  return options;
}
AcceleratorOptions on_xla() {
  AcceleratorOptions options;
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  options.devices = 1;
  return options;
}

std::vector<Conditions> conditions() {
  // Programs that are trained under autocast too.
  const std::set<std::string> not_bf16 = {"bert", "conv_net",        "loops_over_modules",
                                          "lstm", "no_grad_regions", "tied_and_shared"};
  return {
      {"Accelerator", options_of("auto")},
      {"Ddp", options_of("ddp"), 2},
      {"Fsdp", options_of("fsdp"), 2},
      {"FsdpGathered", options_of("fsdp", "no", "gloo"), 2},
      {"Zero", options_of("zero"), 2},
      {"Replay", options_of("auto", "replay")},
      // It has a layer that gets no gradient, which a recorded step of ddp refuses.
      {"DdpReplay", options_of("ddp", "replay"), 2, "after.", kOfTheLargest, {"tied_and_shared"}},
      // Batch norm sees each batch twice.
      {"Accumulated", accumulated(), 1, "after.", kOfTheLargest, {"conv_net", "resnet"}},
      {"Bf16", in_bf16("no"), 1, "bf16.", 1e-5, not_bf16},
      {"Bf16Replay", in_bf16("replay"), 1, "bf16.", 1e-5, not_bf16},
  };
}

/// Parameters and buffers after the reference's steps in a loop of the Accelerator.
State trained(const Program& program, const Conditions& conditions, int64_t& replayed) {
  AcceleratorOptions options = conditions.options;
  options.engine.compile_check = "no";
  Accelerator accelerator(options);
  const auto net = program.load();
  auto [prepared, sgd] = accelerator.prepare(net, optim::sgd({.lr = program.rate()}));
  auto& model = prepared;
  auto& optimizer = sgd;
  const at::Tensor unused = at::zeros({1}, accelerator.device());
  auto step = accelerator.compile([&](const at::Tensor& input) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(program.outputs(model, accelerator.device()));
    accelerator.backward(loss);
    optimizer.step();
    return loss.detach() + input.sum();
  });
  for (int64_t i = 0; i < program.steps(); ++i) {
    for (int64_t part = 0; part < options.gradient_accumulation_steps; ++part) {
      torch::manual_seed(static_cast<uint64_t>(100 + i));
      const auto scope = accelerator.accumulate();
      step(unused);
    }
  }
  replayed = step.report().replayed;
  return full(*net);
}

/// The operators of a program, in their order and with those of its regions, without what computes and checks
/// sizes.
std::vector<std::string> operators_of(const fs::path& file) {
  caffe2::serialize::PyTorchStreamReader archive(file.string());
  const auto [text, size] = archive.getRecord("models/model.json");
  const json program = json::parse(std::string_view(static_cast<const char*>(text.get()), size));
  std::vector<std::string> operators;
  const std::function<void(const json&)> add = [&](const json& graph) {
    for (const json& node : graph["nodes"]) {
      const auto target = node["target"].get<std::string>();
      const bool is_size = !target.starts_with("torch.ops.") ||
                           target.find("sym_size") != std::string::npos ||
                           target.find("_assert") != std::string::npos ||
                           target.find("sym_constrain") != std::string::npos;
      if (!is_size) operators.push_back(target);
      for (const json& input : node["inputs"]) {
        if (input["arg"].contains("as_graph")) add(input["arg"]["as_graph"]["graph"]);
      }
    }
  };
  add(program["graph_module"]["graph"]);
  return operators;
}

/// Whether the second has the first's operators in their order, but for some that are left out.
bool is_part_of(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  size_t found = 0;
  for (const std::string& each : all)
    found += static_cast<size_t>(found < some.size() && some[found] == each);
  return found == some.size();
}

/// In and out again: the operators that Python wrote, without those whose results nobody takes, and the same
/// numbers. Returns whether none was left out.
bool goes_out_as_it_came(const Program& program, const fs::path& folder) {
  const auto net = program.load();
  const auto all_outputs = [&](const Batch&) {
    return c10::IValue(c10::List<at::Tensor>(program.outputs(net)));
  };
  const fs::path file = folder / "again.pt2";
  export_program(net, all_outputs, {{"unused", at::ones({2})}}, file);
  const auto before = operators_of(folder / "net.pt2"), after = operators_of(file);
  EXPECT_TRUE(is_part_of(before, after))
      << ::testing::PrintToString(before) << ::testing::PrintToString(after);
  torch::manual_seed(9);
  const auto wanted = program.outputs(net);
  torch::manual_seed(9);
  std::vector<at::Tensor> got;
  add_tensors(load_exported(file)->run({at::ones({2})}).value(), got);
  EXPECT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    EXPECT_EQ(difference("output", got[i], wanted[i]), "");
  }
  return before == after;
}

/// The errors' ids of programs that cannot go out again.
std::map<std::string, std::string> programs_that_stay() {
  return {{"data_dependent_sizes", "interchange.export.read"},
          {"integers_and_bools", "interchange.export.values"}};  // bincount
}

TEST_F(ExportedPrograms, TrainAsInPythonOrAreRefusedByName) {
  std::string output;
  const fs::path root = file("programs");
  ASSERT_EQ(run("exported_programs.py", "'" + root.string() + "'", &output), 0) << output;
  const std::map<std::string, std::string> stay = programs_that_stay();
  size_t num_trained = 0, num_refused = 0, num_same = 0;
  // That a guard of the program is not checked.
  std::vector<std::string> warnings;
  const log::Sink before = log::set_sink([&](log::Level level, std::string_view text) {
    if (level == log::Level::kWarn) warnings.emplace_back(text);
  });
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    const Program program(entry.path());
    try {
      if (!program.is_refused()) {
        EXPECT_EQ(program.differences(), "");
        EXPECT_EQ(program.of_evaluation(), program.has_evaluation() ? "interchange.mode" : "");
        ++num_trained;
        const auto stays = stay.find(entry.path().filename());
        if (stays != stay.end()) {
          EXPECT_EQ(error_id([&] { goes_out_as_it_came(program, entry.path()); }), stays->second);
        } else {
          num_same += static_cast<size_t>(goes_out_as_it_came(program, entry.path()));
        }
        continue;
      }
      program.load();
      ADD_FAILURE() << "it was loaded";
    } catch (const std::exception& error) {
      EXPECT_TRUE(program.is_refused()) << error.what();
      EXPECT_THAT(error.what(), ::testing::StartsWith("interchange.unsupported: "));
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr(program.is_refused() ? program.refused() : ""));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("exported_programs.py:"));
      ++num_refused;
    }
  }
  log::set_sink(before);
  EXPECT_GE(num_same, 40U);
  EXPECT_THAT(warnings, ::testing::IsEmpty());
  EXPECT_GE(num_trained, 75U) << output;
  EXPECT_EQ(num_refused, 3U) << output;
}

/// Empty where it trains to Python's values.
std::string told_of(const Program& program, const Conditions& conditions) {
  log::set_sink([](log::Level, std::string_view) {});  // that each rank has the same data
  int64_t replayed = 0;
  const State state = trained(program, conditions, replayed);
  const std::string off =
      program.difference_from_python(state, conditions.reference, conditions.tolerance);
  const bool is_replayed = replayed > 0 || conditions.options.engine.compile == "no";
  return off.empty() && !is_replayed ? std::string("nothing was replayed") : off;
}

// The same files under whatever trains a module: none of it knows of exported programs.
TEST_F(ExportedPrograms, TrainUnderEachStrategyAsInPython) {
  std::string output;
  const fs::path root = file("programs");
  const std::string names =
      "mlp conv_net lstm tied_and_shared loops_over_modules no_grad_regions bert llama t5 resnet";
  ASSERT_EQ(run("exported_programs.py", "'" + root.string() + "' " + names, &output), 0) << output;
  for (const Conditions& row : conditions()) {
    SCOPED_TRACE(row.name);
    for (const auto& entry : fs::directory_iterator(root)) {
      SCOPED_TRACE(entry.path().filename());
      if (row.except.contains(entry.path().filename())) continue;
      const Program program(entry.path());
      const auto words =
          run_world(row.ranks, [&](int64_t, const auto&) { return told_of(program, row); });
      EXPECT_THAT(words, ::testing::Each(""));
    }
  }
}

// Its Python writes what its C++ opens.
TEST_F(ExportedPrograms, OfTheGuideAreWrittenByItsPython) {
  std::string output;
  const fs::path folder = file("guide");
  fs::create_directories(folder);
  torch::nn::Module same_names("Net");  // as the guide's network
  same_names.register_module("conv", torch::nn::Conv2d(1, 4, 3));
  same_names.register_module("norm", torch::nn::BatchNorm2d(4));
  same_names.register_module("head", torch::nn::Linear(4, 10));
  save_weights(folder / "net.pt", same_names);
  auto exported = torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10));
  exported->eval();
  export_program(exported, {{"image", at::ones({4, 1, 28, 28})}}, folder / "exported.pt2",
                 {.dynamic = {{"image", 0}}});
  ASSERT_EQ(run("guide.py", "'" + folder.string() + "'", &output), 0) << output;
  EXPECT_THAT(output, ::testing::HasSubstr("3 blocks"));
  EXPECT_TRUE(fs::exists(folder / "net.onnx"));
  const auto net = load_exported(folder / "net.pt2");
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(net->forward(at::ones({7, 1, 28, 28})).sizes(), (at::IntArrayRef{7, 10}));
}

class ExportedProgramsOnXla : public PythonTest {};

// Random numbers are XLA's own there: programs without any.
TEST_F(ExportedProgramsOnXla, TrainAsInPython) {
  LEVIN_NEEDS_CPU_PLUGIN();
  std::string output;
  const fs::path root = file("programs");
  const std::string names = "mlp conv_net loops_over_modules llama resnet";
  ASSERT_EQ(run("exported_programs.py", "'" + root.string() + "' " + names, &output), 0) << output;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    EXPECT_EQ(told_of(Program(entry.path()), {"Xla", on_xla(), 1, "after.", 1e-4}), "");
  }
}

}  // namespace
}  // namespace levin::test::exported
