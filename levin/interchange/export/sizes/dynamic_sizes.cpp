#include "levin/interchange/export/sizes/dynamic_sizes.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/remainder.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "levin/base/check.h"

namespace levin::interchange {
namespace {

constexpr size_t kOtherSizes = 4;

size_t input_of(const Batch& example, const std::string& name) {
  const auto& fields = example.fields();
  const auto found = std::ranges::find(fields, name, &Batch::Field::first);
  if (found == fields.end()) {
    std::string names;
    for (const auto& [field, tensor] : fields) names += (names.empty() ? "" : ", ") + field;
    LEVIN_FAIL("interchange.export.input", "dynamic names the input '{}', but the example has: {}",
               name, names);
  }
  return static_cast<size_t>(found - fields.begin());
}

/// In the order in memory that the tensor has.
at::Tensor with_rows(const at::Tensor& tensor, int64_t dim, const at::Tensor& rows) {
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim())), back(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return at::index_select(tensor.permute(order), back[static_cast<size_t>(dim)], rows)
      .permute(back);
}

}  // namespace

DynamicSizes::DynamicSizes(const Batch& example, const std::vector<DynamicDim>& dynamic) {
  LEVIN_CHECK(!example.empty(), "interchange.export.input",
              "the example has no tensors; give the inputs of forward by name");
  for (const auto& [name, tensor] : example.fields()) {
    LEVIN_CHECK(tensor.defined() && tensor.layout() == at::kStrided, "interchange.export.input",
                "the input '{}' is {}", name,
                tensor.defined() ? "not a strided tensor" : "an undefined tensor");
    example_.push_back(tensor.detach());
  }
  for (const DynamicDim& each : dynamic) {
    const size_t input = input_of(example, each.input);
    LEVIN_CHECK(each.dim >= 0 && each.dim < example_[input].dim(), "interchange.export.input",
                "dynamic names dim {} of '{}', but it has {} dims", each.dim, each.input,
                example_[input].dim());
    for (const Symbol& symbol : symbols_) {
      LEVIN_CHECK(std::ranges::find(symbol.dims, std::pair(input, each.dim)) == symbol.dims.end(),
                  "interchange.export.input", "dynamic names dim {} of '{}' twice", each.dim,
                  each.input);
    }
    Symbol& symbol = symbol_of(each, input, example);
    symbol.dims.emplace_back(input, each.dim);
    limit(symbol, each);
  }
  for (Symbol& symbol : symbols_) {
    // torch.export takes sizes of 0 and 1 for constants: the first recording is larger.
    while (symbol.size < 2) symbol.size += symbol.multiple_of;
    LEVIN_CHECK(symbol.size <= symbol.max.value_or(symbol.size), "interchange.export.input",
                "{} has max = {}, but a dynamic dim is recorded with a size of 2 or more, because "
                "torch.export takes a size of 1 for a constant; raise max, or leave the dim out of "
                "dynamic",
                symbol.text, *symbol.max);
  }
}

Symbol& DynamicSizes::symbol_of(const DynamicDim& dynamic, size_t input, const Batch& example) {
  const int64_t size = example_[input].size(dynamic.dim);
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const auto& [other, dim] = symbols_[i].dims.front();
    const bool is_alike = dynamic.name.empty() && names_[i].empty() && dim == dynamic.dim &&
                          example_[other].size(dim) == size;
    const bool is_named = !dynamic.name.empty() && names_[i] == dynamic.name;
    if (!is_alike && !is_named) continue;
    LEVIN_CHECK(example_[other].size(dim) == size, "interchange.export.input",
                "the dims named '{}' have the sizes {} and {} in the example, wanted one size; "
                "name them differently or change the example",
                dynamic.name, example_[other].size(dim), size);
    return symbols_[i];
  }
  names_.push_back(dynamic.name);
  return symbols_.emplace_back(
      Symbol{.name = fmt::format("s{}", symbols_.size()),
             .text = dynamic.name.empty()
                         ? fmt::format("dim {} of '{}'", dynamic.dim, example.fields()[input].first)
                         : fmt::format("the dim '{}'", dynamic.name),
             .dims = {},
             .size = size,
             .multiple_of = 1,
             .min = {},
             .max = {}});
}

