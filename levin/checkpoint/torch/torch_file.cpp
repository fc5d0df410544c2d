#include "levin/checkpoint/torch/torch_file.h"

#include <array>
#include <fstream>

#include "levin/base/check.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using detail::PickleValue;
using detail::TorchArchive;

constexpr std::array<const char*, 3> kWeights = {"state_dict", "model_state_dict", "model"};

std::unique_ptr<TorchArchive> open_archive(const fs::path& file) {
  auto map = std::make_shared<const files::MemoryMap>(file);
  const auto bytes = map->bytes();
  return std::make_unique<TorchArchive>(std::move(map), bytes, file.string());
}

bool is_dict(const PickleValue& value) {
  return value.is(PickleValue::Kind::kDict) || value.is_object_of("collections OrderedDict");
}

/// The tensors of a dict; none where there are none.
State tensors_of(TorchArchive& archive, const PickleValue& dict) {
  State tensors;
  for (const auto& [key, value] : dict.entries) {
    if (!key->is(PickleValue::Kind::kText)) continue;
    if (auto tensor = archive.tensor_of(*value)) tensors.set(key->text, *std::move(tensor));
  }
  return tensors;
}

State tensors_of(const State& state) {
  State tensors;
  for (const auto& [key, value] : state.values()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) tensors.set(key, *tensor);
  }
  return tensors;
}

State weights_in(const fs::path& folder) {
  const State state = load_distributed_checkpoint(folder);
  for (const char* name : kWeights) {
    if (state.contains(name) && std::holds_alternative<State>(state.values().at(name))) {
      return tensors_of(state.child(name));
    }
  }
  return tensors_of(state);
}

State weights_of(const fs::path& file) {
  const auto archive = open_archive(file);
  if (!is_dict(archive->top())) return {};
  for (const char* name : kWeights) {
    const PickleValue* child = archive->top().find(name);
    if (child == nullptr) continue;
    const PickleValue& dict = TorchArchive::untagged(*child);
    if (is_dict(dict)) return tensors_of(*archive, dict);
  }
  return tensors_of(*archive, archive->top());
}

}  // namespace

State load_torch_file(const fs::path& file) {
  const auto archive = open_archive(file);
  auto value = archive->value_of(archive->top());
  if (value && std::holds_alternative<State>(*value)) return std::get<State>(*std::move(value));
  LEVIN_CHECK(value, "checkpoint.torch", "{} cannot be read: it holds None", file.string());
  State alone;
  detail::set_value(alone, "0", *std::move(value));
  return alone;
}

State load_torch_weights(const fs::path& path) {
  std::error_code unknown;
  State weights = fs::is_directory(path, unknown) ? weights_in(path) : weights_of(path);
  LEVIN_CHECK(!weights.empty(), "checkpoint.weights",
              "{} holds no dict of tensors by their names, alone or as 'state_dict', "
              "'model_state_dict' or 'model'; save model.state_dict()",
              path.string());
  return weights;
}

bool is_torch_checkpoint(const fs::path& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return fs::exists(path / ".metadata", unknown);
  std::array<char, 4> first = {};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return first == std::array<char, 4>{'P', 'K', 3, 4};
}

}  // namespace levin
