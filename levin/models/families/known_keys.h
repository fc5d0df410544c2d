#pragma once
// How levin treats the keys of config.json that families share (base/json/known_keys.h). A family's
// own keys stand in its file. tests/oracle/foreign_keys.py compares them with transformers' config
// classes.

#include <string_view>

#include "levin/base/json/known_keys.h"

namespace levin::models {

/// Every family's: transformers' PretrainedConfig, in the spellings of versions 4 and 5.
inline constexpr std::string_view kModelKeys = R"keys(
  read      model_type architectures dtype torch_dtype quantization_config
  read      num_labels id2label problem_type
  read      vocab_size initializer_range tie_word_embeddings pad_token_id bos_token_id eos_token_id

  # Names and descriptions.
  harmless  transformers_version _name_or_path name_or_path _commit_hash label2id finetuning_task
  harmless  tokenizer_class prefix task_specific_params transformers.js_config
  harmless  unsloth_fixed unsloth_version
  # Tokens that the tokenizer names.
  harmless  cls_token_id sep_token_id mask_token_id unk_token_id decoder_start_token_id
  # What a call returns, and how it is computed: the numbers are the same.
  harmless  output_hidden_states output_attentions output_cross_attentions tie_last_hidden_states
  harmless  return_dict use_return_dict use_cache torchscript use_bfloat16 tf_legacy_loss
  harmless  attn_implementation _attn_implementation _attn_implementation_internal
  harmless  _attn_implementation_autoset _output_attentions
  harmless  experts_implementation _experts_implementation _experts_implementation_internal
  harmless  gradient_checkpointing chunk_size_feed_forward reference_compile
  # Of pairs of an encoder and a decoder.
  harmless  tie_encoder_decoder cross_attention_hidden_size
  only      is_encoder_decoder = false
  # Of generation: version 4 wrote them here, and version 5 passes over them.
  harmless  max_length min_length do_sample early_stopping num_beams num_beam_groups temperature
  harmless  top_k top_p typical_p repetition_penalty length_penalty diversity_penalty
  harmless  no_repeat_ngram_size encoder_no_repeat_ngram_size encoder_repetition_penalty
  harmless  bad_words_ids num_return_sequences output_scores return_dict_in_generate
  harmless  forced_bos_token_id forced_eos_token_id remove_invalid_values
  harmless  exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
  harmless  epsilon_cutoff eta_cutoff num_assistant_tokens num_assistant_tokens_schedule
  harmless  assistant_confidence_threshold assistant_lookbehind target_lookbehind
  # Layers that differ from each other, parts of a larger model, weights in a file of another name.
  refused   text_config decoder generator text_encoder transformers_weights
  only      per_layer_config = {}
  only      pruned_heads = {}
)keys";

/// The keys of families whose body is make_decoder.
inline constexpr std::string_view kDecoderKeys = R"keys(
  read      hidden_size intermediate_size num_hidden_layers num_attention_heads
  read      num_key_value_heads head_dim hidden_act rms_norm_eps attention_dropout
  read      max_position_embeddings rope_parameters rope_scaling rope_theta
  read      partial_rotary_factor original_max_position_embeddings
  read      is_causal layer_types
  read      classifier_dropout hidden_dropout token_classification_bias
  harmless  is_decoder add_cross_attention
  # Tensor parallelism of Llama's training, which computes the same.
  harmless  pretraining_tp
  # Of other families; transformers' cache of keys and values looks at them in these too.
  refused   attention_chunk_size kv_sharing_modes
)keys";

/// The keys of decoders whose layers all see the full text before a token.
inline constexpr std::string_view kWithoutWindows = R"keys(
  refused   sliding_window
)keys";

/// BERT's, RoBERTa's and XLM-RoBERTa's.
inline constexpr std::string_view kBertKeys = R"keys(
  read      hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_act
  read      max_position_embeddings type_vocab_size layer_norm_eps
  read      hidden_dropout_prob attention_probs_dropout_prob classifier_dropout
  # As decoders, with a causal mask, they are other models.
  only      is_decoder = false
  only      is_causal = false
  only      add_cross_attention = false
  only      position_embedding_type = "absolute"
  # Of the first BERT's pooler and scripts; nothing reads them.
  harmless  directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
  harmless  pooler_size_per_head pooler_type output_past embedding_size
)keys";

}  // namespace levin::models
