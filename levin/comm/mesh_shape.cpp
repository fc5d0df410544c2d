#include <map>
#include <ostream>

#include "levin/base/check.h"
#include "levin/comm/device_mesh.h"

namespace levin::comm {

MeshShape::MeshShape(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    LEVIN_CHECK(axes_[i].size > 0, "comm.mesh", "got axes {}, wanted sizes of at least 1",
                to_text(*this));
    LEVIN_CHECK(index_of(axes_[i].name) == i, "comm.mesh",
                "got axes {}, wanted a different name for each axis", to_text(*this));
  }
}

int64_t MeshShape::size() const {
  int64_t all = 1;
  for (const MeshAxis& axis : axes_) all *= axis.size;
  return all;
}

size_t MeshShape::index_of(std::string_view axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  LEVIN_FAIL("comm.mesh", "got axis '{}', wanted one of {}", axis, to_text(*this));
}

std::vector<int64_t> MeshShape::coordinates(int64_t rank) const {
  LEVIN_CHECK(rank >= 0 && rank < size(), "comm.mesh", "got rank {} of {}, wanted 0 to {}", rank,
              to_text(*this), size() - 1);
  std::vector<int64_t> coordinates(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    coordinates[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return coordinates;
}

int64_t MeshShape::rank(std::span<const int64_t> coordinates) const {
  bool inside = coordinates.size() == axes_.size();
  int64_t rank = 0;
  for (size_t i = 0; inside && i < axes_.size(); ++i) {
    inside = coordinates[i] >= 0 && coordinates[i] < axes_[i].size;
    rank = rank * axes_[i].size + coordinates[i];
  }
  LEVIN_CHECK(inside, "comm.mesh",
              "got coordinates {}, wanted one per axis and each below the axis size, for {}",
              to_text(std::vector(coordinates.begin(), coordinates.end())), to_text(*this));
  return rank;
}

std::vector<int64_t> MeshShape::ranks_along(std::string_view axis, int64_t rank) const {
  const size_t index = index_of(axis);
  std::vector<int64_t> place = coordinates(rank);
  std::vector<int64_t> ranks;
  for (place[index] = 0; place[index] < axes_[index].size; ++place[index]) {
    ranks.push_back(this->rank(place));
  }
  return ranks;
}

std::vector<std::vector<int64_t>> MeshShape::parts_along(
    const std::vector<std::string>& names) const {
  std::map<std::vector<int64_t>, std::vector<int64_t>> parts;
  for (int64_t rank = 0; rank < size(); ++rank) {
    std::vector<int64_t> key = coordinates(rank);
    for (const std::string& name : names) key[index_of(name)] = 0;
    parts[key].push_back(rank);
  }
  std::vector<std::vector<int64_t>> lists;
  for (auto& [key, ranks] : parts) lists.push_back(std::move(ranks));
  return lists;
}

MeshShape MeshShape::along(const std::vector<std::string>& names) const {
  MeshShape part;
  size_t next = 0;
  for (const std::string& name : names) {
    const size_t index = index_of(name);
    LEVIN_CHECK(index >= next, "comm.mesh",
                "got axes in the order {}, wanted the order of the mesh: {}", to_text(names),
                to_text(*this));
    part.axes_.push_back(axes_[index]);
    next = index + 1;
  }
  return part;
}

std::string to_text(const MeshShape& shape) {
  std::string text;
  for (const MeshAxis& axis : shape.axes()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text.empty() ? "one rank" : text;
}

std::ostream& operator<<(std::ostream& out, const MeshShape& shape) {
  return out << to_text(shape);
}

}  // namespace levin::comm
