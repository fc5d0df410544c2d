#include "levin/models/generate/generation.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/data/batch.h"
#include "levin/module/evaluation_mode.h"

namespace levin::models {
namespace {

at::Tensor prompt_ids(const Batch& prompts) {
  const Inputs inputs = Inputs::from(prompts);
  for (const char* name : {"token_type_ids", "position_ids", "document"}) {
    LEVIN_CHECK(!prompts.contains(name), "models.input",
                "got {}, but generate takes only input_ids and attention_mask; leave it out", name);
  }
  LEVIN_CHECK(inputs.input_ids.numel() > 0, "models.input",
              "got prompts without tokens; begin them with the bos_token");
  return inputs.input_ids;
}

/// Returns the mask of padding as transformers does: from attention_mask, or from pad_token_id if
/// that ends no text.
at::Tensor padding_of(const Batch& prompts, const GenerateSettings& settings) {
  at::Tensor padding;
  if (prompts.contains("attention_mask")) {
    padding = prompts["attention_mask"] == 0;
  } else if (settings.pad >= 0 && std::ranges::count(settings.eos, settings.pad) == 0) {
    padding = prompts["input_ids"] == settings.pad;
  }
  if (!padding.defined() || !padding.any().item<bool>()) return {};
  LEVIN_CHECK(!padding.select(1, -1).any().item<bool>(), "models.generate.padding",
              "got a prompt that ends with padding, wanted padding on the left; use "
              "models::to_prompts, which pads on the left");
  return padding;
}

at::Generator seeded(uint64_t seed, at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

at::Tensor repeated(const at::Tensor& x, int64_t times) {
  return times == 1 || !x.defined() ? x : x.repeat_interleave(times, 0);
}

}  // namespace

/// The state between two calls.
struct KeptCache::Held {
  const void* net;  // its model, and the type and device of the model's embedding
  at::TensorOptions options;
  at::Tensor ids;  // int64 [tokens] that are in the cache, on the CPU
  Cache cache;

