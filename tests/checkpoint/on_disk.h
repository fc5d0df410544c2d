#pragma once
// A small checkpoint with something of everything, the way to the disk and back, and forged
// manifests.

#include <gtest/gtest.h>
#include <torch/torch.h>

#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "levin/checkpoint/checkpoint.h"
#include "tests/support/scratch.h"

namespace levin::test {

/// Two models and a nested training state; `seed` goes into every file.
inline Checkpoint sample(int64_t seed) {
  State weights;
  weights.set("net.weight", torch::full({2, 3}, static_cast<double>(seed)))
      .set("net.bias", torch::arange(3) + seed);
  State other;
  other.set("w", torch::full({1}, seed, torch::kInt));
  State moments;
  moments.set("exp_avg", torch::full({3}, seed + 0.5, torch::kBFloat16)).set("step", seed);
  State training;
  training.set("optimizer", moments).set("name", "run").set("loss", 0.1).set("done", false);
  Checkpoint checkpoint;
  checkpoint.weights = {{"model", weights}, {"model_1", other}};
  checkpoint.training = std::move(training);
  return checkpoint;
}

/// Equal in dtype, shape and every bit, NaNs too.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor mine = a.contiguous();
  const at::Tensor theirs = b.contiguous();
  return mine.numel() == 0 ||
         std::memcmp(mine.const_data_ptr(), theirs.const_data_ptr(), mine.nbytes()) == 0;
}

/// Empty when both states are the same, else the path of a difference.
inline std::string difference(const State& a, const State& b, const std::string& path = "") {
  if (a.values().size() != b.values().size()) return path + ": other keys";
  for (const auto& [key, value] : a.values()) {
    const std::string here = path + "/" + key;
    if (!b.contains(key)) return here + " is missing";
    const State::Value& other = b.values().find(key)->second;
    if (value.index() != other.index()) return here + " is of another type";
    if (const auto* child = std::get_if<State>(&value)) {
      const std::string below = difference(*child, b.child(key), here);
      if (!below.empty()) return below;
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (!same_bits(*tensor, b.tensor(key))) return here;
    } else if (const auto* number = std::get_if<double>(&value)) {
      const double wanted = b.number(key);
      if (std::bit_cast<int64_t>(*number) != std::bit_cast<int64_t>(wanted)) return here;
    } else if (std::holds_alternative<bool>(value)) {
      if (a.boolean(key) != b.boolean(key)) return here;
    } else if (std::holds_alternative<int64_t>(value)) {
      if (a.integer(key) != b.integer(key)) return here;
    } else if (a.text(key) != b.text(key)) {
      return here;
    }
  }
  return "";
}

inline std::string difference(const Checkpoint& a, const Checkpoint& b) {
  if (a.weights.size() != b.weights.size()) return "other weights";
  for (const auto& [name, weights] : a.weights) {
    const auto there = b.weights.find(name);
    if (there == b.weights.end()) return name + " is missing";
    const std::string below = difference(weights, there->second, name);
    if (!below.empty()) return below;
  }
  return difference(a.training, b.training, "training");
}

inline State training_through_disk(const State& training) {
  const Scratch scratch;
  save_checkpoint(scratch / "c", {.training = training});
  return load_checkpoint(scratch / "c").training;
}

inline at::Tensor through_disk(const at::Tensor& tensor) {
  const Scratch scratch;
  State weights;
  weights.set("w", tensor);
  save_weights(scratch / "w.safetensors", weights);
  return load_weights(scratch / "w.safetensors").tensor("w");
}

/// "END XXH3" of one piece that is the whole of a file.
inline nlohmann::json whole_piece(const std::string& bytes) {
  if (bytes.empty()) return nlohmann::json::array();
  char text[64];
  std::snprintf(text, sizeof text, "%zu %016llx", bytes.size(),
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return nlohmann::json::array({text});
}

/// Makes the manifest agree with the files as they are now, after `change` was made to it.
inline void reseal(
    const std::filesystem::path& folder,
    const std::function<void(nlohmann::json&)>& change = [](auto&) {}) {
  using nlohmann::json;
  const auto hash = [](const std::string& bytes) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
    return std::string(text);
  };
  json manifest = json::parse(get(folder / "manifest.json"));
  for (auto& [name, digest] : manifest["files"].items()) {
    const std::string bytes = get(folder / name);
    digest = {{"size", bytes.size()}, {"pieces", whole_piece(bytes)}};
  }
  manifest.erase("seal");
  change(manifest);
  manifest["seal"] = hash(manifest.dump());
  put(folder / "manifest.json", manifest.dump(1));
}

}  // namespace levin::test
