// Filters that make lists of lists.
#include <algorithm>

#include "levin/text/template/built_in/filter_tables.h"
#include "levin/text/template/operators.h"

namespace levin::text::jinja {
namespace {

Value batch(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "batch", arguments, {"linecount", "fill_with"});
  const Value& size = given.need(0);
  return generator(in, [&](std::vector<Value>& made) {
    std::vector<Value> some;
    const auto put = [&] { made.emplace_back(in.run().list(std::exchange(some, {}))); };
    const auto count = [&] { return Value(static_cast<int64_t>(some.size())); };
    for (const Value& item : in.items(v)) {
      if (equal(count(), size)) put();
      some.push_back(item);
    }
    if (some.empty()) return;
    if (given.has(1) && !given[1].is_none() && compared(in.run(), "<", count(), size)) {
      if (!size.whole()) in.run().fail("batch wants an int to fill up to");
      in.run().step(*size.whole());
      some.resize(static_cast<size_t>(*size.whole()), given[1]);
    }
    put();
  });
}

Value slice(Interpreter& in, const Value& v, Arguments& arguments) {
  const Parameters given(in.run(), "slice", arguments, {"slices", "fill_with"});
  given.need(0);
  return generator(in, [&](std::vector<Value>& made) {
    const std::vector<Value> items = in.items(v);
    const int64_t count = given.whole(0, 0);
    if (count == 0) in.run().fail("slice wants a count other than 0");
    if (count < 0) return;
    in.run().step(count);
    const auto slices = static_cast<size_t>(count);
    size_t begin = 0;
    for (size_t i = 0; i < slices; ++i) {
      const bool longer = i < items.size() % slices;
      const size_t end = begin + items.size() / slices + (longer ? 1 : 0);
      std::vector<Value> some(items.begin() + static_cast<std::ptrdiff_t>(begin),
                              items.begin() + static_cast<std::ptrdiff_t>(end));
      if (given.has(1) && !given[1].is_none() && !longer) some.push_back(given[1]);
      made.emplace_back(in.run().list(std::move(some)));
      begin = end;
    }
  });
}

/// Tuples of a value and the items that have it, in order.
Value groupby(Interpreter& in, const Value& v, Arguments& arguments) {
  Run& run = in.run();
  const Parameters given(run, "groupby", arguments, {"attribute", "default", "case_sensitive"});
  given.need(0);
  const auto real_key = [&](const Value& item) { return by_path(in, item, given[0], given[1]); };
  const auto key_of = [&](const Value& item) {
    return folded(in, real_key(item), given.flag(2, false));
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : in.items(v)) keyed.emplace_back(key_of(item), item);
  std::vector<Value> made;
  std::vector<Value> group;
  const auto put = [&] {
    if (group.empty()) return;
    Value key = real_key(group.front());
    made.emplace_back(run.list({std::move(key), Value(run.list(std::exchange(group, {})))},
                               List::Kind::kTuple, List::kGroup));
  };
  Value last;
  for (Value& item : sorted(in, std::move(keyed), false)) {
    const Value key = key_of(item);
    if (!group.empty() && !equal(key, last)) put();
    last = key;
    group.push_back(std::move(item));
  }
  put();
  return Value(run.list(std::move(made)));
}

constexpr BuiltIn kGroupFilters[] = {{"batch", batch}, {"groupby", groupby}, {"slice", slice}};

}  // namespace

std::span<const BuiltIn> group_filters() { return kGroupFilters; }

}  // namespace levin::text::jinja
