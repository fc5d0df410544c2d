#include "levin/launch/manifest/yaml.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace levin::launch {
namespace {

using nlohmann::ordered_json;

TEST(Yaml, ObjectsAndListsOfThemAreBlocks) {
  const std::string document =
      R"({"b": {"c": 1, "a": [{"x": true, "n1": null}, {"z": {"w": 2.5}}]}, "d": []})";
  EXPECT_EQ(detail::yaml_of(document), R"(b:
  c: 1
  a:
    - x: true
      n1: null
    - z:
        w: 2.5
d: []
)");
}

TEST(Yaml, TextThatReadsAsSomethingElseIsQuoted) {
  const auto written = [](const std::string& text) {
    const std::string line = detail::yaml_of(ordered_json({{"k", text}}).dump());
    return line.substr(3, line.size() - 4);
  };
  for (const std::string plain :
       {"train", "a/b-c_d.e", "cloud.google.com/gke-nodepool", "/dev/shm", "registry/train:1"}) {
    EXPECT_EQ(written(plain), plain);
  }
  for (const std::string text :
       {"",   "1",  "2x4", "true", "No", "null", "~",   "a: b", "a:", "a #b", "-a",
        "*a", "&a", "!a",  "%a",   "@a", "[a]",  "{a}", "a,b",  " a", "a\nb"}) {
    EXPECT_EQ(written(text), ordered_json(text).dump());
  }
}

}  // namespace
}  // namespace levin::launch
