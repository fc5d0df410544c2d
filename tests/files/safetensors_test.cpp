#include "levin/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/files/damage.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

using test::error_of;
using test::get;
using test::put;
using test::Scratch;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string with_length(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

/// {"a": "b"} and tensors u8, scalar, f32 (2, 1) and an empty one.
const std::string kSample = with_length(
    R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("s":{"dtype":"I16","shape":[],"data_offsets":[8,10]},)"
    R"("none":{"dtype":"U8","shape":[0,3],"data_offsets":[10,10]},)"
    R"("u":{"dtype":"U8","shape":[3],"data_offsets":[10,13]}}     )",
    "0123456789abc");

TEST(Safetensors, WritesTheBytesHuggingFaceWrites) {
  const Scratch scratch;
  const float number = 1.5F;
  const std::vector<TensorEntry> tensors = {
      {"b", "U8", {3}, bytes_of("xyz")},
      {"w", "F32", {1, 1}, std::as_bytes(std::span(&number, 1))},
      {"a", "U8", {1}, bytes_of("p")},
      {"h", "BF16", {0}, {}},
  };
  const FileDigest written =
      write_safetensors(scratch / "a", tensors, {{"format", "pt"}, {"\"q\"", "\xc3\xa9\n"}});
  const std::string header =
      R"({"__metadata__":{"\"q\"":")"
      "\xc3\xa9"
      R"(\n","format":"pt"},"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
      R"("h":{"dtype":"BF16","shape":[0],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(get(scratch / "a"), with_length(header + padding, std::string("\0\0\xc0\x3fpxyz", 8)));
  EXPECT_EQ(written, digest(scratch / "a"));
}

TEST(Safetensors, AFileWithoutTensorsIsAPaddedHeader) {
  const Scratch scratch;
  write_safetensors(scratch / "a", {});
  EXPECT_EQ(get(scratch / "a"), with_length("{}      "));
  EXPECT_TRUE(SafetensorsFile(scratch / "a").entries().empty());
}

TEST(Safetensors, ReadsHandMadeBytes) {
  const Scratch scratch;
  const SafetensorsFile file(put(scratch / "a", kSample));
  EXPECT_EQ(file.metadata(), (TensorMetadata{{"a", "b"}}));
  ASSERT_EQ(file.entries().size(), 4u);
  const TensorEntry* weight = file.find("w");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, "F32");
  EXPECT_THAT(weight->shape, ElementsAre(2, 1));
  EXPECT_EQ(text_of(weight->data), "01234567");
  EXPECT_EQ(text_of(file.find("s")->data), "89");
  EXPECT_TRUE(file.find("s")->shape.empty());
  EXPECT_TRUE(file.find("none")->data.empty());
  EXPECT_EQ(text_of(file.find("u")->data), "abc");
  EXPECT_EQ(file.find("v"), nullptr);
}

TEST(Safetensors, EveryDtypeSurvivesTheRoundTripAligned) {
  const Scratch scratch;
  const std::vector<std::pair<const char*, size_t>> dtypes = {
      {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"I16", 2},         {"U16", 2},     {"F16", 2},
      {"BF16", 2},    {"I32", 4},         {"F8_E5M2FNUZ", 1}, {"U32", 4},     {"F32", 4},
      {"C64", 8},     {"F64", 8},         {"I64", 8},         {"U64", 8}};
  const std::string data = "0123456789abcdefghijklmn";
  std::vector<TensorEntry> tensors;
  for (const auto& [dtype, bytes] : dtypes) {
    tensors.push_back({dtype, dtype, {3, 1}, bytes_of(data).first(3 * bytes)});
  }
  write_safetensors(scratch / "a", tensors);
  const SafetensorsFile file(scratch / "a");
  ASSERT_EQ(file.entries().size(), dtypes.size());
  for (const auto& [dtype, bytes] : dtypes) {
    const TensorEntry* tensor = file.find(dtype);
    ASSERT_NE(tensor, nullptr) << dtype;
    EXPECT_EQ(tensor->dtype, dtype);
    EXPECT_EQ(text_of(tensor->data), data.substr(0, 3 * bytes)) << dtype;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data.data()) % bytes, 0u) << dtype;
  }
}

TEST(Safetensors, ElementsMayBeNarrowerThanAByte) {
  const Scratch scratch;
  const std::vector<TensorEntry> tensors = {{"a", "F4", {2, 4}, bytes_of("0123")},
                                            {"b", "F6_E2M3", {4}, bytes_of("456")},
                                            {"c", "F6_E3M2", {2, 4}, bytes_of("789abc")}};
  write_safetensors(scratch / "a", tensors);
  const SafetensorsFile file(scratch / "a");
  for (const TensorEntry& tensor : tensors) {
    EXPECT_EQ(text_of(file.find(tensor.name)->data), text_of(tensor.data)) << tensor.name;
  }
  const std::vector<TensorEntry> odd = {{"a", "F4", {3}, bytes_of("01")}};
  EXPECT_THAT(error_of([&] { write_safetensors(scratch / "a", odd); }),
              HasSubstr("tensor 'a': F4 [3] ends within a byte"));
}

