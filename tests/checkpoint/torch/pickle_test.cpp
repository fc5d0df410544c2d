#include "levin/checkpoint/torch/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace {

using levin::detail::Pickle;
using levin::detail::PickleValue;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = PickleValue::Kind;
using namespace std::string_literals;

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

/// A tree as text: {'a': [1, 2.5], 'b': module name(1)}.
std::string written(const PickleValue& value) {
  std::string text;
  const auto join = [&](const auto& values) {
    for (const PickleValue* item : values) text += (text.empty() ? "" : ", ") + written(*item);
    return text;
  };
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.boolean ? "True" : "False";
    case Kind::kInteger:
      return std::to_string(value.integer);
    case Kind::kNumber:
      return std::to_string(value.number);
    case Kind::kText:
      return "'" + std::string(value.text) + "'";
    case Kind::kBytes:
      return "b'" + std::string(value.text) + "'";
    case Kind::kTuple:
      return "(" + join(value.items) + ")";
    case Kind::kList:
      return "[" + join(value.items) + "]";
    case Kind::kDict:
      for (const auto& [key, own] : value.entries) {
        text += (text.empty() ? "" : ", ") + written(*key) + ": " + written(*own);
      }
      return "{" + text + "}";
    case Kind::kGlobal:
      return "<" + std::string(value.text) + ">";
    case Kind::kObject:
      text = written(*value.of) + written(*value.arguments);
      return text + (value.state == nullptr ? "" : " with " + written(*value.state));
    case Kind::kPersistent:
      return "outside" + written(*value.of);
  }
  return "";
}

std::string read(const std::string& text) { return written(Pickle(bytes(text), "file").top()); }

TEST(Pickle, HoldsWhatPythonWrote) {
  // As Python 3.11 writes them: pickle.dumps(value, protocol).
  EXPECT_EQ(read("\x80\x02}q\x00(X\x01\x00\x00\x00"
                 "aq\x01K\x01X\x01\x00\x00\x00"
                 "bq\x02]q\x03("s +
                 "J\xfe\xff\xff\xffG?\xe0\x00\x00\x00\x00\x00\x00\x88\x89Neu."s),
            "{'a': 1, 'b': [-2, 0.500000, True, False, None]}");
  EXPECT_EQ(read("\x80\x02\x8a\x06\x00\x00\x00\x00\x00\x01."s), std::to_string(int64_t{1} << 40));
  EXPECT_EQ(read("\x80\x02\x8a\x06\x00\x00\x00\x00\x00\xff."s),
            std::to_string(-(int64_t{1} << 40)));
  EXPECT_EQ(
      read("\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02hi\x94h\x00M\x00\x01\x87\x94."s),
      "('hi', 'hi', 256)");
  EXPECT_EQ(read("\x80\x03"
                 "C\x03"
                 "abcB\x01\x00\x00\x00"
                 "d\x86."s),
            "(b'abc', b'd')");
  EXPECT_EQ(read("\x80\x04\x8f\x94(K\x01K\x02\x90."s), "[1, 2]");
  EXPECT_EQ(read("\x80\x02(K\x01K\x02l."s), "[1, 2]");
  EXPECT_EQ(read("\x80\x02(K\x01K\x02"
                 "d."s),
            "{1: 2}");
}

TEST(Pickle, CallsNothing) {
  const std::string text =
      "\x80\x02"
      "cos\nsystem\nX\x0b\x00\x00\x00touch /x/xx\x85R."s;
  EXPECT_EQ(read(text), "<os system>('touch /x/xx')");
  EXPECT_EQ(read("\x80\x04\x8c\x02os\x8c\x06system\x93)\x81}\x8c\x01"
                 "aK\x01sb."s),
            "<os system>() with {'a': 1}");
  EXPECT_EQ(read("\x80\x02X\x01\x00\x00\x00kQ."s), "outside'k'");
}

