#include "levin/interchange/export/sizes/graph_formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "levin/base/check.h"
#include "levin/graph/record/current_place.h"

namespace levin::interchange {
namespace {

const c10::IValue* argument_of(const RecordedCall& call, std::string_view name) {
  const auto& formals = call.op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].name() == name && i < call.arguments.size()) {
      return &call.arguments[i].constant;
    }
  }
  return nullptr;
}

/// A number for each spatial dim: kernel_size = 3 is 3 for all.
int64_t number_at(const c10::IValue* value, size_t place, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (value->isInt()) return value->toInt();
  if (!value->isIntList()) return otherwise;
  const auto numbers = value->toIntVector();
  if (numbers.empty()) return otherwise;
  return numbers[numbers.size() == 1 ? 0 : std::min(place, numbers.size() - 1)];
}

/// Returns the sizes that dim `dim` of the result may have; empty for other operators. input: the formulas of the sizes of
/// the operator's first tensor; weight: the sizes of its weight, where it has one.
std::vector<SizeFormula> layer_sizes(const RecordedCall& call,
                                     const std::vector<SizeFormula>& input,
                                     const std::vector<int64_t>& weight, size_t num_dims,
                                     size_t dim) {
  const std::string& name = call.op.schema().name();
  const bool is_convolution = name.find("conv") != std::string::npos;
  if (!is_convolution && name.find("pool") == std::string::npos) return {};
  size_t num_spatial = num_dims < 2 ? 0 : num_dims - 2;
  if (is_convolution && weight.size() >= 2) num_spatial = weight.size() - 2;
  if (!is_convolution) {
    for (const size_t count : {1, 2, 3}) {
      if (name.find(std::to_string(count) + "d") != std::string::npos) num_spatial = count;
    }
  }
  if (input.size() != num_dims || dim + num_spatial < num_dims) return {};
  const size_t place = dim + num_spatial - num_dims;
  const int64_t kernel = is_convolution && weight.size() >= 2
                             ? weight[place + 2]
                             : number_at(argument_of(call, "kernel_size"), place, 1);
  const int64_t stride = number_at(argument_of(call, "stride"), place, is_convolution ? 1 : kernel);
  const int64_t dilation = number_at(argument_of(call, "dilation"), place, 1);
  const int64_t padding = number_at(argument_of(call, "padding"), place, 0);
  if (stride < 1) return {};
  // https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html
  const SizeFormula rest = input[dim] + (2 * padding - dilation * (kernel - 1) - 1);
  return {floor_div(rest, stride) + 1, floor_div(rest + (stride - 1), stride) + 1};
}

}  // namespace

GraphFormulas::GraphFormulas(const Recordings& recordings, const std::vector<Symbol>& symbols,
                             const std::vector<bool>& is_used)
    : recordings_(recordings), symbols_(symbols), search_(recordings.points) {
  const Recording& first = recordings.each.front();
  sizes_.resize(first.values.size());
  strides_.resize(first.values.size());
  for (ValueId id = 0; id < first.values.size(); ++id) {
    const RecordedValue& value = first.values[id];
    const bool is_result = value.origin == RecordedValue::Origin::kResult;
    if (is_result && !is_used[value.index]) continue;
    find_sizes(id, is_result ? &first.calls[value.index] : nullptr);
    find_strides(id);
  }
  numbers_.resize(first.calls.size());
  for (size_t call = 0; call < first.calls.size(); ++call) {
    if (!is_used[call]) continue;
    const RecordedCall& each = first.calls[call];
    for (size_t argument = 0; argument < each.arguments.size(); ++argument) {
      std::vector<const c10::IValue*> constants;
      for (const Recording& recording : recordings.each) {
        constants.push_back(&recording.calls[call].arguments[argument].constant);
      }
      numbers_[call].push_back(find_numbers(
          constants,
          fmt::format("the argument {} of {}{}", each.op.schema().arguments()[argument].name(),
                      each.op.schema().name(),
                      each.frames.empty() ? "" : graph::place_of(each.frames))));
    }
  }
  for (size_t output = 0; output < first.outputs.size(); ++output) {
    std::vector<const c10::IValue*> constants;
    for (const Recording& recording : recordings.each) {
      constants.push_back(&recording.outputs[output].constant);
    }
    output_numbers_.push_back(find_numbers(constants, "a number that forward returns"));
  }
}

