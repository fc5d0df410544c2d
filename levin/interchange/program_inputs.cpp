#include "levin/interchange/program_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin::interchange {
namespace {

bool same_constant(const c10::IValue& given, const c10::IValue& wanted) {
  if (given.isScalar() && wanted.isScalar())
    return given.toScalar().toComplexDouble() == wanted.toScalar().toComplexDouble();
  return given.tagKind() == wanted.tagKind() && c10::IValue(given) == wanted;
}

}  // namespace

ProgramInputs::ProgramInputs(const Program& program) : program_(program) {
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    if (program_.inputs[i].kind == Input::Kind::kUser) user_inputs_.push_back(i);
  }
  LEVIN_CHECK(user_inputs_.size() == program_.input_tree.num_leaves(), "interchange.archive",
              "the program has {} inputs, but its input tree has {}", user_inputs_.size(),
              program_.input_tree.num_leaves());
  const PyTree& by_place = program_.input_tree.children()[0];
  const PyTree& by_name = program_.input_tree.children()[1];
  const auto& given = program_.argument_names;
  for (size_t i = 0; i < by_place.children().size(); ++i) {
    names_.push_back(i < given.size() ? printable(given[i]) : fmt::format("args.{}", i));
  }
  for (size_t i = 0; i < by_name.children().size(); ++i) {
    names_.push_back(i < by_name.keys().size() ? printable(by_name.keys()[i])
                                               : fmt::format("kwargs.{}", i));
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    const size_t place = by_place.children().size();
    const PyTree& tree = i < place ? by_place.children()[i] : by_name.children()[i - place];
    const auto own = tree.leaf_names(names_[i]);
    leaf_names_.insert(leaf_names_.end(), own.begin(), own.end());
  }
  plan_sizes();
  plan_guards();
}

void ProgramInputs::plan_guards() {
  std::vector<std::string> unread;
  for (const std::string& text : program_.guards) {
    const auto guard =
        Guard::parse(text, [&](const GuardSource& source) { return guarded_symbol(source); });
    if (!guard) {
      unread.push_back(printable(text.substr(0, 200)));
    } else if (!guard->is_trivial()) {  // sizes of one symbol are held to each other already
      guards_.push_back(*guard);
    }
  }
  if (!unread.empty()) {
    log::warn(
        "interchange: the program assumes these conditions, and levin does not check them:\n  {}",
        fmt::join(unread, "\n  "));
  }
  std::set<std::string> used;
  for (const Guard& guard : guards_) {
    for (const std::string& name : guard.symbols()) used.insert(name);
  }
  std::erase_if(guarded_, [&](const auto& number) { return !used.contains(number.first); });
}

// Guards have the names of forward as it was written: args[1] for what the program calls args_1, kwargs["x"] for x,
// or an input's number.
std::optional<size_t> ProgramInputs::leaf_of(const std::string& guarded) const {
  const size_t dot = guarded.find('.');
  std::vector<std::string> names = {guarded};
  if (dot != std::string::npos) {
    names.push_back(guarded.substr(0, dot) + "_" + guarded.substr(dot + 1));
    if (guarded.starts_with("kwargs.")) names.push_back(guarded.substr(dot + 1));
  }
  for (const std::string& name : names) {
    const auto found = std::ranges::find(leaf_names_, name);
    if (found != leaf_names_.end()) return static_cast<size_t>(found - leaf_names_.begin());
  }
  for (size_t leaf = 0; leaf < leaf_names_.size(); ++leaf) {
    if (guarded == fmt::format("flat_args.{}", leaf)) return leaf;
  }
  return std::nullopt;
}

// The dim's own symbol or number, by which guards between dims of one symbol say nothing.
std::optional<std::string> ProgramInputs::guarded_symbol(const GuardSource& source) {
  const auto found = leaf_of(source.input);
  if (!found) return std::nullopt;
  const size_t leaf = *found;
  const Input& input = program_.inputs[user_inputs_[leaf]];
  const bool is_number = source.kind == GuardSource::Kind::kNumber;
  if (is_number == input.type.has_value()) return std::nullopt;
  std::string symbol = fmt::format("{}_of_{}", static_cast<int>(source.kind), leaf);
  if (!is_number && source.kind != GuardSource::Kind::kOffset) {
    if (static_cast<size_t>(source.dim) >= input.type->sizes.size()) return std::nullopt;
    symbol += fmt::format("_{}", source.dim);
    const Expression& size = input.type->sizes[static_cast<size_t>(source.dim)];
    if (source.kind == GuardSource::Kind::kSize) {
      if (const auto number = size.value({})) return std::to_string(*number);
      if (size.is_symbol()) symbol = "of_" + size.text();
    }
  }
  symbol = "_" + symbol;  // begins as a name does
  guarded_.try_emplace(symbol, GuardedNumber{.source = source, .leaf = leaf});
  return symbol;
}

