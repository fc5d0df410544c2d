// libFuzzer: read_npy and read_npz throw levin::Error or give arrays whose elements are all there.
//
//   fuzz_arrays -max_total_time=20

#include <ATen/core/Tensor.h>

#include "levin/base/error.h"
#include "levin/data/sources/sources.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

namespace {

/// Reads every byte.
void touch_array(const at::Tensor& array) {
  const at::Tensor copy = array.contiguous();
  const auto* byte = static_cast<const volatile uint8_t*>(copy.const_data_ptr());
  for (size_t i = 0; i < copy.nbytes(); ++i) static_cast<void>(byte[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const MemoryFile file(data, size);
  try {
    touch_array(levin::data::read_npy(file.path()));
  } catch (const levin::Error&) {
  }
  try {
    for (const auto& [name, array] : levin::data::read_npz(file.path())) touch_array(array);
  } catch (const levin::Error&) {
  }
  return 0;
}
