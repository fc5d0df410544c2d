#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "levin/models/pretrained.h"

namespace levin::models {

namespace {

Batch padded(const text::PaddingOptions& padding, std::span<const text::Encoding> encodings) {
  int64_t longest = 0;
  for (const text::Encoding& each : encodings)
    longest = std::max(longest, static_cast<int64_t>(each.ids.size()));
  const auto rows = static_cast<int64_t>(encodings.size());
  const at::Tensor ids = at::full({rows, longest}, padding.pad_id, at::kLong);
  const at::Tensor mask = at::zeros({rows, longest}, at::kLong);
  const at::Tensor types = at::full({rows, longest}, padding.pad_type_id, at::kLong);
  bool has_pairs = false;
  for (int64_t row = 0; row < rows; ++row) {
    const text::Encoding& from = encodings[row];
    const auto length = static_cast<int64_t>(from.ids.size());
    const int64_t begin = row * longest + (padding.direction == "left" ? longest - length : 0);
    std::ranges::copy(from.ids, ids.mutable_data_ptr<int64_t>() + begin);
    std::ranges::copy(from.attention_mask, mask.mutable_data_ptr<int64_t>() + begin);
    std::ranges::copy(from.type_ids, types.mutable_data_ptr<int64_t>() + begin);
    has_pairs =
        has_pairs || std::ranges::any_of(from.type_ids, [](auto type) { return type != 0; });
  }
  Batch batch{{"input_ids", ids}, {"attention_mask", mask}};
  if (has_pairs) batch.set("token_type_ids", types);
  return batch;
}

std::vector<text::Encoding> encoded(const text::Tokenizer& tokenizer,
                                    std::span<const std::string> texts) {
  return tokenizer.encode_batch(texts, {.offsets = text::OffsetUnit::kNone, .num_threads = 1});
}

}  // namespace

Batch to_batch(const text::Tokenizer& tokenizer, std::span<const text::Encoding> encodings) {
  return padded(tokenizer.default_padding(), encodings);
}

Batch to_batch(const text::Tokenizer& tokenizer, std::span<const std::string> texts) {
  return to_batch(tokenizer, std::span<const text::Encoding>(encoded(tokenizer, texts)));
}

Batch to_batch(const text::Tokenizer& tokenizer, std::initializer_list<std::string> texts) {
  return to_batch(tokenizer, std::span<const std::string>(texts.begin(), texts.size()));
}

Batch to_prompts(const text::Tokenizer& tokenizer, std::span<const text::Encoding> encodings) {
  // Masked in any case, so that another token serves where no file names one.
  const auto pad = tokenizer.special_token_id("pad_token");
  return padded({.direction = "left",
                 .pad_id = pad ? *pad : tokenizer.special_token_id("eos_token").value_or(0)},
                encodings);
}

Batch to_prompts(const text::Tokenizer& tokenizer, std::span<const std::string> texts) {
  return to_prompts(tokenizer, std::span<const text::Encoding>(encoded(tokenizer, texts)));
}

Batch to_prompts(const text::Tokenizer& tokenizer, std::initializer_list<std::string> texts) {
  return to_prompts(tokenizer, std::span<const std::string>(texts.begin(), texts.size()));
}

}  // namespace levin::models
