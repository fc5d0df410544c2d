#include "levin/comm/shm/links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "levin/base/check.h"

namespace levin::comm::shm {
namespace {

/// First word on a new connection.
struct Greeting {
  int64_t rank = 0;
  int64_t is_life = 0;
};

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

bool readable(int fd, Deadline deadline) {
  pollfd wanted = {fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/// In the abstract namespace: no file is left behind.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy_n(name.data(), std::min(name.size(), sizeof(address.sun_path) - 2),
              address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Descriptor unix_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  LEVIN_CHECK(socket, "comm.shm.link", "a unix socket: {}", files::detail::reason(errno));
  return socket;
}

std::string random_name() {
  std::random_device random;
  return fmt::format("levin-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

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
  LEVIN_CHECK(sent == 1, "comm.shm.link", "a rank of this machine closed its link: {}",
              files::detail::reason(errno));
}

Descriptor receive_descriptor(int socket, Deadline deadline) {
  LEVIN_CHECK(readable(socket, deadline), "comm.shm.link",
              "the first rank of this machine shared no memory in time");
  DescriptorMessage letter;
  const auto received = ::recvmsg(socket, &letter.message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = received == 1 ? CMSG_FIRSTHDR(&letter.message) : nullptr;
  LEVIN_CHECK(header != nullptr && header->cmsg_type == SCM_RIGHTS, "comm.shm.link",
              "the first rank of this machine closed its link; its own error says why");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return Descriptor(fd);
}

}  // namespace

Links::Links(int64_t rank, int64_t size, const Board& board, Deadline deadline)
    : rank_(rank), size_(size), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (size_ == 1) return;
  if (rank_ == 0) {
    gather(random_name(), board, deadline);
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

void Links::gather(const std::string& name, const Board& board, Deadline deadline) {
  const Descriptor listener = unix_socket();
  const auto [address, length] = address_of(name);
  const bool listening =
      ::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      ::listen(listener.number(), static_cast<int>(2 * size_)) == 0;
  LEVIN_CHECK(listening, "comm.shm.link", "listening on a unix socket: {}",
              files::detail::reason(errno));
  board.write("hub", name);
  for (int64_t rank = 1; rank < size_; ++rank) links_.push_back({.rank = rank});
  for (int64_t missing = 2 * (size_ - 1); missing > 0; --missing) {
    if (!readable(listener.number(), deadline)) {
      const auto late = std::ranges::find_if(
          links_, [](const Link& link) { return !link.descriptors || !link.life; });
      LEVIN_FAIL("comm.shm.link", "rank {} did not come in time; look at its own output",
                 late->rank);
    }
    Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    Greeting greeting;
    const bool greeted =
        readable(socket.number(), deadline) &&
        ::recv(socket.number(), &greeting, sizeof(greeting), 0) == sizeof(greeting) &&
        greeting.rank > 0 && greeting.rank < size_;
    LEVIN_CHECK(greeted, "comm.shm.link", "a stranger connected to the ranks' socket");
    Link& link = links_[static_cast<size_t>(greeting.rank - 1)];
    (greeting.is_life != 0 ? link.life : link.descriptors) = std::move(socket);
  }
}

void Links::join(const std::string& name) {
  Link link;
  const auto [address, length] = address_of(name);
  for (int64_t is_life = 0; is_life < 2; ++is_life) {
    Descriptor socket = unix_socket();
    const Greeting greeting = {rank_, is_life};
    const bool linked =
        ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        ::send(socket.number(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
    LEVIN_CHECK(linked, "comm.shm.link",
                "no link to the first rank of this machine: {}; its own error says why",
                files::detail::reason(errno));
    (is_life != 0 ? link.life : link.descriptors) = std::move(socket);
  }
  links_.push_back(std::move(link));
}

Segment Links::share(size_t bytes, size_t reserved, Deadline deadline) {
  if (rank_ != 0) return Segment::map(receive_descriptor(links_[0].descriptors.number(), deadline));
  Segment segment = Segment::create(bytes, reserved);
  for (const Link& link : links_) {
    send_descriptor(link.descriptors.number(), segment.descriptor());
  }
  return segment;
}

void Links::watch(std::function<void(int64_t rank)> gone) {
  if (links_.empty()) return;
  watcher_ = std::thread([this, gone = std::move(gone)] { wait_for_end(gone); });
}

void Links::wait_for_end(const std::function<void(int64_t)>& gone) const {
  std::vector<pollfd> lives;
  for (const Link& link : links_) lives.push_back({link.life.number(), POLLIN, 0});
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
