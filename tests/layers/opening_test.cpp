// Reads the sources below levin/ and tools/: files are opened for writing in one place, which leaves
// alone what is not levin's, and for reading in one that waits for no pipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/places.h"

namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Allowed = std::map<std::string, std::string>;  // by the path, with the reason

// NOLINTBEGIN(bugprone-throwing-static-initialization): of a test that then ends
// files/output, files/atomic and files/shared_file are the place; posix opens by the flags it is given.
const Allowed kWriters = {
    {"levin/base/posix.cpp", "open(2) for all"},
    {"levin/checkpoint/checkpoint_reader.cpp", "a folder, by O_PATH"},
    {"levin/comm/file_store/file_store.cpp", "flags for files::open_own; the launcher's file"},
    {"levin/comm/watchdog/watchdog.cpp", "flags for files::open_own"},
    {"levin/files/atomic.cpp", "the place: staged files and folders"},
    {"levin/files/event_file.cpp", "the place: a new name for each"},
    {"levin/files/file_writer.cpp", "the place: flags for open_own"},
    {"levin/files/writing/output.cpp", "the place: new files, and levin's own"},
    {"levin/files/shared_file.cpp", "the place: staged files of several processes"},
    {"levin/files/staging_name.cpp", "the place: names of staged files"},
    {"levin/launch/rendezvous/one_node.cpp", "looks whether a file in memory opens"},
    {"levin/observe/loggers/csv_logger.cpp", "flags for files::open_own"},
    {"levin/observe/loggers/jsonl_logger.cpp", "flags for files::open_own"},
    {"levin/observe/run_directory.cpp", "flags for files::open_own"},
    {"levin/rows/cache/cache.cpp", "flags for files::open_own"},
    {"levin/base/memory/memory_limits.cpp", "/proc/self/clear_refs"},
    {"levin/trainer/predictions/row_file.cpp",
     "flags for files::open_own; the header of a staged file"},
};

// Files of the system, which are no pipes.
const Allowed kReaders = {
    {"levin/comm/hierarchical/layout.cpp", "/proc"},
    {"levin/comm/shm/segment.cpp", "/proc"},
    {"levin/files/staging_name.cpp", "/proc"},
    {"levin/launch/node/binding.cpp", "/sys"},
    {"levin/launch/peers.cpp", "/proc"},
    {"levin/launch/rendezvous/witness.cpp", "/proc"},
    {"levin/base/memory/memory_limits.cpp", "/proc and /sys"},
    {"levin/trainer/callbacks/measures/device_stats.cpp", "/proc"},
    {"levin/xla/pjrt/executable_cache.cpp", "/proc"},
    {"tools/env.cpp", "/proc"},
    {"tools/measure.cpp", "/proc"},
};

using Words = std::vector<std::string_view>;

const Words kWrites = {"ofstream",  "fstream",    "fopen(",          "freopen(",
                       "::open(",   "creat(",     "O_CREAT",         "O_WRONLY",
                       "O_RDWR",    "O_TRUNC",    "fs::rename(",     "::rename(",
                       "fs::copy(", "copy_file(", "create_symlink(", "torch::save("};
const Words kReads = {"ifstream"};
// NOLINTEND(bugprone-throwing-static-initialization)

bool is_of_a_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

/// Whether one of the words stands there, and not as a part of a longer name.
bool has_one_of(std::string_view line, const Words& words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    for (size_t at = 0; (at = line.find(word, at)) != std::string::npos; ++at) {
      const size_t end = at + word.size();
      const bool begins = at == 0 || !is_of_a_name(line[at - 1]);
      const bool ends =
          !is_of_a_name(word.back()) || end == line.size() || !is_of_a_name(line[end]);
      if (begins && ends) return true;
    }
    return false;
  });
}

/// "path: line" of each line of the tree that has such a word and stands in no file that may have it.
std::vector<std::string> others(const fs::path& root, const Words& words, const Allowed& allowed) {
  std::vector<std::string> found;
  for (const char* part : {"levin", "tools"}) {
    if (!fs::exists(root / part)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / part)) {
      const fs::path extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (allowed.contains(path)) continue;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        const size_t first = line.find_first_not_of(' ');
        const bool is_words = first == std::string::npos || line.substr(first).starts_with("//") ||
                              line.substr(first).starts_with("#include");
        if (!is_words && has_one_of(line, words)) found.push_back(path + ": " + line);
      }
    }
  }
  std::ranges::sort(found);
  return found;
}

TEST(Opening, FilesAreWrittenThroughOnePlace) {
  EXPECT_THAT(others(levin::test::source_dir(), kWrites, kWriters), IsEmpty())
      << "write by levin/files/writing/output.h or atomic.h";
}

TEST(Opening, FilesAreReadThroughOnePlace) {
  EXPECT_THAT(others(levin::test::source_dir(), kReads, kReaders), IsEmpty())
      << "read by levin/base/reading/regular_file.h, levin/files/read_file.h or memory_map.h";
}

TEST(Opening, WhatMayOpenFilesStillDoes) {
  for (const auto& [allowed, words] :
       {std::pair(&kWriters, &kWrites), std::pair(&kReaders, &kReads)}) {
    std::string all;
    for (const std::string& line : others(levin::test::source_dir(), *words, {}))
      all += line + "\n";
    for (const auto& [path, why] : *allowed) {
      EXPECT_NE(all.find(path + ": "), std::string::npos) << path << " opens none any more";
    }
  }
}

TEST(Opening, OtherWaysAreSeen) {
  const fs::path root = fs::path(::testing::TempDir()) / "levin_opening";
  fs::create_directories(root / "levin");
  std::ofstream(root / "levin/a.cpp") << "// std::ofstream of a comment\n#include <fstream>\n"
                                         "  std::ofstream(path) << text;\n  x = ::open(p, flags);\n"
                                         "  fs::rename(a, b);\n  stream_lane.open();\n"
                                         "  std::ifstream in(path);\n";
  EXPECT_THAT(others(root, kWrites, {}), ElementsAre("levin/a.cpp:   fs::rename(a, b);",
                                                     "levin/a.cpp:   std::ofstream(path) << text;",
                                                     "levin/a.cpp:   x = ::open(p, flags);"));
  EXPECT_THAT(others(root, kReads, {}), Contains("levin/a.cpp:   std::ifstream in(path);"));
  EXPECT_THAT(others(root, kWrites, {{"levin/a.cpp", "it may"}}), IsEmpty());
  fs::remove_all(root);
}

}  // namespace
