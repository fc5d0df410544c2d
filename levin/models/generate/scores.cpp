#include "levin/models/generate/scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace levin::models {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

Scores::Scores(const GenerateSettings& settings, const at::Tensor& padding,
               std::optional<at::Generator> generator, Listener listener)
    : settings_(settings),
      padding_(padding),
      generator_(std::move(generator)),
      listener_(std::move(listener)) {
  if (!settings.eos.empty()) eos_ = at::tensor(settings.eos, at::kLong);
}

at::Tensor Scores::penalized(const at::Tensor& scores, const at::Tensor& ids) const {
  const int64_t words = scores.size(1);
  // Padding, and ids that the head has no score for, go to one extra column.
  auto seen = ids.clamp_max(words);
  if (padding_.defined()) seen.narrow(1, 0, padding_.size(1)).masked_fill_(padding_, words);
  const auto wide = at::constant_pad_nd(scores, {0, 1});
  const auto old = wide.gather(1, seen);
  const double penalty = settings_.repetition_penalty;
  return wide.scatter(1, seen, at::where(old < 0, old * penalty, old / penalty))
      .narrow(1, 0, words);
}

Scores::Candidates Scores::of_top_k(const at::Tensor& scores) const {
  const int64_t k = settings_.top_k, words = scores.size(1);
  if (k == 0 || k >= words) return {scores, {}};
  auto [best, ids] = at::topk(scores, k);
  const auto least = best.narrow(1, k - 1, 1);
  // Scores equal to the k-th one count too, so there may be more than k.
  const auto count = (scores >= least).sum(1).max().item<int64_t>();
  if (count > k) {
    std::tie(best, ids) = at::topk(scores, std::min(count, words));
    best = best.masked_fill(best < least, kNever);
  }
  return {best, ids};
}

void Scores::keep_top_p(Candidates& candidates) const {
  const auto [sorted, places] = at::sort(candidates.scores);
  auto out = at::softmax(sorted, -1).cumsum(-1) <= 1 - settings_.top_p;
  out.narrow(1, out.size(1) - 1, 1).fill_(false);
  candidates.scores = candidates.scores.masked_fill(out.scatter(1, places, out), kNever);
}

void Scores::keep_min_p(Candidates& candidates) const {
  const auto likely = at::softmax(candidates.scores, -1);
  const auto most = likely.amax(-1, /*keepdim=*/true);
  candidates.scores = candidates.scores.masked_fill(likely < settings_.min_p * most, kNever);
}

at::Tensor Scores::over_all(const Candidates& candidates, const at::Tensor& values, double others,
                            int64_t vocabulary) {
  if (!candidates.ids.defined()) return values;
  return at::full({values.size(0), vocabulary}, others, values.options())
      .scatter(1, candidates.ids, values);
}

at::Tensor Scores::choose(const at::Tensor& logits, const at::Tensor& ids) const {
  auto scores = logits;
  const auto in_floats = [&] { return scores.to(at::kFloat); };
  if (settings_.repetition_penalty != 1.0) scores = penalized(in_floats(), ids);
  if (ids.size(1) < settings_.min_length && eos_.defined())
    scores = scores.index_fill(1, eos_.to(scores.device()), kNever);
  if (!settings_.do_sample) {
    if (listener_) listener_(in_floats());
    return at::argmax(scores, -1);
  }
  scores = in_floats();
  const int64_t vocabulary = scores.size(1);
  if (settings_.temperature != 1.0) scores = scores / settings_.temperature;
  Candidates candidates = of_top_k(scores);
  if (settings_.top_p < 1.0) keep_top_p(candidates);
  if (settings_.min_p > 0.0) keep_min_p(candidates);
  if (listener_) listener_(over_all(candidates, candidates.scores, kNever, vocabulary));
  // Over the whole vocabulary, so that a seed draws what it draws in transformers.
  const auto likely = over_all(candidates, at::softmax(candidates.scores, -1), 0.0, vocabulary);
  return at::multinomial(likely, 1, /*replacement=*/false, generator_).squeeze(1);
}

}  // namespace levin::models
