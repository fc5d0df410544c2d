#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/optim/optim.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {
namespace {

/// Returns the values of a sparse gradient; each row then occurs once.
at::Tensor values_of(const NamedTensor& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  LEVIN_CHECK(gradient.is_sparse(), "optim.clip",
              "the gradient of {} has layout {}, wanted dense or sparse (COO); convert it, or do "
              "not clip it",
              parameter.name, c10::str(gradient.layout()));
  gradient = gradient.coalesce();
  return gradient._values();
}

/// Returns the gradient's values; nothing if it has none.
std::optional<at::Tensor> gradient_of(const NamedTensor& parameter) {
  const at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return std::nullopt;
  at::Tensor values = gradient.layout() == at::kStrided ? gradient.detach() : values_of(parameter);
  return values.numel() > 0 ? std::optional(std::move(values)) : std::nullopt;
}

std::vector<at::Tensor> gradients_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    if (auto gradient = gradient_of(parameter)) gradients.push_back(std::move(*gradient));
  }
  return gradients;
}

bool is_half(const at::Tensor& tensor) { return at::isReducedFloatingType(tensor.scalar_type()); }

/// Returns the norm of each gradient, that of a half type in float32: a half type could not hold
/// it.
std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& gradients, double norm_type) {
  if (std::ranges::none_of(gradients, is_half)) return at::_foreach_norm(gradients, norm_type);
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    const auto type = is_half(gradient) ? std::optional(at::kFloat) : std::nullopt;
    norms.push_back(at::linalg_vector_norm(gradient, norm_type, std::nullopt, false, type));
  }
  return norms;
}

/// Returns the norm of all of them together, in float64 where one of them is; 0 where there are none, made on the device:
/// to copy it there would be to wait for all that the device still does.
at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double norm_type, at::Device device) {
  if (gradients.empty()) return at::zeros({}, at::TensorOptions(at::kFloat).device(device));
  std::vector<at::Tensor> norms = norms_of(gradients, norm_type);
  const bool in_double = std::ranges::any_of(
      norms, [](const at::Tensor& norm) { return norm.scalar_type() == at::kDouble; });
  const auto kind = norms.front().options().dtype(in_double ? at::kDouble : at::kFloat);
  for (at::Tensor& norm : norms) norm = norm.to(kind);
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

/// Gradients of parameters that are sharded over the same groups. Without groups: gradients that
/// all ranks have in full.
struct Divided {
  std::vector<comm::ProcessGroup*> groups;
  at::Device device = at::kCPU;
  bool in_double = false;
  std::vector<at::Tensor> gradients;
};

/// Returns the groups along the axes that shard the leaf: ranks along the other axes have the same.
std::vector<comm::ProcessGroup*> groups_of(const at::Tensor& leaf) {
  std::vector<comm::ProcessGroup*> groups;
  const auto layout = shard::layout_of(leaf);
  if (layout == nullptr) return groups;
  const comm::DeviceMesh mesh = *shard::mesh_of(leaf);
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    if (!std::holds_alternative<shard::Shard>(layout->placements()[axis])) continue;
    comm::ProcessGroup& group = mesh.group(mesh.axes()[axis].name);
    if (group.size() > 1) groups.push_back(&group);
  }
  return groups;
}

/// Groups the parameters; the ones without groups come first. The parameters decide, not their
/// gradients here, so that all ranks ask the same groups in the same order.
std::vector<Divided> by_groups(const std::vector<NamedTensor>& parameters) {
  std::vector<Divided> all(1);
  for (const NamedTensor& parameter : parameters) {
    std::vector<comm::ProcessGroup*> groups = groups_of(parameter.tensor);
    auto place = std::ranges::find(all, groups, &Divided::groups);
    if (place == all.end()) {
      place = all.insert(all.end(), Divided{std::move(groups), parameter.tensor.device()});
    }
    place->in_double |= parameter.tensor.scalar_type() == at::kDouble;
    if (auto gradient = gradient_of(parameter)) place->gradients.push_back(std::move(*gradient));
  }
  return all;
}

