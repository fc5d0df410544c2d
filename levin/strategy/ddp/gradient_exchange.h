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
#include "levin/strategy/ddp/buffers.h"
#include "levin/strategy/ddp/options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::ddp {

class GradientExchange {
 public:
  /// parameters: the module's, but for those that another exchange has too.
  GradientExchange(const comm::ProcessGroup& group, const torch::nn::Module& module,
                   std::vector<NamedTensor> parameters, const DdpOptions& options);

  /// Whether all that the options ask for is what it does.
  static bool does(const DdpOptions& options) {
    return options.comm_hook == "none" && !options.overlap_update && !options.static_graph &&
           options.overlap;
  }

  const torch::nn::Module& module() const { return *module_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

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
  std::vector<Mark> marks_;
  DdpOptions options_;
};

/// Those of all modules of a run, and their buffers, which are rank 0's after each update.
class Exchanges {
 public:
  Exchanges(const comm::ProcessGroup& group, const DdpOptions& options)
      : group_(group), options_(options) {}

  /// A module that is known already is taken up anew.
  void add(const torch::nn::Module& module);
  void clear();

  // As of each.
  void begin();
  void reduce();
  void agree_on_buffers();

 private:
  comm::ProcessGroup group_;
  DdpOptions options_;
  std::vector<GradientExchange> all_;  ///< in the order of add, which is the same on every rank
  Buffers buffers_;
};

}  // namespace levin::ddp
