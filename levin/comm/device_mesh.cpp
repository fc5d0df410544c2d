#include "levin/comm/device_mesh.h"

#include <algorithm>
#include <map>

#include "levin/base/check.h"
#include "levin/base/text.h"

namespace levin::comm {
namespace {

std::string shape_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text;
}

int64_t product(const std::vector<MeshAxis>& axes) {
  int64_t all = 1;
  for (const MeshAxis& axis : axes) all *= axis.size;
  return all;
}

/// Of a rank, with the last axis varying fastest.
std::vector<int64_t> coordinates_of(int64_t rank, const std::vector<MeshAxis>& axes) {
  std::vector<int64_t> coordinates(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return coordinates;
}

/// The parts that the ranks fall into when they are told apart by the axes not in `within`, each in
/// rank order.
std::vector<std::vector<int64_t>> parts_of(const std::vector<MeshAxis>& axes,
                                           const std::vector<size_t>& within) {
  std::map<std::vector<int64_t>, std::vector<int64_t>> parts;
  for (int64_t rank = 0; rank < product(axes); ++rank) {
    auto key = coordinates_of(rank, axes);
    for (const size_t axis : within) key[axis] = 0;
    parts[key].push_back(rank);
  }
  std::vector<std::vector<int64_t>> lists;
  for (auto& [key, ranks] : parts) lists.push_back(std::move(ranks));
  return lists;
}

/// Every rank calls subgroup for every part, as it must.
ProcessGroup own_part(ProcessGroup& world, const std::vector<std::vector<int64_t>>& parts) {
  ProcessGroup own;
  for (const auto& ranks : parts) {
    ProcessGroup part = world.subgroup(ranks);
    if (std::ranges::find(ranks, world.rank()) != ranks.end()) own = std::move(part);
  }
  return own;
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup world, std::vector<MeshAxis> axes)
    : world_(std::move(world)), axes_(std::move(axes)) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    LEVIN_CHECK(axes_[i].size > 0, "comm.mesh", "got axes {}, wanted sizes of at least 1",
                shape_of(axes_));
    LEVIN_CHECK(index_of(axes_[i].name) == i, "comm.mesh", "got axes {}, wanted different names",
                shape_of(axes_));
  }
  LEVIN_CHECK(product(axes_) == world_.size(), "comm.mesh",
              "got axes {} for {} ranks, wanted sizes whose product is {}", shape_of(axes_),
              world_.size(), world_.size());
  coordinates_ = coordinates_of(world_.rank(), axes_);
  for (size_t i = 0; i < axes_.size(); ++i) {
    groups_.push_back(own_part(world_, parts_of(axes_, {i})));
  }
}

size_t DeviceMesh::index_of(std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  LEVIN_FAIL("comm.mesh", "got axis '{}', wanted one of {}", axis, shape_of(axes_));
}

int64_t DeviceMesh::size() const { return world_.size(); }
int64_t DeviceMesh::size(std::string_view axis) const { return axes_[index_of(axis)].size; }
int64_t DeviceMesh::coordinate(std::string_view axis) const { return coordinates_[index_of(axis)]; }
ProcessGroup& DeviceMesh::group(std::string_view axis) { return groups_[index_of(axis)]; }

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& names) {
  std::vector<size_t> within;
  std::vector<MeshAxis> axes;
  for (const std::string& name : names) {
    const size_t axis = index_of(name);
    LEVIN_CHECK(within.empty() || within.back() < axis, "comm.mesh",
                "got axes in the order {}, wanted that of the mesh: {}", to_text(names),
                shape_of(axes_));
    within.push_back(axis);
    axes.push_back(axes_[axis]);
  }
  return {own_part(world_, parts_of(axes_, within)), std::move(axes)};
}

}  // namespace levin::comm