TEST(Safetensors, CopiesKeepTheViewsAlive) {
  const Scratch scratch;
  auto first = std::make_unique<SafetensorsFile>(put(scratch / "a", kSample));
  const SafetensorsFile copy = *first;
  const std::span<const std::byte> view = first->find("u")->data;
  first.reset();
  EXPECT_EQ(text_of(view), "abc");
  EXPECT_EQ(copy.find("u")->data.data(), view.data());
}

TEST(Safetensors, RefusesToWriteWhatNoReaderTakes) {
  const Scratch scratch;
  const auto written = [&](std::vector<TensorEntry> tensors, TensorMetadata metadata = {}) {
    return error_of([&] { write_safetensors(scratch / "a", tensors, metadata); });
  };
  EXPECT_THAT(written({{"a", "U8", {1}, bytes_of("x")}, {"a", "I8", {1}, bytes_of("x")}}),
              HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(written({{"a", "F31", {1}, bytes_of("x")}}), HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(written({{"a", "F32", {2}, bytes_of("x")}}),
              HasSubstr("has 1 bytes of data, wanted 8 for F32 [2]"));
  EXPECT_THAT(written({{"a", "U8", {-1}, {}}}), HasSubstr("has the impossible shape [-1]"));
  EXPECT_THAT(written({{"__metadata__", "U8", {0}, {}}}),
              HasSubstr("a tensor has the reserved name __metadata__"));
  EXPECT_THAT(written({{"\xff", "U8", {0}, {}}}), HasSubstr("is not UTF-8"));
  EXPECT_THAT(written({}, {{"a", "\xff"}}), HasSubstr("is not UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "a"));
}

TEST(Safetensors, RefusesHeadersThatCannotBe) {
  const Scratch scratch;
  const std::string cut(7, '\0');
  const std::string huge("\x01\xe1\xf5\x05\0\0\0\0{}", 10);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends at byte 0, wanted at least 8"},
      {cut, "ends at byte 7, wanted at least 8"},
      {huge, "a header of 100000001 bytes at byte 0"},
      {with_length("{}").substr(0, 9), "ends at byte 9, inside its header of 2 bytes"},
      {with_length(""), "byte 8 is not '{'"},
      {with_length(" {}"), "byte 8 is not '{'"},
      {with_length(std::string("{}\0", 3)), "the header has a zero byte at byte 10"},
      {with_length("{\"a\" 1}"), "invalid JSON from byte 13 on"},
      {with_length("{} x"), "invalid JSON from byte 11 on"},
      {with_length("{\"\xff\":{}}"), "invalid JSON from byte 10 on"},
      {with_length("{", "x"), "invalid JSON from byte 9 on"},
  };
  for (const auto& [bytes, wanted] : cases) {
    const std::string message =
        error_of([&, content = bytes] { SafetensorsFile file(put(scratch / "a", content)); });
    EXPECT_THAT(message, StartsWith("files.safetensors: " + (scratch / "a").string()));
    EXPECT_THAT(message, HasSubstr(wanted));
  }
}

TEST(Safetensors, RefusesFieldsThatAreNotOfTheFormat) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("a":1)", "got a number as 'a' in the header"},
      {R"("a":[])", "got an array as 'a' in the header"},
      {R"("a":null)", "got null as 'a' in the header"},
      {R"("__metadata__":{"k":1})", "got a number as 'k' in __metadata__"},
      {R"("__metadata__":{"k":"1","k":"1"})", "'k' stands twice in __metadata__"},
      {R"("__metadata__":{},"__metadata__":{})", "'__metadata__' stands twice in the header"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
       "'a' stands twice in the header"},
      {R"("a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]})",
       "'shape' stands twice in tensor 'a'"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1})",
       "unknown field 'x' in tensor 'a'"},
      {R"("a":{"dtype":"U8","shape":[1]})", "tensor 'a' lacks one of"},
      {R"("a":{"dtype":8,"shape":[1],"data_offsets":[0,1]})", "got a number as 'dtype'"},
      {R"("a":{"dtype":true,"shape":[1],"data_offsets":[0,1]})", "got a boolean as 'dtype'"},
      {R"("a":{"dtype":{},"shape":[1],"data_offsets":[0,1]})", "got an object as 'dtype'"},
      {R"("a":{"dtype":"U8","shape":"1","data_offsets":[0,1]})", "got a text as 'shape'"},
      {R"("a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]})", "got an array as 'shape'"},
      {R"("a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", "got a negative number"},
      {R"("a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", "got the number 1.0"},
      {R"("a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]})",
       "got the size 9223372036854775808"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0]})", "are not two numbers"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]})", "got a number as"},
  };
  for (const auto& [fields, wanted] : cases) {
    const std::string bytes = with_length("{" + fields + "}", "x");
    const std::string message =
        error_of([&, content = bytes] { SafetensorsFile file(put(scratch / "a", content)); });
    EXPECT_THAT(message, StartsWith("files.safetensors: " + (scratch / "a").string()));
    EXPECT_THAT(message, HasSubstr(wanted)) << fields;
  }
}

