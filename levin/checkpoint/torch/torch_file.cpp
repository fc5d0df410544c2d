#include "levin/checkpoint/torch/torch_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/reading/regular_file.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using detail::PickleValue;
using detail::TorchArchive;

constexpr std::array<std::string_view, 3> kExtensions = {".pt", ".pth",
                                                         ".bin"};  // of what is written
constexpr std::array<const char*, 3> kWeights = {"state_dict", "model_state_dict", "model"};

/// A file, and what may be made of it.
struct OpenFile {
  std::shared_ptr<const files::MemoryMap> map;
  detail::TorchBudget budget;
  TorchArchive archive;

  explicit OpenFile(const fs::path& file)
      : map(std::make_shared<const files::MemoryMap>(file)),
        budget(map->bytes().size()),
        archive(map, map->bytes(), file.string(), budget) {}
};

bool is_dict(const PickleValue& value) {
  return value.is(PickleValue::Kind::kDict) || value.is_object_of("collections OrderedDict");
}

/// The tensors of a dict; none where there are none.
State tensors_of(TorchArchive& archive, const PickleValue& dict) {
  State tensors;
  for (const auto& [key, value] : dict.entries) {
    if (!key->is(PickleValue::Kind::kText)) continue;
    if (const std::string reason = TorchArchive::reason_not_read(*value); !reason.empty()) {
      archive.leave_out(key->text, reason);
    } else if (auto tensor = archive.tensor_of(*value)) {
      tensors.set(key->text, *std::move(tensor));
    }
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

/// No tensor is dropped without a word.
void tell_what_is_left_out(const TorchArchive& archive) {
  if (archive.left_out().empty()) return;
  log::warn(
      "{}: skipped tensors that are not dense or have no values: {}; convert them before saving, "
      "with to_dense() or dequantize()",
      archive.source(), fmt::join(archive.left_out(), ", "));
}

State weights_in(TorchArchive& archive) {
  const PickleValue& top = archive.top();
  if (detail::is_module(top)) return detail::module_tensors(archive, top);
  if (!is_dict(top)) return {};
  for (const char* name : kWeights) {
    const PickleValue* child = top.find(name);
    if (child == nullptr) continue;
    const PickleValue& own = TorchArchive::untagged(*child);
    if (detail::is_module(own)) return detail::module_tensors(archive, own);
    if (is_dict(own)) return tensors_of(archive, own);
  }
  return tensors_of(archive, top);
}

State weights_of(const fs::path& file) {
  OpenFile opened(file);
  State weights = weights_in(opened.archive);
  tell_what_is_left_out(opened.archive);
  return weights;
}

}  // namespace

State load_torch_file(const fs::path& file) {
  OpenFile opened(file);
  auto value = opened.archive.value_of(opened.archive.top());
  tell_what_is_left_out(opened.archive);
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
  std::string ignored;
  const auto opened = posix::open_regular(path, ignored);
  if (!opened) return false;
  std::array<std::byte, 32> bytes = {};
  posix::read_some(opened->file, bytes);
  return std::memcmp(bytes.data(), "PK\3\4", 4) == 0 || detail::is_legacy_torch_file(bytes);
}

bool is_torch_file_name(const fs::path& file) {
  return std::ranges::find(kExtensions, file.extension().string()) != kExtensions.end();
}

}  // namespace levin
