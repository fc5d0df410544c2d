#pragma once
// LocalSGD: each process steps for itself, and every few steps they take the mean of their
// parameters. For a loop of one's own, around its steps.
//
//   LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 8});
//   for (const auto& batch : loader) {
//     ...
//     optimizer.step();
//     local_sgd.step();
//   }
//   local_sgd.end();

#include <cstdint>
#include <memory>
#include <optional>

#include "levin/accelerator/accelerator.h"
#include "levin/base/export.h"

namespace levin {

struct LocalSgdOptions {
  int64_t local_sgd_steps = 8;  ///< steps from one mean to the next
  bool enabled = true;
};

/// Until end() gradients stay those of each process. Follows accelerate.local_sgd.LocalSGD (Stich
/// 2018). Throws Error "accelerator.local_sgd".
class LEVIN_API LocalSGD {
 public:
  template <class Module>
  LocalSGD(Accelerator& accelerator, const PreparedModel<Module>& model,
           const LocalSgdOptions& options = {})
      : LocalSGD(accelerator, std::shared_ptr<torch::nn::Module>(model.unwrap()), options) {}

  /// After each optimizer step, by all processes.
  void step();
  /// Takes the mean once more; gradients are those of all processes again.
  void end();

 private:
  LocalSGD(Accelerator& accelerator, std::shared_ptr<torch::nn::Module> module,
           const LocalSgdOptions& options);
  void average();

  Accelerator& accelerator_;
  std::shared_ptr<torch::nn::Module> module_;
  LocalSgdOptions options_;
  int64_t steps_ = 0;
  std::optional<NoSyncScope> no_sync_;
};

}  // namespace levin
