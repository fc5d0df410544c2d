// libFuzzer: what launchers tell each other reads as a message that is written and read as it is, or
// throws levin::Error; and no word opens that was not sealed with the token.
//
//   fuzz_messages -max_total_time=20

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "levin/base/error.h"
#include "levin/launch/rendezvous/messages.h"
#include "levin/launch/rendezvous/seal.h"
#include "tests/fuzz/limits.h"

namespace {

using namespace levin::launch;  // NOLINT

void check(const NodeInfo& info) {
  if (info.num_ranks < 1 || info.num_ranks > 1 << 16) std::abort();
}
void check(const Report& report) {
  if (report.signal < 0 || report.signal > 64) std::abort();
  if (report.failure && (report.failure->exit_code < 0 || report.failure->exit_code > 255)) {
    std::abort();
  }
}
void check(const GroupPlan& plan) {
  for (const GroupPlan::Node& node : plan.nodes) {
    if (node.agent < 0 || node.num_ranks < 1) std::abort();
  }
}
void check(const StopNotice&) {}
void check(const EndNotice& notice) {
  if (notice.exit_code < 0 || notice.exit_code > 255) std::abort();
}

template <class Message>
void read(std::string_view text) {
  try {
    Message message, again;
    decode(text, message);
    check(message);
    decode(encode(message), again);
    if (encode(again) != encode(message)) std::abort();
  } catch (const levin::Error& error) {
    if (error.id() != "launch.rendezvous") std::abort();
  }
}

}  // namespace

// The first letter says which message follows.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'i':
      read<NodeInfo>(text);
      break;
    case 'r':
      read<Report>(text);
      break;
    case 'p':
      read<GroupPlan>(text);
      break;
    case 's':
      read<StopNotice>(text);
      break;
    case 'e':
      read<EndNotice>(text);
      break;
    default:
      if (opened("a secret", "key", text)) std::abort();
      if (opened("a secret", "key", sealed("a secret", "key", text)) != std::string(text)) {
        std::abort();
      }
      if (opened("a secret", "other", sealed("a secret", "key", text))) std::abort();
  }
  return 0;
}
