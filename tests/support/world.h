#pragma once
// Runs a body in N processes that are the ranks of one run.

#include <torch/torch.h>

#include <string>
#include <vector>

#include "levin/comm/process_group.h"
#include "tests/comm/ranks.h"

namespace levin::test {

/// What a launcher would leave to a rank; they meet in a file of the folder.
inline void set_rank(int64_t rank, int64_t size, const std::filesystem::path& folder) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  };
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(rank));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, std::to_string(size));
  set("MASTER_ADDR", "file://" + (folder / "store").string());
}

/// As run_ranks: what each rank returned, "" for all well.
inline std::vector<std::string> run_world(int64_t size, const RankBody& body) {
  return run_ranks(size, [&](int64_t rank, const std::filesystem::path& folder) {
    at::set_num_threads(1);
    set_rank(rank, size, folder);
    return body(rank, folder);
  });
}

inline comm::ProcessGroup connect(const std::string& backend = "auto") {
  return comm::ProcessGroup::connect(comm::read_environment(),
                                     {.backend = backend, .timeout = std::chrono::seconds(60)});
}

}  // namespace levin::test
