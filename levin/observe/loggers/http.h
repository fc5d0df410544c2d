#pragma once
// HTTP requests by libcurl, which is loaded when the first one is made: levin is not linked with it.
// Not for users.

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::detail {

struct HttpRequest {
  std::string method;  ///< GET, POST or PUT
  std::string url;
  std::string body = {};
  std::optional<std::filesystem::path> file = {};  ///< whose bytes are the body
};

struct HttpReply {
  int64_t status = 0;  ///< 0: there was no answer
  std::string body;    ///< at most 16 MiB
  std::string error;   ///< why there was no answer
};

struct Curl;

/// A connection to a server, which is kept between requests. One thread at a time uses it.
class LEVIN_API Http {
 public:
  /// Loads the first of these libraries that is there. Throws Error "observe.logger.http" where none is.
  explicit Http(const std::vector<std::string>& libraries = {"libcurl.so.4",
                                                             "libcurl-gnutls.so.4"});
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// Lines "Name: value" of every request.
  void set_headers(std::vector<std::string> headers) { headers_ = std::move(headers); }
  /// "user:password"; empty: none.
  void set_user(std::string user) { user_ = std::move(user); }
  /// Ends with an error once a request was answered slower than that, or within a second of is_stopped.
  HttpReply send(const HttpRequest& request, const std::atomic<bool>& is_stopped);

 private:
  std::unique_ptr<const Curl> curl_;
  void* handle_ = nullptr;
  std::vector<std::string> headers_;
  std::string user_;
};

/// The text with every byte but letters, digits and "-._~/" as %XX.
std::string url_encoded(const std::string& text);

}  // namespace levin::detail
