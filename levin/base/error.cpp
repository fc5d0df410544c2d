#include "levin/base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "levin/base/console/explanation.h"
#include "levin/base/console/last_words.h"
#include "levin/base/options.h"
#include "levin/base/rank.h"

namespace levin {
namespace {

std::string compose(std::string_view id, std::string_view text) {
  std::string message(id);
  message.append(": ").append(printable_lines(text));
  const RankInfo rank = rank_from_environment();
  if (rank.world_size > 1) message += " [rank " + std::to_string(rank.rank) + "]";
  return message;
}

/// The state of the handler. Never destroyed: a program may end in any order.
struct Ending {
  std::mutex mutex;
  std::terminate_handler before = nullptr;
  int64_t num_alive = 0;
  int64_t num_engines = 0;
  std::string place;
  std::exception_ptr placed;  ///< the exception that came at that place
  std::vector<const detail::Explanation*> explanations;
};

Ending& ending() {
  static auto* instance = new Ending;
  return *instance;
}

[[noreturn]] void end_as_before() {
  if (const auto before = ending().before) before();
  std::abort();
}

/// A program that has set a terminate handler wants to hear of what is not levin's.
bool program_ends_itself() {
  const auto before = ending().before;
#ifdef __GLIBCXX__
  if (before == __gnu_cxx::__verbose_terminate_handler) return false;
#endif
  return before != nullptr && before != static_cast<std::terminate_handler>(std::abort);
}

/// c10::Error adds the frames of the call below what it says.
std::string without_frames(std::string_view what) {
  std::string text(what.substr(0, what.find("\nException raised from")));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// Returns "[rank 1, epoch 3, batch 12]", as far as it is known and not said already.
std::string whence(const std::exception_ptr& thrown, bool says_rank) {
  std::string words;
  const RankInfo rank = rank_from_environment();
  if (rank.world_size > 1 && !says_rank) words = "rank " + std::to_string(rank.rank);
  if (thrown == ending().placed) words += (words.empty() ? "" : ", ") + ending().place;
  return words.empty() ? words : " [" + words + "]";
}

/// A line that stands before `what`, or "".
std::string explanation(std::string_view what) {
  for (const detail::Explanation* each : ending().explanations) {
    if (const std::string text = each->text(what); !text.empty()) return text + "\nerror: ";
  }
  return "";
}

[[noreturn]] void end_with(const std::string& text) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

/// A mistake of the user is no crash: its text, and the code of a program that failed. A core file
/// and "terminate called" would only hide it. No lock: it may be held where the program ends.
void end_with_text() {
  const auto thrown = std::current_exception();
  const char* frames = std::getenv("LEVIN_FRAMES");
  const bool whole = frames != nullptr && std::string_view(frames) != "0";
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    end_with(error.what() + whence(thrown, /*says_rank=*/true));
  } catch (const std::exception& error) {
    if (ending().num_engines == 0 || program_ends_itself()) end_as_before();
    if (!whole) {
      const std::string what = without_frames(error.what());
      end_with(explanation(what) + what + whence(thrown, /*says_rank=*/false) +
               " (LEVIN_FRAMES=1 shows where it was thrown)");
    }
    std::fprintf(stderr, "error%s:\n", whence(thrown, /*says_rank=*/false).c_str());
  } catch (...) {
    end_as_before();
  }
  end_as_before();
}

}  // namespace

detail::LastWords::LastWords(Of of) noexcept : of_(of) {
  Ending& end = ending();
  const std::lock_guard lock(end.mutex);
  if (end.num_alive++ == 0) end.before = std::set_terminate(end_with_text);
  if (of_ == Of::kEngine) ++end.num_engines;
}

detail::LastWords::~LastWords() {
  Ending& end = ending();
  std::exception_ptr forgotten;  // lets go of it after the lock: it may hold an Error
  const std::lock_guard lock(end.mutex);
  if (of_ == Of::kEngine && --end.num_engines == 0) end.placed.swap(forgotten);
  if (--end.num_alive == 0 && std::get_terminate() == end_with_text) std::set_terminate(end.before);
}

detail::Explanation::Explanation(Text text) : text_(std::move(text)) {
  Ending& end = ending();
  const std::lock_guard lock(end.mutex);
  end.explanations.push_back(this);
}

detail::Explanation::~Explanation() {
  Ending& end = ending();
  const std::lock_guard lock(end.mutex);
  std::erase(end.explanations, this);
}

std::string detail::last_words() {
  const auto thrown = std::current_exception();
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error.what() + whence(thrown, /*says_rank=*/true);
  } catch (const std::exception& error) {
    const std::string what = without_frames(error.what());
    return explanation(what) + what + whence(thrown, /*says_rank=*/false);
  } catch (...) {
  }
  return "an exception of no known type";
}

void detail::note_place(std::string place) noexcept {
  Ending& end = ending();
  std::exception_ptr thrown = std::current_exception();
  const std::lock_guard lock(end.mutex);
  end.place = std::move(place);
  end.placed.swap(thrown);
}

Error::Error(std::string id, std::string_view text, std::string_view file, int line)
    : std::runtime_error(compose(id, text)),
      id_(std::move(id)),
      text_(printable_lines(text)),
      where_(file.empty() ? "" : std::string(file) + ":" + std::to_string(line)),
      rank_(rank_from_environment().rank) {}

}  // namespace levin
