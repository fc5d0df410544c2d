#include "levin/accelerator/preparation.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "levin/base/awake.h"
#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::minutes kTold(1);
constexpr size_t kLongestWord = 4096;

/// All ranks count themselves here; the word of a rank that failed is stored beside it.
struct Meeting {
  c10d::Store& store;
  std::string key;

  void say(const std::string& word) {
    store.set(key + "/failed", std::vector<uint8_t>(word.begin(), word.end()));
  }
  void check_failed() {
    if (!store.check({key + "/failed"})) return;
    const auto word = store.get(key + "/failed");
    LEVIN_FAIL("accelerator.prepare", "{}",
               std::string_view(reinterpret_cast<const char*>(word.data()),
                                std::min(word.size(), kLongestWord)));
  }
};

}  // namespace

Preparation::Preparation(comm::ProcessGroup group, double timeout_s)
    : group_(std::move(group)), timeout_s_(timeout_s) {}

void Preparation::run(bool does, const std::function<void()>& body) {
  if (group_.size() == 1) {
    if (does) body();
    return;
  }
  const auto store = group_.store("prepared");
  Meeting meeting{*store, std::to_string(++number_)};
  try {
    if (does) body();
  } catch (const std::exception& error) {
    meeting.say(fmt::format("rank {} failed while preparing data: {}", group_.rank(),
                            std::string_view(error.what()).substr(0, kLongestWord / 2)));
    throw;
  }
  store->add(meeting.key, 1);
  AwakeTime waited(std::chrono::seconds(5));
  auto told = kTold;
  milliseconds pause(1);
  for (int64_t here = 0; (here = store->add(meeting.key, 0)) < group_.size();) {
    meeting.check_failed();
    const std::chrono::duration<double> so_far = waited.look();
    LEVIN_CHECK(so_far.count() < timeout_s_, "accelerator.prepare",
                "waited {} s for data to be prepared (prepare_data), and {} of {} processes are "
                "done; see the output of the others, or raise --comm-prepare-timeout-s",
                timeout_s_, here, group_.size());
    if (so_far > told) {
      log::info(
          "waiting for {} of {} processes to prepare data (prepare_data), for {:.0f} s so far",
          group_.size() - here, group_.size(), so_far.count());
      told += kTold;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(500));
  }
}

}  // namespace levin::detail
