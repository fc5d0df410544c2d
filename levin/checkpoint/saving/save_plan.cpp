#include <nlohmann/json.hpp>

#include <set>
#include <string_view>
#include <utility>

#include "levin/base/check.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/saving/save_plan_impl.h"
#include "levin/checkpoint/state_json.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/files/safetensors_dtype.h"

namespace levin::detail {
namespace {

PlannedFile tensors_file(const std::string& name, const std::string& source,
                         const std::vector<files::TensorDescription>& tensors) {
  const files::SafetensorsLayout layout(tensors, {{"format", "pt"}}, name);
  return {name, source, layout.header(), layout.places(), layout.size()};
}

PlannedFile text_file(const std::string& name, std::string text) {
  const int64_t size = std::ssize(text);
  return {.name = name, .source = "", .head = std::move(text), .size = size};
}

void check_name(const std::string& model) {
  LEVIN_CHECK(is_plain_name(model) && model + ".safetensors" != kTrainingTensors, "checkpoint.path",
              "got weights named '{}', wanted a plain file name other than training_state", model);
}

/// Two models may come to one file: "a" in two files and "a-00001-of-00002".
void check_files(const SavePlan& plan) {
  std::set<std::string_view> names;
  for (const PlannedFile& file : plan.files) {
    LEVIN_CHECK(names.insert(file.name).second, "checkpoint.path",
                "the weights of two models would both be saved in '{}'; rename one of them",
                file.name);
  }
}

int64_t size_of(const files::TensorDescription& tensor) {
  int64_t bytes = static_cast<int64_t>(at::elementSize(*files::dtype_of_safetensors(tensor.dtype)));
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

}  // namespace

State state_of_texts(const std::vector<std::string>& texts) {
  State state;
  for (size_t i = 0; i < texts.size(); ++i) state.set(fmt::format("{:06}", i), texts[i]);
  return state;
}

std::vector<std::string> texts_in(const State& state) {
  std::vector<std::string> texts;
  for (const auto& [number, text] : state.values()) texts.push_back(state.text(number));
  return texts;
}

State SavePlan::to_state() const {
  State listed, models;
  for (size_t i = 0; i < files.size(); ++i) {
    State file;
    file.set("name", files[i].name).set("source", files[i].source).set("head", files[i].head);
    listed.set(fmt::format("{:06}", i), std::move(file));
  }
  for (const auto& [model, names] : weights) {
    models.set(model, state_of_texts(names));
  }
  State state;
  return std::move(state.set("files", std::move(listed)).set("weights", std::move(models)));
}

SavePlan SavePlan::of(const State& state) {
  SavePlan plan;
  for (const auto& [number, value] : state.child("files").values()) {
    const State& one = state.child("files").child(number);
    const std::string& source = one.text("source");
    PlannedFile file = text_file(one.text("name"), one.text("head"));
    file.source = source;
    if (!source.empty()) {
      const auto layout = files::SafetensorsLayout::of_header(file.head, file.name);
      file.tensors = layout.places();
      file.size = layout.size();
    }
    plan.files.push_back(std::move(file));
  }
  for (const auto& [model, value] : state.child("weights").values()) {
    plan.weights[model] = texts_in(state.child("weights").child(model));
  }
  return plan;
}

Sources sources_of(const Checkpoint& checkpoint) {
  Sources sources;
  for (const auto& [model, weights] : checkpoint.weights) sources[model] = weights;
  sources[kTraining] = state_to_json(checkpoint.training).tensors;
  return sources;
}

SavePlan plan_weights(const std::string& model, const std::vector<WeightFile>& files) {
  SavePlan plan;
  for (const WeightFile& file : files) {
    plan.files.push_back(tensors_file(file.name, model, file.tensors));
    plan.weights[model].push_back(file.name);
  }
  return plan;
}

std::string index_of(const SavePlan& plan) {
  nlohmann::json names = nlohmann::json::object();
  int64_t total = 0;
  for (const PlannedFile& file : plan.files) {
    for (const auto& tensor : file.tensors) {
      names[tensor.name] = file.name;
      total += tensor.end - tensor.begin;
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}},
                                {"weight_map", std::move(names)}};
  return index.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

SavePlan plan_checkpoint(const Checkpoint& checkpoint, int64_t max_shard_bytes) {
  SavePlan plan;
  for (const auto& [model, weights] : checkpoint.weights) {
    check_name(model);
    const std::vector<WeightFile> files = weight_files(model, weights, max_shard_bytes);
    SavePlan own = plan_weights(model, files);
    if (files.size() > 1) {
      own.files.push_back(text_file(model + std::string(kIndexSuffix), index_of(own)));
    }
    plan.weights.merge(own.weights);
    for (PlannedFile& file : own.files) plan.files.push_back(std::move(file));
  }
  const StateJson training = state_to_json(checkpoint.training);
  plan.files.push_back(text_file(kTrainingJson, training.json));
  std::vector<files::TensorDescription> tensors;
  for (const auto& [path, value] : training.tensors.values()) {
    tensors.push_back(description_of(training.tensors, path));
  }
  plan.files.push_back(tensors_file(kTrainingTensors, kTraining, tensors));
  check_files(plan);
  return plan;
}

std::vector<WeightFile> weight_files(const std::string& model, const State& weights,
                                     int64_t max_shard_bytes) {
  LEVIN_CHECK(max_shard_bytes >= 1, "checkpoint.shard",
              "got max_shard_bytes = {}, wanted at least 1", max_shard_bytes);
  std::vector<WeightFile> all(1);
  int64_t bytes = 0;
  for (const auto& [name, value] : weights.values()) {
    files::TensorDescription tensor = description_of(weights, name);
    const int64_t more = size_of(tensor);
    if (bytes > 0 && bytes + more > max_shard_bytes) {
      all.emplace_back();
      bytes = 0;
    }
    all.back().tensors.push_back(std::move(tensor));
    bytes += more;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].name = all.size() == 1
                      ? model + ".safetensors"
                      : fmt::format("{}-{:05}-of-{:05}.safetensors", model, i + 1, all.size());
  }
  return all;
}

void for_each_tensor(const SavePlan& plan,
                     const std::function<void(size_t file, const TensorPlace& place)>& visit) {
  for (size_t i = 0; i < plan.files.size(); ++i) {
    for (const TensorPlace& place : plan.files[i].tensors) visit(i, place);
  }
}

const State::Value* planned_value(const Sources& own, const PlannedFile& file,
                                  const TensorPlace& place) {
  const auto source = own.find(file.source);
  if (source == own.end()) return nullptr;
  const auto found = source->second.values().find(place.name);
  return found == source->second.values().end() ? nullptr : &found->second;
}

bool has_type_of(const at::Tensor& tensor, const TensorPlace& place) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         files::safetensors_dtype(tensor.scalar_type()) == place.dtype;
}

at::Tensor elements_of(const at::Tensor& tensor) {
  const bool in_pieces = tensor.is_cpu() || tensor.is_cuda();
  const at::Tensor plain_one =
      in_pieces ? tensor.detach().resolve_conj().resolve_neg().contiguous() : plain(tensor);
  return plain_one.view({-1});
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          static_cast<size_t>(tensor.nbytes())};
}

}  // namespace levin::detail
