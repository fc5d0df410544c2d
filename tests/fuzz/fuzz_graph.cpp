// libFuzzer: graph::parse gives a graph whose text reads back as the same, or throws levin::Error.
//
//   fuzz_graph -max_total_time=20

#include <cstdint>
#include <cstdlib>
#include <string>

#include "levin/base/error.h"
#include "levin/graph/graph.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  try {
    const auto graph =
        levin::graph::parse(std::string_view(reinterpret_cast<const char*>(data), size));
    const std::string text = levin::graph::to_text(graph);
    // A constant that text cannot hold stands in angle brackets.
    if (text.find('<') != std::string::npos) return 0;
    if (levin::graph::to_text(levin::graph::parse(text)) != text) std::abort();
  } catch (const levin::Error& error) {
    if (!error.id().starts_with("graph.")) std::abort();
  }
  return 0;
}
