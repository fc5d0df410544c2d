#include "levin/models/pretrained.h"

#include <ATen/ops/empty_like.h>

#include <set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/files/atomic.h"
#include "levin/files/read_file.h"
#include "levin/models/check_keys.h"
#include "levin/models/family.h"
#include "levin/models/generate/settings.h"
#include "levin/models/heads/loss.h"
#include "levin/models/heads/sentence.h"
#include "levin/models/layers/layers.h"
#include "levin/models/lora.h"
#include "levin/models/losses/token_loss.h"
#include "levin/models/pretrained_parts.h"
#include "levin/models/weights.h"
#include "levin/module/base.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;

/// Files that save_pretrained copies from the folder that a model was loaded from.
constexpr const char* kBeside[] = {
    "tokenizer.json",  "tokenizer_config.json",   "vocab.txt",         "vocab.json",
    "merges.txt",      "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"};
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kAdapterFile = "adapter_config.json";
/// Files of sentence-transformers, copied for sentence-similarity only.
constexpr const char* kSentence[] = {"modules.json", "config_sentence_transformers.json"};

std::optional<at::ScalarType> dtype_of(const std::string& name) {
  constexpr std::pair<const char*, at::ScalarType> kKnown[] = {{"float32", at::kFloat},
                                                               {"float64", at::kDouble},
                                                               {"bfloat16", at::kBFloat16},
                                                               {"float16", at::kHalf}};
  for (const auto& [known, dtype] : kKnown) {
    if (name == known) return dtype;
  }
  return {};
}

std::string name_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16"
         : dtype == at::kHalf   ? "float16"
         : dtype == at::kDouble ? "float64"
                                : "float32";
}

Task task_for(const Config& config, const Family& family, const std::string& asked,
              bool is_sentence) {
  if (!asked.empty()) return task_of(asked);
  if (is_sentence) return Task::kSentenceSimilarity;
  const std::vector<std::string> classes = config.texts("architectures");
  if (classes.empty()) return Task::kFeatureExtraction;
  std::vector<std::string> known;
  for (const auto& [task, name] : family.architectures) {
    if (name == classes.front()) return task;
    known.push_back(name);
  }
  LEVIN_FAIL("models.task",
             "{}: got architecture '{}', wanted one of {}; set task to choose a head yourself",
             config.origin(), printable(classes.front()), to_text(known));
}

/// transformers names it "BertModel" for both.
std::string architecture_of(const Family& family, Task task) {
  const auto found = family.architectures.find(
      task == Task::kSentenceSimilarity ? Task::kFeatureExtraction : task);
  std::vector<std::string> known;
  for (const auto& [each, name] : family.architectures) known.push_back(name_of(each));
  LEVIN_CHECK(found != family.architectures.end(), "models.task",
              "{} has no head for {}, wanted one of {}", family.model_type, name_of(task),
              to_text(known));
  return found->second;
}

void copy_beside(const fs::path& from, const fs::path& to, const char* name) {
  if (is_there(from / name)) files::write_file_atomically(to / name, files::read_file(from / name));
}

}  // namespace

Pretrained::Pretrained(std::unique_ptr<PretrainedParts> parts)
    : torch::nn::Module("Pretrained"), parts_(std::move(parts)) {}
Pretrained::~Pretrained() = default;

const Config& Pretrained::config() const { return parts_->config; }
const Config& Pretrained::generation_config() const { return parts_->generation; }
void Pretrained::set_generation_defaults(const GenerateOptions& options) {
  write_options(options, parts_->generation);
}
std::string Pretrained::task() const { return name_of(parts_->task); }
const std::vector<std::string>& Pretrained::drawn() const { return parts_->drawn; }
const std::vector<std::string>& Pretrained::lora_targets() const {
  return parts_->family->lora_targets;
}

Output Pretrained::forward(const Batch& batch, const ForwardOptions& options) {
  const Inputs inputs = Inputs::from(batch);
  Output output;
  output.hidden = parts_->body->forward(inputs);
  if (parts_->task == Task::kSentenceSimilarity) {
    output.embedding = sentence_vectors(parts_->sentence, output.hidden, inputs);
    return output;
  }
  if (!parts_->head) return output;
  if (!options.logits && batch.contains("labels")) {
    if (const TaskLoss lean = loss_without_logits(*parts_, output.hidden, inputs, batch["labels"]);
        lean.loss.defined()) {
      output.loss = lean.loss;
      output.count = lean.count;
      return output;
    }
  }
  const auto scores = parts_->head->forward(output.hidden, inputs, *parts_->body);
  if (parts_->task == Task::kFeatureExtraction) {
    output.pooled = scores;
    return output;
  }
  output.logits = scores;
  const TaskLoss task = loss_of(parts_->task, output.logits, inputs, batch, parts_->config);
  output.loss = task.loss;
  output.count = task.count;
  if (!options.logits && output.loss.defined()) output.logits = at::Tensor();
  return output;
}

