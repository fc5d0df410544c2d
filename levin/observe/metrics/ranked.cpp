#include "levin/observe/metrics/ranked.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

/// Scores of so many texts at a time with all answers.
constexpr int64_t kTexts = 512;

at::Tensor unit(const at::Tensor& x) {
  return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace

RecallAtK::RecallAtK(int64_t k) : k_(k) {
  LEVIN_CHECK(k >= 1, "observe.metric.options", "got k = {}, wanted at least 1", k);
}

void RecallAtK::update(const at::Tensor& texts, const at::Tensor& answers) {
  LEVIN_CHECK(texts.dim() == 2 && texts.sizes() == answers.sizes(), "observe.metric.shape",
              "got texts {} and answers {}, wanted both [B, width]", c10::str(texts.sizes()),
              c10::str(answers.sizes()));
  const detail::OrdinaryTensors guard;
  keep(at::stack({unit(texts.to(at::kFloat)), unit(answers.to(at::kFloat))}, 1));
}

at::Tensor RecallAtK::compute() const {
  const detail::OrdinaryTensors guard;
  const at::Tensor pairs = rows();
  if (!pairs.defined()) return nothing();
  const at::Tensor texts = pairs.select(1, 0), answers = pairs.select(1, 1).contiguous();
  at::Tensor hits = at::scalar_tensor(0, answers.options().dtype(at::kDouble));
  for (int64_t begin = 0; begin < texts.size(0); begin += kTexts) {
    const int64_t count = std::min(kTexts, texts.size(0) - begin);
    const at::Tensor scores = texts.narrow(0, begin, count).mm(answers.t());
    const at::Tensor own = scores.gather(
        1, at::arange(begin, begin + count, at::kLong).to(scores.device()).unsqueeze(1));
    hits = hits + ((scores > own).sum(1) < k_).sum();
  }
  return hits / texts.size(0);
}

}  // namespace levin::metrics
