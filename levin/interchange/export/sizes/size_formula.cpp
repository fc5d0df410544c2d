#include "levin/interchange/export/sizes/size_formula.h"

#include "levin/interchange/program/floor_div.h"

namespace levin::interchange {

SizeFormula::SizeFormula(int64_t number) : SizeFormula(Node{.number = number}) {}

SizeFormula SizeFormula::dim(size_t index) {
  return SizeFormula(Node{.kind = Kind::kDim, .number = static_cast<int64_t>(index)});
}

int64_t SizeFormula::value(std::span<const int64_t> dims) const {
  switch (kind()) {
    case Kind::kDim:
      return dims[index()];
    case Kind::kAdd:
      return left().value(dims) + right().value(dims);
    case Kind::kMul:
      return left().value(dims) * right().value(dims);
    case Kind::kFloorDiv:
      return floor_div(left().value(dims), right().number());
    case Kind::kNumber:
      break;
  }
  return number();
}

SizeFormula operator+(const SizeFormula& left, const SizeFormula& right) {
  if (left.is_number() && right.is_number()) return left.number() + right.number();
  if (left.is_number() && left.number() == 0) return right;
  if (right.is_number() && right.number() == 0) return left;
  return SizeFormula(SizeFormula::Node{SizeFormula::Kind::kAdd, 0, {left, right}});
}

SizeFormula operator*(const SizeFormula& left, const SizeFormula& right) {
  if (left.is_number() && right.is_number()) return left.number() * right.number();
  if (right.is_number()) return right * left;
  if (left.is_number() && left.number() == 0) return 0;
  if (left.is_number() && left.number() == 1) return right;
  return SizeFormula(SizeFormula::Node{SizeFormula::Kind::kMul, 0, {left, right}});
}

SizeFormula floor_div(const SizeFormula& left, int64_t right) {
  if (right == 1) return left;
  if (left.is_number()) return floor_div(left.number(), right);
  return SizeFormula(SizeFormula::Node{SizeFormula::Kind::kFloorDiv, 0, {left, right}});
}

}  // namespace levin::interchange
