#include "levin/interchange/export_program.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <fmt/format.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/interchange/export/record/capture.h"
#include "levin/interchange/export/record/recordings.h"
#include "levin/interchange/export/sizes/dynamic_sizes.h"
#include "levin/interchange/export/write/archive_writer.h"
#include "levin/interchange/export/write/graph_writer.h"
#include "levin/interchange/export/write/program_json.h"
#include "levin/interchange/export/write/python_names.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::interchange {
namespace {

std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<ModuleTensor> tensors;
  const auto add = [&](const auto& named, bool is_parameter) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      tensors.push_back({item.key(), item.value(), is_parameter});
    }
  };
  add(module.named_parameters(), /*is_parameter=*/true);
  add(module.named_buffers(), /*is_parameter=*/false);
  return tensors;
}

/// Buffers and generators are as they were when it ends.
class Unchanged {
 public:
  Unchanged(const std::vector<ModuleTensor>& tensors, at::Device device) {
    const at::NoGradGuard no_grad;
    for (const ModuleTensor& each : tensors) {
      if (!each.is_parameter) buffers_.emplace_back(each.tensor, each.tensor.clone());
    }
    keep(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu() && !device.is_meta()) {
      keep(at::globalContext().defaultGenerator(device));
    }
  }
  ~Unchanged() {
    const at::NoGradGuard no_grad;
    for (const auto& [buffer, before] : buffers_) {
      if (!at::equal(buffer, before)) buffer.copy_(before);
    }
    for (auto& [generator, state] : generators_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  void keep(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    at::Tensor state = generator.get_state();
    generators_.emplace_back(std::move(generator), std::move(state));
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

class Exporter {
 public:
  Exporter(torch::nn::Module& module, const detail::ExportedForward& forward, const Batch& example,
           const ExportProgramOptions& options)
      : module_(module), forward_(forward), sizes_(example, options.dynamic) {
    for (const auto& [name, tensor] : example.fields()) {
      LEVIN_CHECK(
          can_be_argument(name), "interchange.export.input",
          "got the input name '{}', wanted a Python identifier: letters, digits and underscores",
          name);
      input_names_.push_back(name);
    }
    find_tensors();
  }

  /// The numbers of the inputs that what is computed depends on.
  std::vector<size_t> used_inputs() const {
    const Recording recording = record(sizes_.inputs_at(sizes_.points().front()), false);
    std::vector<bool> is_used(recording.values.size());
    const auto use = [&](const RecordedArgument& argument) {
      for (const ValueId id : argument.values) {
        if (id != kNoValue) is_used[id] = true;
      }
    };
    const std::vector<bool> calls = used_calls(recording);
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i]) std::ranges::for_each(recording.calls[i].arguments, use);
    }
    std::ranges::for_each(recording.outputs, use);
    std::vector<size_t> inputs;
    for (size_t i = 0; i < input_names_.size(); ++i) {
      if (is_used[tensors_.size() + i]) inputs.push_back(i);
    }
    return inputs;
  }

  void write(const std::filesystem::path& path) {
    Recordings recordings = recordings_of_all();
    for (size_t i = 0; i < sizes_.symbols().size(); ++i) find_min(recordings, i);
    const std::string program = json_of(recordings);
    write_archive(
        path, {program, tensors_, recordings.each.front().constants,
               constant_prefix(module_, tensors_), sizes_.inputs_at(recordings.points.front())});
  }

 private:
  static bool is_whole(const at::Tensor& tensor) {
    return shard::whole_sizes(tensor) == tensor.sizes().vec();
  }

  void find_tensors() {
    tensors_ = tensors_of(module_);
    for (const ModuleTensor& each : tensors_) {
      LEVIN_CHECK(can_be_attribute(each.name), "interchange.export.input",
                  "got the parameter or buffer name '{}', wanted one that a Python module can "
                  "have; register it under another name",
                  each.name);
      LEVIN_CHECK(!each.tensor.is_meta(), "interchange.export.input",
                  "'{}' is on the meta device and has no values; load the weights first",
                  each.name);
      LEVIN_CHECK(
          is_whole(each.tensor), "interchange.export.divided",
          "'{}' is sharded; export within a levin::WholeScope, or in one process from a checkpoint",
          each.name);
    }
  }

  Recordings recordings_of_all() {
    try {
      return checked_recordings();
    } catch (const Error& error) {
      if (error.id() != "interchange.export.size" && error.id() != "interchange.export.values")
        throw;
    }
    // The first call may have made what the later ones kept: a mask, a parameter of the input's width. Now
    // all calls find it.
    for (const Point& point : sizes_.points()) {
      try {
        record(sizes_.inputs_at(point), /*with_frames=*/false);
      } catch (const std::exception&) {
        continue;
      }
    }
    find_tensors();
    check_state();
    return checked_recordings();
  }

  Recordings checked_recordings() const {
    Recordings recordings;
    recordings.points = sizes_.points();
    for (const Point& point : recordings.points) {
      recordings.each.push_back(record_at(point, /*is_first=*/recordings.each.empty()));
      check_same(recordings, recordings.each.back(), point);
    }
    check_values(recordings.each.front());
    return recordings;
  }

  void check_state() const {
    const auto again = [&] { return record(sizes_.inputs_at(sizes_.points().front()), true); };
    again();
    const Recording once = again();
    const std::string difference = difference_of(once, again(), /*exactly=*/true);
    LEVIN_CHECK(difference.empty(), "interchange.export.values",
                "in a second call with the same inputs the module runs {}; a torch.export program "
                "keeps state between calls in buffers only: use register_buffer, and write into "
                "the buffer (copy_)",
                difference);
  }

  std::string json_of(const Recordings& recordings) const {
    return program_json(recordings, {module_, tensors_, input_names_, sizes_.symbols(),
                                     constant_prefix(module_, tensors_)});
  }

  at::Device device() const {
    return tensors_.empty() ? at::Device(at::kCPU) : tensors_.front().tensor.device();
  }

  Recording record(std::vector<at::Tensor> inputs, bool with_frames) const {
    const Unchanged unchanged(tensors_, device());
    const c10::AutoGradMode gradients(true);
    const AutocastScope no_autocast(device().type(), {.enabled = false});
    if (module_.is_training()) {
      // Gradients go to the inputs too; they are no leaves, so that forward may write into them.
      for (at::Tensor& each : inputs) {
        if (each.is_floating_point() || each.is_complex())
          each = each.detach().requires_grad_().clone();
      }
    }
    Batch batch;
    for (size_t i = 0; i < inputs.size(); ++i) batch.set(input_names_[i], inputs[i]);
    Capture capture(
        tensors_, inputs,
        {.device = device().type(), .training = module_.is_training(), .frames = with_frames});
    return capture.record([&] { return forward_(batch); });
  }

  std::string text_of(const Point& point) const {
    std::string text;
    for (size_t i = 0; i < point.size(); ++i) {
      text += fmt::format("{}{} = {}", i == 0 ? "" : ", ", sizes_.symbols()[i].text, point[i]);
    }
    return text;
  }

  Recording record_at(const Point& point, bool is_first) const {
    if (is_first) return record(sizes_.inputs_at(point), /*with_frames=*/true);
    try {
      return record(sizes_.inputs_at(point), /*with_frames=*/false);
    } catch (const std::exception& error) {
      const std::string_view text = error.what();
      LEVIN_FAIL("interchange.export.size",
                 "the module does not run with {}: {}; limit the sizes with min, max or "
                 "multiple_of of the dynamic dim",
                 text_of(point), text.substr(0, text.find('\n')));
    }
  }

  void check_same(const Recordings& recordings, const Recording& recording,
                  const Point& point) const {
    const std::string difference =
        difference_of(recordings.each.front(), recording, /*exactly=*/false);
    LEVIN_CHECK(difference.empty(), "interchange.export.size",
                "with {} the module runs {}; a torch.export program has the same operators at all "
                "sizes: make the dim static, or limit it with min and max",
                text_of(point), difference);
  }

  static void warn_unchecked(std::string_view reason) {
    log::warn(
        "export_program could not check that the program is the same for other input values: "
        "forward fails on the example's values in reverse order: {}",
        reason);
  }

  /// Finds values that the host read without an operator (data_ptr): constants then change with the inputs.
  void check_values(const Recording& first) const {
    std::optional<Recording> other;
    try {
      other = record(sizes_.inputs_of_other_values(), /*with_frames=*/false);
    } catch (const Error& error) {
      if (error.id().starts_with("interchange.export.")) throw;
      warn_unchecked(error.text());
    } catch (const c10::Error& error) {
      warn_unchecked(error.what_without_backtrace());
    }
    if (!other) return;
    const std::string difference = difference_of(first, *other, /*exactly=*/true);
    LEVIN_CHECK(
        difference.empty(), "interchange.export.values",
        "with the example's values in reverse order the module runs {}; a torch.export program has "
        "the same operators and constants for all values: compute with tensors only",
        difference);
  }

  /// Finds the minimum if the user gave none: the smallest size at which the module runs the same
  /// operators, 1 for most.
  void find_min(Recordings& recordings, size_t index) {
    Symbol& symbol = sizes_.symbols()[index];
    if (symbol.min || symbol.multiple_of != 1) return;
    int64_t least = symbol.size;
    for (const Point& point : recordings.points) least = std::min(least, point[index]);
    // 1, 2, 3, ... and at last in larger steps.
    for (int64_t size = 1; size < least; size += 1 + size / 8) {
      symbol.min = size;
      if (runs_alike(recordings, index, size)) return;
    }
    symbol.min = least;
  }

  /// Returns whether the same operators with sizes by the same formulas run there; then it is among the recordings.
  bool runs_alike(Recordings& recordings, size_t index, int64_t size) const {
    Point point = recordings.points.front();
    point[index] = size;
    try {
      Recording one = record(sizes_.inputs_at(point), /*with_frames=*/false);
      if (!difference_of(recordings.each.front(), one, /*exactly=*/false).empty()) return false;
      recordings.points.push_back(point);
      recordings.each.push_back(std::move(one));
    } catch (const std::exception&) {
      return false;
    }
    try {
      json_of(recordings);
      return true;
    } catch (const Error&) {
      recordings.points.pop_back();
      recordings.each.pop_back();
      return false;
    }
  }

  torch::nn::Module& module_;
  const detail::ExportedForward& forward_;
  DynamicSizes sizes_;
  std::vector<std::string> input_names_;
  std::vector<ModuleTensor> tensors_;
};

}  // namespace
}  // namespace levin::interchange

namespace levin::detail {

void write_program(torch::nn::Module& module, const ExportedForward& forward, const Batch& example,
                   const std::filesystem::path& path, const ExportProgramOptions& options) {
  interchange::Exporter(module, forward, example, options).write(path);
}

Batch used_inputs(torch::nn::Module& module, const ExportedForward& forward, const Batch& batch) {
  Batch used;
  for (const size_t input : interchange::Exporter(module, forward, batch, {}).used_inputs()) {
    used.set(batch.fields()[input].first, batch.fields()[input].second);
  }
  return used;
}

void fail_forward(const Batch& batch) {
  LEVIN_FAIL("interchange.export.input",
             "forward does not take {} tensors, or does not return what can be exported; pass "
             "export_program a function that calls the module",
             batch.fields().size());
}

c10::IValue exported_value(const Batch& named) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : named.fields()) dict.insert(name, tensor);
  return dict;
}

}  // namespace levin::detail
