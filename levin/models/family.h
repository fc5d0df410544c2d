#pragma once
// Family: all that levin knows of the models of one model_type, as data: how a config becomes the options
// of a body and of heads, and names. One file a family in families/.
//
//   const Family& family = family_of("qwen3");
//   auto body = family.body(root, family.base_prefix, config);

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/json/known_keys.h"
#include "levin/models/bodies/body.h"
#include "levin/models/heads/head.h"
#include "levin/models/heads/task.h"
#include "levin/models/pretrained.h"

namespace levin::models {

/// Names in files: the matrix below the prefix of the body, the others as they stand.
struct TiedNames {
  std::string embedding;    ///< matrix of the tokens' embedding
  std::string matrix;       ///< the head's matrix
  std::string bias = {};    ///< the head's bias, where the head has two biases that are tied to
                            ///< each other
  std::string second = {};  ///< the other one, which transformers adds
};

struct Family {
  std::string model_type;
  /// The class of transformers for each task that the family has a head for.
  std::map<Task, std::string> architectures;
  /// Prefix of the body's names under a head: "model" of "model.layers.0.mlp.up_proj.weight".
  std::string base_prefix;
  /// Values of transformers' config class that a config.json may leave out, as a JSON object.
  std::string defaults = "{}";
  /// How levin treats each key of a config.json.
  detail::KnownKeys keys;
  /// Other names of keys, which replace them (attribute_map of transformers' config class).
  std::vector<std::pair<std::string, std::string>> aliases = {};

  std::function<std::unique_ptr<Body>(torch::nn::Module& root, const std::string& prefix,
                                      const Config& config)>
      body;
  /// The head of a task; its parameters stand at the root, those of a pooler below the prefix.
  std::function<HeadPlan(Task task, const std::string& prefix, const Config& config)> head;

  /// Tensors of a head that is tied to the embedding (tie_word_embeddings); empty: there is none.
  TiedNames tied = {};
  /// Ends of names in older files, and their names here.
  std::vector<std::pair<std::string, std::string>> old_names = {};
  /// Ends of names in files of tensors that are no weights, and are passed over.
  std::vector<std::string> ignored = {"position_ids", "rotary_emb.inv_freq"};
  /// Patterns of transformers' base_model_tp_plan, below the prefix.
  std::vector<std::pair<std::string, std::string>> tensor_parallel = {};
  /// Modules that LoRA adapts where nobody says, as in PEFT.
  std::vector<std::string> lora_targets = {};
};

/// Throws Error "models.model_type" for another one, naming the nearest.
const Family& family_of(const std::string& model_type);
std::vector<std::string> model_types();

/// "LlamaForCausalLM" and so on: those of the tasks, by a prefix.
std::map<Task, std::string> architectures_of(const std::string& prefix,
                                             const std::vector<Task>& tasks);

/// A decoder-only family with transformers' heads. The caller sets its body, and each member that differs.
Family decoder_family(const std::string& model_type, const std::string& class_prefix,
                      detail::KnownKeys keys);
/// Returns the head of a task that decoders share: lm_head, score or qa_outputs.
HeadPlan decoder_head(Task task, const std::string& prefix, const Config& config);
/// The same where transformers kept an older place of the body under question answering's head.
HeadPlan llama_head(Task task, const std::string& prefix, const Config& config);
std::vector<std::pair<std::string, std::string>> decoder_tensor_parallel(bool query_key_norms);

}  // namespace levin::models
