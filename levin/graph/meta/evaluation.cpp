#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/meta/evaluation_impl.h"

namespace levin::graph::meta {

struct PlainMode::State {
  c10::InferenceMode no_inference{false};
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::impl::ExcludeDispatchKeyGuard unseen{c10::DispatchKey::Fake};
};

PlainMode::PlainMode() : state_(std::make_unique<State>()) {}
PlainMode::~PlainMode() = default;

void put_at_place(const Step& step, at::CPUGeneratorImpl& generator) { step.place->put(generator); }

DefaultDtype::DefaultDtype(at::ScalarType dtype) : before_(c10::get_default_dtype_as_scalartype()) {
  if (dtype != before_) c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
}

DefaultDtype::~DefaultDtype() {
  if (c10::get_default_dtype_as_scalartype() == before_) return;
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(before_));
}

at::Tensor view_of(const at::Storage& storage, const Part& part) {
  at::Tensor view = at::empty({0}, at::dtype(part.dtype).device(storage.device()));
  view.set_(storage, part.offset, part.sizes, part.strides);
  return view;
}

namespace {

at::Storage fresh_storage(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::dtype(at::kByte).device(at::kCPU)).storage();
}

/// The operator's parameter that takes a generator; none for one that draws from the default one.
std::optional<size_t> generator_parameter(const OperatorInfo& info) {
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    const c10::Type* type = info.parameters()[i].type().get();
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      type = optional->getElementType().get();
    }
    if (type->kind() == c10::TypeKind::GeneratorType) return i;
  }
  return std::nullopt;
}

/// Runs what draws from the default generator, which is put back afterwards.
template <class Run>
GeneratorState with_default_generator(const Run& run) {
  at::CPUGeneratorImpl& cpu = cpu_generator({});
  const GeneratorState before = GeneratorState::of(cpu);
  struct PutBack {
    at::CPUGeneratorImpl& cpu;
    const GeneratorState& before;
    ~PutBack() { before.put(cpu); }
  } const put_back{cpu, before};
  run(cpu);
  return GeneratorState::of(cpu);
}

bool shares_memory(const at::Tensor& result, const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() &&
           tensor.storage().unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl();
  });
}

/// The result's memory, as the constructor's tensor was told to lie in it.
at::Storage placed(const at::Tensor& result, const Part& part, size_t bytes,
                   const std::vector<at::Tensor>& tensors) {
  if (Part::of(result) == part && result.storage().nbytes() >= bytes &&
      !shares_memory(result, tensors)) {
    return result.storage();
  }
  at::Storage storage = fresh_storage(bytes);
  view_of(storage, part).copy_(result);
  return storage;
}

}  // namespace

Evaluation::Root Evaluation::root_of(const ValueRef& value) {
  const ValueRef& root = value.log->values[value.index].root;
  return {root.log, root.index};
}

Evaluation::Slice Evaluation::slice_of(std::span<const Target> targets) {
  Slice slice;
  std::vector<ValueRef> open;
  const auto want = [&](const ValueRef& value, size_t bytes) {
    size_t& most = slice.bytes[root_of(value)];
    most = std::max({most, bytes, value.log->values[value.index].bytes});
    open.push_back(value);
  };
  for (const Target& target : targets) want(target.value, target.bytes);
  while (!open.empty()) {
    const ValueRef value = open.back();
    open.pop_back();
    const int32_t index = value.log->values[value.index].step;
    const Step& step = value.log->steps[index];
    const Place place{value.log->order, index};
    if (!slice.steps.emplace(place, &step).second) continue;
    slice.logs.emplace(&step, value.log);
    for (const StepTensor& tensor : step.tensors) {
      if (tensor.value.log == nullptr) continue;
      size_t& most = slice.bytes[root_of(tensor.value)];
      most = std::max(most, tensor.part.reach());
      if (!tensor.is_replaced) want(tensor.value, tensor.part.reach());
    }
  }
  for (const auto& [place, step] : slice.steps) {
    for (const StepTensor& tensor : step->tensors) {
      if (tensor.value.log != nullptr) slice.last_use[root_of(tensor.value)] = place;
    }
    for (const Step::Result& result : step->results) {
      slice.last_use.try_emplace({slice.logs.at(step), result.value}, place);
    }
  }
  return slice;
}

