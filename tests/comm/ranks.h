#pragma once
// Runs a body in N processes, each a rank, under a time limit.

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "levin/comm/shm/links.h"
#include "tests/support/child_process.h"
#include "tests/support/scratch.h"

namespace levin::test {

/// Words as files of a folder that the ranks share.
inline comm::shm::Board board_in(const std::filesystem::path& folder) {
  return {[folder](const std::string& key, const std::string& word) {
            std::ofstream(folder / (key + ".new")) << word;
            std::filesystem::rename(folder / (key + ".new"), folder / key);
          },
          [folder](const std::string& key) {
            while (!std::filesystem::exists(folder / key)) {
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            std::string word;
            std::getline(std::ifstream(folder / key), word);
            return word;
          }};
}

/// Until all these marks are there.
inline void wait_for_marks(const std::filesystem::path& folder,
                           const std::vector<std::string>& marks) {
  for (const std::string& mark : marks) {
    while (!std::filesystem::exists(folder / mark)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

/// In a rank of run_ranks: until those ranks have nothing more to say, for one that stays away as
/// long as others look for it.
inline void wait_for_words(const std::filesystem::path& folder, const std::vector<int64_t>& ranks) {
  for (const int64_t rank : ranks) wait_for_marks(folder, {"said." + std::to_string(rank)});
}

/// What each rank returned, "" for all well; an exception is its text.
using RankBody = std::function<std::string(int64_t rank, const std::filesystem::path& folder)>;

/// The ranks' words, by rank; "no word" from one that was killed or ran for more than two minutes.
inline std::vector<std::string> run_ranks(int64_t size, const RankBody& body) {
  const Scratch scratch;
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < size; ++rank) {
    children.push_back(start_child([&, rank] {
      std::string word;
      try {
        word = body(rank, scratch.path());
      } catch (const std::exception& error) {
        word = error.what();
      }
      std::ofstream(scratch / ("said." + std::to_string(rank))) << word;
      return 0;
    }));
  }
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < size; ++rank) {
    wait_for(children[static_cast<size_t>(rank)]);
    std::ifstream file(scratch / ("said." + std::to_string(rank)));
    std::string word = "no word";
    if (file) word.assign(std::istreambuf_iterator<char>(file), {});
    words.push_back(word);
  }
  return words;
}

}  // namespace levin::test
