#pragma once
// GradientExchange: a module's gradients averaged over the ranks after backward, by operators that
// a recording has as nodes.
//
//   exchange.begin();
//   levin::backward(loss);
//   exchange.reduce();

#include <vector>

#include "levin/comm/process_group.h"
#include "levin/module/parameters.h"
#include "levin/strategy/ddp/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::ddp {

class GradientExchange {
 public:
  /// The buffers of the module are rank 0's after each exchange, if options say so.
  GradientExchange(const comm::ProcessGroup& group, torch::nn::Module& module,
                   const DdpOptions& options);

  /// Whether all that the options ask for is what it does.
  static bool does(const DdpOptions& options) {
    return options.comm_hook == "none" && options.local_sgd_start_step < 0 &&
           !options.overlap_update;
  }

  bool is_of(const torch::nn::Module& module) const { return module_ == &module; }

  /// Before a backward.
  void begin();
  /// After it; does nothing where it has touched none of the parameters. Throws Error
  /// "strategy.ddp.unused" where it left one out and options do not say that it may.
  void reduce();

 private:
  /// A gradient, and whether a backward has written to it since.
  class Mark {
   public:
    explicit Mark(const at::Tensor& parameter) : gradient_(parameter.grad()) {
      if (gradient_.defined()) version_ = gradient_._version();
    }
    bool is_touched(const at::Tensor& parameter) const {
      const at::Tensor& now = parameter.grad();
      return now.defined() && (!now.is_same(gradient_) || now._version() != version_);
    }

   private:
    at::Tensor gradient_;
    int64_t version_ = 0;
  };

  std::vector<std::vector<at::Tensor>> buckets() const;

  comm::ProcessGroup group_;
  const torch::nn::Module* module_;
  std::vector<NamedTensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::vector<Mark> marks_;
  DdpOptions options_;
};

}  // namespace levin::ddp
