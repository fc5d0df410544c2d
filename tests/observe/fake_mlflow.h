#pragma once
// A server on this machine that says what a test wants and keeps what it was asked: MLflow's protocol
// as mlflow 3.18 speaks it.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace levin::test {

struct Asked {
  std::string line;  ///< "POST /api/2.0/mlflow/runs/create"
  std::string headers;
  std::string body;
};

class FakeServer {
 public:
  struct Answer {
    int status = 200;
    std::string body = "{}";
  };
  using Speaker = std::function<Answer(const Asked&)>;

  explicit FakeServer(Speaker speaker) : speaker_(std::move(speaker)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, any, size) != 0 || ::listen(socket_, 8) != 0) std::abort();
    ::getsockname(socket_, any, &size);
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string uri() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<Asked> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve() {
    for (int peer = 0; (peer = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      answer(peer);
      ::close(peer);
    }
  }
  void answer(int peer) {
    std::string bytes;
    size_t end = std::string::npos, length = 0;
    while (end == std::string::npos || bytes.size() < end + length) {
      char part[4096];
      const ssize_t read = ::recv(peer, part, sizeof part, 0);
      if (read <= 0) return;
      bytes.append(part, static_cast<size_t>(read));
      end = bytes.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      end += 4;
      const size_t at = bytes.find("Content-Length: ");
      if (at < end) length = std::stoul(bytes.substr(at + 16));
    }
    Asked asked{bytes.substr(0, bytes.find(" HTTP/")), bytes.substr(0, end),
                bytes.substr(end, length)};
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(asked);
    }
    const Answer said = speaker_(asked);
    const std::string reply =
        "HTTP/1.1 " + std::to_string(said.status) +
        " X\r\nConnection: close\r\nContent-Length: " + std::to_string(said.body.size()) +
        "\r\n\r\n" + said.body;
    static_cast<void>(::send(peer, reply.data(), reply.size(), MSG_NOSIGNAL));
  }

  Speaker speaker_;
  int socket_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
  std::thread thread_;
};

}  // namespace levin::test