/// Returns the norm over the ranks of the groups; each rank computes it from the same numbers.
at::Tensor norm_over_ranks(const Divided& divided, double norm_type) {
  const auto kind = at::TensorOptions(at::kDouble).device(divided.device);
  at::Tensor norm = norm_of(divided.gradients, norm_type, divided.device).to(kind);
  for (comm::ProcessGroup* group : divided.groups) {
    const std::vector<int64_t> counts(static_cast<size_t>(group->size()), 1);
    const at::Tensor norms = at::empty({group->size()}, kind);
    comm::call_all_gather(norms, norm.view({1}), counts, *group);
    norm = at::linalg_vector_norm(norms, norm_type);
  }
  return norm;
}

/// The same bits on every rank.
at::Tensor norm_of_all(const std::vector<Divided>& all, double norm_type) {
  const at::Device device = all.back().device;
  const at::Tensor of_whole = norm_of(all.front().gradients, norm_type, device);
  if (all.size() == 1) return of_whole;
  std::vector<at::Tensor> norms = {of_whole.to(device, at::kDouble)};
  for (size_t i = 1; i < all.size(); ++i) norms.push_back(norm_over_ranks(all[i], norm_type));
  const bool in_double = std::ranges::any_of(all, &Divided::in_double);
  return at::linalg_vector_norm(at::stack(norms), norm_type)
      .to(in_double ? at::kDouble : at::kFloat);
}

}  // namespace

namespace {

/// Parameters that are sharded over the same groups, by their places in the list.
struct Together {
  std::vector<comm::ProcessGroup*> groups;
  std::vector<size_t> places;
};

std::vector<Together> sharded_together(const std::vector<NamedTensor>& parameters) {
  std::vector<Together> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<comm::ProcessGroup*> groups = groups_of(parameters[i].tensor);
    auto place = std::ranges::find(all, groups, &Together::groups);
    if (place == all.end()) place = all.insert(all.end(), Together{.groups = std::move(groups)});
    place->places.push_back(i);
  }
  return all;
}

/// Returns the norms as [norms], in float64, each over the ranks of the groups.
at::Tensor norms_over_ranks(const std::vector<at::Tensor>& own, double norm_type,
                            const std::vector<comm::ProcessGroup*>& groups) {
  at::Tensor norms = at::stack(own);
  for (comm::ProcessGroup* group : groups) {
    const std::vector<int64_t> counts(static_cast<size_t>(group->size()), norms.numel());
    const at::Tensor ranks = at::empty({group->size(), norms.numel()}, norms.options());
    comm::call_all_gather(ranks.view({-1}), norms, counts, *group);
    norms = at::linalg_vector_norm(ranks, norm_type, at::IntArrayRef({0}));
  }
  return norms;
}

/// Returns the norm of each parameter's gradient, in float64, 0 for one without: the same bits on
/// every rank.
std::vector<at::Tensor> norm_of_each(const std::vector<NamedTensor>& parameters, double norm_type) {
  std::vector<at::Tensor> gradients;
  std::vector<size_t> places;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::optional<at::Tensor> gradient = gradient_of(parameters[i]);
    if (!gradient) continue;
    gradients.push_back(std::move(*gradient));
    places.push_back(i);
  }
  std::vector<at::Tensor> norms(parameters.size());
  if (!gradients.empty()) {
    const std::vector<at::Tensor> own = norms_of(gradients, norm_type);
    for (size_t i = 0; i < own.size(); ++i) norms[places[i]] = own[i].to(at::kDouble);
  }
  for (size_t i = 0; i < norms.size(); ++i) {
    if (norms[i].defined()) continue;
    norms[i] = at::zeros({}, parameters[i].tensor.options().dtype(at::kDouble));
  }
  for (const Together& together : sharded_together(parameters)) {
    if (together.groups.empty()) continue;
    std::vector<at::Tensor> own;
    for (const size_t place : together.places) own.push_back(norms[place]);
    const std::vector<at::Tensor> whole =
        norms_over_ranks(own, norm_type, together.groups).unbind();
    for (size_t i = 0; i < whole.size(); ++i) norms[together.places[i]] = whole[i];
  }
  return norms;
}

