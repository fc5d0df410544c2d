// Every filter, test, operator and method of chat templates with odd inputs: the text that jinja2 makes of it in transformers' environment,
// or an error of both (template_inputs.py).
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <optional>

#include "levin/base/error.h"
#include "levin/text/template/template.h"
#include "levin/text/template/values/json_text.h"
#include "tests/oracle/python.h"

namespace levin::text {
namespace {

class TemplateInputs : public test::PythonTest {};

/// Nothing where levin throws.
std::optional<std::string> rendered(const std::string& source, const std::string& variables) {
  try {
    const jinja::Template parsed(source);
    jinja::Run run{TemplateLimits{}};
    const jinja::Value given = jinja::read_json(run, variables, "variables");
    std::vector<std::pair<std::string, jinja::Value>> named;
    for (const auto& [name, value] : given.dict()->items) named.emplace_back(name.text(), value);
    return parsed.render(run, named).text;
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "text.template") << source;
    return std::nullopt;
  }
}

TEST_F(TemplateInputs, GiveWhatJinjaGives) {
  std::string output;
  ASSERT_EQ(run("template_inputs.py", "'" + file("").string() + "'", &output), 0) << output;
  const auto all = nlohmann::ordered_json::parse(std::ifstream(file("inputs.json")));
  const std::string variables = all["variables"].dump();
  size_t texts = 0;
  size_t errors = 0;
  for (const auto& one : all["cases"]) {
    const std::string source = one[0];
    const auto made = rendered(source, variables);
    EXPECT_EQ(made.has_value(), !one[1].is_null()) << source << ": " << one[1];
    if (made && !one[1].is_null()) {
      EXPECT_EQ(*made, one[1].get<std::string>()) << source;
    }
    (made ? texts : errors) += 1;
  }
  EXPECT_GT(texts, 8000U);
  EXPECT_GT(errors, 5000U);
}

}  // namespace
}  // namespace levin::text
