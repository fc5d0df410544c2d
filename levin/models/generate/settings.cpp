#include "levin/models/generate/settings.h"

#include <algorithm>
#include <iterator>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/models/check_keys.h"

namespace levin::models {
namespace {

constexpr int64_t kDefaultNewTokens = 20;

/// Keys of transformers' GenerationConfig. levin accepts a feature that it lacks only with the value that turns it off.
constexpr std::string_view kGenerationKeys = R"keys(
  read      max_length max_new_tokens min_length min_new_tokens stop_strings
  read      eos_token_id bos_token_id pad_token_id
  read      do_sample temperature top_k top_p min_p repetition_penalty
  read      num_return_sequences use_cache _from_model_config

  harmless  transformers_version _commit_hash
  # What a call returns, and how it is computed.
  harmless  output_attentions output_hidden_states output_scores output_logits
  harmless  return_dict_in_generate cache_config max_cache_len prefill_chunk_size
  harmless  compile_config disable_compile continuous_batching_config low_memory
  only      cache_implementation = "dynamic" | "static" | "offloaded" | "offloaded_static" | "sliding_window" | "hybrid" | "hybrid_chunked" | "offloaded_hybrid" | "offloaded_hybrid_chunked"
  # Log probabilities in place of scores, and numbers in place of NaN: the same tokens.
  harmless  renormalize_logits remove_invalid_values
  # Of an assistant that guesses tokens ahead, which leaves them the same.
  harmless  is_assistant num_assistant_tokens num_assistant_tokens_schedule
  harmless  assistant_confidence_threshold assistant_lookbehind target_lookbehind
  harmless  assistant_early_exit assistant_ensemble_weight
  harmless  prompt_lookup_num_tokens max_matching_ngram_size speculation_type
  # Of beams, and of models with an encoder.
  harmless  early_stopping length_penalty decoder_start_token_id

  only      num_beams = 1
  only      num_beam_groups = 1
  only      diversity_penalty = 0
  only      penalty_alpha = 0
  only      typical_p = 1
  only      epsilon_cutoff = 0
  only      eta_cutoff = 0
  only      guidance_scale = 1
  only      no_repeat_ngram_size = 0
  only      encoder_no_repeat_ngram_size = 0
  only      encoder_repetition_penalty = 1
  only      token_healing = false
  only      use_mtp = false
  refused   top_h max_time bad_words_ids forced_bos_token_id forced_eos_token_id
  refused   suppress_tokens begin_suppress_tokens constraints force_words_ids sequence_bias
  refused   watermarking_config dola_layers exponential_decay_length_penalty
)keys";

void check_is_there(const Config& generation) {
  const auto refused = refused_key(generation, generation_keys());
  if (!refused) return;
  LEVIN_FAIL("models.generate.config",
             "{} has {} = {}, wanted {}; levin does not support it: set it to null in the file",
             generation.origin(), refused->key, refused->value, refused->wanted);
}

double number_of(const std::optional<double>& given, const Config& config, const char* key,
                 double otherwise) {
  return given ? *given : config.number(key, otherwise);
}

std::optional<int64_t> whole_of(const std::optional<int64_t>& given, const Config& config,
                                const char* key) {
  if (given) return given;
  return config.has(key) ? std::optional(config.integer(key)) : std::nullopt;
}

void check_at_least(const char* name, int64_t value, int64_t least) {
  LEVIN_CHECK(value >= least, "models.generate.options", "got {} = {}, wanted at least {}", name,
              value, least);
}

void check(const GenerateSettings& settings) {
  const auto fail_unless = [](bool holds, const char* name, double value, const char* wanted) {
    LEVIN_CHECK(holds, "models.generate.options", "got {} = {}, wanted {}", name, value, wanted);
  };
  fail_unless(settings.temperature > 0, "temperature", settings.temperature,
              "a number above 0; for the likeliest token set do_sample = false");
  fail_unless(settings.repetition_penalty > 0, "repetition_penalty", settings.repetition_penalty,
              "a number above 0; 1 changes nothing");
  fail_unless(settings.top_p >= 0 && settings.top_p <= 1, "top_p", settings.top_p, "0 to 1");
  fail_unless(settings.min_p >= 0 && settings.min_p <= 1, "min_p", settings.min_p, "0 to 1");
  check_at_least("top_k", settings.top_k, 0);
  check_at_least("num_return_sequences", settings.num_return_sequences, 1);
  LEVIN_CHECK(settings.do_sample || settings.num_return_sequences == 1, "models.generate.options",
              "got num_return_sequences = {} without do_sample, so all texts would be the same; "
              "set do_sample = true",
              settings.num_return_sequences);
}

/// Returns how many tokens a row may have.
int64_t capacity_of(const GenerateOptions& options, const Config& generation, const Config& model,
                    int64_t prompt, int64_t longest, bool has_end) {
  const auto more = whole_of(options.max_new_tokens, generation, "max_new_tokens");
  const auto all = whole_of(options.max_length, generation, "max_length");
  int64_t capacity = 0;
  if (more) {
    check_at_least("max_new_tokens", *more, 1);
    capacity = prompt + *more;
  } else if (all) {
    LEVIN_CHECK(prompt < *all, "models.generate.length",
                "the prompt has {} tokens, but max_length is {}; set max_new_tokens", prompt, *all);
    capacity = *all;
  } else {
    LEVIN_CHECK(has_end, "models.generate.length",
                "generation would not stop: {} and {} have no eos_token_id; set max_new_tokens",
                generation.origin(), model.origin());
    capacity = prompt + kDefaultNewTokens;
    const int64_t positions =
        longest > 0 ? longest : model.integer("max_position_embeddings", capacity);
    LEVIN_CHECK(prompt < positions, "models.generate.length",
                "the prompt has {} tokens, but the model has {} positions; shorten the prompt",
                prompt, positions);
    capacity = std::min(capacity, positions);
  }
  LEVIN_CHECK(longest == 0 || capacity <= longest, "models.length",
              "got a prompt of {} tokens and {} new tokens, wanted at most {} together: the model "
              "has no more positions; shorten the prompt, or set max_new_tokens",
              prompt, capacity - prompt, longest);
  const int64_t trained = model.integer("max_position_embeddings", capacity);
  if (capacity > trained)
    log::warn("models: generating up to {} tokens with a model that was trained for at most {}",
              capacity, trained);
  return capacity;
}

}  // namespace

