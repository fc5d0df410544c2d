#pragma once
// Link: one launcher's line to the store of the job, on a thread of its own, so that a network that
// hangs never keeps a launcher from its ranks. The thread of the serving launcher leads, too.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "levin/base/posix.h"
#include "levin/launch/options.h"
#include "levin/launch/rendezvous/messages.h"
#include "levin/launch/rendezvous/shared_store.h"

namespace levin::launch {

struct MeetingPoint;

class Link {
 public:
  explicit Link(const LaunchOptions& options);
  /// Says goodbye to the others. The launcher that serves stays until they have left, some seconds
  /// at most.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// The leader's messages about the start that was asked for.
  struct News {
    std::optional<GroupPlan> plan = std::nullopt;
    std::optional<StopNotice> stop = std::nullopt;
    std::optional<EndNotice> end = std::nullopt;
    std::exception_ptr error = nullptr;  ///< the line is down
    int64_t agent = -1;                  ///< this launcher's number; -1: it has not joined yet
    bool serves = false;
    Endpoint endpoint = {};
  };
  News news();
  /// Readable when there is news; news() makes it unreadable again.
  int descriptor() const { return line_->event.number(); }

  /// From now on news is about that start.
  void ask_for(int64_t attempt);
  void send_alarm(int64_t attempt, const Report& report);
  void send_report(int64_t attempt, const Report& report);
  /// This launcher takes no part any more, because of that signal.
  void send_leave(int signal);

 private:
  using Message = std::function<void(SharedStore&, const Keys&, int64_t agent)>;

  /// Shared with the thread, which outlives the link when the network hangs.
  struct Line {
    LaunchOptions options;
    posix::Descriptor event;
    std::atomic<bool> leave = false;
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<Message> outbox;
    int64_t attempt = 0;
    News news;
    std::chrono::steady_clock::time_point last_answer;  // time of the store's last answer
    bool silent = false;                                // no answer came: the thread may hang
    bool finished = false;
  };

  static void talk(const std::shared_ptr<Line>& line);
  static void listen_for_silence(const std::shared_ptr<Line>& line);
  static void join(Line& line, MeetingPoint& point, const Keys& keys);
  static void exchange(Line& line, MeetingPoint& point, const Keys& keys);
  static void read_news(Line& line, SharedStore& store, const Keys& keys);
  static void say_goodbye(Line& line, MeetingPoint& point, const Keys& keys);
  static bool is_silent(const Line& line);
  static void notify(Line& line);
  void send(Message message);

  std::shared_ptr<Line> line_;
  std::thread thread_;
  std::thread silence_;
};

}  // namespace levin::launch
