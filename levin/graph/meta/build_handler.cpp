#include <algorithm>

#include "levin/base/check.h"
#include "levin/graph/meta/build_handler_impl.h"
#include "levin/graph/meta/evaluation_impl.h"
#include "levin/graph/record/current_place.h"

namespace levin::graph::meta {
namespace {

std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

std::span<c10::IValue> last(torch::jit::Stack& stack, size_t count) {
  return std::span(stack).last(count);
}

/// Pointers of the tensors can be asked for while an operator runs: kernels that make shapes look
/// whether storages are the same by them.
class PointersAllowed {
 public:
  explicit PointersAllowed(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
    for (const at::Tensor& tensor : tensors_) {
      if (contents_of(tensor) != nullptr) allow_pointers(tensor);
    }
  }
  ~PointersAllowed() {
    for (const at::Tensor& tensor : tensors_) refuse(tensor);
  }
  PointersAllowed(const PointersAllowed&) = delete;
  PointersAllowed& operator=(const PointersAllowed&) = delete;

  static void refuse(const at::Tensor& tensor) {
    if (contents_of(tensor) == nullptr) return;
    refuse_pointers(tensor, fmt::format("{}{}", kPointerRefused, describe(tensor)));
  }

 private:
  const std::vector<at::Tensor>& tensors_;
};

}  // namespace

std::optional<Fill> fill_of(const OperatorInfo& info) {
  const std::string base = info.name.substr(0, info.name.find('.'));
  const bool is_of_sizes = info.name == base || info.name == base + ".generator";
  if (base == "aten::uniform_" || ((base == "aten::rand") && is_of_sizes)) return Fill::kUniform;
  if (base == "aten::normal_" || ((base == "aten::randn") && is_of_sizes)) return Fill::kNormal;
  return std::nullopt;
}

void BuildHandler::call(OperatorCall& call) {
  const OperatorInfo& info = info_of(call.op());
  const BuildArguments arguments(info, last(call.stack(), info.num_parameters()));
  if (!arguments.has_unmade && !arguments.is_redirected) return run_itself(call, info);
  const at::Tensor looked_at = arguments.looked_at();
  LEVIN_CHECK(!looked_at.defined(), "graph.meta.values",
              "{} reads the values of a tensor that init_on_meta builds without memory, {}{}; make "
              "it with device(torch::kCPU), or build without init_on_meta",
              info.name, describe(looked_at), current_place());
  const std::vector<at::Tensor> written = arguments.written();
  for (const at::Tensor& tensor : written) {
    LEVIN_CHECK(contents_of(tensor) != nullptr, "graph.meta.values",
                "{} copies from a tensor without memory to a tensor with memory, {}{}; make both "
                "tensors with device(torch::kCPU), or both without it",
                info.name, describe(tensor), current_place());
  }
  if (arguments.is_redirected) arguments.redirect(c10::IValue());
  Step step = step_of(arguments, {arguments.values.begin(), arguments.values.end()});
  if (info.is_random) step.place = places_.place(arguments.generator);
  const bool is_new = std::ranges::any_of(info.is_result, std::identity());
  {
    const PointersAllowed allowed(arguments.tensors);
    if (arguments.is_redirected) arguments.redirect(at::Device(at::kMeta));
    run_shapes(call, step, is_new || info.is_inplace_view || written.size() != 1);
    if (info.is_random) places_.put_back(arguments.generator);
  }
  const std::vector<at::Tensor> results = tensors_of(last(call.stack(), info.is_result.size()));
  if (info.is_random) draw(step, arguments.generator, written.empty() ? results.at(0) : written[0]);
  keep(std::move(step), written, results);
}

void BuildHandler::settle_if_possible() noexcept {
  try {
    settle();
  } catch (const Error&) {  // the constructor's own error is thrown instead
  }
}

/// Nothing of it is without memory.
void BuildHandler::run_itself(OperatorCall& call, const OperatorInfo& info) {
  if (!info.is_random) return call.proceed();
  at::Generator generator;
  for (const c10::IValue& value : last(call.stack(), info.num_parameters())) {
    if (value.isGenerator()) generator = value.toGenerator();
  }
  if (generator.defined() && generator.device().type() != at::kCPU) return call.proceed();
  places_.settle(generator);
  call.proceed();
  places_.moved_itself(generator);
}

StepTensor BuildHandler::step_tensor(const OperatorInfo& info, size_t parameter,
                                     const at::Tensor& tensor) {
  StepTensor taken{.parameter = parameter};
  if (!tensor.defined()) return taken;
  const Contents* contents = contents_of(tensor);
  if (contents == nullptr) {
    // A number's own tensor is nobody else's; any other may be written later.
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    taken.real = is_number || tensor.is_meta() ? tensor : tensor.clone();
    return taken;
  }
  if (contents->log != log_) log_->earlier.insert(contents->log);
  taken.value = contents->value;
  taken.part = Part::of(tensor);
  taken.is_written = std::ranges::find(info.written, parameter) != info.written.end();
  taken.is_replaced = taken.is_written && info.overwrites &&
                      tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
                      tensor.nbytes() >= tensor.storage().nbytes();
  return taken;
}

Step BuildHandler::step_of(const BuildArguments& arguments, torch::jit::Stack stack) {
  Step step{.info = &arguments.info, .default_dtype = c10::get_default_dtype_as_scalartype()};
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    step.tensors.push_back(
        step_tensor(arguments.info, arguments.parameters[i], arguments.tensors[i]));
  }
  for (StepTensor& tensor : step.tensors) {
    tensor.is_replaced &= std::ranges::none_of(step.tensors, [&](const StepTensor& other) {
      return &other != &tensor && other.value == tensor.value;
    });
  }
  for (c10::IValue& value : stack) {
    if (value.isGenerator()) value = c10::IValue();
    change_tensors(value, [](const at::Tensor&) { return at::Tensor(); });
  }
  step.stack = std::move(stack);
  return step;
}

