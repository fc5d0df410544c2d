#pragma once
// FileStore: a run's store in a file that all ranks see, where there is no network between them.
//
//   auto store = c10::make_intrusive<FileStore>("/scratch/meeting", world_size);
//
// After c10d::FileStore, whose ranks wait for ever where one was killed while it wrote a word or was
// stopped while it held the lock. Here half a word is passed over, and every wait has an end.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

/// Words are appended to the file under a lock (flock). Throws Error "comm.store" for a file that is
/// no store, that another user made, that cannot be read or written, or that stays locked for the
/// store's timeout, and c10::DistStoreError for a key that nobody sets in that time.
class LEVIN_API FileStore final : public c10d::Store {
 public:
  /// The file is made where it is missing; the last of num_workers to go removes it. 0: nobody does.
  FileStore(std::filesystem::path path, int64_t num_workers);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  /// Returns a store on the same file, for another thread; it does not count as a worker.
  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  using c10d::Store::compareSet;
  /// The value afterwards. No expected value: for a key that is not there.
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  /// Writes nothing for an amount of 0 to what is there.
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  int64_t getNumKeys() override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  class Locked;

  void refresh(const Locked& file);
  void append(const Locked& file, const std::string& key, std::string_view value, bool is_there);
  std::chrono::steady_clock::time_point deadline() const;

  std::filesystem::path path_;
  int64_t num_workers_;
  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> words_;
  uint64_t identity_ = 0;  ///< identity of the file that was read
  int64_t read_ = 0;       ///< its bytes whose words are known
};

}  // namespace levin::comm
