// Checkpoints that somebody else has made: whatever they say, they are read as one of levin's or
// refused, and nothing outside their folder is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;
using levin::load_checkpoint;
using levin::save_checkpoint;
using levin::State;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::put;
using levin::test::reseal;
using levin::test::sample;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kDeep = 30'000;

class Foreign : public ::testing::Test {
 protected:
  Foreign() { save_checkpoint(folder_, sample(3)); }

  std::string load() const {
    return error_of([&] { load_checkpoint(folder_); });
  }
  /// What loading says when the manifest was changed so, and its own checksum with it.
  std::string load_with(const std::function<void(nlohmann::json&)>& change) const {
    reseal(folder_, change);
    return load();
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "c";
};

TEST_F(Foreign, AManifestThatLacksAnythingIsRefused) {
  using Change = std::function<void(nlohmann::json&)>;
  const std::vector<Change> changes = {
      [](auto& m) { m.erase("files"); },
      [](auto& m) { m.erase("format"); },
      [](auto& m) { m["files"] = nlohmann::json::array(); },
      [](auto& m) { m["files"] = "none"; },
      [](auto& m) { m["files"] = nlohmann::json::object(); },
      [](auto& m) { m["files"]["model.safetensors"].erase("size"); },
      [](auto& m) { m["files"]["model.safetensors"].erase("pieces"); },
      [](auto& m) { m.erase("weights"); },
      [](auto& m) { m["weights"]["model"] = "model.safetensors"; },
      [](auto& m) { m["weights"]["model"] = {"model_2.safetensors"}; },
      [](auto& m) { m["weights"]["model"] = {"training_state.safetensors"}; },
      [](auto& m) { m["weights"]["../model"] = {"model.safetensors"}; },
      [](auto& m) { m["part"] = 3; },
      [](auto& m) { m["part"] = {{"save", "x"}, {"index", "0"}, {"count", 2}}; },
      [](auto& m) { m["files"]["model.safetensors"]["size"] = "much"; },
      [](auto& m) { m["files"]["model.safetensors"]["size"] = -1; },
      [](auto& m) { m["files"]["model.safetensors"]["size"] = 1e300; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = 17; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {17}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {"no number"}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {"8"}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {"8 0 nowhere"}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {"8 0", "8 0"}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = {"-8 0"}; },
      [](auto& m) { m["files"]["model.safetensors"]["pieces"] = nlohmann::json::array(); },
      [](auto& m) { m["files"]["model.safetensors"] = nullptr; },
      [](auto& m) { m["files"].erase("training_state.json"); },
      [](auto& m) { m["files"].erase("training_state.safetensors"); },
  };
  const std::string whole = get(folder_ / "manifest.json");
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_THAT(load_with(changes[i]), StartsWith("checkpoint.corrupt: ")) << i;
    put(folder_ / "manifest.json", whole);
  }
  EXPECT_EQ(load(), "no error");
}

TEST_F(Foreign, OneWithoutASealIsRefused) {
  for (const char* text : {"", "{}", "[]", "null", "{\"seal\": 3}", "{\"seal\": \"0\"}", "\0{}"}) {
    put(folder_ / "manifest.json", text);
    EXPECT_THAT(load(), StartsWith("checkpoint.corrupt: ")) << text;
  }
}

TEST_F(Foreign, ATrainingStateThatIsNotListedIsNotRead) {
  put(folder_ / "training_state.json", R"({"name": "somebody else's"})");
  EXPECT_THAT(load_with([](auto& m) { m["files"].erase("training_state.json"); }),
              HasSubstr("it does not list training_state.json"));
}

TEST_F(Foreign, ThirtyThousandNestedObjectsAreRefused) {
  std::string nested = "{\"seal\": \"0\"";
  for (int i = 0; i < kDeep; ++i) nested += ",\"a\":{\"b\":1";
  nested += std::string(kDeep + 1, '}');
  put(folder_ / "manifest.json", nested);
  EXPECT_THAT(load(), HasSubstr("it is not a manifest"));

  save_checkpoint(scratch_ / "d", sample(3));
  folder_ = scratch_ / "d";
  put(folder_ / "training_state.json", nested);
  reseal(folder_);
  EXPECT_THAT(load(), AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr("nested deeper")));
  std::string lists;
  for (int i = 0; i < kDeep; ++i) lists += "[";
  put(folder_ / "training_state.json", "{\"a\":" + lists);
  reseal(folder_);
  EXPECT_THAT(load(), StartsWith("checkpoint.corrupt: "));
}

TEST_F(Foreign, AStateIsReadBackAsDeepAsItIsWritten) {
  const auto nested = [](int levels) {
    State state;
    state.set("value", torch::ones({1}));
    for (int i = 1; i < levels; ++i) {
      State outer;
      outer.set("a", state);
      state = outer;
    }
    return state;
  };
  EXPECT_EQ(difference(nested(498), levin::test::training_through_disk(nested(498))), "");
  EXPECT_THAT(error_of([&] { levin::test::training_through_disk(nested(600)); }),
              AllOf(StartsWith("checkpoint.path: "), HasSubstr("deep")));
}