/// Moves the generator to its place after the step: by the rules, or by actually drawing.
void BuildHandler::draw(Step& step, const at::Generator& generator, const at::Tensor& filled) {
  const std::optional<Fill> fill = fill_of(*step.info);
  std::optional<DrawPlace> after;
  if (fill) after = rules_.after(*step.place, *fill, filled);
  if (!after) {
    Evaluation::Outcome outcome = Evaluation(&put_at_place).outcome(step);
    after = DrawPlace{.start = std::make_shared<GeneratorState>(*outcome.after)};
  }
  places_.move(generator, std::move(*after));
}

void BuildHandler::keep(Step step, const std::vector<at::Tensor>& written,
                        const std::vector<at::Tensor>& results) {
  const auto index = static_cast<int32_t>(log_->steps.size());
  const auto add_value = [&](const at::Tensor& tensor, const ValueRef* root) {
    const ValueRef value{log_.get(), static_cast<int32_t>(log_->values.size())};
    log_->values.push_back({.step = index,
                            .root = root != nullptr ? *root : value,
                            .bytes = tensor.storage().nbytes()});
    return value;
  };
  bool has_effect = false;
  for (const at::Tensor& tensor : written) {
    if (step.info->is_inplace_view) break;
    Contents& contents = *contents_of(tensor);
    const ValueRef root = contents.value.log->values[contents.value.index].root;
    if (contents.log != log_) {
      log_->earlier.insert(contents.log);
      contents.log = log_;
    }
    contents.value = add_value(tensor, &root);
    has_effect = true;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& tensor = results[i];
    if (!tensor.defined() || !tensor.is_meta() || !tensor.has_storage()) continue;
    log_->made.emplace_back(tensor.getIntrusivePtr());
    if (contents_of(tensor) != nullptr) continue;
    const ValueRef value = add_value(tensor, nullptr);
    attach(tensor, {.log = log_, .value = value, .name = {}});
    PointersAllowed::refuse(tensor);
    step.results.push_back({.number = i, .value = value.index, .part = Part::of(tensor)});
    has_effect = true;
  }
  if (has_effect) log_->steps.push_back(std::move(step));
}

}  // namespace levin::graph::meta
