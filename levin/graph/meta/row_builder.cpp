#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/base/random/mersenne_twister.h"
#include "levin/graph/meta/build_handler_impl.h"
#include "levin/graph/meta/evaluation_impl.h"
#include "levin/graph/meta/row_builder_impl.h"

namespace levin::graph::meta {
namespace {

constexpr int kDeepest = 16;  // operators on top of each other

/// Each element of the result depends only on the elements at the same position, bit for bit, also
/// at the ends of vector registers.
constexpr std::array<std::string_view, 17> kElementwise = {
    "aten::add.Tensor", "aten::add_.Tensor", "aten::add.Scalar", "aten::add_.Scalar",
    "aten::sub.Tensor", "aten::sub_.Tensor", "aten::sub.Scalar", "aten::sub_.Scalar",
    "aten::mul.Tensor", "aten::mul_.Tensor", "aten::mul.Scalar", "aten::mul_.Scalar",
    "aten::div.Tensor", "aten::div_.Tensor", "aten::div.Scalar", "aten::div_.Scalar",
    "aten::neg"};

enum class Way { kNone, kEmpty, kConstant, kFill, kElementwise };

Way way_of(const Step& step) {
  const std::string& name = step.info->name;
  if (fill_of(*step.info)) return Way::kFill;
  if (name == "aten::empty.memory_format") return Way::kEmpty;
  for (const std::string_view constant :
       {"aten::zeros", "aten::ones", "aten::full", "aten::zero_", "aten::fill_.Scalar"}) {
    if (name == constant) return Way::kConstant;
  }
  return std::ranges::find(kElementwise, name) != kElementwise.end() ? Way::kElementwise
                                                                     : Way::kNone;
}

c10::Scalar constant_of(const Step& step) {
  const std::string& name = step.info->name;
  if (name == "aten::ones") return 1;
  if (name == "aten::full" || name == "aten::fill_.Scalar") return step.stack.at(1).toScalar();
  return 0;
}

/// Returns the layout of the tensor in which the value was made; nullptr if that is not one tensor.
const Part* made_part(const ValueRef& value, const Step& step) {
  for (const Step::Result& result : step.results) {
    if (result.value == value.index) return step.results.size() == 1 ? &result.part : nullptr;
  }
  const Part* part = nullptr;
  for (const StepTensor& tensor : step.tensors) {
    if (!tensor.is_written) continue;
    if (part != nullptr) return nullptr;
    part = &tensor.part;
  }
  return part;
}

int64_t count_of(const Part& part) {
  return std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{1}, std::multiplies<>());
}

const Step& step_of(const ValueRef& value) {
  return value.log->steps[value.log->values[value.index].step];
}

/// Low and high end, or mean and deviation.
std::pair<double, double> numbers_of(const Step& step) {
  const bool is_unit = step.info->name.starts_with("aten::rand");
  if (is_unit) return {0.0, 1.0};
  return {step.stack.at(1).toDouble(), step.stack.at(2).toDouble()};
}

void fill(const Step& step, const at::Tensor& out, const at::Generator& generator) {
  const auto [first, second] = numbers_of(step);
  if (fill_of(*step.info) == Fill::kUniform) {
    out.uniform_(first, second, generator);
  } else {
    out.normal_(first, second, generator);
  }
}

/// Normal numbers [first, first + out.numel()) of a row of at least a block.
class NormalRow {
 public:
  NormalRow(const Step& step, uint64_t words_each, int64_t first, at::Tensor out)
      : step_(step), each_(words_each), first_(first), out_(std::move(out)) {}

  void fill_from_blocks(int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t block = begin / kBlock * kBlock;
      if (begin == block && end - begin >= kBlock) {
        const int64_t length = (end - begin) / kBlock * kBlock;
        draw(block, out_.narrow(0, begin - first_, length));
        begin += length;
      } else {
        const int64_t stop = std::min(end, block + kBlock);
        copy_of_block(block, begin - block, stop - begin, begin);
        begin = stop;
      }
    }
  }

  /// The last block of a row that is no multiple of blocks is drawn behind it.
  void fill_from_last(int64_t count, int64_t begin, int64_t end) {
    if (begin < end) copy_of_block(count, begin - (count - kBlock), end - begin, begin);
  }

  static constexpr int64_t kBlock = DrawRules::kNormalBlock;

 private:
  void draw(int64_t number, const at::Tensor& out) const {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>();
    step_.place->after(static_cast<uint64_t>(number) * each_)
        .put(*generator.get<at::CPUGeneratorImpl>());
    fill(step_, out, generator);
  }
  void copy_of_block(int64_t number, int64_t from, int64_t length, int64_t to) const {
    const at::Tensor block = at::empty({kBlock}, out_.options());
    draw(number, block);
    out_.narrow(0, to - first_, length).copy_(block.narrow(0, from, length));
  }

  const Step& step_;
  uint64_t each_;
  int64_t first_;
  at::Tensor out_;
};

