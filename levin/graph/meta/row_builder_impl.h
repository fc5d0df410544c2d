#pragma once
// RowBuilder: some rows of a tensor, without the others being computed: where it was filled as a whole
// (constants, uniform and normal numbers) and then changed element by element at most.

#include <functional>
#include <unordered_map>

#include "levin/graph/meta/build_log_impl.h"

namespace levin::graph::meta {

/// Elements [first, first + out.numel()) of a step's fill, into contiguous memory. whole: the
/// tensor that it filled.
using FillRows =
    std::function<void(const Step& step, const Part& whole, int64_t first, const at::Tensor& out)>;

/// The numbers that ordinary construction would have drawn there.
void fill_as_built(DrawRules& rules, const Step& step, const Part& whole, int64_t first,
                   const at::Tensor& out);

/// Numbers of a seed, a parameter's name and the row: the same whichever rows are wanted. Rows are
/// drawn in blocks of at least a few thousand numbers, vectors as a whole.
class FillByName {
 public:
  FillByName(uint64_t seed, std::string_view name);
  void operator()(const Step& step, const Part& whole, int64_t first, const at::Tensor& out);
  /// For a step that RowBuilder cannot take apart.
  void put(const Step& step, at::CPUGeneratorImpl& generator);

 private:
  uint64_t seed_of(const Step& step);

  uint64_t seed_;
  std::unordered_map<const Step*, uint64_t> numbers_;  ///< in the order in which steps are met
};

class RowBuilder {
 public:
  RowBuilder(DrawRules& rules, FillRows fill) : rules_(rules), fill_(std::move(fill)) {}

  bool can(const ValueRef& value, const Part& whole, int depth = 0) const;
  /// Makes rows [begin, end) of dim 0, contiguous. Call it only if can() returns true.
  at::Tensor make(const ValueRef& value, const Part& whole, int64_t begin, int64_t end) const;

 private:
  DrawRules& rules_;
  FillRows fill_;
};

}  // namespace levin::graph::meta
