#include <fmt/format.h>

#include "levin/text/template/built_in/built_in.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {
namespace {

bool looks_like_sequence(const Value& value) {
  const List* list = value.list();
  return value.is_text() || value.dict() != nullptr || value.is_undefined() ||
         (list != nullptr && list->kind < List::Kind::kView);
}

bool is_iterable(const Value& value) {
  return value.is_text() || value.dict() != nullptr || value.is_undefined() ||
         value.list() != nullptr || value.pointer<Loop>() != nullptr;
}

bool has_remainder(Interpreter& in, const Value& value, const Value& by, int64_t wanted) {
  return equal(binary(in.run(), "%", value, by), Value(wanted));
}

/// Returns whether Python's "is" holds between them. Equal constants and strings of one byte are the same object, because
/// Python shares them.
bool is_same(const Value& value, const Value& other) {
  if (value.is_undefined() || value.held().index() != other.held().index()) return false;
  using Shared = std::shared_ptr<const Text>;
  if (const auto* text = value.get<Shared>()) {
    const auto* same = other.get<Shared>();
    const bool constants = (*text)->run == nullptr && (*same)->run == nullptr;
    const bool shared = constants || (*text)->bytes.size() <= 1;
    return *text == *same || (shared && (*text)->bytes == (*same)->bytes);
  }
  if (value.list() != nullptr || value.dict() != nullptr) return value.held() == other.held();
  return equal(value, other);
}

/// Returns whether `find` finds the name; a value that cannot be a key of a dict is an error, as in Python.
template <class Find>
bool is_name(Interpreter& in, const Value& value, const Find& find) {
  if (!hashable(value)) in.run().fail(fmt::format("unhashable type: '{}'", type_name(value)));
  return value.is_text() && find(value.text()) != nullptr;
}

template <char const* op>
Value comparison(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters given(in.run(), op, arguments, {"other"});
  return Value(compared(in.run(), op, self, given.need(0)));
}

constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">",
               kGe[] = ">=", kIn[] = "in";

#define LEVIN_TEST(name, ...)                                                 \
  {name, [](Interpreter& in, const Value& v, Arguments& arguments) -> Value { \
     const Parameters given(in.run(), name, arguments, {});                   \
     return Value(static_cast<bool>(__VA_ARGS__));                            \
   }}
#define LEVIN_TEST_OF(name, ...)                                              \
  {name, [](Interpreter& in, const Value& v, Arguments& arguments) -> Value { \
     const Parameters given(in.run(), name, arguments, {"other"});            \
     return Value(static_cast<bool>(__VA_ARGS__));                            \
   }}

constexpr BuiltIn kTests[] = {
    LEVIN_TEST("defined", !v.is_undefined()),
    LEVIN_TEST("undefined", v.is_undefined()),
    LEVIN_TEST("none", v.is_none()),
    LEVIN_TEST("boolean", v.is_bool()),
    LEVIN_TEST("true", v.is_bool() && truth(v)),
    LEVIN_TEST("false", v.is_bool() && !truth(v)),
    LEVIN_TEST("integer", v.get<int64_t>() != nullptr),
    LEVIN_TEST("float", v.get<double>() != nullptr),
    LEVIN_TEST("number", v.number().has_value()),
    LEVIN_TEST("string", v.is_text()),
    LEVIN_TEST("mapping", v.dict() != nullptr),
    LEVIN_TEST("sequence", looks_like_sequence(v)),
    LEVIN_TEST("iterable", is_iterable(v)),
    LEVIN_TEST("callable", v.pointer<Callable>() != nullptr || v.pointer<Loop>() != nullptr ||
                               v.is_undefined()),  // jinja2's Undefined has a __call__
    LEVIN_TEST("escaped", v.is_safe()),
    LEVIN_TEST("odd", has_remainder(in, v, Value(int64_t{2}), 1)),
    LEVIN_TEST("even", has_remainder(in, v, Value(int64_t{2}), 0)),
    LEVIN_TEST("lower", written(in.run(), v) == lower(written(in.run(), v)) &&
                            written(in.run(), v) != upper(written(in.run(), v))),
    LEVIN_TEST("upper", written(in.run(), v) == upper(written(in.run(), v)) &&
                            written(in.run(), v) != lower(written(in.run(), v))),
    LEVIN_TEST("filter", is_name(in, v, find_filter)),
    LEVIN_TEST("test", is_name(in, v, find_test)),
    LEVIN_TEST_OF("divisibleby", has_remainder(in, v, given.need(0), 0)),
    LEVIN_TEST_OF("sameas", is_same(v, given.need(0))),
    {"in", comparison<kIn>},
    {"eq", comparison<kEq>},
    {"==", comparison<kEq>},
    {"equalto", comparison<kEq>},
    {"ne", comparison<kNe>},
    {"!=", comparison<kNe>},
    {"lt", comparison<kLt>},
    {"<", comparison<kLt>},
    {"lessthan", comparison<kLt>},
    {"le", comparison<kLe>},
    {"<=", comparison<kLe>},
    {"gt", comparison<kGt>},
    {">", comparison<kGt>},
    {"greaterthan", comparison<kGt>},
    {"ge", comparison<kGe>},
    {">=", comparison<kGe>}};

#undef LEVIN_TEST
#undef LEVIN_TEST_OF

}  // namespace

Function::Body find_test(std::string_view name) { return find_in(kTests, name); }

}  // namespace levin::text::jinja
