#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/data/batch.h"
#include "levin/files/read_file.h"
#include "levin/models/check_keys.h"
#include "levin/models/pretrained.h"
#include "levin/models/pretrained_parts.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;

/// Keys of sentence_bert_config.json, the file of the Transformer module.
constexpr std::string_view kTransformerKeys = R"keys(
  read      max_seq_length modality_config
  harmless  unpad_inputs
  only      do_lower_case = false
  only      transformer_task = "feature-extraction"
  only      module_output_name = "token_embeddings"
  only      processing_kwargs = {}
  only      model_args = {}
  only      model_kwargs = {}
  only      config_args = {}
  only      config_kwargs = {}
  only      tokenizer_args = {}
  only      processor_kwargs = {}
  refused   tokenizer_name_or_path query_length document_length query_expansion
)keys";

/// Keys of config_sentence_transformers.json.
constexpr std::string_view kSentenceKeys = R"keys(
  read      prompts default_prompt_name truncate_dim
  harmless  __version__ similarity_fn_name
  only      model_type = "SentenceTransformer"
)keys";

/// A folder's file; an empty one where it has none.
Config config_of(const fs::path& file, std::string_view keys) {
  std::error_code error;
  if (!fs::exists(file, error)) return Config::from_json("{}", file.string());
  Config config = Config::from_json(files::read_file(file), file.string());
  check_keys(config, detail::KnownKeys({keys}));
  return config;
}

/// Returns max_seq_length of the Transformer module, else the smaller of the tokenizer's and the model's limit.
int64_t longest_text(const fs::path& folder, const Config& config,
                     const text::Tokenizer& tokenizer) {
  for (const char* name : kTransformerFiles) {
    const Config given = config_of(folder / name, kTransformerKeys);
    if (given.keys().empty()) continue;
    const Config texts = given.child("modality_config").child("text");
    LEVIN_CHECK(texts.text("method", "forward") == "forward" &&
                    texts.text("method_output_name", "last_hidden_state") == "last_hidden_state",
                "models.sentence",
                "{}: got a modality_config with another method, wanted method = forward and "
                "method_output_name = last_hidden_state",
                given.origin());
    if (given.has("max_seq_length")) return given.positive("max_seq_length");
    break;
  }
  const int64_t positions = config.integer("max_position_embeddings", 512);
  return std::min(tokenizer.model_max_length().value_or(positions), positions);
}

/// Returns the prompt that precedes each text.
std::string prompt_of(const Config& config, bool include_prompt) {
  if (!config.has("default_prompt_name")) return "";
  const std::string name = config.text("default_prompt_name");
  const Config prompts = config.child("prompts");
  LEVIN_CHECK(prompts.has(name), "models.sentence",
              "{}: got default_prompt_name '{}', but prompts has no such name", config.origin(),
              printable(name));
  const std::string prompt = prompts.text(name);
  LEVIN_CHECK(prompt.empty() || include_prompt, "models.sentence",
              "{}: got a default prompt and a pooling with include_prompt = false, which levin "
              "does not support together; remove default_prompt_name",
              config.origin());
  return prompt;
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
  const Config config = config_of(folder / "config_sentence_transformers.json", kSentenceKeys);
  SentenceEncoder encoder(std::move(net), std::move(tokenizer), longest);
  encoder.prompt_ = prompt_of(config, parts_of(*encoder.net_).sentence.include_prompt);
  if (config.has("truncate_dim")) encoder.width_ = config.positive("truncate_dim");
  return encoder;
}

at::Tensor SentenceEncoder::encode(std::span<const std::string> texts,
                                   const EncodeSentencesOptions& options) {
  LEVIN_CHECK(options.batch_size >= 1, "models.sentence", "got batch_size = {}, wanted at least 1",
              options.batch_size);
  const at::NoGradGuard no_grad;
  std::vector<std::string> prompted;
  if (!prompt_.empty()) {
    for (const std::string& text : texts) prompted.push_back(prompt_ + text);
  }
  const std::span<const std::string> given =
      prompt_.empty() ? texts : std::span<const std::string>(prompted);
  const auto encodings = tokenizer_.encode_batch(given, {.offsets = text::OffsetUnit::kNone});
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
    at::Tensor part =
        net_->forward(to_batch(tokenizer_, std::span<const text::Encoding>(chosen)).to(device))
            .embedding.cpu();
    if (width_ > 0) part = part.narrow(1, 0, std::min(width_, part.size(1)));
    if (!vectors.defined()) vectors = at::empty({static_cast<int64_t>(texts.size()), part.size(1)});
    for (size_t i = begin; i < end; ++i)
      vectors[order[i]].copy_(part[static_cast<int64_t>(i - begin)]);
    if (options.progress) options.progress(static_cast<int64_t>(end));
  }
  return vectors.defined() ? vectors : at::empty({0, 0});
}

}  // namespace levin::models