void ProgramInputs::check_guards(const std::vector<c10::IValue>& leaves) const {
  Symbols symbols;
  for (const auto& [symbol, number] : guarded_) {
    const c10::IValue& value = leaves[number.leaf];
    using Kind = GuardSource::Kind;
    const Kind kind = number.source.kind;
    if (kind == Kind::kNumber && !value.isInt()) continue;
    symbols[symbol] = kind == Kind::kNumber   ? value.toInt()
                      : kind == Kind::kSize   ? value.toTensor().size(number.source.dim)
                      : kind == Kind::kStride ? value.toTensor().stride(number.source.dim)
                                              : value.toTensor().storage_offset();
  }
  for (const Guard& guard : guards_) {
    if (guard.holds(symbols)) continue;
    std::vector<std::string> values;
    for (const std::string& name : guard.symbols()) {
      const GuardedNumber& number = guarded_.at(name);
      const auto value = symbols.find(name);
      values.push_back(fmt::format(
          "{} is {}", number.source.text(),
          value == symbols.end() ? std::string("no integer") : std::to_string(value->second)));
    }
    LEVIN_FAIL("interchange.input",
               "the program was exported for sizes with {}, but {}; give sizes that satisfy this, "
               "or export the program with an example of the sizes that you need",
               printable(guard.text()), fmt::join(values, ", "));
  }
}

void ProgramInputs::plan_sizes() {
  std::map<std::string, size_t> symbols;
  for (size_t leaf = 0; leaf < user_inputs_.size(); ++leaf) {
    const Input& input = program_.inputs[user_inputs_[leaf]];
    if (!input.type) continue;
    for (size_t dim = 0; dim < input.type->sizes.size(); ++dim) {
      const Expression& size = input.type->sizes[dim];
      PlainDim plain{.leaf = leaf, .dim = static_cast<int64_t>(dim)};
      if (const auto number = size.value({})) {
        plain.size = *number;
      } else if (size.is_symbol()) {
        const std::string name = size.text();
        plain.symbol = symbols.try_emplace(name, symbols.size()).first->second;
        ranges_.resize(symbols.size());
        const auto range = program_.ranges.find(name);
        if (range != program_.ranges.end()) ranges_[plain.symbol] = range->second;
      } else {
        all_dims_are_plain_ = false;
      }
      plain_dims_.push_back(plain);
    }
  }
}

std::vector<c10::IValue> ProgramInputs::leaves_of(const std::vector<c10::IValue>& arguments,
                                                  const ExportedInputs& named) const {
  const PyTree& by_place = program_.input_tree.children()[0];
  const PyTree& by_name = program_.input_tree.children()[1];
  const size_t num_places = by_place.children().size();
  const size_t count = num_places + by_name.children().size();
  LEVIN_CHECK(arguments.size() <= count, "interchange.input",
              "forward got {} arguments, but the program takes {}: {}", arguments.size(), count,
              fmt::join(names_, ", "));
  for (const auto& [name, value] : named) {
    const auto place = std::ranges::find(names_, name);
    LEVIN_CHECK(place != names_.end(), "interchange.input",
                "forward got '{}', but the program takes {}", printable(name),
                fmt::join(names_, ", "));
    LEVIN_CHECK(static_cast<size_t>(place - names_.begin()) >= arguments.size(),
                "interchange.input", "forward got '{}' twice: by position and by name", name);
  }
  std::vector<c10::IValue> leaves;
  for (size_t i = 0; i < count; ++i) {
    const PyTree& tree =
        i < num_places ? by_place.children()[i] : by_name.children()[i - num_places];
    const auto found = named.find(names_[i]);
    if (i >= arguments.size() && found == named.end()) {
      add_constants(tree, names_[i], leaves);
      continue;
    }
    const c10::IValue& value = i < arguments.size() ? arguments[i] : found->second;
    const auto own = tree.flatten(value, names_[i]);
    leaves.insert(leaves.end(), own.begin(), own.end());
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    check_kind(program_.inputs[user_inputs_[i]], leaves[i], leaf_names_[i]);
  }
  if (!have_plain_sizes(leaves)) check_sizes(leaves);
  if (!guards_.empty()) check_guards(leaves);
  return leaves;
}

// An argument that nobody gave: None, and other values that the program was exported with.
void ProgramInputs::add_constants(const PyTree& tree, const std::string& name,
                                  std::vector<c10::IValue>& leaves) const {
  for (size_t i = 0; i < tree.num_leaves(); ++i) {
    const Input& input = program_.inputs[user_inputs_[leaves.size()]];
    LEVIN_CHECK(input.constant.has_value(), "interchange.input",
                "forward did not get '{}', but the program takes {}", name,
                fmt::join(names_, ", "));
    leaves.push_back(*input.constant);
  }
}

