#pragma once
// GenerateSettings: what a call of generate does, in numbers: its options, then generation_config.json,
// then transformers' defaults.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/json/known_keys.h"
#include "levin/models/generate/options.h"
#include "levin/models/pretrained.h"

namespace levin::models {

struct GenerateSettings {
  int64_t capacity = 0;    // tokens of a row at most
  int64_t min_length = 0;  // before which no text ends
  std::vector<int64_t> ends;
  std::vector<int64_t> eos;  // the ends that min_length holds back
  std::vector<std::string> stop_strings;
  int64_t pad = -1;  // -1: nobody names one
  bool do_sample = false;
  double repetition_penalty = 1, temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;
  int64_t num_return_sequences = 1;
  bool use_cache = true;

  /// model: config.json. longest: tokens that the model has positions for; 0: no limit. Throws Error
  /// "models.generate.options" for values that cannot be, "models.generate.length" where the prompt leaves
  /// no room or nothing would end a text, and "models.generate.config" where the file asks for what is
  /// not there.
  LEVIN_API static GenerateSettings of(const GenerateOptions& options, const Config& generation,
                                       const Config& model, int64_t prompt, int64_t longest);
};

/// How levin treats each key of generation_config.json.
const detail::KnownKeys& generation_keys();

/// Returns the generation config that transformers derives from a config.json alone: its special
/// tokens.
Config generation_config_of(const Config& model);

/// The options that are set, by the names of the file.
void write_options(const GenerateOptions& options, Config& generation);

}  // namespace levin::models
