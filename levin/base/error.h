#pragma once
// The one exception levin throws for a user's mistake or a failed outside world.
// Thrown by every room; caught by the trainer, which ends the run with the message.
//
//   try { trainer.fit(module, data); }
//   catch (const levin::Error& error) { if (error.id() == "trainer.monitor") ... }

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {

namespace detail {

/// While it lives, an uncaught Error ends the program with one line on stderr (rank, and where the
/// run stood) and exit code 1. Of::kEngine does so for any std::exception, unless the program has a
/// terminate handler of its own. LEVIN_FRAMES=1 shows the whole message and leaves a core file.
/// Instances are counted: the last one restores the handler from before, unless the program has set
/// another meanwhile.
class LEVIN_API LastWords {
 public:
  enum class Of { kError, kEngine };
  explicit LastWords(Of of = Of::kError) noexcept;
  LastWords(const LastWords& other) noexcept : LastWords(other.of_) {}
  LastWords& operator=(const LastWords&) noexcept { return *this; }
  ~LastWords();

 private:
  Of of_;
};

/// Called in a handler: where the run stood ("epoch 3, batch 12") when this exception came.
LEVIN_API void note_place(std::string place) noexcept;

}  // namespace detail

/// what() reads "id: text [rank r]" (the rank only in a run of several), where text is lower case
/// and says what came, what was wanted and what to do. Ids are greppable; docs/errors.md lists
/// them. One that nobody catches ends the process with "error: ..." on stderr and code 1, as any
/// std::exception does while there is a Trainer or an Accelerator.
class LEVIN_API Error : public std::runtime_error {
 public:
  Error(std::string id, std::string_view text, std::string_view file = "", int line = 0);

  const std::string& id() const noexcept { return id_; }
  /// Without the id and the rank. Control characters but newlines and tabs are escaped (printable).
  const std::string& text() const noexcept { return text_; }
  /// Rank of the process that threw, from the environment (RANK), 0 when it is not set.
  int64_t rank() const noexcept { return rank_; }
  /// Source place of the check, "levin/data/loader.cpp:41".
  const std::string& where() const noexcept { return where_; }

 private:
  std::string id_;
  std::string text_;
  std::string where_;
  int64_t rank_;
  detail::LastWords last_words_;
};

}  // namespace levin
