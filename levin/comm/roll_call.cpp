#include "levin/comm/roll_call.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "levin/base/awake.h"
#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::comm {
namespace {

/// A rank that begins to wait later than this one also gives up later.
constexpr std::chrono::seconds kLater(2);
constexpr std::chrono::milliseconds kGlance(100);

/// "3:abc0:" are "abc" and "".
std::string pack(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}:{}", word.size(), word);
  return text;
}

/// Returns nothing if the text is no such list.
std::optional<std::vector<std::string>> unpack(std::string_view text, size_t longest_word) {
  std::vector<std::string> words;
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(end - text.data());
    const bool fits = error == std::errc() && length <= longest_word && digits < text.size() &&
                      text[digits] == ':' && length <= text.size() - digits - 1;
    if (!fits) return std::nullopt;
    words.emplace_back(text.substr(digits + 1, length));
    text.remove_prefix(digits + 1 + length);
  }
  return words;
}

class Caller {
 public:
  Caller(c10d::Store& store, const RollCall& call) : store_(store), call_(call) {}

  std::vector<std::string> exchange(const std::string& word) {
    put(key(call_.rank), word);
    try {
      if (call_.rank == 0) put(call_.topic + "/all", gather());
      return table(text_at(call_.topic + "/all"));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

 private:
  std::string key(int64_t rank) const { return fmt::format("{}{}", call_.topic, rank); }
  std::string name(int64_t rank) const {
    return std::to_string(call_.names.empty() ? rank : call_.names[static_cast<size_t>(rank)]);
  }
  void put(const std::string& at, const std::string& text) {
    store_.set(at, std::vector<uint8_t>(text.begin(), text.end()));
  }
  std::string text_at(const std::string& at) {
    const auto text = store_.get(at);
    return {text.begin(), text.end()};
  }

  std::string gather() {
    const auto deadline = std::chrono::steady_clock::now() + store_.getTimeout();
    std::vector<std::string> words;
    for (int64_t rank = 0; rank < call_.size; ++rank) {
      const bool is_late = std::chrono::steady_clock::now() > deadline;
      if (is_late && !store_.check({key(rank)})) throw std::runtime_error("too late");
      words.push_back(text_at(key(rank)));
    }
    return pack(words);
  }

  std::vector<std::string> table(const std::string& text) const {
    auto words = unpack(text, call_.longest_word);
    LEVIN_CHECK(words && std::ssize(*words) == call_.size, "comm.connect",
                "the store of the run has no valid '{}' of each of {} ranks (got {} characters); "
                "run the same version of levin on all ranks",
                call_.topic, call_.size, text.size());
    return *std::move(words);
  }

  // The first rank tells the others whom it misses, unless it is missing itself.
  [[noreturn]] void fail(std::string_view what) {
    std::string missing;
    try {
      missing = call_.rank == 0 ? missing_ranks() : missing_by_first();
      if (call_.rank == 0) put(call_.topic + "/missing", missing);
    } catch (const std::exception&) {
      missing.clear();  // the store itself is gone
    }
    LEVIN_CHECK(!missing.empty(), "comm.connect",
                "lost the store of the run while the ranks connected ({}); look for what ended "
                "rank 0 or its launcher",
                what.substr(0, what.find('\n')));
    throw Absence(missing);
  }

  std::string missing_ranks() {
    std::vector<std::string> missing;
    for (int64_t rank = 0; rank < call_.size; ++rank) {
      if (!store_.check({key(rank)})) missing.push_back(name(rank));
    }
    return to_text(missing);
  }

  std::string missing_by_first() {
    if (!store_.check({key(0)})) return name(0);
    try {
      store_.wait({call_.topic + "/missing"}, kLater);
    } catch (const std::exception&) {
      return missing_ranks();
    }
    return text_at(call_.topic + "/missing");
  }

  c10d::Store& store_;
  const RollCall& call_;
};

}  // namespace

std::vector<std::string> call_roll(c10d::Store& store, const RollCall& call,
                                   const std::string& word) {
  return Caller(store, call).exchange(word);
}

// In a thread of its own, which may stay behind where the store's server was stopped: it holds
// nothing but its copies.
std::vector<std::string> call_roll_late(const c10::intrusive_ptr<c10d::Store>& store,
                                        const RollCall& call, const std::string& word,
                                        std::chrono::milliseconds timeout,
                                        const std::function<void()>& look) {
  auto came = std::make_shared<std::promise<std::vector<std::string>>>();
  auto words = came->get_future();
  std::thread([came, store, call, word, timeout] {
    try {
      const auto own = store->clone();
      if (own->getTimeout() != timeout) own->setTimeout(timeout);
      came->set_value(call_roll(*own, call, word));
    } catch (...) {
      came->set_exception(std::current_exception());
    }
  }).detach();
  levin::detail::AwakeTime waited;
  while (words.wait_for(kGlance) != std::future_status::ready) {
    if (look) look();
    LEVIN_CHECK(
        waited.look() < timeout + 2 * kLater, "comm.connect",
        "the store of the run does not answer; check whether rank 0 and its launcher still run");
  }
  return words.get();
}

}  // namespace levin::comm
