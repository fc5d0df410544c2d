// Reads the #includes below levin/ and tools/: rooms depend leftwards only, and public headers stay
// light. The same reader is shown trees that break each rule, so that it is known to see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/places.h"

namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kUmbrella = "levin/levin.h";

// The rooms in the order of dependency: a room includes only rooms left of it. CMakeLists.txt has the list.
const std::vector<std::string>& rooms() {
  static const std::vector<std::string> all = [] {
    std::ifstream in(fs::path(levin::test::source_dir()) / "CMakeLists.txt");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    constexpr std::string_view kList = "set(LEVIN_ROOMS ";
    const size_t begin = text.find(kList) + kList.size();
    std::istringstream names(text.substr(begin, text.find(')', begin) - begin));
    return std::vector<std::string>{std::istream_iterator<std::string>(names), {}};
  }();
  return all;
}

struct Source {
  std::string path;  // from the checkout's root, "levin/data/batch.h"
  std::string first_line;
  std::vector<std::string> includes;  // as written between the quotes or brackets

  bool is_header() const { return path.ends_with(".h"); }
};

Source read_source(const fs::path& root, const fs::path& file) {
  Source source{fs::relative(file, root).generic_string(), "", {}};
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (source.first_line.empty()) source.first_line = line;
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || !line.substr(hash).starts_with("#include")) continue;
    const size_t open = line.find_first_of("\"<", hash);
    const size_t close = line.find_first_of("\">", open + 1);
    if (close != std::string::npos)
      source.includes.push_back(line.substr(open + 1, close - open - 1));
  }
  return source;
}

std::vector<Source> read_tree(const fs::path& root) {
  std::vector<Source> sources;
  for (const char* part : {"levin", "tools"}) {
    if (!fs::exists(root / part)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / part)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp")
        sources.push_back(read_source(root, entry.path()));
    }
  }
  std::ranges::sort(sources, {}, &Source::path);
  return sources;
}

// "levin/data/batch.h" is of the room "data"; nothing for what lies in no room, as levin/levin.h.
std::string_view room_of(std::string_view path) {
  constexpr std::string_view kTop = "levin/";
  if (!path.starts_with(kTop)) return {};
  path.remove_prefix(kTop.size());
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view{} : path.substr(0, slash);
}

size_t place_of(std::string_view room) {
  return static_cast<size_t>(std::ranges::find(rooms(), room) - rooms().begin());
}

void check_arrows(const Source& source, std::vector<std::string>& faults) {
  const std::string room(room_of(source.path));
  if (room.empty()) return;
  if (place_of(room) == rooms().size()) {
    faults.push_back(source.path + ": " + room + " is no room of the house");
    return;
  }
  for (const std::string& include : source.includes) {
    if (include == kUmbrella) {
      faults.push_back(source.path + " includes levin/levin.h: that one is for users");
      continue;
    }
    const std::string other(room_of(include));
    if (!other.empty() && other != room && include.ends_with("_impl.h")) {
      faults.push_back(source.path + " includes " + include + ": that one is for sources of " +
                       other);
    }
    if (!other.empty() && place_of(room) < place_of(other)) {
      faults.push_back(source.path + " includes " + include + ": " + room + " stands left of " +
                       other);
    }
  }
}

void check_header(const Source& source, std::vector<std::string>& faults) {
  if (!source.is_header()) return;
  if (source.first_line != "#pragma once") {
    faults.push_back(source.path + ": its first line is not #pragma once");
  }
  const bool writes_json = source.path.starts_with("levin/interchange/export/write/");
  const bool for_sources_only =
      source.path == "levin/base/check.h" || source.path == "levin/base/log.h";
  for (const std::string& include : source.includes) {
    const bool heavy = (include == "torch/torch.h" && source.path != kUmbrella) ||
                       (include.starts_with("nlohmann/") && !writes_json) ||
                       include.starts_with("CLI/") || include.starts_with("toml++/") ||
                       include == "toml.hpp";
    const bool formats = include.starts_with("fmt/") || include == "levin/base/check.h" ||
                         include == "levin/base/log.h";
    if (heavy || (formats && !for_sources_only)) {
      faults.push_back(source.path + " includes " + include + ": headers stay free of it");
    }
  }
}

void check_name(const Source& source, std::vector<std::string>& faults) {
  const std::string stem = fs::path(source.path).stem().string();
  for (const std::string_view vague : {"util", "utils", "helper", "helpers", "common", "manager"}) {
    if (stem == vague || stem.ends_with("_" + std::string(vague))) {
      faults.push_back(source.path + ": a name that says what the file is about is wanted");
    }
  }
}

// More than a reader takes in at a glance.
constexpr size_t kMostFiles = 25;
void check_folders(const std::vector<Source>& sources, std::vector<std::string>& faults) {
  std::map<std::string, size_t> sizes;
  for (const Source& source : sources) ++sizes[fs::path(source.path).parent_path().string()];
  for (const auto& [folder, size] : sizes) {
    if (size > kMostFiles) {
      faults.push_back(folder + " holds " + std::to_string(size) + " files side by side, wanted " +
                       std::to_string(kMostFiles) + " at most; divide it");
    }
  }
}

