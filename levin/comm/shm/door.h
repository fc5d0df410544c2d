#pragma once
// Door: where the ranks of one machine come to the first of them. A unix socket whose name any
// local process can read, so that who knocks has to be of the same user and to know the token; all
// others are sent away, and keep nobody waiting.
//
//   Door door(size);
//   board.write("hub", door.word());
//   while (auto caller = door.admit(deadline)) links[caller->rank] = std::move(caller->socket);

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::comm::shm {

using posix::Descriptor;
using Deadline = std::chrono::steady_clock::time_point;

/// Waits for at most an hour at a time.
bool readable(int fd, Deadline deadline);
int milliseconds_until(Deadline deadline);

class LEVIN_API Door {
 public:
  /// Opens the door of a machine with so many ranks. Throws "comm.shm.link" when there can be no
  /// socket.
  explicit Door(int64_t size);

  /// Returns the word with which the others knock().
  std::string word() const { return name_ + " " + token_; }

  struct Caller {
    int64_t rank = 0;  ///< from 1 to size - 1
    Descriptor socket;
  };
  /// The next one that is let in; none at the deadline. Strangers are named in the log.
  std::optional<Caller> admit(Deadline deadline);

 private:
  struct Visitor {
    Descriptor socket;
    pid_t pid = 0;
    Deadline until;
  };

  void accept_all();
  void let_wait(Descriptor socket);
  void send_away_late();
  std::optional<Caller> hear(Visitor& visitor);
  Deadline next_look(Deadline deadline) const;
  void turn_away(pid_t pid, std::string_view why);

  int64_t size_;
  std::string name_;
  std::string token_;
  Descriptor listener_;
  std::list<Visitor> visitors_;  ///< who has not said who it is, the oldest first
  int64_t num_strangers_ = 0;
};

/// A connection to the door of that word, on which this rank has said who it is. Throws
/// "comm.shm.link", also where another user's process listens there.
LEVIN_API Descriptor knock(std::string_view word, int64_t rank);

}  // namespace levin::comm::shm
