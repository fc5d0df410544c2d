#pragma once
// GenerateOptions and Generated: options and results of Pretrained::generate.
//
//   auto generated = net->generate(models::to_prompts(tokenizer, {"Once upon a time"}),
//                                  {.max_new_tokens = 40, .do_sample = true, .top_p = 0.9,
//                                   .seed = 7, .tokenizer = &tokenizer});
//   generated.texts[0];                              // the text after the prompt

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

// KeptCache: a KV cache that is kept between calls of generate(), so that each turn of a chat
// computes only its new tokens.
//
//   models::KeptCache kept;
//   net->generate(first_turn, {.kept = &kept, .tokenizer = &tokenizer});
//   net->generate(both_turns, {.kept = &kept, .tokenizer = &tokenizer});  // only new tokens

namespace levin::models {

/// The KV cache of one text. A call of generate() reuses the tokens at the beginning of its prompt
/// that are in the cache. If the prompt differs from some token on (for example if a chat template
/// rewrites an earlier turn), the cache is cut back to that token. Layers with a sliding window
/// cannot be cut back once the text was longer than the window; then all layers begin with an empty
/// cache. A call of another model begins with an empty cache too. Call forget() after weights or
/// adapters have changed. A call that throws leaves the cache empty.
class LEVIN_API KeptCache {
 public:
  /// Creates an empty cache.
  KeptCache();
  ~KeptCache();
  /// Moves the cache.
  KeptCache(KeptCache&&) noexcept;
  /// Moves the cache.
  KeptCache& operator=(KeptCache&&) noexcept;

  /// Number of tokens whose keys and values are in the cache.
  int64_t size() const;
  /// Empties the cache.
  void forget();

 private:
  friend class Generation;
  struct Held;
  std::unique_ptr<Held> held_;
};

}  // namespace levin::models

namespace levin::text {
class Tokenizer;
}  // namespace levin::text

namespace levin::models {

/// Options of generate(), with the names and meanings of transformers' GenerationConfig. An option
/// that is unset has the value in the model's generation_config.json, or otherwise the default of
/// transformers.
struct GenerateOptions {
  // Behaviour: where a text ends
  std::optional<int64_t> max_length;           ///< maximum tokens, with those of the prompt
  std::optional<int64_t> max_new_tokens;       ///< overrides max_length; if neither is set: 20
  std::optional<int64_t> min_length;           ///< minimum tokens, with those of the prompt
  std::optional<int64_t> min_new_tokens;       ///< minimum new tokens; overrides min_length
  std::vector<int64_t> eos_token_id = {};      ///< tokens that end a text; empty: unset
  std::vector<int64_t> stop_token_ids = {};    ///< further tokens that end a text
  std::vector<std::string> stop_strings = {};  ///< strings that end a text when they are complete

  // Behaviour: which token comes next, in the order in which the scores are processed
  std::optional<bool> do_sample;             ///< sample; otherwise take the most likely token
  std::optional<double> repetition_penalty;  ///< penalty for repeated tokens (Keskar et al. 2019)
  std::optional<double> temperature;         ///< this and the next three need do_sample
  std::optional<int64_t> top_k;              ///< sample from the k most likely tokens; 0: all
  /// Sample from the most likely tokens whose probabilities add up to p (Holtzman et al. 2019).
  std::optional<double> top_p;
  /// Sample from the tokens at least min_p times as likely as the most likely token.
  std::optional<double> min_p;

  std::optional<int64_t> num_return_sequences;  ///< texts per prompt, which are adjacent rows
  std::optional<int64_t> pad_token_id;          ///< token after the end of a text
  /// Seed of sampling: the same seed gives the same text, and the same as transformers after
  /// torch.manual_seed(seed). Unset: the default generator is used.
  std::optional<uint64_t> seed;

  // Performance
  std::optional<bool> use_cache;  ///< use a KV cache
  /// KV cache that this call continues and leaves for the next one. Each call has a single prompt,
  /// which begins like the prompt of the call before. The option needs use_cache, and one text
  /// without padding. The cache has to outlive the call.
  KeptCache* kept = nullptr;

  /// Needed for Generated::texts, stop_strings and on_text; has to outlive the call.
  const text::Tokenizer* tokenizer = nullptr;
  /// Streaming: called with each new piece of a row's text, in whole characters.
  std::function<void(int64_t row, std::string_view piece)> on_text = {};
  /// Called with the new token of each row, int64 [rows], on the CPU. Returning false ends all
  /// texts.
  std::function<bool(const at::Tensor& tokens)> on_tokens = {};
  /// Called with the processed scores that each token is chosen from, float32 [rows, vocabulary];
  /// -infinity: the token cannot be chosen.
  std::function<void(const at::Tensor& scores)> on_scores = {};
};

/// Reason why a text ended.
enum class Ending {
  kToken,   ///< one of eos_token_id or stop_token_ids was generated
  kString,  ///< one of stop_strings was completed
  kLength,  ///< the maximum length was reached
  kCaller   ///< on_tokens returned false
};

/// Results of generate(). A row is a text; the texts of one prompt are adjacent rows.
struct Generated {
  at::Tensor sequences;         ///< int64 [rows, tokens]: prompt, new tokens, padding
  std::vector<int64_t> counts;  ///< number of new tokens of each row, with the token that ended it
  std::vector<Ending> endings;  ///< reason why each row ended
  /// Number of tokens per row that the model computed: all tokens of the row except the last one,
  /// minus the tokens taken from a KeptCache. Without a KV cache a token counts each time it was
  /// computed.
  int64_t num_computed = 0;
  /// New text of each row, without special tokens; empty if there is no tokenizer.
  std::vector<std::string> texts;
};

}  // namespace levin::models
