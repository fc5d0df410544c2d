#include "levin/xla/device/run/world.h"

#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sstream>

#include "levin/base/check.h"

namespace levin::xla {
namespace {

/// Compares two programs as agree_on() describes them: the first line is the text's hash, then one
/// line follows for each input tensor.
std::string other_input(const std::string& there, const std::string& here) {
  std::istringstream theirs(there), ours(here);
  std::string that, one;
  std::getline(theirs, that);
  std::getline(ours, one);
  for (;;) {
    const bool more_there = !std::getline(theirs, that).fail();
    const bool more_here = !std::getline(ours, one).fail();
    if (!more_there && !more_here) return "their operators differ";
    if (more_there && more_here && that == one) continue;
    return fmt::format("it takes {}, this one {}", more_there ? that : "no more tensors",
                       more_here ? one : "no more tensors");
  }
}

}  // namespace

std::vector<std::string> World::all_say(const std::string& name, const std::string& word) {
  const auto key = [&](int64_t rank) { return fmt::format("{}/{}", name, rank); };
  std::vector<std::string> words;
  int64_t rank = rank_;
  try {
    store_->set(key(rank), std::vector<uint8_t>(word.begin(), word.end()));
    for (rank = 0; rank < size_; ++rank) {
      store_->wait({key(rank)}, timeout_);
      const std::vector<uint8_t> said = store_->get(key(rank));
      words.emplace_back(said.begin(), said.end());
    }
  } catch (const std::exception& error) {
    LEVIN_FAIL("xla.peers",
               "process {} did not answer process {} about the {} of their common run within {} s: "
               "it takes other steps, or has ended; see its output, or raise --comm-timeout-s. {}",
               rank, rank_, name, timeout_.count() / 1000, error.what());
  }
  return words;
}

std::vector<int64_t> World::devices(const pjrt::Client& client, int64_t num_devices) {
  std::string own;
  for (int64_t i = 0; i < num_devices; ++i) {
    own += fmt::format("{} ", client.addressable_devices()[static_cast<size_t>(i)].id);
  }
  const std::vector<std::string> said = size_ == 1 ? std::vector{own} : all_say("devices", own);
  std::vector<int64_t> ids;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    const size_t before = ids.size();
    std::istringstream list(said[rank]);
    for (int64_t id = 0; list >> id;) ids.push_back(id);
    const auto count = static_cast<int64_t>(ids.size() - before);
    LEVIN_CHECK(count == num_devices, "xla.device",
                "process {} has {} devices but this one, {}, has {}; set devices to one number on "
                "all processes",
                rank, count, rank_, num_devices);
  }
  return ids;
}

void World::agree_on(std::string_view program, const std::vector<std::string>& inputs) {
  const std::string name = fmt::format("program {}", num_programs_++);
  const std::string own = fmt::format("{:016x}\n{}", XXH3_64bits(program.data(), program.size()),
                                      fmt::join(inputs, "\n"));
  const std::vector<std::string> said = all_say(name, own);
  for (size_t rank = 0; rank < said.size(); ++rank) {
    LEVIN_CHECK(said[rank] == own, "xla.programs",
                "process {} runs another program than process {} (this one): {}; all must run the "
                "same program. Give all processes the same code and batches of the same sizes",
                rank, rank_, other_input(said[rank], own));
  }
}

}  // namespace levin::xla
