#pragma once
// levin::Error: the exception that levin throws when the user made a mistake or when a file, a
// device, the network or another process failed. Every part of levin throws it. The Trainer lets it
// end the run and shows its message.
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

/// While an object of this class lives, an uncaught Error ends the program with exit code 1 and one
/// line on stderr (the rank, and the place in the run). Of::kEngine does so for any std::exception,
/// unless the program has a terminate handler of its own. LEVIN_FRAMES=1 shows the whole message
/// and leaves a core file. Instances are counted: the last one restores the previous terminate
/// handler, unless the program has set another one meanwhile.
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

/// Records the place in the run ("epoch 3, batch 12") for the message of the exception that is
/// being handled. It is called in a catch block.
LEVIN_API void note_place(std::string place) noexcept;

}  // namespace detail

/// An error with an id. what() reads "id: text [rank r]"; the rank is left out when there is one
/// process only. The text is lower case and says what came, what was wanted and what to do. The ids
/// can be searched for; docs/errors.md lists them. If no code catches an Error, the process ends
/// with "error: ..." on stderr and exit code 1. While a Trainer or an Accelerator exists, any other
/// std::exception ends the process in the same way.
class LEVIN_API Error : public std::runtime_error {
 public:
  /// id: "room.name", such as "trainer.monitor". text: the message without id and rank. file and
  /// line: the source place that where() returns.
  Error(std::string id, std::string_view text, std::string_view file = "", int line = 0);

  /// The id, such as "trainer.monitor".
  const std::string& id() const noexcept { return id_; }
  /// The message without the id and the rank. Control characters are escaped so that it can be
  /// printed; newlines and tabs are kept.
  const std::string& text() const noexcept { return text_; }
  /// Rank of the process that threw, from the environment (RANK, or what mpirun or Slurm set); 0
  /// when none is set.
  int64_t rank() const noexcept { return rank_; }
  /// Source place of the check, such as "levin/data/loader.cpp:41".
  const std::string& where() const noexcept { return where_; }

 private:
  std::string id_;
  std::string text_;
  std::string where_;
  int64_t rank_;
  detail::LastWords last_words_;
};

}  // namespace levin
