// libFuzzer: the states of a stream's loaders on two ranks, whatever they say, are gone on from by one
// rank, which reads no sample twice, or throw levin::Error.
//
//   fuzz_loader -max_total_time=20

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "levin/base/error.h"
#include "levin/checkpoint/state_json.h"
#include "levin/data/loader.h"
#include "tests/fuzz/limits.h"
#include "tests/support/in_shards.h"

namespace {

/// Of three shards; on so many ranks this one.
levin::DataLoader loader(levin::DataSlice slice) {
  static const auto data = levin::test::numbers_in_shards({5, 4, 3});
  levin::DataLoader made(data, {.batch_size = 2, .seed = 7, .open_shards = 2});
  made.set_slice(slice, /*even=*/true);
  return made;
}

void read_all(levin::DataLoader& from) {
  std::set<int64_t> seen;
  for (const levin::Batch& batch : from) {
    const at::Tensor& numbers = batch["index"];
    for (int64_t i = 0; i < numbers.size(0); ++i) {
      // The last batch of a rank may be filled up with samples from its own end.
      seen.insert(numbers[i].item<int64_t>());
    }
    if (seen.size() > 12) std::abort();
  }
}

void go_on(const levin::State& ranks) {
  {
    levin::DataLoader one = loader({0, 1});
    one.load_state_dict(levin::DataLoader::merged_state({ranks.child("0"), ranks.child("1")}));
    read_all(one);
  }
  levin::DataLoader same = loader({0, 2});
  same.load_state_dict(ranks.child("0"));
  read_all(same);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  levin::StateJson parts{std::string(reinterpret_cast<const char*>(data), size), {}};
  at::Tensor places = at::zeros({2, 2}, at::TensorOptions(at::kLong));
  places[0][1] = 1;
  parts.tensors.set("places", places).set("bounds", at::zeros({6}, at::TensorOptions(at::kLong)));
  try {
    go_on(levin::state_from_json(parts, "training_state.json"));
  } catch (const levin::Error& error) {
    const bool is_known = error.id().starts_with("checkpoint.") ||
                          error.id().starts_with("data.loader.") ||
                          error.id().starts_with("base.state.");
    if (!is_known) std::abort();
  }
  return 0;
}