std::vector<std::string> faults_of(const fs::path& root) {
  std::vector<std::string> faults;
  const std::vector<Source> sources = read_tree(root);
  check_folders(sources, faults);
  for (const Source& source : sources) {
    check_arrows(source, faults);
    check_header(source, faults);
    check_name(source, faults);
  }
  return faults;
}

// A made-up checkout, from paths and texts.
class Layers : public ::testing::Test {
 protected:
  Layers() : root_(fs::temp_directory_path() / ("levin_layers_" + std::to_string(::getpid()))) {}
  ~Layers() override { fs::remove_all(root_); }

  std::vector<std::string> faults_with(const std::map<std::string, std::string>& files) {
    for (const auto& [path, text] : files) {
      fs::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text;
    }
    return faults_of(root_);
  }

 private:
  fs::path root_;
};

TEST(House, HasRooms) {
  EXPECT_EQ(rooms().front(), "base");
  EXPECT_EQ(rooms().back(), "trainer");
}

TEST(House, HasSources) { EXPECT_GT(read_tree(levin::test::source_dir()).size(), 10u); }

TEST(House, KeepsItsRules) { EXPECT_THAT(faults_of(levin::test::source_dir()), IsEmpty()); }

TEST_F(Layers, AnArrowLeftwardsIsFine) {
  EXPECT_THAT(faults_with({{"levin/data/batch.cpp", "#include \"levin/base/error.h\"\n"},
                           {"tools/env.cpp", "#include \"levin/trainer/trainer.h\"\n"}}),
              IsEmpty());
}

TEST_F(Layers, AnArrowRightwardsIsAFault) {
  EXPECT_THAT(
      faults_with({{"levin/data/batch.cpp", "  #include  \"levin/trainer/callbacks/x.h\"\n"}}),
      ElementsAre("levin/data/batch.cpp includes levin/trainer/callbacks/x.h: "
                  "data stands left of trainer"));
}

TEST_F(Layers, AnUnknownRoomIsAFault) {
  EXPECT_THAT(faults_with({{"levin/attic/box.cpp", ""}}),
              ElementsAre("levin/attic/box.cpp: attic is no room of the house"));
}

TEST_F(Layers, AnotherRoomsInsideIsAFault) {
  EXPECT_THAT(faults_with({{"levin/data/batch.cpp",
                            "#include \"levin/data/batch_impl.h\"\n"
                            "#include \"levin/base/state_impl.h\"\n"}}),
              ElementsAre("levin/data/batch.cpp includes levin/base/state_impl.h: that one is for "
                          "sources of base"));
}

TEST_F(Layers, AFolderOfTooManyFilesIsAFault) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 25; ++i) files["levin/data/x" + std::to_string(i) + ".cpp"] = "";
  EXPECT_THAT(faults_with(files), IsEmpty());
  EXPECT_THAT(faults_with({{"levin/data/y.cpp", ""}}),
              ElementsAre("levin/data holds 26 files side by side, wanted 25 at most; divide it"));
}

TEST_F(Layers, OnlyTheUmbrellaIncludesAllOfTorch) {
  EXPECT_THAT(faults_with({{"levin/levin.h", "#pragma once\n#include <torch/torch.h>\n"},
                           {"levin/data/batch.cpp", "#include <torch/torch.h>\n"},
                           {"levin/data/batch.h", "#pragma once\n#include <torch/torch.h>\n"},
                           {"levin/data/loader.cpp", "#include \"levin/levin.h\"\n"}}),
              ElementsAre("levin/data/batch.h includes torch/torch.h: headers stay free of it",
                          "levin/data/loader.cpp includes levin/levin.h: that one is for users"));
}

TEST_F(Layers, HeadersAreFreeOfTheLibrariesBehindThem) {
  for (const char* include :
       {"<nlohmann/json.hpp>", "<fmt/format.h>", "<CLI/CLI.hpp>", "<toml++/toml.h>",
        "\"levin/base/check.h\"", "\"levin/base/log.h\""}) {
    const auto faults =
        faults_with({{"levin/files/x.h", "#pragma once\n#include " + std::string(include) + "\n"}});
    EXPECT_EQ(faults.size(), 1u) << include;
  }
  EXPECT_THAT(faults_with({{"levin/files/x.h", "#pragma once\n#include <vector>\n"},
                           {"levin/base/log.h", "#pragma once\n#include <fmt/format.h>\n"}}),
              IsEmpty());
}

TEST_F(Layers, HeadersBeginWithPragmaOnce) {
  EXPECT_THAT(faults_with({{"levin/base/x.h", "#ifndef X\n"}}),
              ElementsAre("levin/base/x.h: its first line is not #pragma once"));
}

TEST_F(Layers, VagueFileNamesAreFaults) {
  for (const char* name : {"utils", "string_helpers", "common", "checkpoint_manager"}) {
    EXPECT_THAT(faults_with({{"levin/base/" + std::string(name) + ".cpp", ""}}),
                Contains("levin/base/" + std::string(name) +
                         ".cpp: a name that says what the file is about is wanted"));
  }
}

}  // namespace
