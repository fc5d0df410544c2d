#pragma once
// FineTuneOptions: how a pretrained model is trained, with the defaults of Hugging Face's trainers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin::models {

class Pretrained;

struct FineTuneOptions {
  /// auto: the loss of the model's task; of sentence-similarity in-batch-negatives. Others: sft and dpo for
  /// text-generation; in-batch-negatives, cosine and triplet for sentence-similarity.
  std::string objective = "auto";
  std::optional<double> lr;         ///< unset: 5e-5, of sft 2e-5, of dpo 1e-6
  std::string schedule = "linear";  ///< linear (falls to 0), cosine or constant
  int64_t warmup_steps = 0;         ///< optimizer steps in which the rate rises from 0
  double weight_decay = 0.0;        ///< of AdamW; biases and norms have none
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< gradients are clipped to; 0: they are not

  double beta = 0.1;             ///< of dpo: how near the reference the model stays
  double label_smoothing = 0.0;  ///< of dpo: the part of pairs that may be the wrong way round
  double scale = 20.0;           ///< of in-batch-negatives: 1 / temperature
  double margin = 5.0;           ///< of triplet
  int64_t recall_at = 1;         ///< of embeddings, in validation: among so many nearest answers

  /// Of dpo: what the model is held against. None: the model without its adapter; where it has none,
  /// the folder that it came from, opened once more.
  std::shared_ptr<Pretrained> reference = {};

  LEVIN_API void fields(FieldVisitor& field);
};

/// The objectives that an option of FineTuneOptions has an effect for, by the option's name; empty: all of them.
LEVIN_API std::vector<std::string> objectives_of_option(std::string_view option);

}  // namespace levin::models
