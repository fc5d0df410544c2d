// A checkpoint that is not what was saved is never taken for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include "levin/checkpoint/checkpoint.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;
using levin::test::difference;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::reseal;
using levin::test::sample;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> all_files() {
  return {"manifest.json", "model.safetensors", "model_1.safetensors", "training_state.json",
          "training_state.safetensors"};
}

/// A saved checkpoint, one of whose files each test damages.
class Damaged : public ::testing::TestWithParam<std::string> {
 protected:
  Damaged() { levin::save_checkpoint(folder_, sample(3)); }

  fs::path file() const { return folder_ / GetParam(); }
  std::string load() const {
    return error_of([&] { levin::load_checkpoint(folder_); });
  }
  /// Over the bytes there, without making the file anew: thousands of times.
  void write_byte(size_t at, char byte) const {
    std::fstream stream(file(), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "c";
};

TEST_P(Damaged, OneFlippedBitAnywhereIsFoundAndTheFileNamed) {
  const std::string whole = get(file());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    const char byte = whole[bit / 8];
    write_byte(bit / 8, static_cast<char>(byte ^ (1 << (bit % 8))));
    ASSERT_THAT(load(), AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr(GetParam())))
        << "bit " << bit;
    write_byte(bit / 8, byte);
  }
  EXPECT_EQ(load(), "no error");
}

TEST_P(Damaged, AFileCutShortAnywhereIsFoundAndNamed) {
  for (size_t length = fs::file_size(file()); length-- > 0;) {
    fs::resize_file(file(), length);
    ASSERT_THAT(load(), AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr(GetParam())))
        << "cut at " << length;
  }
}

TEST_P(Damaged, AByteAtTheEndIsFoundAndTheFileNamed) {
  std::ofstream(file(), std::ios::binary | std::ios::app) << 'x';
  EXPECT_THAT(load(), AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr(GetParam())));
}

TEST_P(Damaged, AMissingFileIsFoundAndNamed) {
  fs::remove(file());
  EXPECT_THAT(load(), AllOf(StartsWith(GetParam() == "manifest.json" ? "checkpoint.missing: "
                                                                     : "checkpoint.corrupt: "),
                            HasSubstr(GetParam())));
}

TEST_P(Damaged, AFileOfAnotherCheckpointIsFound) {
  levin::save_checkpoint(scratch_ / "other", sample(4));
  fs::copy_file(scratch_ / "other" / GetParam(), file(), fs::copy_options::overwrite_existing);
  EXPECT_THAT(load(), StartsWith("checkpoint.corrupt: "));
}

INSTANTIATE_TEST_SUITE_P(Files, Damaged, ::testing::ValuesIn(all_files()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(DamagedCheckpoint, TheFilesThatAreDamagedHereAreAllThereAre) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  EXPECT_EQ(names_in(scratch / "c"), all_files());
}

TEST(DamagedCheckpoint, TheErrorSaysWhatIsWrongAndWhatToDo) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  fs::resize_file(scratch / "c/model.safetensors", 7);
  EXPECT_THAT(error_of([&] { levin::load_checkpoint(scratch / "c"); }),
              AllOf(HasSubstr("it has 7 bytes, wanted "),
                    HasSubstr("nothing was loaded, resume from another checkpoint")));
}

TEST(DamagedCheckpoint, ANewerVersionsFormatIsAnErrorThatSaysSo) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  reseal(scratch / "c", [](nlohmann::json& manifest) { manifest["format"] = 3; });
  EXPECT_THAT(error_of([&] { levin::load_checkpoint(scratch / "c"); }),
              AllOf(StartsWith("checkpoint.version: " + (scratch / "c/manifest.json").string()),
                    HasSubstr("it has format 3, but this levin reads formats up to 2; load it with "
                              "the levin that saved it, or a newer one")));
  EXPECT_FALSE(levin::is_checkpoint(scratch / "c"));  // and so it is not replaced
}

/// As the first version of levin wrote it: a checksum a file, a file a model.
TEST(DamagedCheckpoint, TheFirstVersionsFormatIsReadAndChecked) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  reseal(scratch / "c", [&](nlohmann::json& manifest) {
    manifest["format"] = 1;
    manifest.erase("weights");
    for (auto& [name, file] : manifest["files"].items()) {
      const std::string piece = file["pieces"][0];
      file = {{"size", file["size"]}, {"xxh3", piece.substr(piece.find(' ') + 1)}};
    }
  });
  EXPECT_EQ(difference(sample(3), levin::load_checkpoint(scratch / "c")), "");
  for (const char* name : {"model_1.safetensors", "training_state.json"}) {
    const std::string whole = get(scratch / "c" / name);
    std::string bytes = whole;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    levin::test::put(scratch / "c" / name, bytes);
    EXPECT_THAT(error_of([&] { levin::load_checkpoint(scratch / "c"); }),
                AllOf(StartsWith("checkpoint.corrupt: "), HasSubstr(name)));
    levin::test::put(scratch / "c" / name, whole);
  }
}

TEST(DamagedCheckpoint, AManifestWithoutAVersionIsAnError) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  reseal(scratch / "c", [](nlohmann::json& manifest) { manifest.erase("format"); });
  EXPECT_THAT(error_of([&] { levin::load_checkpoint(scratch / "c"); }),
              StartsWith("checkpoint.corrupt: "));
}

TEST(DamagedCheckpoint, AFileThatIsNoneOfItsOwnDoesNoHarm) {
  const Scratch scratch;
  levin::save_checkpoint(scratch / "c", sample(3));
  levin::test::put(scratch / "c/notes.safetensors", "a good run");
  EXPECT_EQ(difference(sample(3), levin::load_checkpoint(scratch / "c")), "");
}

TEST(DamagedCheckpoint, LoadWeightsOfItsFolderFindsTheDamageToo) {
  const Scratch scratch;
  levin::Checkpoint one = sample(3);
  one.weights.erase("model_1");
  levin::save_checkpoint(scratch / "c", one);
  std::string bytes = get(scratch / "c/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  levin::test::put(scratch / "c/model.safetensors", bytes);
  EXPECT_THAT(error_of([&] { levin::load_weights(scratch / "c"); }),
              StartsWith("checkpoint.corrupt: "));
}

}  // namespace
