// The training state's way through training_state.json; its functions are the library's own, so it
// goes by way of a checkpoint.
#include "levin/checkpoint/state_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/checkpoint/on_disk.h"
#include "tests/support/error_of.h"

namespace {

using levin::State;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::reseal;
using levin::test::Scratch;
using levin::test::training_through_disk;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Each of the values under a key of its own, through the disk: empty, or the first that changed.
template <class Value>
std::string changed(const std::vector<Value>& values) {
  State state;
  for (const Value& value : values) {
    state.set("value " + std::to_string(state.values().size()), value);
  }
  return difference(state, training_through_disk(state));
}

TEST(StateJson, KeepsEveryNumberToTheLastBit) {
  using Limits = std::numeric_limits<double>;
  EXPECT_EQ(changed<double>({0.0, -0.0, 1.0, 0.1, 1.0 / 3.0, -1e300, Limits::min(),
                             Limits::denorm_min(), Limits::max(), Limits::epsilon(),
                             9007199254740993.0, Limits::infinity(), -Limits::infinity()}),
            "");
}

TEST(StateJson, KeepsNotANumber) {
  State state;
  state.set("number", std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(training_through_disk(state).number("number")));
}

TEST(StateJson, KeepsEveryInteger) {
  using Limits = std::numeric_limits<int64_t>;
  EXPECT_EQ(changed<int64_t>({Limits::min(), -1, 0, (int64_t{1} << 53) + 1, Limits::max()}), "");
}

TEST(StateJson, KeepsBooleans) { EXPECT_EQ(changed<bool>({true, false}), ""); }

TEST(StateJson, KeepsEveryText) {
  EXPECT_EQ(changed<std::string>({"", "\"\\/\n\t\x01", std::string("a\0b", 3),
                                  "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "nan", "$tensor",
                                  std::string(100'000, 'x')}),
            "");
}

TEST(StateJson, KeepsEveryKey) {
  State state;
  for (const char* key : {"", " ", "a.b", "a/b", "/", "\"", "\n", "\xc3\xa9", "tensor", "$"}) {
    State child;
    child.set("t", torch::tensor(static_cast<int64_t>(state.values().size())));
    state.set(key, child);
  }
  EXPECT_EQ(difference(state, training_through_disk(state)), "");
}

TEST(StateJson, KeepsNestedAndEmptyStates) {
  State state;
  state.set("empty", State());
  for (int64_t depth = 0; depth < 100; ++depth) {
    State above;
    above.set("below", state).set("depth", depth).set("t", torch::full({2}, depth));
    state = above;
  }
  EXPECT_EQ(difference(state, training_through_disk(state)), "");
}

TEST(StateJson, KeepsTheEmptyState) { EXPECT_TRUE(training_through_disk(State()).empty()); }

TEST(StateJson, IsReadableTextWithTensorsByTheirPath) {
  const Scratch scratch;
  State inner, state;
  inner.set("exp_avg", torch::ones({2}));
  state.set("optimizer", inner).set("step", int64_t{12});
  levin::save_checkpoint(scratch / "c", {.training = state});
  const auto json = nlohmann::json::parse(get(scratch / "c/training_state.json"));
  EXPECT_EQ(json["step"], 12);
  EXPECT_EQ(json["optimizer"]["exp_avg"]["$tensor"], "optimizer/exp_avg");
  EXPECT_TRUE(
      levin::load_weights(scratch / "c/training_state.safetensors").contains("optimizer/exp_avg"));
}

TEST(StateJson, TwoTensorsOfOnePathAreAnErrorThatNamesIt) {
  const Scratch scratch;
  State inner, state;
  inner.set("b", torch::zeros({1}));
  state.set("a", inner).set("a/b", torch::ones({1}));
  EXPECT_THAT(error_of([&] { levin::save_checkpoint(scratch / "c", {.training = state}); }),
              StartsWith("checkpoint.path: two tensors of the state have the path 'a/b'"));
}

TEST(StateJson, AKeyThatTheFormatKeepsForItselfIsAnErrorWhenItIsSaved) {
  const Scratch scratch;
  for (const char* key : {"$tensor", "$number"}) {
    State inner, state;
    inner.set(key, "nan");
    state.set("mine", inner);
    EXPECT_THAT(
        error_of([&] { levin::save_checkpoint(scratch / "c", {.training = state}); }),
        StartsWith("checkpoint.path: the state has the name 'mine/" + std::string(key) + "'"));
  }
}

/// What load_checkpoint says to a checkpoint with this training_state.json and a manifest that
/// agrees with it.
std::string error_of_json(const Scratch& scratch, const std::string& json) {
  if (!std::filesystem::exists(scratch / "c")) {
    levin::save_checkpoint(scratch / "c", levin::test::sample(1));
  }
  put(scratch / "c/training_state.json", json);
  reseal(scratch / "c");
  return error_of([&] { levin::load_checkpoint(scratch / "c"); });
}

TEST(StateJson, TextThatIsNoStateIsAnErrorThatNamesTheFile) {
  const Scratch scratch;
  for (const char* json : {"", "{", "[1]", "7", "{\"a\": [1]}", "{\"a\": null}",
                           "{\"a\": {\"$tensor\": 3}}", "{\"a\": {\"$number\": 3}}"}) {
    EXPECT_THAT(error_of_json(scratch, json),
                AllOf(StartsWith("checkpoint.corrupt: "),
                      HasSubstr("training_state.json is not a training state")))
        << json;
  }
}

TEST(StateJson, ATensorThatIsNotBesideItIsAnErrorThatNamesIt) {
  EXPECT_THAT(error_of_json(Scratch(), R"({"a": {"$tensor": "a/lost"}})"),
              AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr("names a tensor 'a/lost'")));
}

TEST(StateJson, ANumberThatIsNoneIsAnError) {
  EXPECT_THAT(error_of_json(Scratch(), R"({"a": {"$number": "many"}})"),
              StartsWith("checkpoint.corrupt: "));
}

}  // namespace