TEST_F(Foreign, AbsoluteNamesAndThoseAboveTheFolderAreRefused) {
  put(scratch_ / "outside.safetensors", get(folder_ / "model.safetensors"));
  const nlohmann::json digest =
      nlohmann::json::parse(get(folder_ / "manifest.json"))["files"]["model.safetensors"];
  const std::string whole = get(folder_ / "manifest.json");
  for (const std::string& name :
       {std::string("../outside.safetensors"), (scratch_ / "outside.safetensors").string(),
        std::string("x/../../outside.safetensors"), std::string(".."), std::string("."),
        std::string(""), std::string("manifest.json"), std::string("notes.txt"),
        std::string("a\0.safetensors", 14)}) {
    EXPECT_THAT(
        load_with([&](auto& m) { m["files"][name] = digest; }),
        AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr("which is not a file name of a")))
        << name;
    put(folder_ / "manifest.json", whole);
  }
}

TEST_F(Foreign, LinksAndPipesAreNotFollowed) {
  for (const std::string& name : names_in(folder_)) {
    const std::string bytes = get(folder_ / name);
    put(scratch_ / "outside", bytes);
    fs::remove(folder_ / name);
    fs::create_symlink(scratch_ / "outside", folder_ / name);
    EXPECT_THAT(load(), AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr("it is a link")))
        << name;
    fs::remove(folder_ / name);
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    EXPECT_THAT(load(), StartsWith("checkpoint.corrupt: ")) << name;
    fs::remove(folder_ / name);
    put(folder_ / name, bytes);
  }
  EXPECT_EQ(load(), "no error");
}

TEST_F(Foreign, NumbersBeyondSixtyFourBitsAndOtherTypesAreRefused) {
  for (const char* text :
       {R"({"step": 9223372036854775808})", R"({"step": 1e999})", R"({"step": [1]})",
        R"({"step": null})", R"({"step": {"$tensor": 3}})", R"({"step": {"$number": "two"}})"}) {
    put(folder_ / "training_state.json", text);
    reseal(folder_);
    EXPECT_THAT(load(), StartsWith("checkpoint.corrupt: ")) << text;
  }
}

TEST_F(Foreign, WordsOfAFileDoNotReachTheTerminal) {
  const std::string error =
      load_with([](auto& m) { m["files"]["\x1b[2J\nlevin error: forged"] = nullptr; });
  EXPECT_THAT(error, HasSubstr("it lists '\\x1b[2J\\nlevin error: forged'"));
}

// ---- What is replaced and removed

TEST_F(Foreign, SavingReplacesNothingButACheckpoint) {
  const auto saved = [&](const fs::path& place) {
    return error_of([&] { save_checkpoint(place, sample(4)); });
  };
  fs::create_directory(scratch_ / "results");
  put(scratch_ / "results/thesis.txt", "mine");
  EXPECT_THAT(saved(scratch_ / "results"),
              AllOf(StartsWith("files.replace: "), HasSubstr("it holds 'thesis.txt'")));
  EXPECT_THAT(saved(scratch_.path()), StartsWith("files.replace: "));
  EXPECT_EQ(get(scratch_ / "results/thesis.txt"), "mine");

  put(folder_ / "notes.txt", "a good run");
  EXPECT_THAT(saved(folder_), StartsWith("files.replace: "));
  EXPECT_EQ(get(folder_ / "notes.txt"), "a good run");
  EXPECT_EQ(difference(sample(3), load_checkpoint(folder_)), "");
  fs::remove(folder_ / "notes.txt");
  EXPECT_EQ(saved(folder_), "no error");
  EXPECT_EQ(difference(sample(4), load_checkpoint(folder_)), "");

  put(folder_ / "manifest.json", "{}");  // whoever's it is
  EXPECT_THAT(saved(folder_), StartsWith("files.replace: "));
  EXPECT_EQ(names_in(scratch_.path()).size(), 2u);
}

TEST_F(Foreign, SavingAnewReplacesNoCheckpointEither) {
  EXPECT_THAT(error_of([&] { save_checkpoint(folder_, sample(4), {.replace = false}); }),
              StartsWith("files.replace: "));
  EXPECT_EQ(difference(sample(3), load_checkpoint(folder_)), "");
}

TEST_F(Foreign, RemovingLeavesWhatIsNotListed) {
  EXPECT_TRUE(levin::is_checkpoint(folder_));
  put(folder_ / "notes.txt", "a good run");
  EXPECT_FALSE(levin::is_checkpoint(folder_));
  levin::remove_checkpoint(folder_);
  EXPECT_THAT(names_in(folder_), ElementsAre("notes.txt"));

  save_checkpoint(scratch_ / "d", sample(1));
  levin::remove_checkpoint(scratch_ / "d");
  EXPECT_FALSE(fs::exists(scratch_ / "d"));

  fs::create_directory(scratch_ / "results");
  put(scratch_ / "results/thesis.txt", "mine");
  EXPECT_THAT(error_of([&] { levin::remove_checkpoint(scratch_ / "results"); }),
              StartsWith("checkpoint.missing: "));
  EXPECT_EQ(get(scratch_ / "results/thesis.txt"), "mine");
}

TEST_F(Foreign, RemovingDoesNotFollowLinks) {
  fs::create_directory_symlink("c", scratch_ / "link");
  EXPECT_THAT(error_of([&] { levin::remove_checkpoint(scratch_ / "link"); }),
              HasSubstr("is a link"));
  put(scratch_ / "outside", "mine");
  fs::remove(folder_ / "model.safetensors");
  fs::create_symlink("../outside", folder_ / "model.safetensors");
  levin::remove_checkpoint(folder_);
  EXPECT_EQ(get(scratch_ / "outside"), "mine");
}

}  // namespace