at::Storage& Evaluation::storage_of(const ValueRef& value, size_t bytes) {
  const auto [entry, is_new] = storages_.try_emplace(root_of(value));
  if (is_new) entry->second = fresh_storage(bytes);
  return entry->second;
}

std::vector<at::Tensor> Evaluation::arguments(const Step& step,
                                              const std::map<Root, size_t>& bytes) {
  std::vector<at::Tensor> tensors;
  for (const StepTensor& tensor : step.tensors) {
    if (tensor.value.log == nullptr) {
      tensors.push_back(tensor.real);
      continue;
    }
    const size_t wanted = bytes.at(root_of(tensor.value));
    tensors.push_back(view_of(storage_of(tensor.value, wanted), tensor.part));
  }
  return tensors;
}

Evaluation::Outcome Evaluation::run_step(const Step& step, std::vector<at::Tensor> tensors) {
  torch::jit::Stack stack = step.stack;
  size_t next = 0;
  for (c10::IValue& value : stack) {
    change_tensors(value, [&](const at::Tensor&) { return tensors[next++]; });
  }
  const DefaultDtype dtype(step.default_dtype);
  Outcome outcome;
  if (!step.info->is_random) {
    step.info->op.callBoxed(stack);
  } else if (const std::optional<size_t> parameter = generator_parameter(*step.info)) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>();
    auto& cpu = *generator.get<at::CPUGeneratorImpl>();
    put_(step, cpu);
    stack[*parameter] = generator;
    step.info->op.callBoxed(stack);
    outcome.after = GeneratorState::of(cpu);
  } else {
    outcome.after = with_default_generator([&](at::CPUGeneratorImpl& cpu) {
      put_(step, cpu);
      step.info->op.callBoxed(stack);
    });
  }
  for (const c10::IValue& value : stack) {
    each_tensor(value, [&](const at::Tensor& tensor) { outcome.results.push_back(tensor); });
  }
  return outcome;
}

void Evaluation::run(const Slice& slice, std::span<const Target> targets) {
  std::map<Root, bool> stays;
  for (const Target& target : targets) stays[root_of(target.value)] = true;
  std::multimap<Place, Root> ends;
  for (const auto& [root, place] : slice.last_use) {
    if (!stays.contains(root)) ends.emplace(place, root);
  }
  for (const auto& [place, step] : slice.steps) {
    std::vector<at::Tensor> tensors = arguments(*step, slice.bytes);
    const Outcome outcome = run_step(*step, tensors);
    for (const Step::Result& result : step->results) {
      const Root root{slice.logs.at(step), result.value};
      const auto bytes = slice.bytes.find(root);
      if (bytes == slice.bytes.end()) continue;  // nobody wants it
      storages_[root] =
          placed(outcome.results.at(result.number), result.part, bytes->second, tensors);
    }
    const auto [first, last] = ends.equal_range(place);
    for (auto end = first; end != last; ++end) storages_.erase(end->second);
  }
}

std::vector<at::Storage> Evaluation::storages(std::span<const Target> targets) {
  const PlainMode plain;
  const Slice slice = slice_of(targets);
  run(slice, targets);
  std::vector<at::Storage> found;
  for (const Target& target : targets) {
    found.push_back(storage_of(target.value, slice.bytes.at(root_of(target.value))));
  }
  storages_.clear();
  return found;
}

Evaluation::Outcome Evaluation::outcome(const Step& step) {
  const PlainMode plain;
  std::vector<Target> targets;
  std::map<Root, size_t> bytes;
  for (const StepTensor& tensor : step.tensors) {
    if (tensor.value.log == nullptr) continue;
    size_t& most = bytes[root_of(tensor.value)];
    most = std::max(most, tensor.part.reach());
    if (!tensor.is_replaced) targets.push_back({tensor.value, tensor.part.reach()});
  }
  const Slice slice = slice_of(targets);
  run(slice, targets);
  for (const auto& [root, size] : slice.bytes) {
    size_t& most = bytes[root];
    most = std::max(most, size);
  }
  Outcome outcome = run_step(step, arguments(step, bytes));
  storages_.clear();
  return outcome;
}

}  // namespace levin::graph::meta
