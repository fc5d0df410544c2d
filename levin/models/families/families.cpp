#include "levin/models/families/families.h"

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::models {
namespace {

const std::vector<Family>& all() {
  static const std::vector<Family> families{
      llama(), mistral(), qwen2(),       qwen3(),      smollm3(),    gemma3(), olmo2(),
      bert(),  roberta(), xlm_roberta(), distilbert(), modernbert(), gpt2()};
  return families;
}

}  // namespace

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const Family& family : all()) types.push_back(family.model_type);
  return types;
}

const Family& family_of(const std::string& model_type) {
  for (const Family& family : all()) {
    if (family.model_type == model_type) return family;
  }
  const auto near = nearest(model_type, model_types());
  LEVIN_FAIL("models.model_type", "got model_type '{}', wanted one of {}{}", printable(model_type),
             to_text(model_types()), near ? "; nearest is " + *near : "");
}

std::map<Task, std::string> architectures_of(const std::string& prefix,
                                             const std::vector<Task>& tasks) {
  const std::map<Task, std::string> ends{{Task::kFeatureExtraction, "Model"},
                                         {Task::kTextGeneration, "ForCausalLM"},
                                         {Task::kFillMask, "ForMaskedLM"},
                                         {Task::kTextClassification, "ForSequenceClassification"},
                                         {Task::kTokenClassification, "ForTokenClassification"},
                                         {Task::kQuestionAnswering, "ForQuestionAnswering"}};
  std::map<Task, std::string> architectures;
  for (const Task task : tasks) architectures[task] = prefix + ends.at(task);
  return architectures;
}

Family decoder_family(const std::string& model_type, const std::string& class_prefix,
                      detail::KnownKeys keys) {
  return {
      .model_type = model_type,
      .architectures = architectures_of(
          class_prefix, {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                         Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .keys = std::move(keys),
      .head = llama_head,
      .tied = {.embedding = "embed_tokens.weight", .matrix = "lm_head.weight"},
      .tensor_parallel = decoder_tensor_parallel(false),
      .lora_targets = {"q_proj", "v_proj"}};
}

HeadPlan decoder_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("hidden_size"), labels = config.num_labels();
  const double deviation = config.number("initializer_range", 0.02);
  const double rate = config.number("classifier_dropout", config.number("hidden_dropout", 0.1));
  HeadPlan plan{.base_prefix = prefix, .pad_token_id = config.integer("pad_token_id", -1)};
  switch (task) {
    case Task::kTextGeneration: {
      const int64_t words = config.integer("vocab_size");
      plan.steps = {config.boolean("tie_word_embeddings", false)
                        ? tied("", words)
                        : dense("lm_head", width, words, false, deviation)};
      break;
    }
    case Task::kTextClassification:
      plan.steps = {pooled(Pooling::kLastText), dense("score", width, labels, false, deviation)};
      break;
    case Task::kTokenClassification:
      plan.steps = {dropout(rate),
                    dense("score", width, labels, config.boolean("token_classification_bias", true),
                          deviation)};
      break;
    case Task::kQuestionAnswering:
      plan.steps = {dense("qa_outputs", width, 2, true, deviation)};
      break;
    default:
      break;
  }
  return plan;
}

HeadPlan llama_head(Task task, const std::string& prefix, const Config& config) {
  return decoder_head(task, task == Task::kQuestionAnswering ? "transformer" : prefix, config);
}

std::vector<std::pair<std::string, std::string>> decoder_tensor_parallel(bool query_key_norms) {
  std::vector<std::pair<std::string, std::string>> plan{
      {"layers.*.self_attn.q_proj", "colwise"}, {"layers.*.self_attn.k_proj", "colwise"},
      {"layers.*.self_attn.v_proj", "colwise"}, {"layers.*.self_attn.o_proj", "rowwise"},
      {"layers.*.mlp.gate_proj", "colwise"},    {"layers.*.mlp.up_proj", "colwise"},
      {"layers.*.mlp.down_proj", "rowwise"}};
  if (query_key_norms) {
    plan.emplace_back("layers.*.self_attn.q_norm", "replicated_with_grad_allreduce");
    plan.emplace_back("layers.*.self_attn.k_norm", "replicated_with_grad_allreduce");
  }
  return plan;
}

}  // namespace levin::models