TEST(Pickle, FindsWhatADictOrAnObjectHolds) {
  const std::string text =
      "\x80\x04\x8c\x01m\x8c\x01"
      "C\x93)\x81}(\x8c\x01"
      "aK\x01\x8c\x01"
      "aK\x02ub."s;
  const Pickle pickle(bytes(text), "file");
  EXPECT_TRUE(pickle.top().is_object_of("m C"));
  EXPECT_FALSE(pickle.top().is_object_of("m D"));
  ASSERT_NE(pickle.top().find("a"), nullptr);
  EXPECT_EQ(pickle.top().find("a")->integer, 2);
  EXPECT_EQ(pickle.top().find("b"), nullptr);
}

TEST(Pickle, DamagedOnesAreErrorsThatSayWhere) {
  const std::string good =
      "\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x02hi\x94]\x94(K\x01h\x01\x8a\x01\x02"
      "eu."s;
  ASSERT_EQ(read(good), "{'hi': [1, 'hi', 2]}");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(error_of([&] { read(good.substr(0, size)); }),
                AllOf(StartsWith("checkpoint.torch: file holds a pickle that levin cannot read: "),
                      HasSubstr(" at byte ")))
        << size;
  }
  const std::pair<std::string, const char*> cases[] = {
      {"."s, "a value is missing at byte 1"},
      {"\x80\x06N."s, "a protocol that is newer than 5"},
      {"\x80\x02?"s, "the unknown operation 0x3f at byte 3"},
      {"N(0."s, "a value is missing"},
      {"u."s, "a mark is missing"},
      {"}(Nu."s, "a key without a value"},
      {"h\x05."s, "a memo value that was not stored"},
      {"\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09."s, "a number of more than 64 bits"},
      {"X\xff\xff\xff\xffshort"s, "it ends too early"},
      {"\x8e\xff\xff\xff\xff\xff\xff\xff\xffshort"s, "it ends too early"},
      {"cos\nsystem"s, "it ends too early"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_THAT(error_of([&] { read(text); }), HasSubstr(words)) << words;
  }
}

TEST(Pickle, DeepTreesAndRingsComeToAnEnd) {
  const std::string deep = "N" + std::string(1'000'000, '\x85') + ".";
  EXPECT_TRUE(Pickle(bytes(deep), "file").top().is(Kind::kTuple));
  const Pickle ring(bytes("]q\x00h\x00"
                          "a."s),
                    "file");
  EXPECT_EQ(ring.top().items.front(), &ring.top());
}

TEST(Pickle, WhatNothingChangesIsThereOnce) {
  const std::string text = "\x80\x02](NN\x88\x88\x89K\x07K\x07))cm\nC\ncm\nC\ne."s;
  const Pickle pickle(bytes(text), "file");
  const auto& items = pickle.top().items;
  ASSERT_EQ(items.size(), 11U);
  for (const size_t first : {0, 2, 5, 7, 9}) EXPECT_EQ(items[first], items[first + 1]) << first;
  EXPECT_EQ(read(text), "[None, None, True, True, False, 7, 7, (), (), <m C>, <m C>]");
  for (const char* changed : {"NNa.", "N(NNu.", ")Na.", "K\x07}b.", "](NNu.", "}Na."}) {
    EXPECT_THAT(error_of([&] { read(changed); }), HasSubstr("for an object that takes none"))
        << changed;
  }
}

// One byte makes a list, and another one remembers it.
TEST(Pickle, OfFewBytesFewValuesAreMade) {
  const std::string lists = "\x80\x04(" + std::string(1'700'000, ']') + "l.";
  EXPECT_THAT(error_of([&] { Pickle(bytes(lists), "file"); }),
              HasSubstr("more values than torch.save writes into 1700005 bytes"));
  EXPECT_THAT(error_of([&] { read("Nr\xff\xff\xff\xff."); }),
              HasSubstr("more values than torch.save writes into 7 bytes"));
  EXPECT_THAT(error_of([&] { read(std::string(1'048'577, '(')); }),
              HasSubstr("more values than torch.save writes"));
  EXPECT_THAT(
      error_of([&] { read("c" + std::string(200, 'm') + "\n" + std::string(56, 'C') + "\n."); }),
      HasSubstr("the name of a class is too long"));
}

}  // namespace
