#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "levin/files/safetensors.h"
#include "levin/files/safetensors/layout.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

using test::error_of;
using test::get;
using test::Scratch;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<TensorDescription> kTensors = {{"b", "F32", {2, 3}},
                                                 {"a", "F32", {3}},
                                                 {"flags", "BOOL", {5}},
                                                 {"n", "I64", {}},
                                                 {"none", "F16", {0, 4}}};

TEST(SafetensorsLayout, SaysWhereAWrittenFileHasItsTensors) {
  const Scratch scratch;
  const std::string zeros(64, '\0');
  std::vector<TensorEntry> entries;
  for (const auto& [name, bytes] : {std::pair("b", 24), std::pair("a", 12), std::pair("flags", 5),
                                    std::pair("n", 8), std::pair("none", 0)}) {
    const auto& described = *std::ranges::find(kTensors, name, &TensorDescription::name);
    entries.push_back({name, described.dtype, described.shape,
                       std::as_bytes(std::span(zeros).first(static_cast<size_t>(bytes)))});
  }
  write_safetensors(scratch / "f", entries, {{"format", "pt"}});
  const std::string file = get(scratch / "f");
  const SafetensorsLayout layout(kTensors, {{"format", "pt"}}, "f");
  EXPECT_EQ(layout.size(), std::ssize(file));
  EXPECT_TRUE(file.starts_with(layout.header()));
  const SafetensorsFile read(scratch / "f");
  ASSERT_EQ(read.entries().size(), layout.places().size());
  int64_t end = std::ssize(layout.header());
  for (size_t i = 0; i < layout.places().size(); ++i) {
    const auto& place = layout.places()[i];
    EXPECT_EQ(read.entries()[i].name, place.name);
    EXPECT_EQ(std::ssize(read.entries()[i].data), place.end - place.begin) << place.name;
    EXPECT_EQ(place.begin, end) << place.name;
    end = place.end;
  }
  EXPECT_EQ(end, layout.size());
}

TEST(SafetensorsLayout, IsReadBackFromItsHeader) {
  const SafetensorsLayout layout(kTensors, {{"format", "pt"}}, "f");
  const auto read = SafetensorsLayout::of_header(layout.header(), "f");
  EXPECT_EQ(read.header(), layout.header());
  EXPECT_EQ(read.size(), layout.size());
  ASSERT_EQ(read.places().size(), layout.places().size());
  for (size_t i = 0; i < layout.places().size(); ++i) {
    EXPECT_EQ(read.places()[i].name, layout.places()[i].name);
    EXPECT_EQ(read.places()[i].shape, layout.places()[i].shape);
    EXPECT_EQ(read.places()[i].begin, layout.places()[i].begin);
    EXPECT_EQ(read.places()[i].end, layout.places()[i].end);
  }
}

TEST(SafetensorsLayout, RefusesAHeaderWhoseTensorsDoNotFollowEachOther) {
  const SafetensorsLayout layout(kTensors, {}, "f");
  std::string header = layout.header();
  header.replace(header.find("[8,20]"), 6, "[9,21]");
  EXPECT_THAT(error_of([&] { SafetensorsLayout::of_header(header, "f"); }),
              StartsWith("files.safetensors: f: tensor 'a' has data_offsets [9, 21], wanted 12 "
                         "bytes that start at 8"));
}

TEST(SafetensorsLayout, RefusesTensorsThatNoFileCanHold) {
  const auto made = [](std::vector<TensorDescription> tensors) {
    return error_of([&] { SafetensorsLayout(tensors, {}, "f"); });
  };
  EXPECT_THAT(made({{"a", "F32", {1}}, {"a", "F32", {1}}}), HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(made({{"a", "F31", {1}}}), HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(made({{"a", "F32", {-1}}}), HasSubstr("has the impossible shape [-1]"));
  EXPECT_THAT(made({{"__metadata__", "F32", {1}}}), HasSubstr("a tensor has the reserved name"));
}

}  // namespace
}  // namespace levin::files
