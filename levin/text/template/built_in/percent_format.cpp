// "%..." % value.
#include <fmt/format.h>

#include <cmath>

#include "levin/text/template/interpreter.h"
#include "levin/text/template/operators.h"
#include "levin/text/template/values/python_text.h"

namespace levin::text::jinja {

std::string percent_format(Run& run, std::string_view format, const Value& value) {
  const List* list = value.list();
  const bool several = list != nullptr && list->kind == List::Kind::kTuple;
  size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (used >= (several ? list->items.size() : 1)) run.fail("not enough arguments for the format");
    return several ? list->items[used++] : (++used, value);
  };
  std::string made;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      made += format[at];
      continue;
    }
    int digits = -1;
    ++at;
    if (at < format.size() && format[at] == '.') {
      digits = 0;
      for (++at; at < format.size() && format[at] >= '0' && format[at] <= '9' && digits < 100; ++at)
        digits = digits * 10 + format[at] - '0';
    }
    const char kind = at < format.size() ? format[at] : ' ';
    if (kind == '%') {
      made += '%';
    } else if (kind == 's') {
      made += written(run, next());
    } else if (kind == 'r') {
      made += represented(run, next());
    } else if (kind == 'd' || kind == 'i') {
      const Value& one = next();
      if (!one.number() || std::abs(*one.number()) > 9e18)
        run.fail(fmt::format("%d wants a number, got {}", type_name(one)));
      made += std::to_string(one.whole().value_or(static_cast<int64_t>(*one.number())));
    } else if (kind == 'f') {
      const Value& one = next();
      if (!one.number()) run.fail(fmt::format("%f wants a number, got {}", type_name(one)));
      made += fmt::format("{:.{}f}", *one.number(), digits < 0 ? 6 : digits);
    } else {
      run.fail(fmt::format("levin knows %s, %r, %d, %i, %f and %% in formats, got '%{}'", kind));
    }
  }
  // A value with items by key may hold more than the format uses.
  const bool mapping =
      value.dict() != nullptr || value.is_undefined() ||
      (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kRange));
  if (!mapping && used < (several ? list->items.size() : 1))
    run.fail("not all arguments were used by the format");
  run.work(made.size());
  return made;
}

}  // namespace levin::text::jinja
