#include "levin/observe/loggers/http.h"

#include <dlfcn.h>

#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <type_traits>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/base/reading/regular_file.h"

namespace levin::detail {

struct List;

/// Functions of libcurl.
struct Curl {
  int (*global_init)(long flags) = nullptr;  // NOLINT
  void* (*easy_init)() = nullptr;
  int (*easy_setopt)(void* handle, int option, ...) = nullptr;
  int (*easy_perform)(void* handle) = nullptr;
  int (*easy_getinfo)(void* handle, int info, ...) = nullptr;
  void (*easy_reset)(void* handle) = nullptr;
  void (*easy_cleanup)(void* handle) = nullptr;
  const char* (*easy_strerror)(int code) = nullptr;
  List* (*slist_append)(List* list, const char* text) = nullptr;
  void (*slist_free_all)(List* list) = nullptr;
};

namespace {

// Constants of curl/curl.h, which the library keeps the same for as long as it is libcurl.so.4.
constexpr int kWriteData = 10001, kUrl = 10002, kReadData = 10009, kErrorBuffer = 10010,
              kPostFields = 10015, kHttpHeader = 10023, kCustomRequest = 10036,
              kUserPassword = 10005, kXferInfoData = 10057, kWriteFunction = 20011,
              kReadFunction = 20012, kXferInfoFunction = 20219, kInFileSizeLarge = 30115,
              kPostFieldSizeLarge = 30120, kLowSpeedLimit = 19, kLowSpeedTime = 20,
              kNoProgress = 43, kUpload = 46, kNoSignal = 99, kTimeoutMs = 155,
              kConnectTimeoutMs = 156, kProtocols = 181;
constexpr int kResponseCode = 0x200000 + 2;
constexpr long kAllDefaults = 3, kHttpAndHttps = 1 | 2;  // NOLINT: long is what libcurl reads
constexpr long kConnectMs = 5'000, kRequestMs = 30'000;  // NOLINT
constexpr size_t kErrorSize = 256, kMostBytes = size_t{16} << 20;

/// Null where none of them is there, or one that lacks a function. It stays loaded.
std::unique_ptr<const Curl> load(const std::vector<std::string>& libraries) {
  void* library = nullptr;
  for (const std::string& name : libraries) {
    library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return nullptr;
  auto curl = std::make_unique<Curl>();
  bool all = true;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(  // NOLINT
        ::dlsym(library, name));
    all = all && function != nullptr;
  };
  find("curl_global_init", curl->global_init);
  find("curl_easy_init", curl->easy_init);
  find("curl_easy_setopt", curl->easy_setopt);
  find("curl_easy_perform", curl->easy_perform);
  find("curl_easy_getinfo", curl->easy_getinfo);
  find("curl_easy_reset", curl->easy_reset);
  find("curl_easy_cleanup", curl->easy_cleanup);
  find("curl_easy_strerror", curl->easy_strerror);
  find("curl_slist_append", curl->slist_append);
  find("curl_slist_free_all", curl->slist_free_all);
  if (!all || curl->global_init(kAllDefaults) != 0) return nullptr;
  return curl;
}

size_t take_body(char* bytes, size_t size, size_t count, void* into) {
  auto& body = *static_cast<std::string*>(into);
  if (body.size() + size * count > kMostBytes) return 0;  // which ends the request
  body.append(bytes, size * count);
  return size * count;
}

size_t give_file(char* bytes, size_t size, size_t count, void* from) {
  constexpr size_t kAbort = 0x10000000;
  const auto& file = *static_cast<const posix::Descriptor*>(from);
  const int64_t read =
      posix::read_some(file, std::as_writable_bytes(std::span(bytes, size * count)));
  return read < 0 ? kAbort : static_cast<size_t>(read);
}

int look_at_stop(void* is_stopped, int64_t, int64_t, int64_t, int64_t) {
  return static_cast<const std::atomic<bool>*>(is_stopped)->load() ? 1 : 0;
}

}  // namespace

Http::Http(const std::vector<std::string>& libraries) : curl_(load(libraries)) {
  LEVIN_CHECK(curl_ != nullptr, "observe.logger.http",
              "found no libcurl.so.4, by which levin speaks to servers; install libcurl (Debian, "
              "Ubuntu: libcurl4)");
  handle_ = curl_->easy_init();
  LEVIN_CHECK(handle_ != nullptr, "observe.logger.http", "libcurl could not be initialized");
}

Http::~Http() {
  if (handle_ != nullptr) curl_->easy_cleanup(handle_);
}

HttpReply Http::send(const HttpRequest& request, const std::atomic<bool>& is_stopped) {
  HttpReply reply;
  std::array<char, kErrorSize> error = {};
  const auto set = [&](int option, auto value) { curl_->easy_setopt(handle_, option, value); };
  curl_->easy_reset(handle_);
  set(kUrl, request.url.c_str());
  set(kProtocols, kHttpAndHttps);
  set(kNoSignal, 1L);
  set(kErrorBuffer, error.data());
  set(kConnectTimeoutMs, kConnectMs);
  set(kWriteFunction, &take_body);
  set(kWriteData, &reply.body);
  set(kNoProgress, 0L);
  set(kXferInfoFunction, &look_at_stop);
  set(kXferInfoData, &is_stopped);
  if (!user_.empty()) set(kUserPassword, user_.c_str());
  std::string why;
  std::optional<posix::RegularFile> opened;
  if (request.file) {
    opened = posix::open_regular(*request.file, why);
    if (!opened) {
      reply.error = why;
      return reply;
    }
    set(kUpload, 1L);
    set(kReadFunction, &give_file);
    set(kReadData, &opened->file);
    set(kInFileSizeLarge, opened->size);
    set(kLowSpeedLimit, 1L);
    set(kLowSpeedTime, kRequestMs / 1000);
  } else {
    set(kTimeoutMs, kRequestMs);
    if (request.method == "POST") {
      set(kPostFields, request.body.data());
      set(kPostFieldSizeLarge, static_cast<int64_t>(request.body.size()));
    }
  }
  set(kCustomRequest, request.method.c_str());
  const std::string kind = std::string("Content-Type: ") +
                           (request.file ? "application/octet-stream" : "application/json");
  List* headers = curl_->slist_append(nullptr, kind.c_str());
  for (const std::string& header : headers_) {
    headers = curl_->slist_append(headers, header.c_str());
  }
  set(kHttpHeader, headers);
  const int code = curl_->easy_perform(handle_);
  curl_->slist_free_all(headers);
  if (code == 0) {
    long status = 0;  // NOLINT
    curl_->easy_getinfo(handle_, kResponseCode, &status);
    reply.status = status;
  } else {
    reply.error = error[0] != '\0' ? error.data() : curl_->easy_strerror(code);
  }
  return reply;
}

std::string url_encoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain =
        byte < 128 &&
        (std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string_view::npos);
    encoded += is_plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return encoded;
}

}  // namespace levin::detail
