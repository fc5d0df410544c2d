#include "levin/text/template/parsing/lexeme_stream.h"

#include <fmt/format.h>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::text::jinja {
namespace {

constexpr int kDeepest = 200;  // brackets and blocks within each other

}  // namespace

bool LexemeStream::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool LexemeStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void LexemeStream::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_unexpected(fmt::format("'{}'", op));
}

std::string LexemeStream::expect_name() {
  if (now().kind != Kind::kName) fail_unexpected("a name");
  return take().text;
}

void LexemeStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected(fmt::format("'{}'", name));
}

void LexemeStream::expect(Kind kind) {
  if (now().kind != kind) fail_unexpected(kind == Kind::kBlockEnd ? "'%}'" : "'}}'");
  take();
}

void LexemeStream::fail_unexpected(std::string_view wanted) const {
  std::string got = "the end of the template";
  switch (now().kind) {
    case Kind::kData:
      got = "text";
      break;
    case Kind::kBlockBegin:
      got = "'{%'";
      break;
    case Kind::kBlockEnd:
      got = "'%}'";
      break;
    case Kind::kVariableBegin:
      got = "'{{'";
      break;
    case Kind::kVariableEnd:
      got = "'}}'";
      break;
    case Kind::kEnd:
      break;
    default:
      got = fmt::format("'{}'", printable(now().text));
  }
  fail(fmt::format("got {}, wanted {}", got, wanted));
}

void LexemeStream::deepen() {
  if (++depth_ > kDeepest) {
    --depth_;
    LEVIN_FAIL("text.template.depth",
               "line {} of the chat template: it is nested more than {} levels deep", now().line,
               kDeepest);
  }
}

}  // namespace levin::text::jinja