bool Pretrained::has_adapter() const { return parts_->lora != nullptr; }
const LoraOptions& Pretrained::adapter() const { return *parts_->lora; }
const fs::path& Pretrained::folder() const { return parts_->folder; }

void Pretrained::save_pretrained(const fs::path& folder,
                                 const SavePretrainedOptions& options) const {
  if (has_adapter() && !options.merge) {
    lora::save(*this, folder);
    return;
  }
  State weights;
  for (const auto& parameter : named_parameters()) {
    if (parameter.key().find(".lora_") == std::string::npos)
      weights.set(parameter.key(), parameter.value().detach());
  }
  for (const auto& module : named_modules("", /*include_self=*/false)) {
    const auto* layer = dynamic_cast<const Adaptable*>(module.value().get());
    if (layer != nullptr && layer->has_lora() && !layer->is_merged())
      weights.set(module.key() + ".weight", layer->merged_weight());
  }
  save_sharded_weights(folder, weights, options.max_shard_bytes);
  files::write_file_atomically(folder / "config.json", parts_->config.to_json());
  if (parts_->task == Task::kTextGeneration)
    files::write_file_atomically(folder / kGeneration, parts_->generation.to_json());
  std::error_code error;
  const bool is_same = fs::equivalent(parts_->folder, folder, error);
  if (parts_->folder.empty() || is_same) return;
  for (const char* name : kBeside) copy_beside(parts_->folder, folder, name);
  if (parts_->task != Task::kTextGeneration) copy_beside(parts_->folder, folder, kGeneration);
  if (parts_->task != Task::kSentenceSimilarity) return;
  for (const char* name : kSentence) copy_beside(parts_->folder, folder, name);
  for (const char* name : kTransformerFiles) copy_beside(parts_->folder, folder, name);
  for (const std::string& path : parts_->sentence.folders) {
    fs::create_directories(folder / path, error);
    copy_beside(parts_->folder / path, folder / path, "config.json");
  }
}

namespace {

struct Network {
  std::shared_ptr<Pretrained> net;
  Placing placing;
  State weights;  // weights of the folder; none with a config alone
};

/// Draws the parameters that no file had, which are all of a head; those beside them stay.
void draw_anew(Pretrained& net, at::ScalarType dtype) {
  const std::set<std::string> drawn(net.drawn().begin(), net.drawn().end());
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    auto* layer = dynamic_cast<Layer*>(module.value().get());
    if (layer == nullptr) continue;
    std::vector<std::pair<at::Tensor, at::Tensor>> of_file;  // parameter, its values
    size_t count = 0;
    for (const auto& own : layer->named_parameters(/*recurse=*/false)) {
      ++count;
      if (!drawn.contains(joined(module.key(), own.key())))
        of_file.emplace_back(own.value(), own.value().detach());
    }
    if (of_file.size() == count) continue;
    for (auto& [parameter, values] : of_file) parameter.set_data(at::empty_like(values));
    layer->draw();
    layer->to(dtype);
    for (auto& [parameter, values] : of_file) parameter.set_data(values);
  }
  log::warn("models: {} has no weights for {}; they are newly initialized and must be trained",
            parts_of(net).folder.string(), to_text(net.drawn()));
}

Config generation_of(const fs::path& folder, const Config& config) {
  const fs::path file = folder / kGeneration;
  if (folder.empty() || !is_there(file)) return generation_config_of(config);
  return Config::from_json(files::read_file(file), file.string());
}

/// A layer takes memory before its weights do, so that a number of them is not built to see.
void check_layers(const Config& config) {
  constexpr int64_t kMostLayers = 10'000;
  for (const char* key : {"num_hidden_layers", "n_layer", "n_layers"}) {
    LEVIN_CHECK(!config.has(key) || config.integer(key) <= kMostLayers, "models.config",
                "{} has {} = {}, wanted at most {}", config.origin(), key, config.integer(key),
                kMostLayers);
  }
}

