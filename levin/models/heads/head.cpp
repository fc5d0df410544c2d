#include "levin/models/heads/head.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/models/layers/layers.h"
#include "levin/models/layers/row_arithmetic.h"

namespace levin::models {
namespace {

using Kind = HeadStep::Kind;

at::Tensor mean_of_text(const at::Tensor& hidden, const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return hidden.mean(1);
  const auto weights = attention_mask.to(hidden.scalar_type()).unsqueeze(-1);
  return (hidden * weights).sum(1) / weights.sum(1);
}

at::Tensor last_of_text(const at::Tensor& hidden, const at::Tensor& ids, int64_t padding) {
  if (padding < 0) {
    LEVIN_CHECK(ids.size(0) == 1, "models.padding",
                "the config has no pad_token_id, but the batch has {} texts, so the last token of "
                "each is unknown; set pad_token_id in config.json, or use batches of 1 text",
                ids.size(0));
    return hidden.select(1, -1);
  }
  const auto place = at::arange(ids.size(1), ids.options());
  const auto last = (place * ids.ne(padding)).argmax(-1);  // [B]
  return hidden.gather(1, last.view({-1, 1, 1}).expand({-1, 1, hidden.size(2)})).squeeze(1);
}

/// A packed row has a vector a document: that of its first token, and nobody reads those of the others.
at::Tensor of_documents(const at::Tensor& hidden, Pooling pooling) {
  LEVIN_CHECK(pooling == Pooling::kFirst, "models.packing",
              "got packed rows for a head that reads {}; give it one text per row",
              pooling == Pooling::kMean ? "the mean of a text" : "the last token of a text");
  return hidden;
}

}  // namespace

HeadStep pooled(Pooling pooling) { return {.kind = Kind::kPool, .pooling = pooling}; }
HeadStep dense(std::string name, int64_t in, int64_t out, bool bias, double deviation,
               double cutoff) {
  return {.kind = Kind::kDense,
          .name = std::move(name),
          .in = in,
          .out = out,
          .bias = bias,
          .number = deviation,
          .cutoff = cutoff};
}
HeadStep tied(std::string bias, int64_t out) {
  return {.kind = Kind::kTied, .name = std::move(bias), .out = out};
}
HeadStep unused(std::string bias, int64_t out) {
  return {.kind = Kind::kUnused, .name = std::move(bias), .out = out};
}
HeadStep layer_norm(std::string name, int64_t width, double eps, bool bias) {
  return {.kind = Kind::kNorm, .name = std::move(name), .in = width, .bias = bias, .number = eps};
}
HeadStep activation(std::string function) {
  return {.kind = Kind::kActivation, .name = std::move(function)};
}
HeadStep dropout(double rate) { return {.kind = Kind::kDropout, .number = rate}; }
HeadStep softcap(double cap) { return {.kind = Kind::kSoftcap, .number = cap}; }

struct Head::Step {
  HeadStep plan;
  std::shared_ptr<Linear> linear = {};
  std::shared_ptr<LayerNorm> norm = {};
  at::Tensor bias = {};
  Activation function = nullptr;
};

Head::Head(torch::nn::Module& root, const HeadPlan& plan)
    : root_(root), pad_token_id_(plan.pad_token_id) {
  for (const HeadStep& each : plan.steps) {
    auto step = std::make_unique<Step>(Step{.plan = each});
    if (each.kind == Kind::kDense) {
      step->linear =
          place(root, each.name,
                std::make_shared<Linear>(each.in, each.out, each.bias, each.number, each.cutoff));
    } else if (each.kind == Kind::kNorm) {
      step->norm =
          place(root, each.name, std::make_shared<LayerNorm>(each.in, each.number, each.bias));
    } else if (each.kind == Kind::kActivation) {
      step->function = activation_of(each.name);
    } else if (each.kind == Kind::kUnused) {
      place_bias(root, each.name, each.out).set_requires_grad(false);
    } else if (each.kind == Kind::kTied && !each.name.empty()) {
      step->bias = place_bias(root, each.name, each.out);
    }
    steps_.push_back(std::move(step));
  }
}

Head::~Head() = default;

at::Tensor Head::forward(const at::Tensor& hidden, const Inputs& inputs, const Body& body) const {
  return run(steps_.size(), hidden, inputs, body);
}

at::Tensor Head::before_output(const at::Tensor& hidden, const Inputs& inputs,
                               const Body& body) const {
  return run(output_step(), hidden, inputs, body);
}

size_t Head::output_step() const {
  size_t last = steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Kind kind = steps_[i]->plan.kind;
    if (kind == Kind::kDense || kind == Kind::kTied) last = i;
  }
  return last;
}

std::optional<OutputLayer> Head::output_layer(const Body& body) const {
  const size_t last = output_step();
  if (last == steps_.size()) return std::nullopt;
  OutputLayer output;
  if (const auto& linear = steps_[last]->linear) {
    if (linear->has_lora()) return std::nullopt;
    output.matrix = linear->matrix();
    output.bias = linear->bias();
  } else {
    output.matrix = body.embedding();
    output.bias = steps_[last]->bias;
  }
  for (size_t i = last + 1; i < steps_.size(); ++i) {
    const HeadStep& after = steps_[i]->plan;
    if (after.kind == Kind::kUnused) continue;
    if (after.kind != Kind::kSoftcap || output.softcap > 0) return std::nullopt;
    output.softcap = after.number;
  }
  return output;
}

at::Tensor Head::run(size_t steps, const at::Tensor& hidden, const Inputs& inputs,
                     const Body& body) const {
  auto x = hidden;
  for (size_t i = 0; i < steps; ++i) {
    const auto& step = steps_[i];
    switch (step->plan.kind) {
      case Kind::kPool:
        if (inputs.document.defined()) {
          x = of_documents(x, step->plan.pooling);
          break;
        }
        if (step->plan.pooling == Pooling::kFirst) x = x.select(1, 0);
        if (step->plan.pooling == Pooling::kMean) x = mean_of_text(x, inputs.attention_mask);
        if (step->plan.pooling == Pooling::kLastText)
          x = last_of_text(x, inputs.input_ids, pad_token_id_);
        break;
      case Kind::kDense:
        x = step->linear->forward(x);
        break;
      case Kind::kTied:
        if (const auto y = row_product(x, body.embedding(), step->bias); y.defined()) {
          x = y;
        } else {
          x = at::linear(x, body.embedding(), step->bias);
        }
        break;
      case Kind::kNorm:
        x = step->norm->forward(x);
        break;
      case Kind::kActivation:
        x = step->function(x);
        break;
      case Kind::kDropout:
        x = at::dropout(x, step->plan.number, root_.is_training());
        break;
      case Kind::kUnused:
        break;
      case Kind::kSoftcap:
        x = at::tanh(x / step->plan.number) * step->plan.number;
        break;
    }
  }
  return x;
}

}  // namespace levin::models
