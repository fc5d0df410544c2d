#include "levin/text/template/callable.h"

#include <fmt/format.h>

#include <algorithm>

#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

Parameters::Parameters(Run& run, std::string_view function, Arguments& arguments,
                       std::vector<std::string_view> names)
    : run_(run),
      function_(function),
      names_(std::move(names)),
      values_(names_.size()),
      given_(names_.size()) {
  if (arguments.positional.size() > names_.size()) {
    run.fail(fmt::format("'{}' takes at most {} arguments, got {}", function, names_.size(),
                         arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::ranges::find(names_, name);
    if (at == names_.end()) run.fail(fmt::format("'{}' takes no argument '{}'", function, name));
    const auto place = static_cast<size_t>(at - names_.begin());
    if (given_[place]) run.fail(fmt::format("'{}' got the argument '{}' twice", function, name));
    values_[place] = value;
    given_[place] = true;
  }
}

const Value& Parameters::need(size_t place) const {
  if (!given_[place])
    run_.fail(fmt::format("'{}' wants the argument '{}'", function_, names_[place]));
  return values_[place];
}

int64_t Parameters::whole(size_t place, int64_t otherwise) const {
  if (!given_[place]) return otherwise;
  const auto whole = values_[place].whole();
  if (!whole) run_.fail(fmt::format("'{}' wants an int for '{}'", function_, names_[place]));
  return *whole;
}

bool Parameters::flag(size_t place, bool otherwise) const {
  return given_[place] ? truth(values_[place]) : otherwise;
}

std::string_view Parameters::text(size_t place, std::string_view otherwise) const {
  return given_[place] ? text(place) : otherwise;
}

std::string_view Parameters::text(size_t place) const {
  if (!need(place).is_text())
    run_.fail(fmt::format("'{}' wants a str for '{}'", function_, names_[place]));
  return values_[place].text();
}

}  // namespace levin::text::jinja
