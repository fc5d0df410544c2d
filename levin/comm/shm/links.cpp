#include "levin/comm/shm/links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "levin/base/check.h"

namespace levin::comm::shm {
namespace {

/// One byte with room for a descriptor beside it. Stays where it was made: its parts point at each
/// other.
struct DescriptorMessage {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};

  DescriptorMessage() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

void send_descriptor(int socket, int fd) {
  DescriptorMessage letter;
  cmsghdr* header = CMSG_FIRSTHDR(&letter.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  const auto sent = ::sendmsg(socket, &letter.message, MSG_NOSIGNAL);
  LEVIN_CHECK(sent == 1, "comm.shm.link", "a rank of this machine closed its connection: {}",
              posix::reason(errno));
}

Descriptor receive_descriptor(int socket, Deadline deadline) {
  LEVIN_CHECK(
      readable(socket, deadline), "comm.shm.link",
      "the first rank of this machine did not share its memory in time; look at its output");
  DescriptorMessage letter;
  const auto received = ::recvmsg(socket, &letter.message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = received == 1 ? CMSG_FIRSTHDR(&letter.message) : nullptr;
  LEVIN_CHECK(header != nullptr && header->cmsg_level == SOL_SOCKET &&
                  header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)),
              "comm.shm.link",
              "the first rank of this machine closed its connection; see that rank's error");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return Descriptor(fd);
}

}  // namespace

Links::Links(int64_t rank, int64_t size, const Board& board, Deadline deadline)
    : rank_(rank), size_(size), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (size_ == 1) return;
  if (rank_ == 0) {
    gather(board, deadline);
  } else {
    join(board.read("hub"));
  }
}

Links::~Links() { stop_watching(); }

void Links::stop_watching() {
  if (!watcher_.joinable()) return;
  ::eventfd_write(stop_.number(), 1);
  watcher_.join();
}

void Links::gather(const Board& board, Deadline deadline) {
  Door door(size_);
  board.write("hub", door.word());
  for (int64_t rank = 1; rank < size_; ++rank) links_.push_back({.rank = rank});
  for (int64_t missing = size_ - 1; missing > 0;) {
    auto caller = door.admit(deadline);
    if (!caller) {
      const auto late = std::ranges::find_if(links_, [](const Link& link) { return !link.socket; });
      LEVIN_FAIL("comm.shm.link", "rank {} did not connect in time; look at its output",
                 late->rank);
    }
    Descriptor& place = links_[static_cast<size_t>(caller->rank - 1)].socket;
    if (place) continue;  // the first to come has it
    place = std::move(caller->socket);
    --missing;
  }
}

void Links::join(const std::string& word) { links_.push_back({.socket = knock(word, rank_)}); }

Segment Links::share(size_t bytes, size_t reserved, Deadline deadline) {
  if (rank_ != 0) {
    return Segment::map(receive_descriptor(links_[0].socket.number(), deadline), bytes);
  }
  Segment segment = Segment::create(bytes, reserved);
  for (const Link& link : links_) {
    send_descriptor(link.socket.number(), segment.descriptor());
  }
  return segment;
}

void Links::watch(std::function<void(int64_t rank)> gone) {
  if (links_.empty()) return;
  watcher_ = std::thread([this, gone = std::move(gone)] { wait_for_end(gone); });
}

// The other end of a socket is closed when its process ends (POLLHUP). share() reads the data that
// the hub has written to it.
void Links::wait_for_end(const std::function<void(int64_t)>& gone) const {
  std::vector<pollfd> lives;
  for (const Link& link : links_) lives.push_back({link.socket.number(), 0, 0});
  lives.push_back({stop_.number(), POLLIN, 0});
  while (::poll(lives.data(), lives.size(), -1) >= 0 || errno == EINTR) {
    if (lives.back().revents != 0) return;
    for (size_t i = 0; i < links_.size(); ++i) {
      if (lives[i].fd < 0 || lives[i].revents == 0) continue;
      lives[i].fd = -1;  // poll passes it over from now on
      gone(links_[i].rank);
    }
  }
}

}  // namespace levin::comm::shm
