// Templates; what is wanted was written by jinja2 3.1.6 in transformers' environment.
#include "levin/text/template/template.h"

#include <gtest/gtest.h>

#include "levin/text/template/values/json_text.h"
#include "tests/support/error_of.h"

namespace levin::text::jinja {
namespace {

std::string rendered(const std::string& source, const std::string& variables = "{}",
                     const TemplateLimits& limits = {}) {
  const Template parsed(source);
  Run run(limits);
  const Value given = read_json(run, variables, "variables");
  std::vector<std::pair<std::string, Value>> named;
  for (const auto& [name, value] : given.dict()->items) named.emplace_back(name.text(), value);
  return parsed.render(run, named, 1'700'000'000).text;
}

std::string id_of(const std::string& source, const TemplateLimits& limits = {}) {
  const std::string words = test::error_of([&] { rendered(source, "{}", limits); });
  return words.substr(0, words.find(':'));
}

struct Case {
  const char* source;
  const char* wanted;
};

TEST(Template, GivesWhatJinjaGives) {
  constexpr const char* kVariables =
      R"({"m": {"items": 1, "b": [1, 2.0, null, true, "it's"]}, "s": "a-ü-c", "n": 7, "f": 1e16,
    "rows": [{"k": "B", "v": 2}, {"k": "a", "v": 1}]})";
  constexpr Case kCases[] = {
#include "tests/text/template/cases.inc"
  };
  for (const Case& one : kCases)
    EXPECT_EQ(rendered(one.source, kVariables), one.wanted) << one.source;
  EXPECT_GT(std::size(kCases), 60U);
}

TEST(Template, RefusesWhatJinjaRefuses) {
  for (const char* source : {"{{ x.y }}",
                             "{{ 1 + 'a' }}",
                             "{{ 'a' < 1 }}",
                             "{% for x in 3 %}{% endfor %}",
                             "{{ 1 // 0 }}",
                             "{{ none() }}",
                             "{{ x | tojson }}",
                             "{% set a, b = [1] %}",
                             "{% set d = {} %}{% set d.x = 1 %}",
                             "{{ [1] | nothing }}",
                             "{{ 1 is nothing }}",
                             "{% if %}x{% endif %}",
                             "{{ (1 }}",
                             "{{ 'a }}",
                             "{% endif %}",
                             "{# no end",
                             "{% raw %} no end",
                             "{{ 1 is in 3 }}",
                             "{{ {[]: 1} }}",
                             "{% set ns = namespace(_x=1) %}",
                             "{% break %}",
                             "{{ range(100001) }}",
                             "{{ ''.join([1]) }}",
                             "{{ [1].append(2) }}",
                             "{{ ''.__class__.__mro__ }}",
                             "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
                             "{% include 'x' %}",
                             "{{ {}[[]].x }}"}) {
    EXPECT_EQ(id_of(source), "text.template") << source;
  }
  EXPECT_EQ(id_of("{{ raise_exception('no') }}"), "text.template.refused");
}

TEST(Template, ErrorsNameTheLine) {
  const std::string words =
      test::error_of([] { rendered("a\n{% if true %}\n{{ x.y }}{% endif %}"); });
  EXPECT_NE(words.find("line 3 of the chat template: 'x' is undefined"), std::string::npos)
      << words;
}

TEST(Template, IsBounded) {
  const TemplateLimits small{.max_steps = 100'000,
                             .max_depth = 200,
                             .max_output_bytes = 10'000,
                             .max_memory_bytes = 1 << 20};
  EXPECT_EQ(id_of("{% for a in range(500) %}{% for b in range(500) %}{% endfor %}{% endfor %}",
                  {.max_steps = 100'000}),
            "text.template.steps");
  EXPECT_EQ(id_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", small), "text.template.depth");
  EXPECT_EQ(id_of("{{ 'x' * 20000 }}", small), "text.template.output");
  EXPECT_EQ(id_of("{% set x = 'x' * 2000000 %}", small), "text.template.memory");
  EXPECT_EQ(id_of("{% set x = 'x' * 9000000000000 %}"), "text.template.steps");
  EXPECT_EQ(id_of("{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] "
                  "%}{% endfor %}"),
            "text.template.depth");
  EXPECT_EQ(id_of("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", small),
            "text.template.depth");
  EXPECT_EQ(id_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
            "text.template.depth");
  EXPECT_EQ(id_of("{{ 1" +
                  [] {
                    std::string sum;
                    for (int i = 0; i < 2000; ++i) sum += "+1";
                    return sum;
                  }() +
                  " }}"),
            "text.template.depth");
}

TEST(Template, GenerationsLieWhereTheAssistantSpoke) {
  const Template parsed(
      "{% for x in ['a', 'ü'] %}<{% generation %}{{ x }}!{% endgeneration %}>{% endfor %}");
  jinja::Run run{TemplateLimits{}};
  const Rendered made = parsed.render(run, {});
  EXPECT_EQ(made.text, "<a!><ü!>");
  EXPECT_EQ(made.generations, (std::vector<std::pair<size_t, size_t>>{{1, 3}, {5, 8}}));
}

}  // namespace
}  // namespace levin::text::jinja
