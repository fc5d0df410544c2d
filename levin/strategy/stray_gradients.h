#pragma once
// StrayGradients: finds a loss.backward() that was called instead of Accelerator::backward. Its
// gradients are one rank's own, and ranks that step with them drift apart.
//
//   stray.begin(true);  levin::backward(loss);  stray.end();     // a backward of the strategy's
//   if (stray.is_stray(name)) return;                            // in a hook on a parameter
//   stray.check("ddp");                                          // before an update

#include <string>
#include <string_view>

namespace levin {

class StrayGradients {
 public:
  /// Gradients are expected from here on. Where they are summed over the ranks, so is what came before.
  void begin(bool synchronize) {
    expected_ = true;
    if (synchronize) first_.clear();
  }
  void end() { expected_ = false; }
  /// For a gradient that has come to this parameter: whether no backward of the strategy's is under way.
  bool is_stray(const std::string& parameter) {
    if (expected_) return false;
    if (first_.empty()) first_ = parameter;
    return true;
  }
  /// Throws Error "strategy.backward.local" naming the first parameter of a stray gradient, once.
  void check(std::string_view strategy);

 private:
  std::string first_;
  bool expected_ = false;
};

}  // namespace levin
