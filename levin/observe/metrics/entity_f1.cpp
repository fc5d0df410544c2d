#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "levin/base/check.h"
#include "levin/observe/metrics/counted.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

using Entity = std::tuple<int64_t, int64_t, std::string_view>;  // begin, end, type

/// The entities of a sequence of labels' names.
std::set<Entity> entities_of(const std::vector<std::string_view>& names) {
  std::set<Entity> found;
  std::string_view open;  // type of the entity that is open; empty: none
  int64_t begin = 0;
  bool is_open = false;
  const auto close = [&](int64_t end) {
    if (is_open) found.emplace(begin, end, open);
    is_open = false;
  };
  for (int64_t i = 0; i < std::ssize(names); ++i) {
    const std::string_view name = names[static_cast<size_t>(i)];
    const char prefix = name.empty() ? 'O' : name.front();
    const bool is_part = prefix == 'B' || prefix == 'I';
    const size_t dash = name.find('-');
    const std::string_view type = dash == std::string_view::npos ? "_" : name.substr(dash + 1);
    if (is_open && is_part && prefix == 'I' && type == open) continue;
    close(i);
    if (!is_part) continue;
    open = type;
    begin = i;
    is_open = true;
  }
  close(std::ssize(names));
  return found;
}

}  // namespace

EntityF1::EntityF1(std::vector<std::string> names) : names_(std::move(names)) {
  LEVIN_CHECK(!names_.empty(), "observe.metric.options",
              "got no names of labels, wanted a name for each label");
}

void EntityF1::update(const at::Tensor& scores, const at::Tensor& labels) {
  const detail::OrdinaryTensors guard;
  const bool are_classes = scores.dim() == labels.dim() && !scores.is_floating_point();
  const at::Tensor found = (are_classes ? scores : scores.argmax(-1)).to(at::kCPU).contiguous();
  const at::Tensor wanted = labels.to(at::kCPU, at::kLong).contiguous();
  LEVIN_CHECK(wanted.dim() == 2 && found.sizes() == wanted.sizes(), "observe.metric.shape",
              "got scores {} and labels {}, wanted [B, T, C] and [B, T]", c10::str(scores.sizes()),
              c10::str(labels.sizes()));
  const auto name = [&](int64_t label) -> std::string_view {
    LEVIN_CHECK(label >= 0 && label < std::ssize(names_), "observe.metric.shape",
                "got the label {}, but names for {} labels; give a name for each label", label,
                names_.size());
    return names_[static_cast<size_t>(label)];
  };
  const auto* classes = found.const_data_ptr<int64_t>();
  const auto* rights = wanted.const_data_ptr<int64_t>();
  double correct = 0, num_found = 0, num_wanted = 0;
  for (int64_t row = 0; row < wanted.size(0); ++row) {
    std::vector<std::string_view> ours, theirs;
    for (int64_t i = row * wanted.size(1); i < (row + 1) * wanted.size(1); ++i) {
      if (rights[i] == -100) continue;
      ours.push_back(name(classes[i]));
      theirs.push_back(name(rights[i]));
    }
    const std::set<Entity> mine = entities_of(ours), right = entities_of(theirs);
    num_found += static_cast<double>(mine.size());
    num_wanted += static_cast<double>(right.size());
    correct += static_cast<double>(
        std::ranges::count_if(mine, [&](const Entity& entity) { return right.contains(entity); }));
  }
  add(at::tensor(at::ArrayRef<double>({correct, num_found, num_wanted}), at::kDouble));
}

at::Tensor EntityF1::compute() const {
  if (!sums().defined()) return nothing();
  const at::Tensor both = sums()[1] + sums()[2];
  return 2 * sums()[0] / both.clamp_min(1);
}

}  // namespace levin::metrics