TEST(Safetensors, RefusesDataThatTheHeaderDoesNotFit) {
  const Scratch scratch;
  const auto tensor = [](std::string name, std::string shape, std::string offsets) {
    return "\"" + name + R"(":{"dtype":"I16","shape":[)" + shape + R"(],"data_offsets":[)" +
           offsets + "]}";
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {tensor("a", "1", "0,2"), "xyz",
       "1 bytes of data follow the last tensor, which ends at byte 2"},
      {"", "xyz", "3 bytes of data follow the last tensor"},
      {tensor("a", "1", "0,2"), "x", "ends at byte 2 of the data, which has 1"},
      {tensor("a", "2", "0,2"), "xy", "has 2 bytes of data, wanted 4 for I16 [2]"},
      {tensor("a", "1", "2,0"), "xy", "[2, 0], wanted a start at 0"},
      {tensor("a", "1", "1,3"), "xyz", "[1, 3], wanted a start at 0"},
      {tensor("a", "1", "0,2") + "," + tensor("b", "1", "1,3"), "xyz",
       "'b' has data_offsets [1, 3]"},
      {tensor("a", "1", "0,2") + "," + tensor("b", "1", "3,5"), "vwxyz", "wanted a start at 2"},
      {tensor("a", "0", "0,18446744073709551615"), "", "which has 0; the file is truncated"},
      {tensor("a", "4611686018427387904,2", "0,0"), "", "has the impossible shape"},
      {tensor("a", "0,4611686018427387904,2", "0,0"), "", "has the impossible shape"},
      {R"("a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]})", "x", "unknown dtype 'F31'"},
  };
  for (const auto& [fields, data, wanted] : cases) {
    const std::string bytes = with_length("{" + fields + "}", data);
    const std::string message =
        error_of([&, content = bytes] { SafetensorsFile file(put(scratch / "a", content)); });
    EXPECT_THAT(message, StartsWith("files.safetensors: " + (scratch / "a").string()));
    EXPECT_THAT(message, HasSubstr(wanted)) << fields;
  }
}

TEST(Safetensors, TakesWhatHuggingFacesReaderTakes) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"__metadata__":null})", ""},
      {R"({ "a" : { "data_offsets":[0,1],"shape":[],"dtype":"U8"}}  )", "x"},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"},
      {R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       "x"},
  };
  for (const auto& [header, data] : cases) {
    const auto path = put(scratch / "a", with_length(header, data));
    EXPECT_EQ(error_of([&] { SafetensorsFile file(path); }), "no error") << header;
  }
}

TEST(Safetensors, AMissingFileIsNamed) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { SafetensorsFile file(scratch / "a"); }),
              StartsWith("files.read: cannot read " + (scratch / "a").string()));
}

/// Whether the entries of damaged bytes can be read; every byte of them is.
testing::Reading safetensors_reading(const Scratch& scratch) {
  return [&scratch](const std::string& bytes) {
    const SafetensorsFile file(put(scratch / "a", bytes));
    size_t size = 0;
    for (const TensorEntry& entry : file.entries()) {
      size += text_of(entry.data).size();
      if (file.find(entry.name) != &entry) return false;
    }
    return size <= bytes.size();
  };
}

TEST(SafetensorsDamage, EveryTruncationIsRefused) {
  const Scratch scratch;
  ASSERT_TRUE(safetensors_reading(scratch)(kSample));
  EXPECT_EQ(testing::truncate_everywhere(kSample, safetensors_reading(scratch)).taken, 0);
}

TEST(SafetensorsDamage, EveryFlippedBitIsRefusedOrReadsInsideTheFile) {
  const Scratch scratch;
  const testing::DamageCount count = testing::flip_every_bit(kSample, safetensors_reading(scratch));
  // What the format cannot see: a bit of the data, of a name, of a dtype of equal width, a space.
  EXPECT_GT(count.taken, 13 * 8);
  EXPECT_GT(count.refused, count.taken);
}

TEST(SafetensorsDamage, RandomChangesAreRefusedOrReadInsideTheFile) {
  const Scratch scratch;
  EXPECT_GT(testing::mutate(kSample, 4000, safetensors_reading(scratch)).refused, 2000);
}

}  // namespace
}  // namespace levin::files
