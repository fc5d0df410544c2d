#include "levin/strategy/fsdp/gather/gathered_unit.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "levin/strategy/fsdp/passing_memory.h"

namespace levin::fsdp {

GatheredUnit::GatheredUnit(Unit& unit, std::vector<size_t> leaves, at::ScalarType type)
    : unit_(&unit),
      leaves_(std::move(leaves)),
      type_(type),
      is_all_(leaves_.size() == unit.leaves().size() && type == unit.type()) {
  std::vector<std::vector<int64_t>> sizes;
  std::vector<std::vector<int64_t>> rows;  // for each leaf: rows of each rank
  for (size_t place = 0; place < leaves_.size(); ++place) {
    sizes.push_back(leaf(place).sizes);
    rows.push_back(leaf(place).rows_of_ranks);
    const at::TensorOptions kind = at::TensorOptions(type).device(device());
    wholes_.push_back(type == unit.type()
                          ? leaf(place).whole
                          : tensor_on(storage_without_memory(device()), leaf(place).sizes,
                                      leaf(place).strides, kind));
  }
  extents_ = extents_of(sizes, alignment_of(type));
  runs_ = is_all_ ? unit.runs() : runs_of_rows(extents_, rows);
  numel_ = extents_.back().end();
}

comm::Work GatheredUnit::start(comm::ProcessGroup& group, Hosts* hosts, const at::Tensor& memory) {
  const at::NoGradGuard no_grad;
  if (is_mapped()) {
    return hosts->across.all_gather(unit_->part_of_place(), unit_->own(), unit_->runs_of_place(),
                                    comm::Return::kAsync);
  }
  const at::Tensor whole = memory.narrow(0, 0, bytes()).view(type_);
  if (is_all_) return group.all_gather(whole, unit_->own(), runs_, comm::Return::kAsync);
  write_own_rows(whole);
  const auto own = runs_.begin() + group.rank();
  return group.all_gather(whole,
                          whole.narrow(0, std::accumulate(runs_.begin(), own, int64_t{0}), *own),
                          runs_, comm::Return::kAsync);
}

void GatheredUnit::write_own_rows(const at::Tensor& whole) const {
  for (size_t place = 0; place < leaves_.size(); ++place) {
    const Leaf& each = leaf(place);
    if (each.rows.numel() == 0) continue;
    const int64_t begin =
        extents_[place].begin + each.first_row(unit_->rank()) * extents_[place].row_numel;
    whole.as_strided(each.rows.sizes(), each.strides, begin).copy_(each.rows);
  }
}

void GatheredUnit::attach(const at::Tensor& memory) {
  if (is_mapped()) return unit_->attach(unit_->mapped());
  const at::Tensor whole = memory.narrow(0, 0, bytes()).view(type_);
  for (size_t place = 0; place < leaves_.size(); ++place) {
    lay_into(wholes_[place], whole, extents_[place].begin);
  }
}

void GatheredUnit::detach() {
  for (size_t place = 0; place < leaves_.size(); ++place) {
    take_away(wholes_[place], leaf(place).unseen);
  }
}

}  // namespace levin::fsdp
