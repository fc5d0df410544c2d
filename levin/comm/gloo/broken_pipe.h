#pragma once
// NoBrokenPipe: gloo writes to its connections without MSG_NOSIGNAL, so that a rank whose peer has
// ended would be killed by SIGPIPE, without a word. While one of these lives, this thread's writes give
// an error in its place. Threads that are started meanwhile keep that.
//
//   const NoBrokenPipe guard;
//   connection.send(data, peer, tag);

#include <csignal>
#include <ctime>

namespace levin::comm {

class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t before;
    ::sigpending(&before);
    was_pending_ = ::sigismember(&before, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &mask_);
  }
  ~NoBrokenPipe() {
    constexpr timespec kAtOnce = {};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &kAtOnce);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_ = {}, mask_ = {};
  bool was_pending_ = false;
};

}  // namespace levin::comm
