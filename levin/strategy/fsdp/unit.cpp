#include "levin/strategy/fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/strategy/fsdp/fsdp_mesh.h"

namespace levin::fsdp {
namespace {

using shard::FullValues;
using shard::ShardedParameter;

/// Rows lie one behind the other in its memory.
bool has_whole_rows(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         (tensor.size(0) == 1 || tensor.stride(0) * tensor.size(0) == tensor.numel());
}

/// Strides such that rows lie one behind the other.
std::vector<int64_t> strides_of(const at::Tensor& tensor) {
  if (has_whole_rows(tensor)) return tensor.strides().vec();
  return at::empty(tensor.sizes(), at::TensorOptions(at::kMeta)).strides().vec();
}

/// The storage is the parameter's alone: views of it that the user has go on showing its values.
bool may_keep_storage(const at::Tensor& parameter, at::Device device) {
  return parameter.device() == device && parameter.storage_offset() == 0 &&
         parameter.storage().nbytes() == parameter.nbytes() && has_whole_rows(parameter);
}

void check_apart(const std::vector<NamedTensor>& parameters, const std::string& unit) {
  std::vector<std::pair<std::pair<const void*, const void*>, const std::string*>> places;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.is_meta()) return;
    const auto* begin = static_cast<const std::byte*>(parameter.tensor.const_data_ptr());
    places.push_back({{begin, begin + parameter.tensor.nbytes()}, &parameter.name});
  }
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i) {
    LEVIN_CHECK(places[i - 1].first.second <= places[i].first.first, "strategy.fsdp.shared_memory",
                "{} and {} of unit {} are two parameters that share memory, which cannot be "
                "sharded; register one tensor under both names",
                *places[i - 1].second, *places[i].second, unit);
  }
}

}  // namespace

Unit::Unit(std::string name, const std::vector<NamedTensor>& parameters,
           const comm::DeviceMesh& mesh, const UnitOptions& options)
    : name_(std::move(name)),
      mesh_(mesh),
      shard_group_(fsdp::shard_group(mesh)),
      options_(options),
      sources_(sources_of(parameters)),
      type_(sources_.front().leaf.scalar_type()),
      layout_(cut()) {
  check_apart(parameters, name_);
}

std::vector<Unit::Source> Unit::sources_of(const std::vector<NamedTensor>& parameters) {
  std::vector<Source> sources;
  for (const auto& [name, leaf] : parameters) {
    sources.push_back({name, leaf, leaf.sizes().vec(), strides_of(leaf), leaf.is_meta()});
  }
  return sources;
}

UnitLayout Unit::cut() const {
  std::vector<std::vector<int64_t>> sizes;
  for (const Source& source : sources_) sizes.push_back(source.sizes);
  return {sizes, alignment_of(type_), shard_group_.size(), options_.cut};
}

RowRange Unit::own_rows(size_t parameter) const {
  const int64_t rank = shard_group_.rank();
  const int64_t first = layout_.first_row(parameter, rank);
  return {first, first + layout_.rows(parameter)[static_cast<size_t>(rank)]};
}

void Unit::take_memory(at::Device device) {
  device_ = device;
  memory_ = make_unit_memory(layout_, type_, device, shard_group_, options_.memory);
}

void Unit::place() {
  const at::NoGradGuard no_grad;
  const bool has_values =
      std::ranges::any_of(sources_, [](const Source& source) { return !source.was_on_meta; });
  for (size_t i = 0; i < sources_.size(); ++i) place_rows(i);
  if (has_values) put_values_of_first_rank();
  std::vector<ShardedParameter*> all;
  for (size_t i = 0; i < sources_.size(); ++i) {
    parameters_.push_back(sharded(i));
    all.push_back(parameters_.back().get());
  }
  memory_->set_parameters(std::move(all));
  memory_->leave_memory();
  note_values();
}

void Unit::put_values_of_first_rank() {
  const int64_t rank = shard_group_.rank();
  const at::Tensor all = at::zeros({layout_.numel()}, at::TensorOptions(type_).device(device_));
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.was_on_meta) continue;
    all.as_strided(source.sizes, source.strides, layout_.offset(i)).copy_(source.leaf);
  }
  mesh_.flat().broadcast(all, 0);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const at::Tensor rows = rows_of(i);
    if (source.was_on_meta || rows.numel() == 0) continue;
    rows.copy_(all.as_strided(rows.sizes(), source.strides, layout_.offset(i, rank)));
  }
}

at::Tensor Unit::rows_of(size_t parameter) const {
  const Source& source = sources_[parameter];
  const int64_t rank = shard_group_.rank();
  std::vector<int64_t> sizes = source.sizes;
  sizes.front() = layout_.rows(parameter)[static_cast<size_t>(rank)];
  const at::Tensor& own = memory_->own();
  if (sizes.front() == 0) return at::empty(sizes, own.options());
  return own.as_strided(
      sizes, source.strides,
      own.storage_offset() + layout_.offset(parameter, rank) - layout_.run_begin(rank));
}

void Unit::place_rows(size_t parameter) const {
  const at::NoGradGuard no_grad;
  const Source& source = sources_[parameter];
  if (!source.was_on_meta) return;
  const at::Tensor rows = rows_of(parameter);
  if (rows.numel() == 0 || source.leaf.const_data_ptr() == rows.const_data_ptr()) return;
  rows.copy_(source.leaf);
  source.leaf.unsafeGetTensorImpl()->shallow_copy_from(rows.getIntrusivePtr());
  memory_->leave_memory();
}

std::unique_ptr<ShardedParameter> Unit::sharded(size_t number) const {
  const Source& source = sources_[number];
  const at::TensorOptions kind = at::TensorOptions(type_).device(device_);
  std::vector<shard::Placement> placements(mesh_.axes().size(), shard::Replicate{});
  placements.back() = shard::Shard{0, layout_.rows(number)};
  auto parameter = std::make_unique<ShardedParameter>(
      source.leaf, mesh_, shard::Layout(source.sizes, mesh_.shape(), std::move(placements)));
  parameter->set_names(source.name, name_);
  const bool keeps = !source.was_on_meta && may_keep_storage(source.leaf, device_);
  parameter->set_values(
      rows_of(number), keeps ? FullValues(source.leaf.storage(), source.sizes, source.strides, kind)
                             : FullValues(source.sizes, source.strides, kind));
  return parameter;
}

std::string Unit::graph_of_rows() const {
  try {
    for (const auto& parameter : parameters_) parameter->check_no_graph_of_rows();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void Unit::begin_pass() {
  for (const auto& parameter : parameters_) parameter->check_before_pass();
  for (const auto& parameter : parameters_) parameter->begin_pass();
}

void Unit::end_pass() {
  for (const auto& parameter : parameters_) parameter->end_pass();
}

void Unit::rest() {
  for (const auto& parameter : parameters_) parameter->rest();
}

void Unit::wake() {
  for (const auto& parameter : parameters_) parameter->wake();
}

bool Unit::is_written() const {
  return std::ranges::any_of(parameters_,
                             [](const auto& parameter) { return parameter->is_written(); });
}

void Unit::note_values() {
  for (const auto& parameter : parameters_) parameter->note_values();
}

}  // namespace levin::fsdp