const detail::KnownKeys& generation_keys() {
  static const detail::KnownKeys keys({kGenerationKeys});
  return keys;
}

GenerateSettings GenerateSettings::of(const GenerateOptions& options, const Config& generation,
                                      const Config& model, int64_t prompt, int64_t longest) {
  check_is_there(generation);
  GenerateSettings settings;
  settings.eos =
      options.eos_token_id.empty() ? generation.one_or_more("eos_token_id") : options.eos_token_id;
  settings.ends = settings.eos;
  std::ranges::copy(options.stop_token_ids, std::back_inserter(settings.ends));
  settings.stop_strings = options.stop_strings;
  if (settings.stop_strings.empty())
    settings.stop_strings = generation.one_or_more_texts("stop_strings");
  for (const std::string& each : settings.stop_strings)
    LEVIN_CHECK(!each.empty(), "models.generate.options", "got an empty string in stop_strings");
  LEVIN_CHECK(settings.stop_strings.empty() || options.tokenizer != nullptr,
              "models.generate.tokenizer",
              "got stop_strings without a tokenizer; set GenerateOptions::tokenizer");
  LEVIN_CHECK(!options.on_text || options.tokenizer != nullptr, "models.generate.tokenizer",
              "got on_text without a tokenizer; set GenerateOptions::tokenizer");
  const bool has_end = !settings.ends.empty() || !settings.stop_strings.empty();
  settings.capacity = capacity_of(options, generation, model, prompt, longest, has_end);
  const auto least_more = whole_of(options.min_new_tokens, generation, "min_new_tokens");
  settings.min_length = least_more
                            ? prompt + *least_more
                            : whole_of(options.min_length, generation, "min_length").value_or(0);
  const auto pad = whole_of(options.pad_token_id, generation, "pad_token_id");
  settings.pad = pad ? *pad : settings.ends.empty() ? -1 : settings.ends.front();

  settings.do_sample = options.do_sample.value_or(generation.boolean("do_sample", false));
  settings.repetition_penalty =
      number_of(options.repetition_penalty, generation, "repetition_penalty", 1.0);
  settings.temperature = number_of(options.temperature, generation, "temperature", 1.0);
  settings.top_k = whole_of(options.top_k, generation, "top_k").value_or(50);
  settings.top_p = number_of(options.top_p, generation, "top_p", 1.0);
  settings.min_p = number_of(options.min_p, generation, "min_p", 0.0);
  settings.num_return_sequences =
      whole_of(options.num_return_sequences, generation, "num_return_sequences").value_or(1);
  settings.use_cache = options.use_cache.value_or(generation.boolean("use_cache", true));
  check(settings);
  return settings;
}

Config generation_config_of(const Config& model) {
  Config generation = Config::from_json(R"({"_from_model_config": true})", model.origin());
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const std::vector<int64_t> ids = model.one_or_more(key);
    if (ids.size() == 1) generation.set(key, ids.front());
    if (ids.size() > 1) generation.set(key, ids);
  }
  return generation;
}

void write_options(const GenerateOptions& options, Config& generation) {
  generation.erase("_from_model_config");
  const auto whole = [&](const char* key, const std::optional<int64_t>& value) {
    if (value) generation.set(key, *value);
  };
  const auto number = [&](const char* key, const std::optional<double>& value) {
    if (value) generation.set_number(key, *value);
  };
  const auto flag = [&](const char* key, const std::optional<bool>& value) {
    if (value) generation.set_flag(key, *value);
  };
  whole("max_length", options.max_length);
  whole("max_new_tokens", options.max_new_tokens);
  whole("min_length", options.min_length);
  whole("min_new_tokens", options.min_new_tokens);
  std::vector<int64_t> ends =
      options.eos_token_id.empty() ? generation.one_or_more("eos_token_id") : options.eos_token_id;
  std::ranges::copy(options.stop_token_ids, std::back_inserter(ends));
  if (ends.size() == 1) generation.set("eos_token_id", ends.front());
  if (ends.size() > 1) generation.set("eos_token_id", ends);
  if (!options.stop_strings.empty()) generation.set("stop_strings", options.stop_strings);
  flag("do_sample", options.do_sample);
  number("repetition_penalty", options.repetition_penalty);
  number("temperature", options.temperature);
  whole("top_k", options.top_k);
  number("top_p", options.top_p);
  number("min_p", options.min_p);
  whole("num_return_sequences", options.num_return_sequences);
  whole("pad_token_id", options.pad_token_id);
  flag("use_cache", options.use_cache);
}

}  // namespace levin::models
