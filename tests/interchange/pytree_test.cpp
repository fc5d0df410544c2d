#include "levin/interchange/program/pytree.h"

#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace levin::interchange::pytrees {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kLeaf = R"({"type": null, "context": null, "children_spec": []})";

std::string tree(const std::string& type, const std::string& context,
                 const std::vector<std::string>& children) {
  std::string list;
  for (const std::string& child : children) list += (list.empty() ? "" : ", ") + child;
  return "{\"type\": \"" + type + "\", \"context\": " + context + ", \"children_spec\": [" + list +
         "]}";
}
PyTree parsed(const std::string& tree) { return PyTree::parse("[1, " + tree + "]"); }

c10::IValue dict(const std::vector<std::pair<std::string, c10::IValue>>& entries) {
  c10::impl::GenericDict made(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : entries) made.insert(key, value);
  return made;
}

TEST(PyTree, FlattensAndBuildsWhatPythonHas) {
  const PyTree spec =
      parsed(tree("builtins.tuple", "\"null\"",
                  {kLeaf, tree("builtins.dict", R"("[\"a\", \"b\"]")",
                               {kLeaf, tree("builtins.list", "\"null\"", {kLeaf, kLeaf})})}));
  EXPECT_EQ(spec.num_leaves(), 4U);
  EXPECT_THAT(spec.leaf_names("in"), ElementsAre("in.0", "in.1.a", "in.1.b.0", "in.1.b.1"));
  const c10::IValue value =
      c10::ivalue::Tuple::create({1, dict({{"b", c10::ivalue::Tuple::create({3, 4})}, {"a", 2}})});
  const auto leaves = spec.flatten(value, "in");
  ASSERT_EQ(leaves.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(leaves[i].toInt(), static_cast<int64_t>(i) + 1);
  const c10::IValue again = spec.unflatten(leaves);
  const auto inner = again.toTupleRef().elements()[1].toGenericDict();
  EXPECT_EQ(inner.at("a").toInt(), 2);
  EXPECT_EQ(inner.at("b").toList().get(1).toInt(), 4);
}

// transformers' outputs have their fields' names for a context, a defaultdict its factory before the keys.
TEST(PyTree, KnowsObjectsOfNamedFields) {
  const PyTree output = parsed(tree("transformers.modeling_outputs.CausalLMOutput",
                                    R"("[\"loss\", \"logits\"]")", {kLeaf, kLeaf}));
  EXPECT_THAT(output.keys(), ElementsAre("loss", "logits"));
  EXPECT_THAT(parsed(tree("collections.defaultdict", R"("[\"list\", [\"x\"]]")", {kLeaf})).keys(),
              ElementsAre("x"));
  EXPECT_THAT(parsed(tree("some.NamedTuple", R"("\"some.NamedTuple\"")", {kLeaf})).keys(),
              ::testing::IsEmpty());
}

TEST(PyTree, NamesThePartThatDoesNotFit) {
  const PyTree pair = parsed(tree("builtins.tuple", "\"null\"", {kLeaf, kLeaf}));
  EXPECT_THAT(test::error_of([&] { pair.flatten(1, "batch"); }),
              HasSubstr("interchange.input: batch is Int, wanted a list or tuple of 2"));
  EXPECT_THAT(test::error_of([&] { pair.flatten(c10::ivalue::Tuple::create({1}), "batch"); }),
              HasSubstr("batch has 1 parts, but the program takes 2"));
  const PyTree keyed = parsed(tree("builtins.dict", R"("[\"a\"]")", {kLeaf}));
  EXPECT_THAT(test::error_of([&] { keyed.flatten(dict({{"b", 1}}), "batch"); }),
              HasSubstr("batch has no 'a'"));
  EXPECT_THAT(test::error_of([&] { keyed.flatten(dict({{"a", 1}, {"b", 1}}), "batch"); }),
              HasSubstr("batch has the key 'b'"));
  EXPECT_THAT(test::error_of([&] { keyed.flatten(1, "batch"); }),
              HasSubstr("batch is Int, wanted a dict with a"));
}

TEST(PyTree, OfAnotherVersionOrWithoutPartsIsAnError) {
  for (const char* text :
       {"", "[2, {}]", "[1, {}]", "[1, {\"type\": 3, \"children_spec\": []}]", "[1]", "{}"}) {
    EXPECT_THAT(test::error_of([&] { PyTree::parse(text); }), HasSubstr("interchange.archive: "))
        << text;
  }
}

}  // namespace
}  // namespace levin::interchange::pytrees
