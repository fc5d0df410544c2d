#include "levin/strategy/ddp/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "levin/base/random.h"

namespace levin::ddp {
namespace {

// The same on every rank: a thin matrix begins as these numbers.
constexpr uint64_t kSeed = 0x706f776572;  // "power"

at::Tensor orthogonal(const at::Tensor& matrix) {
  return std::get<0>(at::linalg_qr(matrix, "reduced"));
}

}  // namespace

PowerSgd::PowerSgd(comm::ProcessGroup group, const Options& options)
    : group_(std::move(group)), options_(options) {}

void PowerSgd::add(std::span<const NamedTensor> parameters) {
  for (const auto& [name, parameter] : parameters) {
    Matrix& matrix = matrices_.emplace_back(Matrix{.name = name});
    if (parameter.dim() < 2 || parameter.numel() == 0) continue;
    const int64_t rows = parameter.size(0);
    const int64_t columns = parameter.numel() / rows;
    const int64_t rank = std::min({options_.rank, rows, columns});
    const auto thin = static_cast<double>((rows + columns) * rank);
    if (thin * options_.least_gain > static_cast<double>(rows * columns)) continue;
    matrix.rows = rows;
    matrix.columns = columns;
  }
}

bool PowerSgd::begin_step() { return step_++ >= options_.start_step; }

bool PowerSgd::compresses(size_t index) const { return matrices_[index].rows > 0; }

void PowerSgd::reduce(std::span<const size_t> indices, const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> wholes, lefts, rights;
  for (size_t i = 0; i < indices.size(); ++i) {
    Matrix& matrix = matrices_[indices[i]];
    at::Tensor whole = gradients[i].reshape({matrix.rows, matrix.columns});
    if (!matrix.error.defined()) matrix.error = at::zeros_like(whole);
    if (!matrix.basis.defined()) {
      const auto seed = derive_seed(kSeed, indices[i]);
      matrix.basis = orthogonal(
          at::randn({matrix.columns, options_.rank}, at::make_generator<at::CPUGeneratorImpl>(seed))
              .to(whole.options()));
    }
    whole = whole + matrix.error;
    lefts.push_back(whole.matmul(matrix.basis));
    wholes.push_back(std::move(whole));
  }
  reduce_flat(lefts);
  for (size_t i = 0; i < indices.size(); ++i) {
    lefts[i] = orthogonal(lefts[i]);
    rights.push_back(wholes[i].t().matmul(lefts[i]));
  }
  reduce_flat(rights);
  for (size_t i = 0; i < indices.size(); ++i) {
    Matrix& matrix = matrices_[indices[i]];
    const at::Tensor product = lefts[i].matmul(rights[i].t());
    matrix.error = wholes[i] - product;
    gradients[i].copy_(product.view_as(gradients[i]));
    // The next step begins from the space that this one found.
    matrix.basis = orthogonal(rights[i]);
  }
}

void PowerSgd::reduce_flat(std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  std::vector<int64_t> lengths;
  for (const at::Tensor& tensor : tensors) {
    flat.push_back(tensor.reshape({-1}));
    lengths.push_back(tensor.numel());
  }
  const at::Tensor all = at::cat(flat);
  group_.all_reduce(all, ReduceOp::kMean);
  const auto parts = all.split_with_sizes(lengths);
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = parts[i].view_as(tensors[i]);
}

State PowerSgd::state_dict() const {
  State basis;
  for (const Matrix& matrix : matrices_) {
    if (matrix.basis.defined()) basis.set(matrix.name, matrix.basis);
  }
  State state;
  return std::move(state.set("step", step_).set("basis", std::move(basis)));
}

void PowerSgd::load_state_dict(const State& state) {
  step_ = state.integer("step");
  const State& basis = state.child("basis");
  for (Matrix& matrix : matrices_) {
    matrix.error = at::Tensor();
    if (basis.contains(matrix.name)) matrix.basis = basis.tensor(matrix.name).clone();
  }
}

}  // namespace levin::ddp
