#pragma once
// Head: what stands on a body for a task, as a list of steps that a family gives.
//
//   HeadPlan{.steps = {pooled(Pooling::kFirst), dense("classifier.dense", 384, 384), activation("tanh"),
//                      dense("classifier.out_proj", 384, 20)}}

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/bodies/body.h"
#include "levin/models/heads/task.h"
#include "levin/models/losses/chunked_nll.h"

namespace levin::models {

/// How the vectors of a text's tokens become one, or which of them stay.
enum class Pooling {
  kFirst,     ///< the first token's
  kLastText,  ///< the rightmost one's that is not padding
  kMean       ///< the mean of the tokens that are not padding
};

struct HeadStep {
  enum class Kind { kPool, kDense, kTied, kNorm, kActivation, kDropout, kSoftcap, kUnused } kind;
  std::string name;  ///< path of its parameters; of kActivation the function
  int64_t in = 0, out = 0;
  bool bias = true;
  double number = 0;  ///< deviation, epsilon, rate or cap
  double cutoff = 0;  ///< cutoff of a dense step's initialization
  Pooling pooling = Pooling::kFirst;
};

HeadStep pooled(Pooling pooling);
HeadStep dense(std::string name, int64_t in, int64_t out, bool bias = true, double deviation = 0.02,
               double cutoff = 0);
/// Times the matrix of the tokens' embedding, plus a bias of `out` that has that path, if one is named.
HeadStep tied(std::string bias, int64_t out);
/// A bias that transformers writes and does not use: kept, so that what was read is written back.
HeadStep unused(std::string bias, int64_t out);
HeadStep layer_norm(std::string name, int64_t width, double eps, bool bias = true);
HeadStep activation(std::string function);
HeadStep dropout(double rate);
HeadStep softcap(double cap);

struct HeadPlan {
  std::vector<HeadStep> steps;
  /// Prefix of the body's names under this head, if it is not the family's usual one.
  std::string base_prefix = {};
  /// Id of padding for kLastText; -1: the config has none, and texts come one by one.
  int64_t pad_token_id = -1;
};

class Head {
 public:
  Head(torch::nn::Module& root, const HeadPlan& plan);
  ~Head();

  /// hidden: [B, T, width] -> the last step's result. Throws Error "models.padding" if the last
  /// token of several texts is needed and the padding is unknown.
  at::Tensor forward(const at::Tensor& hidden, const Inputs& inputs, const Body& body) const;

  /// The layer that makes scores of tokens, where the head ends with one that is as it was read: none
  /// where an adapter is on it.
  std::optional<OutputLayer> output_layer(const Body& body) const;
  /// Returns the input of that layer: [B, T, width].
  at::Tensor before_output(const at::Tensor& hidden, const Inputs& inputs, const Body& body) const;

 private:
  struct Step;

  at::Tensor run(size_t steps, const at::Tensor& hidden, const Inputs& inputs,
                 const Body& body) const;
  /// Index of the last step with a matrix.
  size_t output_step() const;

  torch::nn::Module& root_;
  int64_t pad_token_id_;
  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace levin::models
