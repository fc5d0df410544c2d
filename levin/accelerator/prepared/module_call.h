#pragma once
// ModuleCall: what a member of a prepared model runs under, from `model->` to the statement's end.

#include <memory>
#include <optional>

#include "levin/accelerator/stepping/forward_scope.h"
#include "levin/accelerator/stepping/precision.h"
#include "levin/base/export.h"

namespace levin {

/// A module's code runs under these: precision, ranks of batch norm (may be null), strategy.
struct ForwardConditions {
  Precision precision = {};
  at::DeviceType device = at::kCPU;
  std::shared_ptr<comm::ProcessGroup> synced = nullptr;
  std::shared_ptr<Strategy> strategy = nullptr;
};

/// Objects of a thread are a stack, as the temporaries of its statements are.
class LEVIN_API ModuleCall {
 public:
  /// key: the module's. The conditions must outlive the object.
  ModuleCall(const void* key, const ForwardConditions& conditions);
  ~ModuleCall();
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  /// Returns this thread's newest call of that module. It is a programmer's mistake to ask where there is none.
  static ModuleCall& newest(const void* key);
  /// That of newest() ends before its statement does: its values are used by code outside of the
  /// module. The order in which a statement's calls are made is the compiler's to choose, so that
  /// autocast ends for all of the module's.
  static void end(const void* key);

 private:
  void open();
  void close();
  static void open_inside(ModuleCall* call, const ModuleCall* outermost);

  const void* key_;
  const ForwardConditions& conditions_;
  ModuleCall* outer_;
  bool casts_ = true;     ///< under the precision's autocast
  bool computes_ = true;  ///< under the strategy
  std::optional<ForwardScope> scope_;
};

}  // namespace levin
