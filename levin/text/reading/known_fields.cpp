#include "levin/text/reading/known_fields.h"

#include <vector>

#include "levin/base/check.h"
#include "levin/base/json/known_keys.h"
#include "levin/base/options.h"
#include "levin/text/folder/special_tokens.h"

namespace levin::text {
namespace {

using detail::KnownKeys;

// tests/oracle/foreign_keys.py reads the lists.
constexpr std::string_view kSpecialTokenKeys = R"keys(
  read      bos_token eos_token unk_token sep_token pad_token cls_token mask_token
  read      additional_special_tokens extra_special_tokens
)keys";

constexpr std::string_view kTokenizerConfigKeys = R"keys(
  read      model_specific_special_tokens added_tokens_decoder
  read      tokenizer_class model_max_length max_len padding_side truncation_side model_input_names
  read      clean_up_tokenization_spaces split_special_tokens
  read      clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output
  read      chat_template chat_control_tokens
  read      add_prefix_space trim_offsets legacy                         # of some classes
  read      do_lower_case strip_accents tokenize_chinese_chars
  harmless  add_bos_token add_eos_token                                  # tokenizer.json says what stands around a text
  harmless  pad_token_type_id                                            # transformers pads with 0
  harmless  name_or_path processor_class verbose backend files_loaded is_local local_files_only
  read      auto_map                                                     # Python code, which is told of
  harmless  transformers_version use_fast trust_remote_code from_slow _commit_hash
  harmless  special_tokens_map_file added_tokens_file tokenizer_file vocab_file merges_file
  harmless  vocab merges unk_id                                          # tokenizer.json has them
  harmless  errors                                                       # of decoding bytes in Python
  harmless  max_length stride truncation_strategy pad_to_multiple_of     # arguments of calls
  harmless  response_template response_schema use_default_system_prompt  # of chats that are read back
  harmless  do_basic_tokenize never_split spaces_between_special_tokens  # of tokenizers in Python
  harmless  sp_model_kwargs sp_model remove_space keep_accents
  harmless  return_token_type_ids return_attention_mask
  only      fast_tokenizer_files = []                                    # other names for tokenizer.json
  only      init_inputs = []
  only      fix_mistral_regex = false
  refused   tokenizer_object gguf_file post_processor tokenizer_padding tokenizer_truncation
)keys";

constexpr std::string_view kTokenizerFileKeys = R"keys(
  read      version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model
  read      added_tokens.content added_tokens.single_word added_tokens.lstrip added_tokens.rstrip
  read      added_tokens.normalized added_tokens.special added_tokens.id
  read      truncation.direction truncation.max_length truncation.strategy truncation.stride
  read      padding.strategy padding.direction padding.pad_to_multiple_of padding.pad_id
  read      padding.pad_type_id padding.pad_token
)keys";

constexpr std::string_view kNormalizerKeys = R"keys(
  read      Sequence.normalizers
  read      BertNormalizer.clean_text BertNormalizer.handle_chinese_chars
  read      BertNormalizer.strip_accents BertNormalizer.lowercase
  read      Strip.strip_left Strip.strip_right
  read      Replace.pattern Replace.content Prepend.prepend Precompiled.precompiled_charsmap
)keys";

constexpr std::string_view kPreTokenizerKeys = R"keys(
  read      Sequence.pretokenizers
  read      ByteLevel.add_prefix_space ByteLevel.use_regex
  harmless  ByteLevel.trim_offsets                                       # the post-processor's counts
  read      Metaspace.replacement Metaspace.prepend_scheme Metaspace.split Metaspace.add_prefix_space
  harmless  Metaspace.str_rep                                            # replacement, once more
  read      Split.pattern Split.behavior Split.invert
  read      Punctuation.behavior Digits.individual_digits
  read      CharDelimiterSplit.delimiter FixedLength.length
)keys";

constexpr std::string_view kPostProcessorKeys = R"keys(
  read      Sequence.processors
  read      BertProcessing.sep BertProcessing.cls
  read      RobertaProcessing.sep RobertaProcessing.cls
  read      RobertaProcessing.trim_offsets RobertaProcessing.add_prefix_space
  read      ByteLevel.add_prefix_space ByteLevel.trim_offsets
  harmless  ByteLevel.use_regex
  read      TemplateProcessing.single TemplateProcessing.pair TemplateProcessing.special_tokens
)keys";