void GraphFormulas::fail(const std::string& what, const Samples& samples,
                         const RecordedCall* call) const {
  std::string seen;
  for (size_t i = 0; i < samples.size(); ++i) {
    std::string at;
    for (size_t dim = 0; dim < symbols_.size(); ++dim) {
      at += fmt::format("{}{}", dim == 0 ? "" : ", ", recordings_.points[i][dim]);
    }
    seen += fmt::format("{}{} at ({})", i == 0 ? "" : ", ", samples[i], at);
  }
  std::string dims;
  for (const Symbol& symbol : symbols_) dims += (dims.empty() ? "" : ", ") + symbol.text;
  const std::string place =
      call == nullptr || call->frames.empty() ? "" : graph::place_of(call->frames);
  LEVIN_FAIL("interchange.export.size",
             "{} does not follow one formula of ({}): {}{}; wanted sums, products and quotients by "
             "a number: make fewer dims dynamic, or set their multiple_of",
             what, dims, seen, place);
}

void GraphFormulas::find_sizes(ValueId id, const RecordedCall* call) {
  const Recording& first = recordings_.each.front();
  const RecordedValue& value = first.values[id];
  for (size_t dim = 0; dim < value.sizes.size(); ++dim) {
    Samples samples;
    for (const Recording& recording : recordings_.each) {
      samples.push_back(recording.values[id].sizes[dim]);
    }
    std::vector<SizeFormula> candidates;
    if (call != nullptr && !call->arguments.empty() && !call->arguments[0].values.empty() &&
        call->arguments[0].values[0] != kNoValue) {
      std::vector<int64_t> weight;
      if (call->arguments.size() > 1 && !call->arguments[1].values.empty() &&
          call->arguments[1].values[0] != kNoValue) {
        weight = first.values[call->arguments[1].values[0]].sizes;
      }
      candidates =
          layer_sizes(*call, sizes_[call->arguments[0].values[0]], weight, value.sizes.size(), dim);
    }
    const auto formula = search_.find(samples, candidates);
    if (!formula) {
      fail(fmt::format("size {} of the result of {}", dim,
                       call == nullptr ? "an input" : call->op.schema().name()),
           samples, call);
    }
    sizes_[id].push_back(*formula);
  }
}

/// Strides are those of a dense tensor, or of a part of one. Readers of a program compute them anew, but
/// for those of its inputs: what fits no formula is written as if the tensor were contiguous.
void GraphFormulas::find_strides(ValueId id) {
  const RecordedValue& value = recordings_.each.front().values[id];
  const size_t num_dims = value.strides.size();
  std::vector<size_t> order(num_dims);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return value.strides[a] < value.strides[b]; });
  std::vector<SizeFormula> found(num_dims, 1);
  SizeFormula dense = 1;
  for (const size_t dim : order) {
    Samples samples;
    for (const Recording& recording : recordings_.each) {
      samples.push_back(recording.values[id].strides[dim]);
    }
    const std::vector<SizeFormula> candidates = {dense};
    const auto formula = search_.find(samples, candidates);
    found[dim] = formula.value_or(dense);
    dense = found[dim] * sizes_[id][dim];
  }
  strides_[id] = std::move(found);
}

std::vector<NumberFormula> GraphFormulas::find_numbers(
    const std::vector<const c10::IValue*>& constants, const std::string& where) {
  std::vector<std::vector<ConstantNumber>> numbers;
  for (const c10::IValue* constant : constants) numbers.push_back(numbers_of(*constant));
  std::vector<NumberFormula> made;
  for (size_t i = 0; i < numbers.front().size(); ++i) {
    NumberFormula& number = made.emplace_back();
    number.is_real = numbers.front()[i].is_real;
    if (!number.is_real) {
      Samples samples;
      for (const auto& each : numbers) samples.push_back(each[i].whole);
      const auto formula = search_.find(samples);
      if (!formula) fail(where, samples, nullptr);
      number.whole = *formula;
      continue;
    }
    std::vector<double> samples;
    for (const auto& each : numbers) samples.push_back(each[i].real);
    const double front = samples.front();
    const bool is_constant = std::ranges::all_of(
        samples, [&](double each) { return each == front || (each != each && front != front); });
    if (is_constant) continue;
    number.real = search_.find_real(samples);
    LEVIN_CHECK(number.real, "interchange.export.size",
                "{} is {} at the first size and {} at the last, wanted a number times a size or "
                "divided by a size",
                where, samples.front(), samples.back());
  }
  return made;
}

}  // namespace levin::interchange
