#include "levin/comm/gloo/address_book.h"

#include <algorithm>
#include <charconv>

#include "levin/base/check.h"

namespace levin::comm {
namespace {

/// gloo's keys are "0/12" or "0//12".
size_t rank_in(const std::string& key) {
  const size_t at = key.rfind('/') + 1;
  size_t rank = std::string::npos;
  std::from_chars(key.data() + at, key.data() + key.size(), rank);
  return rank;
}

[[noreturn]] void refuse(const std::string& key) {
  LEVIN_FAIL("comm.gloo",
             "gloo asks for '{}', which its rendezvous has no use for in the LibTorch that levin "
             "knows; use one of those that the README names",
             key);
}

}  // namespace

// gloo takes a runtime_error for its own and logs it; anything else comes through.
void AddressBook::set(const std::string& key, const Bytes& own) {
  if (rank_in(key) == std::string::npos) refuse(key);
  try {
    words_ = meet_({own.begin(), own.end()});
  } catch (...) {
    failure_ = std::current_exception();
    throw std::bad_exception();
  }
}

AddressBook::Bytes AddressBook::get(const std::string& key) {
  const size_t rank = rank_in(key);
  if (rank >= words_.size()) refuse(key);
  return {words_[rank].begin(), words_[rank].end()};
}

void AddressBook::wait(const std::vector<std::string>& keys) {
  if (!check(keys)) refuse(keys.front());
}

void AddressBook::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

bool AddressBook::check(const std::vector<std::string>& keys) {
  return std::ranges::all_of(keys, [&](const auto& key) { return rank_in(key) < words_.size(); });
}

c10::intrusive_ptr<c10d::Store> AddressBook::clone() {
  return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
}

int64_t AddressBook::add(const std::string& key, int64_t) { refuse(key); }
bool AddressBook::deleteKey(const std::string& key) { refuse(key); }

}  // namespace levin::comm
