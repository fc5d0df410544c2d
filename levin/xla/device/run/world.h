#pragma once
// World: the processes whose runtimes run programs together.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/xla/device/runtime.h"
#include "levin/xla/pjrt/client.h"

namespace levin::xla {

class World {
 public:
  explicit World(const RuntimeOptions& options)
      : store_(options.store),
        rank_(options.rank),
        size_(options.world_size),
        timeout_(options.timeout) {}

  int64_t size() const { return size_; }
  int64_t rank() const { return rank_; }

  /// The ids of num_devices devices of each process, in the order of their ranks. Throws
  /// "xla.device" where one has another number of them.
  std::vector<int64_t> devices(const pjrt::Client& client, int64_t num_devices);
  /// Called before a program that the processes run together is compiled. Throws "xla.programs" if
  /// another process has another program, "xla.peers" if one does not come.
  void agree_on(std::string_view program, const std::vector<std::string>& inputs);

 private:
  /// Returns the word of each process, in the order of their ranks. Waits for all of them.
  std::vector<std::string> all_say(const std::string& name, const std::string& word);

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  int64_t num_programs_ = 0;
};

}  // namespace levin::xla
