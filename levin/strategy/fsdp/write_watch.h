#pragma once
// WriteWatch: refuses writes to parameters within a forward or backward pass, when all ranks read
// their memory. It learns of a write from an operator's arguments (LazyGather asks before it runs the
// operator), and in passes whose operators nobody sees from the kernel: memory that ranks share is
// mapped read-only, and the signal handler names the parameter before the process ends.
//
//   WriteWatch::refuse(parameter, "aten::add_");            // throws "strategy.fsdp.write"
//   WriteWatch watch(rank);
//   watch.add(parameter, mapped_values);                    // from now on SIGSEGV names it

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <forward_list>
#include <string>
#include <string_view>

#include "levin/shard/sharded_parameter.h"

namespace levin::fsdp {

/// While there is one SIGSEGV is handled here, then by whatever handled it before.
class WriteWatch {
 public:
  explicit WriteWatch(int64_t rank);
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  /// Throws Error "strategy.fsdp.write": the operator writes to the parameter.
  [[noreturn]] static void refuse(const shard::ShardedParameter& parameter,
                                  std::string_view op_name);
  /// Watches memory that is mapped read-only, in which the parameter's full values are.
  void add(const shard::ShardedParameter& parameter, const at::Tensor& values);

 private:
  friend struct Signals;
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    std::string text;
  };
  int64_t rank_;
  std::forward_list<Range> ranges_;
};

}  // namespace levin::fsdp
