// libFuzzer: state_from_json gives a state that is written and read as it is, or throws
// levin::Error.
//
//   fuzz_state -max_total_time=20

#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstdlib>

#include "levin/base/error.h"
#include "levin/checkpoint/state_json.h"
#include "tests/fuzz/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  static const at::Tensor tensor = at::zeros({2});
  levin::StateJson parts{std::string(reinterpret_cast<const char*>(data), size), {}};
  parts.tensors.set("w", tensor);
  try {
    const levin::State state = levin::state_from_json(parts, "training_state.json");
    const levin::StateJson once = levin::state_to_json(state);
    const levin::StateJson twice =
        levin::state_to_json(levin::state_from_json(once, "training_state.json"));
    if (once.json != twice.json || once.tensors.values().size() != twice.tensors.values().size())
      std::abort();
  } catch (const levin::Error& error) {
    if (error.id() != "checkpoint.corrupt" && error.id() != "checkpoint.path") std::abort();
  }
  return 0;
}