// Nearly all calls: a few comparisons. Others are looked at again, for the error's text.
bool ProgramInputs::have_plain_sizes(const std::vector<c10::IValue>& leaves) const {
  if (!all_dims_are_plain_) return false;
  c10::SmallVector<int64_t, 8> symbols(ranges_.size(), -1);
  for (const PlainDim& plain : plain_dims_) {
    const int64_t got = leaves[plain.leaf].toTensor().size(plain.dim);
    if (plain.size >= 0) {
      if (got != plain.size) return false;
      continue;
    }
    int64_t& symbol = symbols[plain.symbol];
    const Range& range = ranges_[plain.symbol];
    if (symbol < 0) symbol = got;
    if (got != symbol || got < range.least || got > range.most) return false;
  }
  return true;
}

void ProgramInputs::check_sizes(const std::vector<c10::IValue>& leaves) const {
  Symbols symbols;
  const auto for_each_size = [&](const auto& visit) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Input& input = program_.inputs[user_inputs_[i]];
      if (!input.type) continue;
      for (size_t dim = 0; dim < input.type->sizes.size(); ++dim) {
        visit(i, dim, input.type->sizes[dim], leaves[i].toTensor().size(static_cast<int64_t>(dim)));
      }
    }
  };
  const auto where = [&](size_t leaf, size_t dim) {
    return fmt::format("{}.size({})", leaf_names_[leaf], dim);
  };
  std::map<std::string, std::string> sources;
  for_each_size([&](size_t leaf, size_t dim, const Expression& size, int64_t got) {
    if (const auto solved = size.solve(got, symbols)) {
      symbols.insert(*solved);
      sources.emplace(solved->first, where(leaf, dim));
    }
  });
  for_each_size([&](size_t leaf, size_t dim, const Expression& size, int64_t got) {
    const auto wanted = size.value(symbols);
    if (wanted == got) return;
    if (!wanted) {
      LEVIN_FAIL("interchange.input", "{} is {}, but the program takes only sizes of the form {}",
                 where(leaf, dim), got, size.text());
    }
    const auto names = size.symbols();
    LEVIN_CHECK(!names.empty(), "interchange.input",
                "{} is {}, but the program was exported for {} only; export it with dynamic_shapes "
                "to allow other sizes",
                where(leaf, dim), got, *wanted);
    LEVIN_FAIL("interchange.input", "{} is {}, wanted {}, because {} is {}", where(leaf, dim), got,
               *wanted, sources[names.front()], symbols.find(names.front())->second);
  });
  for (const auto& [symbol, value] : symbols) {
    const auto range = program_.ranges.find(symbol);
    if (range == program_.ranges.end()) continue;
    LEVIN_CHECK(value >= range->second.least && value <= range->second.most, "interchange.input",
                "{} is {}, but the program takes {} to {}", sources[symbol], value,
                range->second.least,
                range->second.most == std::numeric_limits<int64_t>::max()
                    ? "any number"
                    : std::to_string(range->second.most));
  }
}

void ProgramInputs::check_kind(const Input& input, const c10::IValue& value,
                               const std::string& name) const {
  if (input.constant) {
    LEVIN_CHECK(same_constant(value, *input.constant), "interchange.input",
                "{} is {}, but the program was exported with {} only", name,
                value.isTensor() ? std::string("a tensor") : c10::str(value),
                c10::str(*input.constant));
    return;
  }
  if (!input.type) {
    LEVIN_CHECK(value.isScalar(), "interchange.input", "{} is {}, wanted a number", name,
                value.tagKind());
    return;
  }
  LEVIN_CHECK(value.isTensor() && value.toTensor().defined(), "interchange.input",
              "{} is {}, wanted a tensor", name, value.tagKind());
  const at::Tensor& tensor = value.toTensor();
  LEVIN_CHECK(static_cast<size_t>(tensor.dim()) == input.type->sizes.size(), "interchange.input",
              "{} has {} dims, but the program takes {}", name, tensor.dim(),
              input.type->sizes.size());
  // Floating-point types may differ: automatic mixed precision, or a module that was converted.
  const at::ScalarType wanted = input.type->dtype, got = tensor.scalar_type();
  const bool alike = c10::isFloatingType(wanted) && c10::isFloatingType(got);
  LEVIN_CHECK(got == wanted || alike, "interchange.input",
              "{} has dtype {}, but the program takes {}", name, c10::toString(got),
              c10::toString(wanted));
}

}  // namespace levin::interchange
