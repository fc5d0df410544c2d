#include "levin/base/state.h"

#include <gtest/gtest.h>

#include "levin/base/error.h"

namespace {

TEST(State, HoldsScalarsTensorsAndStates) {
  levin::State state;
  state.set("flag", true).set("step", int64_t{3}).set("lr", 0.5).set("kind", "adam");
  state.set("weight", at::ones({2})).set("inner", levin::State().set("x", int64_t{1}));
  EXPECT_TRUE(state.boolean("flag"));
  EXPECT_EQ(state.integer("step"), 3);
  EXPECT_EQ(state.number("lr"), 0.5);
  EXPECT_EQ(state.text("kind"), "adam");
  EXPECT_EQ(state.tensor("weight").numel(), 2);
  EXPECT_EQ(state.child("inner").integer("x"), 1);
}

TEST(State, HoldsPartsOfTensors) {
  levin::State state;
  state.set("weight", levin::TensorSlice{at::ones({2, 4}), {8, 4}, {6, 0}});
  EXPECT_EQ(state.slice("weight").local.size(0), 2);
  EXPECT_EQ(state.slice("weight").sizes, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(state.slice("weight").offsets, (std::vector<int64_t>{6, 0}));
  try {
    state.tensor("weight");
    FAIL();
  } catch (const levin::Error& error) {
    EXPECT_STREQ(error.what(), "base.state.type: 'weight' is a part of a tensor, wanted a tensor");
  }
}

TEST(State, CopiesAreValues) {
  levin::State state;
  state.set("a", int64_t{1});
  levin::State copy = state;
  copy.set("a", int64_t{2});
  EXPECT_EQ(state.integer("a"), 1);
  levin::State moved = std::move(copy);
  EXPECT_EQ(moved.integer("a"), 2);
}

TEST(State, MissingKeyAndWrongTypeAreNamed) {
  levin::State state;
  state.set("a", int64_t{1});
  try {
    state.integer("b");
    FAIL();
  } catch (const levin::Error& error) {
    EXPECT_EQ(error.id(), "base.state.missing");
    EXPECT_STREQ(error.what(), "base.state.missing: the state has no 'b', only [a]");
  }
  try {
    state.number("a");
    FAIL();
  } catch (const levin::Error& error) {
    EXPECT_EQ(error.id(), "base.state.type");
  }
}

}  // namespace
