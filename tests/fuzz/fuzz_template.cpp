// libFuzzer: a chat template. Parsing and rendering throw levin::Error within their bounds, or give text of UTF-8 and
// generations within it.
//
//   fuzz_template -max_total_time=20

#include <cstdlib>
#include <string_view>

#include "levin/base/error.h"
#include "levin/base/text/utf8.h"
#include "levin/text/template/template.h"
#include "levin/text/template/values/json_text.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  // NOLINTNEXTLINE(google-build-using-namespace): of one function
  using namespace levin::text;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const jinja::Template parsed(source);
    jinja::Run run({.max_steps = 50'000,
                    .max_depth = 300,
                    .max_output_bytes = 1 << 20,
                    .max_memory_bytes = 16 << 20});
    const auto messages = jinja::read_json(
        run,
        R"([{"role": "user", "content": "a \u00e9 {{"}, {"role": "assistant", "n": [1, 2.5, null, {"k": true}]}])",
        "messages");
    const auto made = parsed.render(run, {{"messages", messages}}, 0);
    if (levin::utf8::invalid_byte(made.text) != std::string_view::npos) std::abort();
    for (const auto& [begin, end] : made.generations) {
      if (begin > end) std::abort();
    }
  } catch (const levin::Error&) {
  }
  return 0;
}
