#pragma once
// UnitLayout: how the parameters of a unit lie one behind the other, and where they are cut into a
// contiguous run of rows for each rank. Arithmetic that needs no process.
//
//   UnitLayout layout(sizes, /*alignment=*/16, /*num_ranks=*/4, CutAt::kRows);
//   layout.runs();                                // elements of each rank
//   layout.rows(2);                               // rows that each rank has of parameter 2
//   layout.only({0, 2}, 1);                       // the same rows of two of the parameters alone

#include <cstdint>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin::fsdp {

enum class CutAt { kRows, kParameters };

class LEVIN_API UnitLayout {
 public:
  /// Has no parameters.
  UnitLayout() = default;
  /// Cuts parameters of these sizes, each with at least one row. A parameter begins at a multiple of so
  /// many elements. Runs are as even as borders of rows (or of parameters) allow. A gap between
  /// parameters belongs to the run before it.
  UnitLayout(std::span<const std::vector<int64_t>> sizes, int64_t alignment, int64_t num_ranks,
             CutAt at);

  /// Some of the parameters one behind the other, of which each rank has the same rows as here.
  UnitLayout only(std::span<const size_t> parameters, int64_t alignment) const;

  size_t num_parameters() const { return places_.size(); }
  /// Elements of all parameters and the gaps between them.
  int64_t numel() const { return numel_; }
  int64_t numel(size_t parameter) const {
    return places_[parameter].num_rows * places_[parameter].row_numel;
  }
  /// First element of a parameter.
  int64_t offset(size_t parameter) const { return places_[parameter].offset; }
  /// Rows that each rank has of a parameter.
  const std::vector<int64_t>& rows(size_t parameter) const { return places_[parameter].rows; }
  int64_t first_row(size_t parameter, int64_t rank) const;
  /// First element of the rows that a rank has of a parameter.
  int64_t offset(size_t parameter, int64_t rank) const {
    return offset(parameter) + first_row(parameter, rank) * places_[parameter].row_numel;
  }
  /// Elements of each rank's run; they add up to numel().
  const std::vector<int64_t>& runs() const { return runs_; }
  /// Elements of a rank's run.
  int64_t run(int64_t rank) const { return runs_[static_cast<size_t>(rank)]; }
  int64_t run_begin(int64_t rank) const;

 private:
  struct Place {
    int64_t offset = 0;
    int64_t num_rows = 0;   ///< size of dim 0
    int64_t row_numel = 0;  ///< elements of a row
    std::vector<int64_t> rows = {};
  };
  void put(int64_t num_rows, int64_t row_numel, int64_t alignment);
  int64_t end_of(size_t parameter) const;
  int64_t nearest_border(int64_t element, CutAt at) const;
  std::vector<int64_t> rows_in_runs(const Place& place) const;
  std::vector<int64_t> runs_of_rows() const;

  std::vector<Place> places_;
  std::vector<int64_t> runs_;
  int64_t numel_ = 0;
};

}  // namespace levin::fsdp
