#pragma once
// SizeFormula: a size as whole numbers and dynamic dims, for a program that is written.
// (Expression is the same of a program that is read.)
// Not for users.
//
//   const SizeFormula batch = SizeFormula::dim(0);
//   (batch * 4 + 1).value({8});   // 33

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "levin/base/export.h"

namespace levin::interchange {

class LEVIN_API SizeFormula {
 public:
  enum class Kind { kNumber, kDim, kAdd, kMul, kFloorDiv };

  SizeFormula(int64_t number = 0);  // NOLINT(google-explicit-constructor): 1 is a formula
  /// The dynamic dim of that number.
  static SizeFormula dim(size_t index);

  Kind kind() const { return node_->kind; }
  int64_t number() const { return node_->number; }                     ///< value of a kNumber
  size_t index() const { return static_cast<size_t>(node_->number); }  ///< index of a kDim
  const SizeFormula& left() const { return node_->operands[0]; }
  const SizeFormula& right() const { return node_->operands[1]; }
  bool is_number() const { return kind() == Kind::kNumber; }

  /// dims: the size of each dynamic dim.
  int64_t value(std::span<const int64_t> dims) const;

  LEVIN_API friend SizeFormula operator+(const SizeFormula& left, const SizeFormula& right);
  LEVIN_API friend SizeFormula operator*(const SizeFormula& left, const SizeFormula& right);
  LEVIN_API friend SizeFormula floor_div(const SizeFormula& left, int64_t right);

 private:
  struct Node {
    Kind kind = Kind::kNumber;
    int64_t number = 0;
    std::vector<SizeFormula> operands = {};
  };
  explicit SizeFormula(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}

  std::shared_ptr<const Node> node_;
};

LEVIN_API SizeFormula floor_div(const SizeFormula& left, int64_t right);

}  // namespace levin::interchange
