#pragma once
// Generation: one call of Pretrained::generate, token by token.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/models/generate/options.h"
#include "levin/models/generate/scores.h"
#include "levin/models/generate/settings.h"
#include "levin/models/generate/texts.h"
#include "levin/models/layers/cache.h"
#include "levin/models/pretrained_parts.h"

namespace levin::models {

class Generation {
 public:
  Generation(Pretrained& net, const Batch& prompts, const GenerateOptions& options);
  Generated run();

 private:
  struct Row {
    bool is_done = false;
    Ending ending = Ending::kLength;
    int64_t count = 0;
    std::optional<WrittenText> text = {};
  };

  void begin_texts();
  void begin_cache();
  void keep_cache();
  at::Tensor next_logits();             // [rows, vocabulary]
  at::Tensor positions_of_all() const;  // [rows or 1, tokens so far]
  std::optional<Ending> ending_of(Row& row, int64_t token) const;
  bool take(const at::Tensor& tokens);  // false: all texts have ended
  Generated result();

  const void* net_;
  PretrainedParts& parts_;
  const GenerateOptions& options_;
  at::Device device_, sampling_device_;
  at::Tensor padding_;    // bool [rows, T], true where the prompts have some; undefined: nowhere
  at::Tensor ids_;        // int64 [rows, capacity], on the sampling device
  at::Tensor positions_;  // int64 [rows or 1, 1], of the newest token
  int64_t prompt_, length_;
  GenerateSettings settings_;
  std::optional<Scores> scores_;
  std::optional<Cache> cache_;
  int64_t num_computed_ = 0;
  std::vector<Row> rows_;
};

}  // namespace levin::models
