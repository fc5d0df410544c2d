#include "levin/models/sentence_encoder.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/batch.h"
#include "levin/files/read_file.h"
#include "levin/models/to_batch.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;

/// sentence_bert_config.json, else the shorter of what tokenizer and model are made for.
int64_t longest_text(const fs::path& folder, const Config& config,
                     const text::Tokenizer& tokenizer) {
  const fs::path file = folder / "sentence_bert_config.json";
  std::error_code error;
  if (fs::exists(file, error)) {
    const Config given = Config::from_json(files::read_file(file), file.string());
    if (given.has("max_seq_length")) {
      const int64_t length = given.integer("max_seq_length");
      LEVIN_CHECK(length >= 1, "models.sentence", "{}: got max_seq_length = {}, wanted at least 1",
                  file.string(), length);
      return length;
    }
  }
  const int64_t positions = config.integer("max_position_embeddings", 512);
  return std::min(tokenizer.model_max_length().value_or(positions), positions);
}

}  // namespace

SentenceEncoder::SentenceEncoder(std::shared_ptr<Pretrained> net, text::Tokenizer tokenizer,
                                 int64_t max_seq_length)
    : net_(std::move(net)), tokenizer_(std::move(tokenizer)), max_seq_length_(max_seq_length) {
  tokenizer_.set_padding({});
  tokenizer_.set_truncation(text::TruncationOptions{.max_length = max_seq_length_});
}

SentenceEncoder SentenceEncoder::from_pretrained(const fs::path& folder) {
  auto net = models::from_pretrained(folder, {.task = "sentence-similarity"});
  net->eval();
  auto tokenizer = text::Tokenizer::from_pretrained(folder);
  const int64_t longest = longest_text(folder, net->config(), tokenizer);
  return {std::move(net), std::move(tokenizer), longest};
}

at::Tensor SentenceEncoder::encode(std::span<const std::string> texts,
                                   const EncodeSentencesOptions& options) {
  LEVIN_CHECK(options.batch_size >= 1, "models.sentence", "got batch_size = {}, wanted at least 1",
              options.batch_size);
  const at::NoGradGuard no_grad;
  const auto encodings = tokenizer_.encode_batch(texts, {.offsets = text::OffsetUnit::kNone});
  std::vector<int64_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return encodings[a].ids.size() > encodings[b].ids.size();
  });
  const at::Device device = net_->parameters().front().device();
  at::Tensor vectors;
  for (size_t begin = 0; begin < order.size(); begin += options.batch_size) {
    const size_t end = std::min(order.size(), begin + options.batch_size);
    std::vector<text::Encoding> chosen;
    for (size_t i = begin; i < end; ++i) chosen.push_back(encodings[order[i]]);
    const at::Tensor part =
        net_->forward(to_batch(tokenizer_, std::span<const text::Encoding>(chosen)).to(device))
            .embedding.cpu();
    if (!vectors.defined()) vectors = at::empty({static_cast<int64_t>(texts.size()), part.size(1)});
    for (size_t i = begin; i < end; ++i)
      vectors[order[i]].copy_(part[static_cast<int64_t>(i - begin)]);
    if (options.progress) options.progress(static_cast<int64_t>(end));
  }
  return vectors.defined() ? vectors : at::empty({0, 0});
}

}  // namespace levin::models
