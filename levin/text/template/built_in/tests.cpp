#include "levin/text/template/built_in/tests.h"

#include "levin/text/template/built_in/filters.h"
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

int64_t remainder(Interpreter& in, const Value& value, const Value& by) {
  const Value rest = binary(in.run(), "%", value, by);
  return rest.whole().value_or(rest.number().value_or(1) == 0 ? 0 : 1);
}

template <char const* op>
Value comparison(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters given(in.run(), op, arguments, {"other"});
  return Value(compared(in.run(), op, self, given.need(0)));
}

constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">",
               kGe[] = ">=", kIn[] = "in";

struct Test {
  std::string_view name;
  Function::Body body;
};

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

constexpr Test kTests[] = {
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
    LEVIN_TEST("callable", v.pointer<Callable>() != nullptr || v.pointer<Loop>() != nullptr),
    LEVIN_TEST("escaped", v.is_safe()),
    LEVIN_TEST("odd", remainder(in, v, Value(int64_t{2})) == 1),
    LEVIN_TEST("even", remainder(in, v, Value(int64_t{2})) == 0),
    LEVIN_TEST("lower", written(in.run(), v) == lower(written(in.run(), v)) &&
                            written(in.run(), v) != upper(written(in.run(), v))),
    LEVIN_TEST("upper", written(in.run(), v) == upper(written(in.run(), v)) &&
                            written(in.run(), v) != lower(written(in.run(), v))),
    LEVIN_TEST("filter", v.is_text() && find_filter(v.text()) != nullptr),
    LEVIN_TEST("test", v.is_text() && find_test(v.text()) != nullptr),
    LEVIN_TEST_OF("divisibleby", remainder(in, v, given.need(0)) == 0),
    LEVIN_TEST_OF("sameas", v.held().index() == given.need(0).held().index() && equal(v, given[0])),
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

Function::Body find_test(std::string_view name) {
  for (const Test& test : kTests) {
    if (test.name == name) return test.body;
  }
  return nullptr;
}

}  // namespace levin::text::jinja
