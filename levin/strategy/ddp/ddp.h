#pragma once
// Strategy "ddp": every rank holds the whole module; gradients are averaged over the ranks.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "levin/strategy/ddp/buffers.h"
#include "levin/strategy/ddp/reducer.h"
#include "levin/strategy/strategy.h"

namespace levin {

namespace ddp {

/// If steps are recorded, it exchanges by operators, which a recording has as nodes, and by the
/// same ones in eager steps. On one rank these exchange nothing.
class Ddp : public Strategy {
 public:
  Ddp(std::string_view name, const StrategyContext& context);

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override;
  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override;
  bool backward(const at::Tensor& loss, bool synchronize, bool has_gradients) override;
  void wait_gradients() override;
  void update(optim::Optimizer& optimizer) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  void meet(Meeting meeting) override;
  /// Called before a backward that synchronizes, on all ranks.
  virtual void begin_exchange() {}
  /// Reduced gradients are multiplied with it.
  void scale_gradients(double scale);
  /// A rank without data takes part in one exchange.
  void exchange_nothing();

  comm::ProcessGroup group_;
  DdpOptions options_;

 private:
  struct Part {
    const torch::nn::Module* module;
    std::vector<NamedTensor> parameters = {};
    std::unique_ptr<Reducer> reducer = nullptr;
    bool pending = false;  ///< gradients are under way
    bool settled = false;  ///< or have come already, and only finish() is left
    const optim::Optimizer* cut_optimizer = nullptr;
    int64_t cut_layout = 0;
  };

  Part& part_of(const torch::nn::Module& module);
  std::vector<NamedTensor> own_parameters(const torch::nn::Module& module) const;
  std::unique_ptr<Carrier> make_carrier(at::Device device) const;
  void begin_parts(bool synchronize);
  bool join_backward(bool has_gradients);
  void step(optim::Optimizer& optimizer);
  bool cut_in_waves(optim::Optimizer& optimizer);
  void finish();
  void check_started(const Part& part) const;
  void launch_rest(const std::vector<bool>& touched, bool counts);
  std::vector<bool> touched_anywhere(bool joins);
  std::vector<bool> on_any_rank(const std::vector<bool>& touched);
  void synchronize_buffers();

  bool by_operators_;
  bool ranks_agree_ = true;      ///< by messages of their own; on XLA all ranks do the same unasked
  Buffers buffers_;              ///< buffers of all parts
  bool buffers_differ_ = false;  ///< since the last backward that synchronized
  std::vector<Part> parts_;      ///< in the order of setup, which is the same on every rank
  /// By which modules a backward of this rank touches: those it touches on any rank.
  std::map<std::vector<bool>, std::vector<bool>> agreed_touches_;
};

}  // namespace ddp

}  // namespace levin