  /// Returns how many tokens at the prompt's beginning the cache has. prompt: int64 [T] on the CPU;
  /// its last token is always computed.
  int64_t common(const at::Tensor& prompt) const {
    const int64_t most = std::min(ids.size(0), prompt.size(0) - 1);
    const auto differs = ids.narrow(0, 0, most).ne(prompt.narrow(0, 0, most));
    return differs.any().item<bool>() ? differs.to(at::kByte).argmax().item<int64_t>() : most;
  }
};

KeptCache::KeptCache() = default;
KeptCache::~KeptCache() = default;
KeptCache::KeptCache(KeptCache&&) noexcept = default;
KeptCache& KeptCache::operator=(KeptCache&&) noexcept = default;

int64_t KeptCache::size() const { return held_ ? held_->cache.length() : 0; }
void KeptCache::forget() { held_.reset(); }

Generation::Generation(Pretrained& net, const Batch& prompts, const GenerateOptions& options)
    : net_(&net),
      parts_(parts_of(net)),
      options_(options),
      device_(parts_.body->embedding().device()),
      sampling_device_(device_.is_cuda() ? device_ : at::Device(at::kCPU)) {
  const at::Tensor given = prompt_ids(prompts);
  prompt_ = length_ = given.size(1);
  settings_ = GenerateSettings::of(options, parts_.generation, parts_.config, prompt_,
                                   parts_.body->longest());
  const int64_t times = settings_.num_return_sequences, rows = given.size(0) * times;
  LEVIN_CHECK(rows == 1 || settings_.pad >= 0 || settings_.stop_strings.empty(),
              "models.generate.options",
              "the texts of a batch end at different steps, but there is no token to pad them "
              "with; set pad_token_id");
  padding_ = padding_of(prompts, settings_);
  if (padding_.defined()) padding_ = repeated(padding_, times).to(sampling_device_);
  ids_ = at::full({rows, settings_.capacity}, std::max<int64_t>(settings_.pad, 0),
                  given.options().device(sampling_device_));
  ids_.narrow(1, 0, prompt_).copy_(repeated(given, times));
  std::optional<at::Generator> generator;
  if (options.seed) generator = seeded(*options.seed, sampling_device_);
  scores_.emplace(settings_, padding_, generator, options.on_scores);
  begin_cache();
  rows_.resize(static_cast<size_t>(rows));
  if (options.tokenizer != nullptr) begin_texts();
}

void Generation::begin_cache() {
  if (options_.kept != nullptr) {
    LEVIN_CHECK(settings_.use_cache && ids_.size(0) == 1 && !padding_.defined(),
                "models.generate.options",
                "a KeptCache needs use_cache = true and one text without padding, but got {}; "
                "leave kept unset",
                !settings_.use_cache ? std::string("use_cache = false")
                : padding_.defined() ? std::string("padding")
                                     : std::to_string(ids_.size(0)) + " texts");
    // held_ is empty from here on, so an exception leaves no half-done cache.
    const std::unique_ptr<KeptCache::Held> held = std::move(options_.kept->held_);
    const at::Tensor& embedding = parts_.body->embedding();
    if (held && held->net == net_ && held->options.device() == embedding.device() &&
        held->options.dtype() == embedding.dtype()) {
      const int64_t common = held->common(ids_.select(0, 0).narrow(0, 0, prompt_).cpu());
      if (common > 0 && held->cache.cut(common, settings_.capacity))
        cache_.emplace(std::move(held->cache));
    }
  }
  if (settings_.use_cache && !cache_) {
    cache_.emplace(settings_.capacity,
                   padding_.defined() ? padding_.logical_not().to(device_) : at::Tensor());
  }
}

void Generation::keep_cache() {
  if (options_.kept == nullptr) return;
  const at::Tensor ids = ids_.select(0, 0).narrow(0, 0, cache_->length()).cpu().clone();
  options_.kept->held_ = std::make_unique<KeptCache::Held>(
      KeptCache::Held{net_, parts_.body->embedding().options(), ids, std::move(*cache_)});
}

void Generation::begin_texts() {
  const at::Tensor ids = ids_.narrow(1, 0, prompt_).cpu();
  const at::Tensor padding = padding_.defined() ? padding_.cpu() : at::Tensor();
  for (size_t row = 0; row < rows_.size(); ++row) {
    at::Tensor text = ids.select(0, static_cast<int64_t>(row));
    if (padding.defined())
      text = text.masked_select(padding.select(0, static_cast<int64_t>(row)).logical_not());
    const auto* first = text.const_data_ptr<int64_t>();
    WrittenText::Listener listener;
    if (options_.on_text) {
      listener = [this, row](std::string_view piece) {
        options_.on_text(static_cast<int64_t>(row), piece);
      };
    }
    rows_[row].text.emplace(*options_.tokenizer, std::vector<int32_t>(first, first + text.numel()),
                            settings_.stop_strings, std::move(listener));
  }
}

at::Tensor Generation::positions_of_all() const {
  if (!padding_.defined()) return at::arange(length_, ids_.options()).unsqueeze(0);
  const auto mask = at::constant_pad_nd(padding_.logical_not(), {0, length_ - prompt_}, 1);
  return (mask.to(at::kLong).cumsum(1) - 1).clamp_min(0);
}

at::Tensor Generation::next_logits() {
  const bool is_first = length_ == prompt_;
  Inputs inputs;
  if (cache_ && !is_first) {
    inputs.input_ids = ids_.narrow(1, length_ - 1, 1).to(device_);
    inputs.position_ids = positions_.add_(1);
  } else {
    const int64_t past = cache_ ? cache_->length() : 0;
    inputs.input_ids = ids_.narrow(1, past, length_ - past).to(device_);
    inputs.position_ids = positions_of_all().narrow(1, past, length_ - past).to(device_);
    positions_ = inputs.position_ids.narrow(1, length_ - past - 1, 1).clone();
    if (padding_.defined()) {
      const auto mask = at::constant_pad_nd(padding_.logical_not(), {0, length_ - prompt_}, 1);
      inputs.attention_mask = mask.to(device_, at::kLong);
    }
  }
  if (cache_) inputs.cache = &*cache_;
  num_computed_ += inputs.input_ids.size(1);
  const auto hidden = parts_.body->forward(inputs);
  const auto last = hidden.narrow(1, hidden.size(1) - 1, 1);
  return parts_.head->forward(last, inputs, *parts_.body).select(1, 0);
}

std::optional<Ending> Generation::ending_of(Row& row, int64_t token) const {
  const bool is_end = std::ranges::count(settings_.ends, token) > 0;
  const bool has_string = row.text && row.text->add(static_cast<int32_t>(token));
  if (is_end) return Ending::kToken;
  return has_string ? std::optional(Ending::kString) : std::nullopt;
}

bool Generation::take(const at::Tensor& tokens) {
  auto* const values = tokens.mutable_data_ptr<int64_t>();
  bool goes_on = false;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (row.is_done) {
      values[i] = std::max<int64_t>(settings_.pad, 0);
      continue;
    }
    ++row.count;
    if (const auto ending = ending_of(row, values[i])) {
      row.is_done = true;
      row.ending = *ending;
    }
    goes_on = goes_on || !row.is_done;
  }
  ids_.select(1, length_++).copy_(tokens);
  if (options_.on_tokens && !options_.on_tokens(tokens)) {
    for (Row& row : rows_) {
      if (!row.is_done) row.ending = Ending::kCaller;
    }
    return false;
  }
  return goes_on && length_ < settings_.capacity;
}

Generated Generation::run() {
  at::Tensor tokens;
  do {
    const auto logits = next_logits();
    tokens = scores_->choose(logits.to(sampling_device_), ids_.narrow(1, 0, length_)).cpu();
  } while (take(tokens));
  keep_cache();
  return result();
}

Generated Generation::result() {
  Generated generated;
  generated.sequences = ids_.narrow(1, 0, length_);
  if (length_ < settings_.capacity) generated.sequences = generated.sequences.clone();
  generated.num_computed = num_computed_;
  for (Row& row : rows_) {
    generated.counts.push_back(row.count);
    generated.endings.push_back(row.ending);
    if (row.text) generated.texts.push_back(row.text->finish());
  }
  return generated;
}

Generated Pretrained::generate(const Batch& prompts, const GenerateOptions& options) {
  LEVIN_CHECK(parts_->task == Task::kTextGeneration, "models.generate.task",
              "a {} model for {} cannot generate text; load a decoder for text-generation",
              parts_->family->model_type, task());
  LEVIN_CHECK(parts_->body->is_causal(), "models.generate.task",
              "{} describes a model without causal attention (is_causal = false, or "
              "use_bidirectional_attention = true); generate() needs a causal language model",
              parts_->config.origin());
  const EvaluationMode mode(*this);
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_views;  // views that would remember their base
  return Generation(*this, prompts, options).run();
}

Generated Pretrained::generate(const at::Tensor& input_ids, const GenerateOptions& options) {
  return generate(Batch{{"input_ids", input_ids}}, options);
}

}  // namespace levin::models
