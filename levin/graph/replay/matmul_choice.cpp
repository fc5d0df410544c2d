#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "levin/graph/replay/matmul_choice_impl.h"

namespace levin::graph {
namespace {

// A trial is some ten products: beyond that it would take more than ten seconds.
constexpr double kMostFlops = 1e11;
constexpr int64_t kMostBlock = 1024;  ///< so that tiles stay in the caches
/// Results that are compared at least: the order of two or three additions rarely shows in one.
constexpr int64_t kFewestResults = 4096;
constexpr int kTimings = 5;
constexpr double kTimedSeconds = 30e-6;  ///< at least, each
constexpr double kLongSeconds = 10e-3;   ///< a product that takes longer is timed once
constexpr double kFasterBy = 0.9;

/// Sizes that k is cut into by libraries: in two, or in what fits their caches.
std::set<int64_t> candidates(int64_t k) {
  std::set<int64_t> blocks;
  for (const int64_t block : {k, (k + 1) / 2, int64_t{192}, int64_t{256}, int64_t{384}}) {
    if (block <= std::min(k, kMostBlock)) blocks.insert(block);
  }
  return blocks;
}

/// Its operands but with memory of their own.
class Trial {
 public:
  /// offset: of all operands from where memory is aligned, in floats.
  Trial(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int64_t offset)
      : op_(op), arguments_(arguments) {
    for (c10::IValue& argument : arguments_) {
      if (!argument.isTensor()) continue;
      const at::Tensor& like = argument.toTensor();
      const auto bytes = at::detail::computeStorageNbytes(like.sizes(), like.strides(),
                                                          sizeof(float), /*storage_offset=*/offset);
      const auto numel = static_cast<int64_t>(bytes / sizeof(float));
      argument = at::empty({numel}, at::kFloat).as_strided(like.sizes(), like.strides(), offset);
    }
    operands_ = *matmul_operands(op_, arguments_);
  }

  /// Draws numbers of all magnitudes, so that each addition rounds.
  void draw(const at::Generator& random) {
    for (at::Tensor* operand : {&operands_.a, &operands_.b, &operands_.added}) {
      if (operand->defined()) operand->normal_(0, 1, random).pow_(3);
    }
  }
  /// Products that are all -0: their sum is -0 or 0, as it begins with the first of them or with 0.
  void draw_zeros() {
    operands_.a.fill_(-0.0);
    operands_.b.fill_(1);
    if (operands_.added.defined()) operands_.added.fill_(-0.0);
  }
  void copy_numbers(const Trial& other) {
    operands_.a.copy_(other.operands_.a);
    operands_.b.copy_(other.operands_.b);
    if (operands_.added.defined()) operands_.added.copy_(other.operands_.added);
  }
  at::Tensor result_of_operator() {
    call_operator();
    return operands_.out.clone();
  }
  void call_operator() {
    stack_ = arguments_;
    op_.callBoxed(&stack_);
    stack_.clear();
  }
  Matmul matmul(int64_t block_k) const {
    return {operands_, block_k, at::empty({Matmul::scratch_numel(operands_, block_k)}, at::kFloat)};
  }
  bool gives(int64_t block_k, const at::Tensor& wanted) const {
    matmul(block_k)();
    return at::equal(operands_.out.view(at::kInt), wanted.view(at::kInt));
  }

 private:
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  torch::jit::Stack stack_;
  MatmulOperands operands_;
};

template <class Function>
double seconds_of(const Function& function, int64_t repetitions) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int64_t i = 0; i < repetitions; ++i) function();
  return std::chrono::duration<double>(Clock::now() - start).count() /
         static_cast<double>(repetitions);
}

/// In turn, so that what else the machine does slows both down.
bool is_faster(Trial& trial, int64_t block_k) {
  const Matmul matmul = trial.matmul(block_k);
  const auto call = [&] { trial.call_operator(); };
  const double once = seconds_of(call, 1);
  const auto repetitions = static_cast<int64_t>(kTimedSeconds / std::max(once, 1e-7)) + 1;
  double of_operator = std::numeric_limits<double>::infinity(), of_matmul = of_operator;
  for (int i = 0; i < (once > kLongSeconds ? 1 : kTimings); ++i) {
    of_operator = std::min(of_operator, seconds_of(call, repetitions));
    of_matmul = std::min(of_matmul, seconds_of(matmul, repetitions));
  }
  return of_matmul < kFasterBy * of_operator;
}

/// Returns everything that the trial's outcome depends on.
std::vector<int64_t> key_of(const MatmulOperands& operands) {
  std::vector<int64_t> key;
  for (const at::Tensor* tensor : {&operands.out, &operands.a, &operands.b, &operands.added}) {
    key.push_back(tensor->defined() ? tensor->dim() : 0);
    if (!tensor->defined()) continue;
    key.insert(key.end(), tensor->sizes().begin(), tensor->sizes().end());
    key.insert(key.end(), tensor->strides().begin(), tensor->strides().end());
  }
  return key;
}

}  // namespace

MatmulSettings MatmulSettings::now() {
  const at::Context& context = at::globalContext();
  return {.num_threads = at::get_num_threads(),
          .precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL),
          .has_onednn = context.userEnabledMkldnn()};
}

MatmulChoice::MatmulChoice() : random_(at::make_generator<at::CPUGeneratorImpl>(/*seed_in=*/17)) {}

std::optional<int64_t> MatmulChoice::block_k(const c10::OperatorHandle& op,
                                             const torch::jit::Stack& arguments) {
  const auto operands = matmul_operands(op, arguments);
  if (!operands) return std::nullopt;
  const auto [place, is_new] = tried_.try_emplace(key_of(*operands));
  if (!is_new) return place->second;
  const auto block = equal_block_k(op, arguments);
  if (!block) return std::nullopt;
  Trial trial(op, arguments, 0);
  trial.draw(random_);
  if (is_faster(trial, *block)) place->second = block;
  return place->second;
}

std::optional<int64_t> MatmulChoice::equal_block_k(const c10::OperatorHandle& op,
                                                   const torch::jit::Stack& arguments) {
  const auto operands = matmul_operands(op, arguments);
  if (!operands || !Matmul::is_available()) return std::nullopt;
  const double num_results = static_cast<double>(operands->out.numel());
  if (2 * num_results * static_cast<double>(operands->k()) > kMostFlops) return std::nullopt;
  std::set<int64_t> blocks = candidates(operands->k());
  Trial aligned(op, arguments, 0), shifted(op, arguments, 1);
  int64_t num_compared = 0;
  while (!blocks.empty() && num_compared < kFewestResults) {
    aligned.draw(random_);
    shifted.copy_numbers(aligned);
    const at::Tensor wanted = aligned.result_of_operator();
    // A library whose bits depend on where operands lie gives no order to keep to.
    if (!at::equal(shifted.result_of_operator(), wanted)) return std::nullopt;
    std::erase_if(blocks, [&](int64_t block) { return !aligned.gives(block, wanted); });
    num_compared += wanted.numel();
  }
  aligned.draw_zeros();
  const at::Tensor wanted = aligned.result_of_operator();
  std::erase_if(blocks, [&](int64_t block) { return !aligned.gives(block, wanted); });
  return blocks.empty() ? std::nullopt : std::optional(*blocks.rbegin());
}

}  // namespace levin::graph
