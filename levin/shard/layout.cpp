#include "levin/shard/layout.h"

#include <c10/util/ArrayRef.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "levin/base/check.h"

namespace levin::shard {
namespace {

using Lengths = std::vector<int64_t>;

std::string sizes_text(const Lengths& sizes) { return c10::str(at::IntArrayRef(sizes)); }

/// The cuts of each of the parts, one list behind the other; the lists that shard has itself where it
/// has any.
Lengths cuts_of_each(const Shard& shard, const Lengths& parts, const comm::MeshAxis& axis) {
  const auto count = static_cast<size_t>(axis.size);
  const bool one_list = shard.cuts.size() == count;
  LEVIN_CHECK(
      shard.cuts.empty() || one_list || shard.cuts.size() == count * parts.size(), "shard.layout",
      "got {} cuts for axis {}={}, wanted {} cuts{}", shard.cuts.size(), axis.name, axis.size,
      axis.size,
      parts.size() > 1 ? fmt::format(", or that many for each of {} parts", parts.size()) : "");
  Lengths all;
  for (size_t i = 0; i < parts.size(); ++i) {
    Lengths cuts = chunk_cuts(parts[i], axis.size);
    if (!shard.cuts.empty()) {
      const auto first = shard.cuts.begin() + static_cast<int64_t>(one_list ? 0 : i * count);
      cuts.assign(first, first + axis.size);
    }
    LEVIN_CHECK(std::ranges::all_of(cuts, [](int64_t cut) { return cut >= 0; }) &&
                    std::accumulate(cuts.begin(), cuts.end(), int64_t{0}) == parts[i],
                "shard.layout", "got {} along axis {}, wanted cuts whose sum is {}",
                to_text(Placement(Shard{shard.dim, cuts})), axis.name, parts[i]);
    all.insert(all.end(), cuts.begin(), cuts.end());
  }
  return all;
}

/// One list where all are the same, so that equal layouts are equal member by member.
Lengths shortened(const Lengths& lists, int64_t count) {
  Lengths first(lists.begin(), lists.begin() + count);
  for (size_t i = 0; i < lists.size(); ++i) {
    if (lists[i] != first[i % first.size()]) return lists;
  }
  return first;
}

}  // namespace

Layout::Layout(std::vector<int64_t> sizes, comm::MeshShape mesh, std::vector<Placement> placements)
    : sizes_(std::move(sizes)), mesh_(std::move(mesh)), placements_(std::move(placements)) {
  LEVIN_CHECK(std::ranges::all_of(sizes_, [](int64_t size) { return size >= 0; }), "shard.layout",
              "got sizes {}, wanted sizes of at least 0", sizes_text(sizes_));
  LEVIN_CHECK(placements_.size() == mesh_.num_axes(), "shard.layout",
              "got {} placements for the mesh {}, wanted one per axis", placements_.size(),
              to_text(mesh_));
  std::vector<Lengths> parts;  // lengths into which the axes so far have cut each dim
  for (const int64_t size : sizes_) parts.push_back({size});
  const auto num_dims = std::ssize(sizes_);
  for (size_t i = 0; i < placements_.size(); ++i) {
    auto* shard = std::get_if<Shard>(&placements_[i]);
    if (shard == nullptr) continue;
    const comm::MeshAxis& axis = mesh_.axes()[i];
    LEVIN_CHECK(shard->dim >= -num_dims && shard->dim < num_dims, "shard.layout",
                "got {} along axis {} for a tensor of sizes {}, wanted a dim of the tensor",
                to_text(placements_[i]), axis.name, sizes_text(sizes_));
    if (shard->dim < 0) shard->dim += num_dims;
    Lengths& lengths = parts[static_cast<size_t>(shard->dim)];
    lengths = cuts_of_each(*shard, lengths, axis);
    shard->cuts = shortened(lengths, axis.size);
  }
}

Slice Layout::slice(std::span<const int64_t> coordinates) const {
  mesh_.rank(coordinates);  // throws where there is no such
  Slice slice = full_slice(sizes_);
  std::vector<size_t> part(sizes_.size(), 0);  // index among the parts of each dim so far
  for (size_t i = 0; i < placements_.size(); ++i) {
    const auto* shard = std::get_if<Shard>(&placements_[i]);
    if (shard == nullptr) continue;
    const auto dim = static_cast<size_t>(shard->dim);
    const auto size = static_cast<size_t>(mesh_.axes()[i].size);
    const auto place = static_cast<size_t>(coordinates[i]);
    const size_t list = shard->cuts.size() == size ? 0 : part[dim] * size;
    for (size_t k = 0; k < place; ++k) slice.offsets[dim] += shard->cuts[list + k];
    slice.sizes[dim] = shard->cuts[list + place];
    part[dim] = part[dim] * size + place;
  }
  return slice;
}

std::string to_text(const Layout& layout) {
  std::string text =
      fmt::format("Layout {} on {}", sizes_text(layout.sizes()), to_text(layout.mesh()));
  for (size_t i = 0; i < layout.placements().size(); ++i) {
    text += (i == 0 ? ": " : ", ") + to_text(layout.placements()[i]);
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << to_text(layout); }

}  // namespace levin::shard
