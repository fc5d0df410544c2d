#include <fmt/format.h>

#include <exception>
#include <string>

#include "levin/base/check.h"
#include "levin/checkpoint/saving/together_impl.h"

namespace levin::detail {
namespace {

constexpr const char* kId = "error_id";
constexpr const char* kText = "error_text";

State failure(const Error& error) {
  State word;
  return std::move(word.set(kId, error.id()).set(kText, error.text()));
}

}  // namespace

std::vector<State> together(comm::ProcessGroup& group,
                            const std::function<void(State& word)>& body) {
  State word;
  if (group.size() == 1) {
    body(word);
    return {word};
  }
  try {
    body(word);
  } catch (const Error& error) {
    word = failure(error);
  } catch (const std::exception& error) {
    const auto named = Error("checkpoint.failed", error.what());
    word = failure(named);
  }
  std::vector<State> words = group.all_gather(word);
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (!words[rank].contains(kId)) continue;
    throw Error(words[rank].text(kId),
                fmt::format("on rank {}: {}", group.global_ranks()[rank], words[rank].text(kText)));
  }
  return words;
}

}  // namespace levin::detail
