#include "levin/interchange/archive/program_weights.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/program/json_value.h"
#include "levin/module/loading/casts.h"
#include "levin/module/loading/name_hint.h"

namespace levin::interchange {
namespace {

bool has_values(const Input& input) {
  return input.kind == Input::Kind::kParameter ||
         (input.kind == Input::Kind::kBuffer && input.is_persistent);
}

/// "Float of [2, 3]"
std::string described(at::ScalarType dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{} of [{}]", c10::toString(dtype), fmt::join(sizes, ", "));
}

/// A tensor of the signature, as the program describes it.
struct Wanted {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

Wanted wanted_of(const Input& input) {
  return {.dtype = input.type->dtype,
          .sizes = whole_numbers(input.type->sizes, input.name),
          .strides = whole_numbers(input.type->strides, input.name)};
}

/// Empty where the tensor is as the program wants it.
std::string difference(const std::string& name, const at::Tensor& tensor, const Wanted& wanted) {
  if (tensor.scalar_type() == wanted.dtype && tensor.sizes() == at::IntArrayRef(wanted.sizes)) {
    return "";
  }
  return fmt::format("{} is {}, wanted {}", printable(name),
                     described(tensor.scalar_type(), tensor.sizes().vec()),
                     described(wanted.dtype, wanted.sizes));
}

/// Names that are one tensor, in the order of the signature; most stand alone.
using Ties = std::vector<std::vector<const Input*>>;

Ties ties_of(const Program& program, const std::map<std::string, TensorPlace>& places) {
  Ties ties;
  std::map<std::string, size_t> first;  // by place
  for (const Input& input : program.inputs) {
    if (!has_values(input)) continue;
    const auto place = places.find(input.name);
    const bool is_empty = place == places.end() ||
                          std::ranges::find(place->second.sizes, 0) != place->second.sizes.end();
    if (is_empty) {  // all empty tensors have one address
      ties.push_back({&input});
      continue;
    }
    const std::string key =
        fmt::format("{} {} {} {}", place->second.record, place->second.offset,
                    fmt::join(place->second.sizes, ","), fmt::join(place->second.strides, ","));
    const auto [known, is_new] = first.try_emplace(key, ties.size());
    if (is_new) ties.emplace_back();
    ties[known->second].push_back(&input);
  }
  return ties;
}

/// A file of weights, whose tensors are handed out by the program's names.
class WeightsFile {
 public:
  WeightsFile(const std::filesystem::path& file, const Program& program)
      : file_(file), state_(load_weights(file)) {
    for (const auto& [name, value] : state_.values()) unknown_.insert(name);
    for (const Input& input : program.inputs) {
      if (has_values(input)) unknown_.erase(input.name);
    }
  }

  /// Adds the value of tied names, where the file has one that fits.
  void add(const std::vector<const Input*>& tied, Tensors& tensors) {
    std::vector<const Input*> here;
    for (const Input* input : tied) {
      if (state_.contains(input->name)) here.push_back(input);
    }
    if (here.empty()) {
      missing_.insert(tied.front()->name);
      return;
    }
    const Wanted wanted = wanted_of(*tied.front());
    for (const Input* input : here) {
      const std::string words = difference(input->name, state_.tensor(input->name), wanted);
      if (words.empty()) continue;
      different_.push_back(words);
      return;
    }
    const at::Tensor& value = state_.tensor(here.front()->name);
    for (const Input* input : here) {
      const at::Tensor& other = state_.tensor(input->name);
      if (other.const_data_ptr() != value.const_data_ptr() && !same_bytes(other, value)) {
        different_.push_back(
            fmt::format("{} and {} are one tensor in the program, but have different values",
                        printable(here.front()->name), printable(input->name)));
        return;
      }
    }
    const at::Tensor own = as_program(value, wanted);
    for (const Input* input : tied) tensors[input->name] = own;
  }

  /// Throws where something was missing, left over, or of another type.
  void check() const {
    std::vector<std::string> reasons;
    if (!missing_.empty()) {
      reasons.push_back("it lacks " + detail::joined_names(missing_) +
                        detail::name_hint(missing_, unknown_));
    }
    if (!unknown_.empty())
      reasons.push_back("the program does not have " + detail::joined_names(unknown_));
    reasons.insert(reasons.end(), different_.begin(), different_.end());
    LEVIN_CHECK(reasons.empty(), "interchange.weights",
                "the weights of {} do not fit this program; save the state dict of the network "
                "that was exported:\n  {}",
                file_.string(), fmt::join(reasons, "\n  "));
  }

 private:
  static bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
    return at::equal(a.flatten().view(at::kByte), b.flatten().view(at::kByte));
  }

  /// Returns the tensor itself, or a copy: in the program's strides, or if another tensor shares
  /// its memory. torch.save keeps such sharing and the program does not have it.
  at::Tensor as_program(const at::Tensor& value, const Wanted& wanted) {
    const bool is_own = storages_.insert(value.storage().unsafeGetStorageImpl()).second;
    // On meta: a forged program's strides may ask for any memory.
    const at::Tensor shape = at::empty_strided(wanted.sizes, wanted.strides,
                                               at::TensorOptions(wanted.dtype).device(at::kMeta));
    if (!shape.is_non_overlapping_and_dense()) return is_own ? value : value.clone();
    if (is_own && value.strides() == shape.strides()) return value;
    const at::NoGradGuard no_grad;
    return at::empty_strided(wanted.sizes, wanted.strides, wanted.dtype).copy_(value);
  }

  std::filesystem::path file_;
  State state_;
  std::set<std::string> missing_, unknown_;
  std::vector<std::string> different_;
  std::set<const void*> storages_;
};

Tensors from_file(const Program& program, const ProgramArchive& archive,
                  const std::filesystem::path& file) {
  WeightsFile weights(file, program);
  Tensors tensors;
  for (const auto& tied : ties_of(program, archive.weight_places())) weights.add(tied, tensors);
  weights.check();
  return tensors;
}

/// The program lists all tensors of the state dict, those too that no operator reads.
Tensors from_archive(const Program& program, const ProgramArchive& archive) {
  Tensors tensors = archive.weights();
  std::set<std::string> others;
  for (const auto& [name, tensor] : tensors) others.insert(name);
  for (const Input& input : program.inputs) {
    if (!has_values(input)) continue;
    const auto found = tensors.find(input.name);
    LEVIN_CHECK(
        found != tensors.end(), "interchange.archive",
        "the archive has no values for '{}'; set ExportedOptions::weights to a file that has them",
        printable(input.name));
    const std::string words = difference(input.name, found->second, wanted_of(input));
    LEVIN_CHECK(words.empty(), "interchange.archive",
                "the archive's values do not fit its program: {}", words);
    others.erase(input.name);
  }
  LEVIN_CHECK(others.empty(), "interchange.archive",
              "the archive has values that the program does not have: {}",
              detail::joined_names(others));
  return tensors;
}

}  // namespace

Tensors weights_of(const Program& program, const ProgramArchive& archive,
                   const std::filesystem::path& file) {
  return file.empty() ? from_archive(program, archive) : from_file(program, archive, file);
}

}  // namespace levin::interchange
