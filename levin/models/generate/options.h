#pragma once
// GenerateOptions and Generated: what Pretrained::generate is told, and what it gives.
//
//   auto written = net->generate(models::to_prompts(tokenizer, {"Once upon a time"}),
//                                {.max_new_tokens = 40, .do_sample = true, .top_p = 0.9, .seed = 7, .tokenizer = &tokenizer});
//   written.texts[0];                                // what comes after the prompt

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

// KeptCache: keys and values from one call of generate to the next, so that a turn of a chat costs
// what is new in it.
//
//   models::KeptCache kept;
//   net->generate(first_turn, {.kept = &kept, .tokenizer = &tokenizer});
//   net->generate(both_turns, {.kept = &kept, .tokenizer = &tokenizer});  // reads what is new

namespace levin::models {

/// Of one text. A call takes up the tokens that its prompt begins with and that are here; where the prompt
/// goes another way, as where a template rewrites an earlier turn, the cache is cut back to there. Layers
/// with a sliding window have lost what a cut needs once the text was longer than the window: they are
/// begun anew with all others. Another model begins anew; call forget() where weights or adapters have
/// changed. A call that throws leaves nothing here.
class LEVIN_API KeptCache {
 public:
  KeptCache();
  ~KeptCache();
  KeptCache(KeptCache&&) noexcept;
  KeptCache& operator=(KeptCache&&) noexcept;

  /// Tokens whose keys and values are here.
  int64_t size() const;
  void forget();

  struct Held;

 private:
  friend class Generation;
  std::unique_ptr<Held> held_;
};

}  // namespace levin::models

namespace levin::text {
class Tokenizer;
}  // namespace levin::text

namespace levin::models {

/// Names and meanings of transformers' GenerationConfig. What is unset is as the model's
/// generation_config.json says, and where that says nothing as transformers has it.
struct GenerateOptions {
  // Behaviour: where a text ends
  std::optional<int64_t> max_length;      ///< tokens, those of the prompt among them
  std::optional<int64_t> max_new_tokens;  ///< goes before max_length; where neither is set: 20
  std::optional<int64_t> min_length;
  std::optional<int64_t> min_new_tokens;  ///< goes before min_length
  std::vector<int64_t> eos_token_id = {};
  std::vector<int64_t> stop_token_ids = {};    ///< end a text too, beside eos_token_id
  std::vector<std::string> stop_strings = {};  ///< end a text with the token that completes one

  // Behaviour: which token comes next, in the order in which they change the scores
  std::optional<bool> do_sample;             ///< else the likeliest one
  std::optional<double> repetition_penalty;  ///< of tokens that were there (Keskar et al. 2019)
  std::optional<double> temperature;         ///< what follows counts where do_sample is true
  std::optional<int64_t> top_k;              ///< among the k likeliest; 0: all
  std::optional<double> top_p;  ///< among the likeliest that make up p (Holtzman et al. 2019)
  std::optional<double> min_p;  ///< among those at least min_p times as likely as the likeliest

  std::optional<int64_t> num_return_sequences;  ///< texts a prompt, one behind the other
  std::optional<int64_t> pad_token_id;          ///< what follows the end of a text
  /// Gives the same text again, that of transformers after torch.manual_seed; unset: the default
  /// generator's next numbers.
  std::optional<uint64_t> seed;

  // Performance
  std::optional<bool> use_cache;  ///< keys and values of the tokens so far are kept
  /// They are taken from there and left there, for a next call whose one prompt begins alike
  /// (generate/kept_cache.h); has to outlive the call.
  KeptCache* kept = nullptr;

  /// For texts, stop_strings and on_text; has to outlive the call.
  const text::Tokenizer* tokenizer = nullptr;
  /// Pieces of a row's text as they are written, characters whole.
  std::function<void(int64_t row, std::string_view piece)> on_text = {};
  /// The token of each row, int64 [rows], on the CPU; false ends all texts here.
  std::function<bool(const at::Tensor& tokens)> on_tokens = {};
  /// The scores that each token is chosen by, float32 [rows, vocabulary]; -infinity: it cannot be.
  std::function<void(const at::Tensor& scores)> on_scores = {};
};

/// Why a text ends.
enum class Ending {
  kToken,   ///< with one of eos_token_id or stop_token_ids
  kString,  ///< with one of stop_strings
  kLength,  ///< as long as it may be
  kCaller   ///< on_tokens said so
};

/// A row is a text; those of one prompt are neighbours.
struct Generated {
  at::Tensor sequences;         ///< int64 [rows, tokens]: the prompt, what follows, padding
  std::vector<int64_t> counts;  ///< tokens that follow the prompt, the last one among them
  std::vector<Ending> endings;
  /// Tokens of a row that the model read: all but the last of sequences, less those that a KeptCache
  /// had; without a cache each as often as it was read.
  int64_t num_computed = 0;
  /// What follows the prompt, without special tokens; none where there is no tokenizer.
  std::vector<std::string> texts;
};

}  // namespace levin::models
