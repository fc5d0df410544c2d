#include "levin/text/patterns/expression.h"

namespace levin::text {

std::optional<int> Expression::width() const {
  switch (kind) {
    case Kind::kSet:
      return 1;
    case Kind::kSequence: {
      int sum = 0;
      for (const ExpressionPtr& part : parts) {
        const auto width = part->width();
        if (!width || sum > 100'000) return std::nullopt;
        sum += *width;
      }
      return sum;
    }
    case Kind::kAlternatives: {
      const auto first = parts.front()->width();
      for (size_t i = 1; i < parts.size(); ++i) {
        if (parts[i]->width() != first) return std::nullopt;
      }
      return first;
    }
    case Kind::kRepeat: {
      const auto width = parts.front()->width();
      if (!width || least != most || *width > 1000) return std::nullopt;
      return *width * least;
    }
    case Kind::kAtomic:
      return parts.front()->width();
    default:
      return 0;
  }
}

}  // namespace levin::text
