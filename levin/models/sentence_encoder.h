#pragma once
// SentenceEncoder: texts to vectors whose products say how alike they are, as sentence-transformers'
// SentenceTransformer.encode.
//
//   auto encoder = levin::models::SentenceEncoder::from_pretrained("minilm");
//   const at::Tensor vectors = encoder.encode(texts);              // [texts, 384]
//   const at::Tensor likeness = vectors.mm(vectors.t());

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "levin/base/export.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"

namespace levin::models {

struct EncodeSentencesOptions {
  int64_t batch_size = 32;
  /// Called after each batch with how many texts are done.
  std::function<void(int64_t done)> progress = {};
};

class LEVIN_API SentenceEncoder {
 public:
  /// A folder of sentence-transformers, or any encoder's, whose tokens' mean is taken then. Texts are cut
  /// at "max_seq_length" of sentence_bert_config.json, or at what the model can read. The prompt that
  /// config_sentence_transformers.json names as default stands before each text, and vectors are cut at
  /// its "truncate_dim". Throws Error "models.config" and "models.sentence" for what these files ask for
  /// and levin does not have, and what models::from_pretrained and text::Tokenizer::from_pretrained throw.
  static SentenceEncoder from_pretrained(const std::filesystem::path& folder);

  /// float32 [texts, width] on the CPU, without gradients; texts of like length are encoded together.
  at::Tensor encode(std::span<const std::string> texts, const EncodeSentencesOptions& options = {});

  const std::shared_ptr<Pretrained>& model() const { return net_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  int64_t max_seq_length() const { return max_seq_length_; }

 private:
  SentenceEncoder(std::shared_ptr<Pretrained> net, text::Tokenizer tokenizer,
                  int64_t max_seq_length);

  std::shared_ptr<Pretrained> net_;
  text::Tokenizer tokenizer_;
  int64_t max_seq_length_;
  std::string prompt_;  // before each text
  int64_t width_ = 0;   // of a vector, where it is cut; 0: the model's
};

}  // namespace levin::models