void DynamicSizes::limit(Symbol& symbol, const DynamicDim& dynamic) const {
  LEVIN_CHECK(dynamic.multiple_of >= 1 && dynamic.min.value_or(1) >= 1, "interchange.export.input",
              "{} has min {} and multiple_of {}, wanted at least 1", symbol.text,
              dynamic.min.value_or(1), dynamic.multiple_of);
  symbol.multiple_of = std::max(symbol.multiple_of, dynamic.multiple_of);
  if (dynamic.min) symbol.min = std::max(*dynamic.min, symbol.min.value_or(1));
  if (dynamic.max) symbol.max = std::min(*dynamic.max, symbol.max.value_or(*dynamic.max));
  const int64_t size = symbol.size;
  LEVIN_CHECK(size >= symbol.min.value_or(0) && size <= symbol.max.value_or(size) && size > 0 &&
                  size % symbol.multiple_of == 0,
              "interchange.export.input",
              "{} is {} in the example, wanted a size that fits its min, max and multiple_of",
              symbol.text, size);
}

std::vector<int64_t> DynamicSizes::other_sizes(const Symbol& symbol) const {
  std::vector<int64_t> sizes;
  const int64_t step = symbol.multiple_of, size = symbol.size;
  // Code may do otherwise at the largest size: that size counts if it is not too expensive to run.
  constexpr int64_t kManyTimes = 8;
  const bool tries_max = symbol.max && *symbol.max / size < kManyTimes;
  const int64_t far = tries_max ? *symbol.max / step * step : 2 * size;
  // Neighbours tell the parity of a quotient, a far one what a layer of a large stride makes of it.
  for (const int64_t other :
       {size + step, size - step, far, size + (size / step / 2 + 1) * step, size / 2 / step * step,
        size + 2 * step, size - 2 * step, size + 3 * step, size - 3 * step}) {
    if (other == size || other < std::max<int64_t>(symbol.min.value_or(2), 2)) continue;
    if (other > symbol.max.value_or(other) || std::ranges::find(sizes, other) != sizes.end()) {
      continue;
    }
    sizes.push_back(other);
    if (sizes.size() == kOtherSizes) break;
  }
  const int64_t least = symbol.min ? (*symbol.min + step - 1) / step * step : 0;
  if (least > 1 && least != size && std::ranges::find(sizes, least) == sizes.end()) {
    sizes.push_back(least);
  }
  LEVIN_CHECK(!sizes.empty(), "interchange.export.input",
              "{} has only one size between its min and max; make it static, or widen min and max",
              symbol.text);
  return sizes;
}

std::vector<Point> DynamicSizes::points() const {
  Point first;
  for (const Symbol& symbol : symbols_) first.push_back(symbol.size);
  std::vector<Point> points = {first};
  std::vector<std::vector<int64_t>> others;
  for (size_t i = 0; i < symbols_.size(); ++i) {
    others.push_back(other_sizes(symbols_[i]));
    for (const int64_t size : others.back()) {
      points.push_back(first);
      points.back()[i] = size;
    }
  }
  if (symbols_.size() < 2) return points;
  // Each pair at other sizes tells a product from a sum.
  for (size_t i = 0; i < symbols_.size(); ++i) {
    for (size_t j = i + 1; j < symbols_.size(); ++j) {
      points.push_back(first);
      points.back()[i] = others[i].front();
      points.back()[j] = others[j].back();
    }
  }
  for (size_t round = 0; round < 2; ++round) {
    Point& point = points.emplace_back();
    for (size_t i = 0; i < others.size(); ++i) {
      point.push_back(others[i][(i + round) % others[i].size()]);
    }
  }
  return points;
}

std::vector<at::Tensor> DynamicSizes::inputs_at(const Point& point) const {
  const at::NoGradGuard no_grad;
  // forward may write into them.
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& each : example_) inputs.push_back(each.clone());
  for (size_t i = 0; i < symbols_.size(); ++i) {
    for (const auto& [input, dim] : symbols_[i].dims) {
      const at::Tensor& old = inputs[input];
      if (old.size(dim) == point[i]) continue;
      const at::Tensor rows =
          at::arange(point[i], old.options().dtype(at::kLong)).remainder(old.size(dim));
      inputs[input] = with_rows(old, dim, rows);
    }
  }
  return inputs;
}

std::vector<at::Tensor> DynamicSizes::inputs_of_other_values() const {
  const at::NoGradGuard no_grad;
  Point first;
  for (const Symbol& symbol : symbols_) first.push_back(symbol.size);
  std::vector<at::Tensor> inputs = inputs_at(first);
  for (at::Tensor& input : inputs) {
    at::Tensor reversed = input.reshape(-1).flip(0).reshape(input.sizes());
    if (reversed.is_floating_point() || reversed.is_complex()) reversed = reversed * 0.7;
    input = at::empty_like(input).copy_(reversed);
  }
  return inputs;
}

}  // namespace levin::interchange
