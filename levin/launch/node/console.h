#pragma once
// Console: the launcher's stdout and stderr, written by threads of their own. A pipe that nobody
// reads or a terminal that is held (ctrl-S) blocks these, and never the launcher's watch over its
// ranks.
//
//   Console console;
//   console.write(STDOUT_FILENO, "[rank 1] epoch 3\n");      // returns at once
//   if (console.is_full()) ...                // read no more from ranks until descriptor() says so

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "levin/base/export.h"

namespace levin::launch {

/// A slow reader loses nothing: ranks wait for it, as they would for their own pipe. Output is
/// dropped, and a line says how much, only when the launcher has to end (hurry) or the reader took
/// nothing for half a minute. While a Console lives log lines go through it too, in a program that
/// has set no sink for them. For all threads.
class LEVIN_API Console {
 public:
  Console();
  /// Waits for an instant; see flush.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// number: STDOUT_FILENO or STDERR_FILENO.
  void write(int number, std::string_view text);
  /// So much waits that ranks should.
  bool is_full() const;
  /// Readable once there is room again after is_full(), which makes it unreadable.
  int descriptor() const;
  /// Stops waiting for a reader.
  void hurry();
  /// Waits until all is written, for as long as some of it is taken; an instant after hurry() or
  /// when give_up says so.
  void flush(const std::function<bool()>& give_up);

 private:
  struct State;
  static void put(State& state, int number, std::string_view text);
  static void drain(const std::shared_ptr<State>& state, size_t lane);

  std::shared_ptr<State> state_;  // the threads outlive the console where they are blocked
};

}  // namespace levin::launch
