#include "levin/comm/device_mesh.h"

#include <algorithm>
#include <map>

#include "levin/base/check.h"

namespace levin::comm {

struct DeviceMesh::Impl {
  ProcessGroup world;
  MeshShape shape;
  std::vector<int64_t> coordinates = {};
  std::vector<ProcessGroup> groups = {};  ///< one an axis
  std::map<std::vector<std::string>, DeviceMesh> parts = {};

  /// This rank's part along the axes. Every rank calls subgroup for every part, as it must.
  ProcessGroup own_part(const std::vector<std::string>& names) {
    const auto lists = shape.parts_along(names);
    if (lists.size() == 1) return world;
    ProcessGroup own;
    for (const auto& ranks : lists) {
      ProcessGroup part = world.subgroup(ranks);
      if (std::ranges::find(ranks, world.rank()) != ranks.end()) own = std::move(part);
    }
    return own;
  }
};

DeviceMesh::DeviceMesh(ProcessGroup world, MeshShape shape)
    : impl_(std::make_shared<Impl>(Impl{std::move(world), std::move(shape)})) {
  LEVIN_CHECK(size() == impl_->world.size(), "comm.mesh",
              "got axes {} for {} ranks, wanted sizes whose product is {}", to_text(this->shape()),
              impl_->world.size(), impl_->world.size());
  impl_->coordinates = this->shape().coordinates(rank());
  for (const MeshAxis& axis : axes()) impl_->groups.push_back(impl_->own_part({axis.name}));
}

const MeshShape& DeviceMesh::shape() const { return impl_->shape; }
int64_t DeviceMesh::rank() const { return impl_->world.rank(); }
ProcessGroup& DeviceMesh::flat() const { return impl_->world; }

int64_t DeviceMesh::coordinate(std::string_view axis) const {
  return impl_->coordinates[shape().index_of(axis)];
}

ProcessGroup& DeviceMesh::group(std::string_view axis) const {
  return impl_->groups[shape().index_of(axis)];
}

DeviceMesh DeviceMesh::operator[](const std::vector<std::string>& names) const {
  MeshShape part = shape().along(names);
  if (part == shape()) return *this;
  auto made = impl_->parts.find(names);
  if (made == impl_->parts.end()) {
    // The group along an axis is there already.
    ProcessGroup group = names.size() == 1 ? this->group(names.front()) : impl_->own_part(names);
    made = impl_->parts.emplace(names, DeviceMesh(std::move(group), std::move(part))).first;
  }
  return made->second;
}

}  // namespace levin::comm