constexpr std::string_view kDecoderKeys = R"keys(
  read      Sequence.decoders
  harmless  ByteLevel.add_prefix_space ByteLevel.trim_offsets ByteLevel.use_regex
  read      WordPiece.prefix WordPiece.cleanup
  read      Metaspace.replacement Metaspace.prepend_scheme Metaspace.add_prefix_space
  harmless  Metaspace.split Metaspace.str_rep
  read      BPEDecoder.suffix CTC.pad_token CTC.word_delimiter_token CTC.cleanup
  read      Replace.pattern Replace.content Strip.content Strip.start Strip.stop
)keys";

constexpr std::string_view kModelKeys = R"keys(
  read      type vocab merges unk_token unk_id byte_fallback
  read      dropout continuing_subword_prefix end_of_word_suffix fuse_unk ignore_merges
  read      max_input_chars_per_word
)keys";

bool is_unknown(const KnownKeys& known, std::string_view key) {
  return known.judge(key, "null").verdict == KnownKeys::Verdict::kUnknown;
}

using Found = std::vector<std::string>;

void look_at_fields(const Component& component, std::string_view prefix, const KnownKeys& known,
                    Found& found) {
  if (!component.is_object()) return;
  for (const auto& [name, field] : component.fields()) {
    if (is_unknown(known, std::string(prefix) + name)) found.push_back(field.where());
  }
}

/// A component by its kind, and those in it.
void look_at(const Component& component, std::string_view items, const KnownKeys& known,
             Found& found) {
  if (!component.is_object()) return;
  const std::string kind = component.text("type", "");
  for (const auto& [name, field] : component.fields()) {
    if (name != "type" && is_unknown(known, kind + "." + name)) found.push_back(field.where());
  }
  if (kind != "Sequence" || !component.has(items) || !component.at(items).is_list()) return;
  for (const Component& item : component.at(items).items()) look_at(item, items, known, found);
}

void check_keys(const Component& file, const KnownKeys& known, const std::string& origin) {
  Found unknown;
  for (const auto& [name, field] : file.fields()) {
    if (SpecialTokens::is_role(name, field)) continue;
    const auto [verdict, wanted] = known.judge(name, field.json());
    LEVIN_CHECK(verdict != KnownKeys::Verdict::kRefused, "text.component",
                "'{}' is {}, wanted {}; save the tokenizer with transformers without it", name,
                printable(field.json()), wanted);
    if (verdict == KnownKeys::Verdict::kUnknown) unknown.push_back(name);
  }
  detail::warn_of_unknown_keys(origin, unknown);
}

}  // namespace

void warn_of_unknown_fields(const Component& file, const std::string& origin) {
  static const KnownKeys kFile({kTokenizerFileKeys});
  static const KnownKeys kNormalizers({kNormalizerKeys});
  static const KnownKeys kPreTokenizers({kPreTokenizerKeys});
  static const KnownKeys kPostProcessors({kPostProcessorKeys});
  static const KnownKeys kDecoders({kDecoderKeys});
  static const KnownKeys kModels({kModelKeys});
  Found found;
  look_at_fields(file, "", kFile, found);
  for (const char* key : {"truncation", "padding"}) {
    if (file.has(key)) look_at_fields(file.at(key), std::string(key) + ".", kFile, found);
  }
  if (file.has("added_tokens") && file.at("added_tokens").is_list()) {
    for (const Component& token : file.at("added_tokens").items())
      look_at_fields(token, "added_tokens.", kFile, found);
  }
  const auto look = [&](const char* key, const char* items, const KnownKeys& known) {
    if (file.has(key)) look_at(file.at(key), items, known, found);
  };
  look("normalizer", "normalizers", kNormalizers);
  look("pre_tokenizer", "pretokenizers", kPreTokenizers);
  look("post_processor", "processors", kPostProcessors);
  look("decoder", "decoders", kDecoders);
  if (file.has("model")) look_at_fields(file.at("model"), "", kModels, found);
  constexpr size_t kMost =
      20;  // a file with thousands of odd tokens is one that nobody reads about
  if (found.size() > kMost) {
    found.resize(kMost);
    found.emplace_back("...");
  }
  detail::warn_of_unknown_keys(origin, found);
}

void check_config_keys(const Component& config, const std::string& origin) {
  static const KnownKeys kKnown({kSpecialTokenKeys, kTokenizerConfigKeys});
  if (config.is_object()) check_keys(config, kKnown, origin);
}

void check_map_keys(const Component& map, const std::string& origin) {
  static const KnownKeys kKnown({kSpecialTokenKeys});
  if (map.is_object()) check_keys(map, kKnown, origin);
}

}  // namespace levin::text
