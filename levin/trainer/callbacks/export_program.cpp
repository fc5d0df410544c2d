#include "levin/trainer/callbacks/export_program.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/module/module.h"

namespace levin::detail {
namespace {

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

int64_t number_in(std::string_view text, std::string_view whole) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  LEVIN_CHECK(error == std::errc() && end == text.data() + text.size(), "trainer.export",
              "got '{}' in --dynamic '{}', wanted an integer: INPUT:DIM[:min=N][:max=N]"
              "[:multiple_of=N][:name=TEXT]",
              printable(text), printable(whole));
  return number;
}

DynamicDim dynamic_dim(std::string_view text) {
  const auto parts = split(text, ':');
  LEVIN_CHECK(parts.size() >= 2 && !parts[0].empty(), "trainer.export",
              "got --dynamic '{}', wanted INPUT:DIM[:min=N][:max=N][:multiple_of=N][:name=TEXT]",
              printable(text));
  DynamicDim made{.input = std::string(parts[0]), .dim = number_in(parts[1], text)};
  for (size_t i = 2; i < parts.size(); ++i) {
    const auto setting = split(parts[i], '=');
    const std::string_view value = setting.size() == 2 ? setting[1] : "";
    if (setting[0] == "name" && !value.empty()) {
      made.name = value;
    } else if (setting[0] == "min") {
      made.min = number_in(value, text);
    } else if (setting[0] == "max") {
      made.max = number_in(value, text);
    } else if (setting[0] == "multiple_of") {
      made.multiple_of = number_in(value, text);
    } else {
      LEVIN_FAIL("trainer.export",
                 "got '{}' in --dynamic '{}', wanted min=N, max=N, multiple_of=N or name=TEXT",
                 printable(parts[i]), printable(text));
    }
  }
  return made;
}

class ExportCallback final : public Callback {
 public:
  explicit ExportCallback(ExportRequest request) : request_(std::move(request)) {}

  std::string state_key() const override { return "ExportCallback"; }
  void on_evaluation_batch_start(Trainer&, Module& module, std::string_view, const Batch& batch,
                                 int64_t) override {
    module.train(request_.training);
    const ExportedForward forward = [&module](const Batch& inputs) {
      return exported_value(module.predict_step(inputs, /*batch_index=*/0));
    };
    // A batch also has fields that only training needs, such as labels.
    const Batch example = used_inputs(module, forward, batch);
    const ExportedForward with_rest = [&](const Batch& inputs) {
      Batch all = batch;
      for (const auto& [name, tensor] : inputs) all.set(name, tensor);
      return forward(all);
    };
    ExportProgramOptions options;
    if (request_.dynamic) {
      options.dynamic = *request_.dynamic;
    } else {
      for (const auto& [name, tensor] : example) {
        if (tensor.dim() > 0) options.dynamic.push_back({.input = name, .name = "batch"});
      }
    }
    write_program(module, with_rest, example, request_.path, options);
    log::info("predict_step was exported to {} as a program of torch.export; the run ends here",
              request_.path.string());
    std::cout.flush();
    std::fflush(nullptr);
    std::_Exit(EXIT_SUCCESS);  // in the middle of a loop, whose results nobody wants
  }

 private:
  ExportRequest request_;
};

}  // namespace

std::vector<DynamicDim> dynamic_dims(std::string_view text) {
  std::vector<DynamicDim> dims;
  if (text == "none") return dims;
  for (const std::string_view each : split(text, ';')) dims.push_back(dynamic_dim(each));
  return dims;
}

std::optional<ExportRequest> export_request() {
  const char* path = std::getenv("LEVIN_EXPORT_TO");
  if (path == nullptr) return std::nullopt;
  ExportRequest request{.path = path, .training = std::getenv("LEVIN_EXPORT_TRAINING") != nullptr};
  if (const char* ckpt_path = std::getenv("LEVIN_EXPORT_CKPT")) request.ckpt_path = ckpt_path;
  if (const char* dims = std::getenv("LEVIN_EXPORT_DYNAMIC")) request.dynamic = dynamic_dims(dims);
  return request;
}

TrainerOptions for_export(TrainerOptions options) {
  options.accelerator = "cpu";
  options.devices = 1;
  options.num_nodes = 1;
  options.tpu_cores = 0;
  options.strategy = "auto";
  options.engine.compile = "no";
  options.logger = false;
  options.enable_progress_bar = false;
  options.limit_predict_batches = 1.0;
  return options;
}

std::shared_ptr<Callback> export_callback(ExportRequest request) {
  return std::make_shared<ExportCallback>(std::move(request));
}

}  // namespace levin::detail