void fill_normal_row(const Step& step, uint64_t each, int64_t count, int64_t first,
                     const at::Tensor& out) {
  constexpr int64_t kBlock = NormalRow::kBlock;
  if (count < kBlock) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>();
    step.place->put(*generator.get<at::CPUGeneratorImpl>());
    const at::Tensor all = at::empty({count}, out.options());
    fill(step, all, generator);
    out.copy_(all.narrow(0, first, out.numel()));
    return;
  }
  const int64_t end = first + out.numel();
  const int64_t last = count % kBlock != 0 ? count - kBlock : count;
  NormalRow row(step, each, first, out);
  row.fill_from_blocks(first, std::min(end, last));
  row.fill_from_last(count, std::max(first, last), end);
}

}  // namespace

void fill_as_built(DrawRules& rules, const Step& step, const Part& whole, int64_t first,
                   const at::Tensor& out) {
  const Fill kind = *fill_of(*step.info);
  const uint64_t each = *rules.words_each(kind, whole.dtype);
  const at::Tensor row = out.view(-1);
  if (row.numel() == 0) return;
  if (kind == Fill::kNormal) return fill_normal_row(step, each, count_of(whole), first, row);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>();
  step.place->after(static_cast<uint64_t>(first) * each)
      .put(*generator.get<at::CPUGeneratorImpl>());
  fill(step, row, generator);
}

namespace {

constexpr uint64_t kNameStream = 0x6e616d65;  // "name"
constexpr int64_t kBlockNumbers = 4096;

/// FNV-1a: the same on every machine.
uint64_t hash_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

int64_t block_of(const Part& whole) {
  const int64_t count = count_of(whole);
  if (whole.sizes.size() < 2 || count == 0) return std::max<int64_t>(count, 1);
  const int64_t row = count / whole.sizes[0];
  return row * std::max<int64_t>(1, kBlockNumbers / row);
}

}  // namespace

FillByName::FillByName(uint64_t seed, std::string_view name)
    : seed_(derive_seed(derive_seed(seed, kNameStream), hash_of(name))) {}

uint64_t FillByName::seed_of(const Step& step) {
  return derive_seed(seed_, numbers_.try_emplace(&step, numbers_.size()).first->second);
}

void FillByName::operator()(const Step& step, const Part& whole, int64_t first,
                            const at::Tensor& out) {
  const at::Tensor row = out.view(-1);
  const int64_t count = count_of(whole), size = block_of(whole), end = first + row.numel();
  const uint64_t seed = seed_of(step);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>();
  for (int64_t block = first / size * size; block < end; block += size) {
    detail::seed_quickly(*generator.get<at::CPUGeneratorImpl>(),
                         derive_seed(seed, static_cast<uint64_t>(block)));
    const int64_t stop = std::min(block + size, count);
    if (first <= block && stop <= end) {
      fill(step, row.narrow(0, block - first, stop - block), generator);
      continue;
    }
    const at::Tensor all = at::empty({stop - block}, row.options());
    fill(step, all, generator);
    const int64_t from = std::max(first, block), to = std::min(end, stop);
    row.narrow(0, from - first, to - from).copy_(all.narrow(0, from - block, to - from));
  }
}

void FillByName::put(const Step& step, at::CPUGeneratorImpl& generator) {
  detail::seed_quickly(generator, seed_of(step));
}

bool RowBuilder::can(const ValueRef& value, const Part& whole, int depth) const {
  if (depth > kDeepest || whole.sizes.empty()) return false;
  const Step& step = step_of(value);
  const Part* made = made_part(value, step);
  if (made == nullptr || *made != whole || whole.offset != 0 || !whole.is_contiguous()) {
    return false;
  }
  const Way way = way_of(step);
  if (way == Way::kFill) return rules_.words_each(*fill_of(*step.info), whole.dtype).has_value();
  if (way != Way::kElementwise) return way != Way::kNone;
  return std::ranges::all_of(step.tensors, [&](const StepTensor& tensor) {
    if (tensor.value.log == nullptr) return tensor.real.defined() && tensor.real.dim() == 0;
    return tensor.part.sizes == whole.sizes && can(tensor.value, tensor.part, depth + 1);
  });
}

at::Tensor RowBuilder::make(const ValueRef& value, const Part& whole, int64_t begin,
                            int64_t end) const {
  const Step& step = step_of(value);
  at::DimVector sizes = whole.sizes;
  sizes[0] = end - begin;
  const auto options = at::dtype(whole.dtype).device(at::kCPU);
  const Way way = way_of(step);
  if (way == Way::kEmpty) return at::empty(sizes, options);
  if (way == Way::kConstant) return at::full(sizes, constant_of(step), options);
  if (way == Way::kFill) {
    const at::Tensor out = at::empty(sizes, options);
    const int64_t row = whole.sizes[0] == 0 ? 0 : count_of(whole) / whole.sizes[0];
    fill_(step, whole, begin * row, out);
    return out;
  }
  torch::jit::Stack stack = step.stack;
  size_t next = 0;
  for (c10::IValue& argument : stack) {
    change_tensors(argument, [&](const at::Tensor&) {
      const StepTensor& tensor = step.tensors[next++];
      return tensor.value.log == nullptr ? tensor.real
                                         : make(tensor.value, tensor.part, begin, end);
    });
  }
  const DefaultDtype dtype(step.default_dtype);
  step.info->op.callBoxed(stack);
  return stack.at(0).toTensor();
}

}  // namespace levin::graph::meta
