#include "levin/xla/device/compile/compile_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/xla/device/run/stopwatch.h"

namespace levin::xla {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr size_t kStackBytes = size_t{64} << 20;  // compilers recurse over large programs

struct BackgroundCompile {
  std::function<pjrt::Executable()> compile;
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  std::optional<pjrt::Executable> result;
  std::exception_ptr error;

  void run() {
    std::optional<pjrt::Executable> made;
    std::exception_ptr thrown;
    try {
      made = compile();
    } catch (...) {
      thrown = std::current_exception();
    }
    compile = nullptr;  // lets go of the client before anybody hears of the end
    const std::lock_guard lock(mutex);
    result = std::move(made);
    error = thrown;
    has_ended = true;
    ended.notify_all();
  }
};

/// The one that was left behind. Never destroyed: it may still run when the program ends.
struct LeftBehind {
  std::mutex mutex;
  std::shared_ptr<BackgroundCompile> compilation;
};

LeftBehind& left_behind() {
  static auto* left = new LeftBehind;
  return *left;
}

void start_thread_of(std::shared_ptr<BackgroundCompile> compilation) {
  auto* passed = new std::shared_ptr<BackgroundCompile>(std::move(compilation));
  const auto body = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<BackgroundCompile>> own(
        static_cast<std::shared_ptr<BackgroundCompile>*>(argument));
    (*own)->run();
    return nullptr;
  };
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  size_t stack_bytes = 0;
  ::pthread_attr_getstacksize(&attributes, &stack_bytes);
  ::pthread_attr_setstacksize(&attributes, std::max(stack_bytes, kStackBytes));
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread = {};
  const bool has_started = ::pthread_create(&thread, &attributes, body, passed) == 0;
  ::pthread_attr_destroy(&attributes);
  if (!has_started) body(passed);  // no threads are left: here then
}

/// Logs from time to time that compiling is still under way.
class Lines {
 public:
  explicit Lines(const CompileWatch& watch) : watch_(watch) {}
  double seconds() const { return stopwatch_.seconds(); }
  void look() {
    const double now_s = seconds();
    if (now_s - told_s_ < watch_.line_interval_s) return;
    told_s_ = now_s;
    log::info("xla: compiling {}, for {:.0f} s so far", watch_.what, now_s);
  }

 private:
  const CompileWatch& watch_;
  Stopwatch stopwatch_;
  double told_s_ = 0;
};

/// In this thread, beside one that tells of it.
pjrt::Executable compiled_here(const std::function<pjrt::Executable()>& compile,
                               const CompileWatch& watch) {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  Lines lines(watch);
  std::jthread teller([&] {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kLookEvery, [&] { return has_ended; })) lines.look();
  });
  struct Ending {
    std::mutex& mutex;
    std::condition_variable& ended;
    bool& has_ended;
    ~Ending() {
      const std::lock_guard lock(mutex);
      has_ended = true;
      ended.notify_all();
    }
  } const ending{mutex, ended, has_ended};
  return compile();
}

/// In a thread of its own, which is left behind where a signal comes.
pjrt::Executable compiled_apart(std::function<pjrt::Executable()> compile,
                                const CompileWatch& watch) {
  const auto compilation = std::make_shared<BackgroundCompile>();
  compilation->compile = std::move(compile);
  Lines lines(watch);
  start_thread_of(compilation);
  std::unique_lock lock(compilation->mutex);
  while (!compilation->ended.wait_for(lock, kLookEvery, [&] { return compilation->has_ended; })) {
    // The signal's handler has only noted it.
    if (const int signal = watch.stop_signal(); signal != 0) {
      const std::lock_guard leaving(left_behind().mutex);
      left_behind().compilation = compilation;
      LEVIN_FAIL("xla.interrupted",
                 "got {} while {} were compiled, for {:.0f} s so far, and the compiler cannot be "
                 "stopped; the run ends here, resume it from its last checkpoint",
                 signal == SIGINT ? "SIGINT" : "SIGTERM", watch.what, lines.seconds());
    }
    lines.look();
  }
  if (compilation->error) std::rethrow_exception(compilation->error);
  return *std::move(compilation->result);
}

}  // namespace

bool is_compiling() {
  LeftBehind& left = left_behind();
  const std::lock_guard lock(left.mutex);
  if (left.compilation == nullptr) return false;
  const std::lock_guard its_lock(left.compilation->mutex);
  return !left.compilation->has_ended;
}

pjrt::Executable watched(std::function<pjrt::Executable()> compile, const CompileWatch& watch) {
  LEVIN_CHECK(!is_compiling(), "xla.interrupted",
              "{} are not compiled, because a signal ended the run while an earlier compilation is "
              "still running; start the program again",
              watch.what);
  return watch.stop_signal == nullptr ? compiled_here(compile, watch)
                                      : compiled_apart(std::move(compile), watch);
}

}  // namespace levin::xla
