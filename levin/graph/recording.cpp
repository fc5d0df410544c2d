#include "levin/graph/recording.h"

#include <algorithm>

namespace levin::graph {

void Recording::with(const at::Tensor& value, TensorAction action) {
  const auto known =
      std::ranges::find_if(values_, [&](const at::Tensor& other) { return other.is_same(value); });
  const auto number = static_cast<size_t>(known - values_.begin());
  if (known == values_.end()) values_.push_back(value);
  with_.emplace_back(number, std::move(action));
}

void Recording::depends_on(std::string what, std::function<ExactNumber()> number) {
  const ExactNumber value = number();
  dependences_.push_back({std::move(what), std::move(number), value});
}

void Recording::refuse(std::string reason) {
  if (refused_.empty()) refused_ = std::move(reason);
}

}  // namespace levin::graph
