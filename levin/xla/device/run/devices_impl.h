#pragma once
// Devices: what runs. Tensors go up to this process's devices of the plugin, programs run on them,
// and contents come down. It knows nothing of recordings.

#include <c10/util/FunctionRef.h>

#include <vector>

#include "levin/base/error.h"
#include "levin/xla/device/contents.h"
#include "levin/xla/device/run/world.h"
#include "levin/xla/pjrt/client.h"
#include "levin/xla/pjrt/executable.h"
#include "levin/xla/stablehlo/program.h"

namespace levin::xla {

/// The arguments of a run of a program.
struct RunArguments {
  std::vector<Contents*> inputs = {};
  std::vector<double> numbers = {}, wide_numbers = {};
  bool draws_random_numbers = false;
};

class Devices {
 public:
  Devices(const RuntimeOptions& options, LiveContents& live, RuntimeReport& report);

  int64_t count() const { return count_; }
  const pjrt::Client& client() const { return client_; }
  World& world() { return world_; }
  pjrt::CompileOptions compile_options(int64_t num_replicas) const;

  void upload(Contents& contents, const at::Tensor& tensor, bool split);
  /// Runtime::set_split.
  bool splits_uploads = false;
  /// If it fails, pending contents are lost; if the plugin had begun, so are the contents that the
  /// program was about to change.
  void execute(const pjrt::Executable& executable, const RunArguments& arguments);
  /// The outputs of the last run, to where they belong; nullptr: nowhere.
  void take_outputs(size_t count, c10::function_ref<Contents*(size_t)> place_of);
  /// The outputs of the last run of a program that changes nothing.
  std::vector<at::Tensor> downloaded_outputs(const Program& program);
  /// The contents that are there, without what was recorded since.
  at::Tensor contents_of(const Contents& contents);
  at::Tensor contents_of(const at::Tensor& tensor);

 private:
  void gather(const RunArguments& arguments);
  [[noreturn]] void fail(const pjrt::Executable& executable, const Error& error);

  World world_;
  pjrt::Client client_;
  LiveContents& live_;
  RuntimeReport& report_;
  int64_t count_ = 1;
  std::vector<int64_t> ids_;                    ///< device ids of all processes, rank by rank
  std::vector<const pjrt::Buffer*> arguments_;  ///< of the last run, as the next two
  std::vector<pjrt::Buffer> uploaded_;
  std::vector<pjrt::Buffer> outputs_;
};

}  // namespace levin::xla
