#pragma once
// Scores: from what the head gives to the next token, as transformers' logits processors do it and in their
// order: repetition_penalty, min_length, temperature, top_k, top_p, min_p.
//
//   Scores scores(settings, prompt_mask, generator);
//   const at::Tensor next = scores.choose(logits, ids);     // int64 [rows]

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "levin/base/export.h"
#include "levin/models/generate/settings.h"

namespace levin::models {

class LEVIN_API Scores {
 public:
  using Listener = std::function<void(const at::Tensor& scores)>;

  /// padding: bool [rows, T], true where a token of the prompts is padding; undefined where none is.
  Scores(const GenerateSettings& settings, const at::Tensor& padding,
         std::optional<at::Generator> generator, Listener listener = {});

  /// logits [rows, vocabulary], ids int64 [rows, tokens so far] -> int64 [rows]
  at::Tensor choose(const at::Tensor& logits, const at::Tensor& ids) const;

 private:
  /// The tokens that may still be chosen: all of them, or a few with their ids.
  struct Candidates {
    at::Tensor scores;  // float32 [rows, count]
    at::Tensor ids;     // int64 [rows, count]; undefined: 0 to count
  };
  at::Tensor penalized(const at::Tensor& scores, const at::Tensor& ids) const;
  Candidates of_top_k(const at::Tensor& scores) const;
  void keep_top_p(Candidates& candidates) const;
  void keep_min_p(Candidates& candidates) const;
  static at::Tensor over_all(const Candidates& candidates, const at::Tensor& values, double others,
                             int64_t vocabulary);

  const GenerateSettings& settings_;
  at::Tensor padding_, eos_;
  std::optional<at::Generator> generator_;
  Listener listener_;
};

}  // namespace levin::models
