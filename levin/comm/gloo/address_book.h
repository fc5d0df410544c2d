#pragma once
// AddressBook: the store that gloo is given to find its peers with. gloo leaves its own address
// there and then asks for everybody's; here the first is a roll call of all, and the answers are
// what came of it: no rank asks the run's store for each of the others.
//
//   auto book = c10::make_intrusive<AddressBook>(meet);
//   ProcessGroupGloo(book, rank, size, options);

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace levin::comm {

class AddressBook final : public c10d::Store {
 public:
  using Bytes = std::vector<uint8_t>;
  /// Given this rank's word, everybody's, by rank.
  using Meet = std::function<std::vector<std::string>(const std::string& own)>;

  explicit AddressBook(Meet meet) : meet_(std::move(meet)) {}

  /// What meet threw, which gloo would take for trouble of its own.
  std::exception_ptr failure() const { return failure_; }
  /// gloo keeps its store when it has no more to ask.
  void close() {
    words_.clear();
    meet_ = nullptr;
  }

  using c10d::Store::set;
  void set(const std::string& key, const Bytes& own) override;
  /// Of the rank that the key's last word names.
  Bytes get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override;
  bool check(const std::vector<std::string>& keys) override;

  c10::intrusive_ptr<c10d::Store> clone() override;
  int64_t add(const std::string& key, int64_t) override;
  bool deleteKey(const std::string& key) override;
  int64_t getNumKeys() override { return std::ssize(words_); }

 private:
  Meet meet_;
  std::vector<std::string> words_;
  std::exception_ptr failure_;
};

}  // namespace levin::comm
