#include <fmt/ranges.h>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt::detail {
namespace {

/// Takes the error over and returns its message, without the text that XLA appends about its own
/// source.
std::string take_message(const PJRT_Api* api, PJRT_Error* error) {
  LEVIN_PJRT_ARGS(PJRT_Error_Message, args);
  args.error = error;
  api->PJRT_Error_Message(&args);
  std::string text(args.message, args.message_size);
  free_error(api, error);
  const size_t trace = text.find("\n=== Source Location Trace");
  if (trace != std::string::npos) text.resize(trace);
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

void free_error(const PJRT_Api* api, PJRT_Error* error) noexcept {
  LEVIN_PJRT_ARGS(PJRT_Error_Destroy, args);
  args.error = error;
  api->PJRT_Error_Destroy(&args);
}

PJRT_Error_Code code_of(const PJRT_Api* api, PJRT_Error* error) {
  LEVIN_PJRT_ARGS(PJRT_Error_GetCode, args);
  args.error = error;
  PJRT_Error* failure = api->PJRT_Error_GetCode(&args);
  if (failure == nullptr) return args.code;
  free_error(api, failure);
  return PJRT_Error_Code_UNKNOWN;
}

void fail(const PJRT_Api* api, PJRT_Error* error, Doing doing, std::string_view subject) {
  const PJRT_Error_Code code = code_of(api, error);
  const std::string text = fmt::format("{}: {}", subject, take_message(api, error));
  if (code == PJRT_Error_Code_RESOURCE_EXHAUSTED) {
    LEVIN_FAIL("xla.memory", "{}; use a smaller batch or model, or shard over more devices", text);
  }
  switch (doing) {
    case Doing::kClient:
      LEVIN_FAIL("xla.client", "{}", text);
    case Doing::kTransfer:
      LEVIN_FAIL("xla.transfer", "{}", text);
    case Doing::kCompile:
      LEVIN_FAIL("xla.compile", "{}", text);
    case Doing::kExecute:
      LEVIN_FAIL("xla.execute", "{}", text);
    case Doing::kLoad:
      LEVIN_FAIL("xla.load", "{}; compile the program again", text);
    case Doing::kSerialize:
      LEVIN_FAIL("xla.serialize", "{}", text);
    case Doing::kProgram:
      LEVIN_FAIL("xla.program", "{}", text);
    case Doing::kTopology:
      break;
  }
  LEVIN_FAIL("xla.topology", "{}; libtpu knows {} and others of that pattern", text,
             fmt::join(known_topologies(), ", "));
}

bool is_implemented(const PJRT_Api* api, PJRT_Error* error, Doing doing, std::string_view subject) {
  if (error == nullptr) return true;
  if (code_of(api, error) != PJRT_Error_Code_UNIMPLEMENTED) fail(api, error, doing, subject);
  free_error(api, error);
  return false;
}

bool is_ready(const PJRT_Api* api, PJRT_Event* event) {
  LEVIN_PJRT_ARGS(PJRT_Event_IsReady, args);
  args.event = event;
  check(api, api->PJRT_Event_IsReady(&args), Doing::kTransfer, "asking an event");
  return args.is_ready;
}

PJRT_Error* await(const PJRT_Api* api, PJRT_Event* event) {
  LEVIN_PJRT_ARGS(PJRT_Event_Await, args);
  args.event = event;
  PJRT_Error* error = api->PJRT_Event_Await(&args);
  free_event(api, event);
  return error;
}

void free_event(const PJRT_Api* api, PJRT_Event* event) noexcept {
  LEVIN_PJRT_ARGS(PJRT_Event_Destroy, args);
  args.event = event;
  PJRT_Error* error = api->PJRT_Event_Destroy(&args);
  if (error != nullptr) free_error(api, error);
}

void Origin::fail(PJRT_Error* error) const {
  if (subject.empty()) {
    detail::fail(api, error, Doing::kTransfer, "a tensor on its way to or from a device");
  }
  detail::fail(api, error, Doing::kExecute, subject);
}

}  // namespace levin::xla::pjrt::detail
