#pragma once
// A store that counts what it is asked, and ranks that are threads of this process.

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace levin::test {

/// Counts what a server would be asked, and the bytes that go to and from it.
class CountingStore : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(this);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    count(value.size());
    store_->set(key, value);
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    count(desired.size());
    return store_->compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    auto value = store_->get(key);
    count(value.size());
    return value;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    count(8);
    return store_->add(key, amount);
  }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  bool check(const std::vector<std::string>& keys) override {
    count(1);
    return store_->check(keys);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    count(1);
    store_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override {
    return store_->getTimeout();
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    store_->setTimeout(timeout);
  }

  int64_t requests() const { return requests_; }
  int64_t bytes() const { return bytes_; }

 private:
  void count(size_t bytes) {
    ++requests_;
    bytes_ += static_cast<int64_t>(bytes);
  }

  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int64_t> requests_ = 0, bytes_ = 0;
};

/// In a thread of each rank.
template <class Body>
std::vector<std::string> on_ranks(int64_t size, const Body& body) {
  std::vector<std::string> words(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { words[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return words;
}

}  // namespace levin::test
