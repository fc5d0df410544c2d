#include "levin/data/sample_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "levin/base/random.h"
#include "levin/base/random/mersenne_twister.h"

namespace levin::detail {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

/// A key of LibTorch's that nothing in it has a use for: of a mode, before autograd and everything
/// else. It is on in a DrawScope, and only operators that draw have a kernel for it.
constexpr DispatchKey kKey = DispatchKey::TESTING_ONLY_GenericMode;

constexpr uint64_t kOwnStream = 0x6f776e;  // "own"

thread_local Draws* innermost = nullptr;

void enter(Draws& draws) {
  draws.outer = innermost;
  innermost = &draws;
}
void leave(const Draws& draws) { innermost = draws.outer; }

/// Standing where the scope's draws stand. A thread has one for each scope within another.
at::Generator& generator_of(Draws& draws) {
  thread_local std::vector<at::Generator> generators;
  size_t depth = 0;
  for (const Draws* outer = draws.outer; outer != nullptr; outer = outer->outer) ++depth;
  while (generators.size() <= depth) {
    generators.push_back(at::make_generator<at::CPUGeneratorImpl>());
  }
  if (!std::exchange(draws.is_seeded, true)) {
    seed_quickly(*generators[depth].get<at::CPUGeneratorImpl>(), draws.seed());
  }
  return generators[depth];
}

/// Gives an operator that was called without a generator that of the scope.
class SupplyGenerator final : public c10::OperatorKernel {
 public:
  /// Both counted from the end of the arguments.
  SupplyGenerator(size_t generator, size_t tensor) : generator_(generator), tensor_(tensor) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
    c10::IValue& generator = (*stack)[stack->size() - generator_];
    const c10::IValue& tensor = (*stack)[stack->size() - tensor_];
    if (innermost != nullptr && generator.isNone() && tensor.toTensor().device().is_cpu()) {
      generator = generator_of(*innermost);
    }
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kKey), stack);
  }

 private:
  size_t generator_;
  size_t tensor_;
};

/// Returns how to supply a generator to an operator that draws into a tensor. Factories such as
/// torch::rand call such an operator in the end.
std::optional<SupplyGenerator> supply_for(const c10::FunctionSchema& schema) {
  size_t generator = 0, tensor = 0, from_end = schema.arguments().size();
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::TypePtr& type = argument.type();
    if (type->isSubtypeOf(*c10::TensorType::get())) {
      tensor = tensor == 0 ? from_end : tensor;
    } else if (type->kind() == c10::TypeKind::OptionalType &&
               type->castRaw<c10::OptionalType>()->getElementType()->kind() ==
                   c10::TypeKind::GeneratorType) {
      generator = from_end;
    }
    --from_end;
  }
  if (generator == 0 || tensor == 0) return std::nullopt;
  return SupplyGenerator(generator, tensor);
}

void supply_all(torch::Library& library) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op) continue;
    const std::optional<SupplyGenerator> supply = supply_for(op->schema());
    if (!supply) continue;
    library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                                  std::make_unique<SupplyGenerator>(*supply)));
  }
}

}  // namespace

uint64_t Draws::seed() const {
  uint64_t mixed = derive_seed(epoch_seed, static_cast<uint64_t>(what));
  for (const int64_t item : items) mixed = derive_seed(mixed, static_cast<uint64_t>(item));
  return derive_seed(mixed, static_cast<uint64_t>(place));
}

DrawScope::DrawScope(const DrawContext& context, DrawsOf what, std::span<const int64_t> items,
                     int64_t place)
    : draws_{.epoch_seed = derive_seed(context.seed, static_cast<uint64_t>(context.epoch)),
             .what = what,
             .items = items,
             .place = place},
      supplied_(kKey),
      unseen_(DispatchKey::Fake) {
  enter(draws_);
}

DrawScope::~DrawScope() { leave(draws_); }

ItemScope::ItemScope(DrawsOf what, int64_t item, int64_t place) : item_(item) {
  if (innermost == nullptr) return;
  draws_ = {
      .epoch_seed = innermost->epoch_seed, .what = what, .items = {&item_, 1}, .place = place};
  enter(draws_);
}

ItemScope::~ItemScope() {
  if (innermost == &draws_) leave(draws_);
}

bool in_draw_scope() { return innermost != nullptr; }

void advance_draws() {
  if (innermost == nullptr || innermost->what != DrawsOf::kSample) return;
  ++innermost->place;
  innermost->is_seeded = false;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) { supply_all(library); }

}  // namespace levin::detail

namespace levin::data {

uint64_t sample_seed() {
  using levin::detail::innermost;
  if (innermost != nullptr) return derive_seed(innermost->seed(), levin::detail::kOwnStream);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace levin::data