/// The network, with memory that nobody has filled.
Network build(Config config, const PretrainedOptions& options, const fs::path& folder) {
  auto given = std::make_unique<PretrainedParts>();
  PretrainedParts& parts = *given;
  const Family& family = family_of(config.model_type());
  LEVIN_CHECK(!config.has("quantization_config"), "models.quantized",
              "{} has a quantization_config, but levin reads floating-point weights only; use a "
              "model that is not quantized",
              config.origin());
  check_keys(config, family.keys);
  for (const auto& [alias, key] : family.aliases) config.rename(alias, key);
  config.fill(family.defaults);
  check_layers(config);
  const bool is_sentence = !folder.empty() && is_there(folder / "modules.json");
  parts.family = &family;
  parts.folder = folder;
  parts.task = task_for(config, family, options.task, is_sentence);
  if (parts.task == Task::kSentenceSimilarity && !folder.empty())
    parts.sentence = SentencePlan::from_folder(folder);
  if (options.num_labels) config.set_num_labels(*options.num_labels);
  if (!options.label_names.empty()) {
    const auto count = std::ssize(options.label_names);
    LEVIN_CHECK(options.num_labels.value_or(count) == count, "models.num_labels",
                "got num_labels = {} and {} label_names", *options.num_labels, count);
    config.set_label_names(options.label_names);
  }
  config.set("architectures", std::vector{architecture_of(family, parts.task)});
  Network network;
  if (!folder.empty()) network.weights = read_weights(folder);
  if (parts.task == Task::kTextGeneration || parts.task == Task::kFillMask)
    settle_tied_head(config, network.weights, family, folder.string());
  parts.config = std::move(config);
  parts.generation = generation_of(folder, parts.config);
  if (parts.task == Task::kTextGeneration) warn_of_unknown(parts.generation, generation_keys());

  network.net = make_pretrained(std::move(given));
  network.placing.folder = folder.string();
  network.placing.may_redraw = options.num_labels.has_value() || !options.label_names.empty();
  const bool has_head =
      parts.task != Task::kFeatureExtraction && parts.task != Task::kSentenceSimilarity;
  HeadPlan plan = family.head(parts.task, has_head ? family.base_prefix : "", parts.config);
  network.placing.base_prefix = plan.base_prefix;
  try {
    parts.body = family.body(*network.net, plan.base_prefix, parts.config);
  } catch (const c10::Error& error) {
    LEVIN_FAIL("models.config", "{}: cannot build a model of these sizes: {}",
               parts.config.origin(), error.what_without_backtrace());
  }
  parts.body->activation_checkpointing = options.activation_checkpointing;
  for (const auto& parameter : network.net->named_parameters())
    network.placing.body.insert(parameter.key());
  if (!plan.steps.empty()) parts.head = std::make_unique<Head>(*network.net, plan);
  return network;
}

at::ScalarType wanted_dtype(const std::string& asked, const Config& config,
                            std::optional<at::ScalarType> of_file) {
  const std::string name = asked == "auto" ? config.dtype() : asked;
  if (name.empty()) return of_file.value_or(at::kFloat);
  const auto dtype = dtype_of(name);
  LEVIN_CHECK(dtype, "models.dtype", "got dtype '{}', wanted auto, float32, bfloat16 or float16",
              printable(name));
  return *dtype;
}

/// Sets the dtype in the config, and freezes parameters that take no part in the task.
void finish(const Network& network, at::ScalarType dtype) {
  PretrainedParts& parts = parts_of(*network.net);
  parts.config.erase("torch_dtype");
  parts.config.set("dtype", name_of(dtype));
  if (parts.task != Task::kSentenceSimilarity) return;
  // The pooler is there to be written back, and has no part in an embedding.
  for (auto& parameter : network.net->named_parameters()) {
    if (!network.placing.body.contains(parameter.key())) parameter.value().set_requires_grad(false);
  }
}

/// Marks the tensors that the folder's files hold, so that a checkpoint can leave out tensors that
/// are never trained.
void mark_as_base(const std::shared_ptr<Pretrained>& net) {
  const std::set<std::string> drawn(net->drawn().begin(), net->drawn().end());
  std::vector<at::Tensor> of_files;
  for (const auto& parameter : net->named_parameters()) {
    if (!drawn.contains(parameter.key())) of_files.push_back(parameter.value());
  }
  const fs::path folder = net->folder();
  mark_base(net,
            {.name = folder.string(), .digest = [folder] { return digest_of_weights(folder); }},
            of_files);
}

}  // namespace

std::shared_ptr<Pretrained> from_pretrained(const fs::path& folder,
                                            const PretrainedOptions& options) {
  Network network = build(Config::from_folder(folder), options, folder);
  Pretrained& net = *network.net;
  const State& weights = network.weights;
  std::optional<at::ScalarType> of_file;
  for (const auto& [name, value] : weights.values()) {
    if (!of_file && weights.tensor(name).is_floating_point())
      of_file = weights.tensor(name).scalar_type();
  }
  network.placing.dtype = wanted_dtype(options.dtype, net.config(), of_file);
  network.placing.is_dtype_given = options.dtype != "auto";
  parts_of(net).drawn = place_weights(net, *parts_of(net).family, network.placing, weights);
  if (!net.drawn().empty()) draw_anew(net, network.placing.dtype);
  finish(network, network.placing.dtype);
  mark_as_base(network.net);
  if (is_there(folder / kAdapterFile)) {
    log::warn(
        "models: {} has an {}, but from_pretrained does not load adapters; call lora::load to load "
        "it",
        folder.string(), kAdapterFile);
  }
  return network.net;
}

std::shared_ptr<Pretrained> from_config(Config config, const PretrainedOptions& options) {
  const Network network = build(std::move(config), options, {});
  const at::ScalarType dtype = wanted_dtype(options.dtype, network.net->config(), at::kFloat);
  draw_weights(*network.net);
  if (dtype != at::kFloat) network.net->to(dtype);
  finish(network, dtype);
  return network.net;
}

}  // namespace levin::models
