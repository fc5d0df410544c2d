#include "levin/text/template/template.h"

#include "levin/base/check.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/parsing/parser.h"

namespace levin::text::jinja {

Program Template::parse_checked(std::string_view source) {
  constexpr size_t kLongest = 16U << 20;
  LEVIN_CHECK(source.size() <= kLongest, "text.template.memory",
              "the chat template has {} bytes, wanted at most {}", source.size(), kLongest);
  utf8::check(source);
  return parse(source);
}

Rendered Template::render(Run& run, const std::vector<std::pair<std::string, Value>>& variables,
                          std::optional<int64_t> now) const {
  Interpreter interpreter(run, program_);
  interpreter.now = now;
  for (const auto& [name, value] : variables) interpreter.set(name, value);
  interpreter.render();
  return {interpreter.output(), interpreter.generations()};
}

}  // namespace levin::text::jinja
