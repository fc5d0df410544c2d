// Networks of C++ as programs of torch.export: Python runs and trains them, and they come back.
#include "tests/oracle/program_exports.h"

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <cstdlib>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "tests/oracle/exported_values.h"
#include "tests/oracle/python.h"

namespace levin::test::program_exports {
namespace {

namespace fs = std::filesystem;
using exported::add_tensors;
using exported::difference;
using exported::loss_of;
using nlohmann::json;

std::vector<at::Tensor> outputs_of(const ExportCase& made, const Batch& inputs) {
  std::vector<at::Tensor> outputs;
  add_tensors(made.forward(inputs), outputs);
  return outputs;
}

/// What the network gives at each size and how it trains, for Python to compare.
void write_reference(const ExportCase& made, const fs::path& folder) {
  State reference;
  const auto set = [&](const std::string& name, const at::Tensor& tensor) {
    reference.set(name, tensor.detach().clone().contiguous());
  };
  made.module->eval();
  for (size_t round = 0; round < made.inputs.size(); ++round) {
    for (const auto& [name, tensor] : made.inputs[round])
      set(c10::str("in.", round, ".", name), tensor);
    const auto outputs = outputs_of(made, made.inputs[round]);
    for (size_t i = 0; i < outputs.size(); ++i) set(c10::str("out.", round, ".", i), outputs[i]);
  }
  made.module->train();
  torch::manual_seed(3);
  const at::Tensor loss = loss_of(outputs_of(made, made.inputs.front()));
  if (loss.requires_grad()) loss.backward();
  set("loss", loss);
  for (const auto& item : made.module->named_parameters()) {
    if (item.value().grad().defined()) set("grad." + item.key(), item.value().grad());
  }
  for (const auto& item : made.module->named_buffers()) set("buffer." + item.key(), item.value());
  save_weights(folder / "reference.safetensors", reference);
  std::ofstream(folder / "case.json") << json{{"onnx", made.onnx}, {"compiled", made.compiled}};
}

/// models/model.json without what a reader does not run by: lines and classes.
json program_of(const fs::path& file) {
  caffe2::serialize::PyTorchStreamReader archive(file.string());
  const auto [text, size] = archive.getRecord("models/model.json");
  json program = json::parse(std::string_view(static_cast<const char*>(text.get()), size));
  const std::function<void(json&)> strip = [&](json& part) {
    if (part.is_object()) {
      part.erase("metadata");
      part.erase("fqn");
    }
    for (json& each : part) {
      if (each.is_structured()) strip(each);
    }
  };
  strip(program);
  return program;
}

class ProgramExports : public PythonTest {};

TEST_F(ProgramExports, OpenInPythonAndComeBack) {
  const fs::path root = file("programs");
  size_t count = 0;
  for (ExportCase& made : export_cases()) {
    SCOPED_TRACE(made.name);
    const fs::path folder = root / made.name;
    fs::create_directories(folder);
    try {
      for (const bool trains : {true, false}) {
        made.module->train(trains);
        made.write(folder / (trains ? "train.pt2" : "eval.pt2"));
      }
      // In again: the same numbers, and out again: the same program.
      const auto back = load_exported(folder / "eval.pt2");
      back->eval();
      for (const Batch& inputs : made.inputs) {
        std::vector<at::Tensor> got;
        add_tensors(back->run(inputs).value(), got);
        const auto wanted = outputs_of(made, inputs);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_EQ(difference("output", got[i], wanted[i], 1e-3, 0), "");
      }
      made.write_again(back, folder / "again.pt2");
      EXPECT_EQ(json::diff(program_of(folder / "eval.pt2"), program_of(folder / "again.pt2")),
                json::array());
      write_reference(made, folder);
      ++count;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GE(count, 30U);
  std::string output;
  const std::string all = std::getenv("LEVIN_SOAK") == nullptr ? "" : " --all";
  EXPECT_EQ(run("program_exports.py", "'" + root.string() + "'" + all, &output), 0) << output;
}

}  // namespace
}  // namespace levin::test::program_exports