/// 2 reads 2.0, as Python writes it.
std::string text_of(double norm_type) {
  std::string text = fmt::format("{}", norm_type);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string layer_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

}  // namespace

std::vector<NamedTensor> grad_norm(const std::vector<NamedTensor>& parameters,
                                   const GradNormOptions& options) {
  LEVIN_CHECK(options.norm_type > 0.0, "optim.grad_norm",
              "got norm_type = {}, wanted a number above 0", options.norm_type);
  LEVIN_CHECK(options.by == "parameter" || options.by == "layer" || options.by == "total",
              "optim.grad_norm", "got by = '{}', wanted parameter, layer or total", options.by);
  const at::NoGradGuard no_grad;
  // A sharded parameter without a gradient here may have one on another rank, which then waits.
  std::vector<NamedTensor> asked;
  bool in_double = false;
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.grad().defined() && groups_of(parameter.tensor).empty()) continue;
    asked.push_back(parameter);
    in_double |= parameter.tensor.scalar_type() == at::kDouble;
  }
  if (asked.empty()) return {};
  const std::vector<at::Tensor> norms = norm_of_each(asked, options.norm_type);
  const at::ScalarType type = in_double ? at::kDouble : at::kFloat;
  const auto together = [&](const std::vector<at::Tensor>& some) {
    return (some.size() == 1 ? some.front()
                             : at::linalg_vector_norm(at::stack(some), options.norm_type))
        .to(type);
  };
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> parts;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < norms.size() && options.by != "total"; ++i) {
    if (!asked[i].tensor.grad().defined()) continue;
    const std::string name = options.by == "layer" ? layer_of(asked[i].name) : asked[i].name;
    const auto [place, is_new] = places.emplace(name, parts.size());
    if (is_new) parts.push_back({name, {}});
    parts[place->second].second.push_back(norms[i]);
  }
  const std::string prefix = "grad_" + text_of(options.norm_type) + "_norm";
  std::vector<NamedTensor> named;
  for (const auto& [name, some] : parts) {
    named.push_back({prefix + options.group_separator + name, together(some)});
  }
  named.push_back({prefix + "_total", together(norms)});
  return named;
}

at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                          double norm_type) {
  LEVIN_CHECK(max_norm >= 0.0 && norm_type > 0.0, "optim.clip",
              "got max_norm = {} and norm_type = {}, wanted at least 0 and above 0", max_norm,
              norm_type);
  const at::NoGradGuard no_grad;
  const std::vector<Divided> all = by_groups(parameters);
  const at::Tensor total = norm_of_all(all, norm_type);
  // Multiplying by 1 where nothing is to be clipped costs less than asking the device.
  const at::Tensor scale = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (const Divided& divided : all) {
    if (!divided.gradients.empty()) at::_foreach_mul_(divided.gradients, scale);
  }
  return total;
}

void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value) {
  LEVIN_CHECK(clip_value >= 0.0, "optim.clip", "got clip_value = {}, wanted at least 0",
              clip_value);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  at::_foreach_clamp_min_(gradients, -clip_value);
  at::_foreach_clamp_max_(gradients, clip_value);
}

void scale_grad(const std::vector<NamedTensor>& parameters, double factor) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return;
  const at::Tensor factor = at::where(by == 0, at::zeros_like(by), by.reciprocal());
  at::_foreach_mul_(gradients, factor.to(gradients.front().options()));
}

}  // namespace levin::optim
