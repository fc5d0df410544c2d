#pragma once
// GatheredUnit: some full parameters of a unit, gathered in one type. A unit has one image of all its
// parameters. If autocast casts some of them, it has one image of these in the type of the cast,
// and one of the others.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/comm/process_group.h"
#include "levin/strategy/fsdp/cut.h"
#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

class GatheredUnit {
 public:
  /// leaves: numbers in the unit, ascending; type: the unit's, or the type of the leaves' cast.
  GatheredUnit(Unit& unit, std::vector<size_t> leaves, at::ScalarType type);

  const Unit& unit() const { return *unit_; }
  const std::vector<size_t>& leaves() const { return leaves_; }
  at::ScalarType type() const { return type_; }
  /// Returns the full leaf at that place in leaves(), to compute with while the image is here.
  const at::Tensor& whole(size_t place) const { return wholes_[place]; }
  const at::Tensor& whole_of(size_t leaf) const {
    return whole(static_cast<size_t>(std::ranges::lower_bound(leaves_, leaf) - leaves_.begin()));
  }
  /// It lies in memory that a host's ranks share, and that is always there.
  bool is_mapped() const { return unit_->mapped().defined(); }
  int64_t bytes() const { return numel_ * static_cast<int64_t>(c10::elementSize(type_)); }
  at::Device device() const { return unit_->own().device(); }

  /// Fetches what this rank lacks, into memory of bytes() bytes where it is not mapped.
  comm::Work start(comm::ProcessGroup& group, Hosts* hosts, const at::Tensor& memory);
  void attach(const at::Tensor& memory);
  void detach();

 private:
  const Leaf& leaf(size_t place) const { return unit_->leaves()[leaves_[place]]; }
  void write_own_rows(const at::Tensor& whole) const;

  Unit* unit_;
  std::vector<size_t> leaves_;
  at::ScalarType type_;
  bool is_all_;  ///< it has all leaves of the unit, in the unit's type
  std::vector<at::Tensor> wholes_;
  std::vector<Extent> extents_;
  std::vector<int64_t> runs_;  ///< elements of each rank's
  int64_t numel_ = 0;
};

}  // namespace levin::fsdp
