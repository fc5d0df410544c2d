#include <utility>

#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class LambdaCallback final : public Callback {
 public:
  explicit LambdaCallback(LambdaCallbackOptions hooks) : hooks_(std::move(hooks)) {}

  std::string state_key() const override { return hooks_.key; }

  void setup(Trainer& t, Module& m, std::string_view s) override { call(hooks_.setup, t, m, s); }
  void teardown(Trainer& t, Module& m, std::string_view s) override {
    call(hooks_.teardown, t, m, s);
  }
  void on_exception(Trainer& t, Module& m, const std::exception& e) override {
    call(hooks_.on_exception, t, m, e);
  }
  void on_fit_start(Trainer& t, Module& m) override { call(hooks_.on_fit_start, t, m); }
  void on_fit_end(Trainer& t, Module& m) override { call(hooks_.on_fit_end, t, m); }
  void on_sanity_check_start(Trainer& t, Module& m) override {
    call(hooks_.on_sanity_check_start, t, m);
  }
  void on_sanity_check_end(Trainer& t, Module& m) override {
    call(hooks_.on_sanity_check_end, t, m);
  }
  void on_train_start(Trainer& t, Module& m) override { call(hooks_.on_train_start, t, m); }
  void on_train_end(Trainer& t, Module& m) override { call(hooks_.on_train_end, t, m); }
  void on_train_epoch_start(Trainer& t, Module& m) override {
    call(hooks_.on_train_epoch_start, t, m);
  }
  void on_train_epoch_end(Trainer& t, Module& m) override { call(hooks_.on_train_epoch_end, t, m); }
  void on_train_batch_start(Trainer& t, Module& m, const Batch& b, int64_t i) override {
    call(hooks_.on_train_batch_start, t, m, b, i);
  }
  void on_train_batch_end(Trainer& t, Module& m, const at::Tensor& loss, const Batch& b,
                          int64_t i) override {
    call(hooks_.on_train_batch_end, t, m, loss, b, i);
  }
  void on_before_zero_grad(Trainer& t, Module& m) override {
    call(hooks_.on_before_zero_grad, t, m);
  }
  void on_before_backward(Trainer& t, Module& m, const at::Tensor& loss) override {
    call(hooks_.on_before_backward, t, m, loss);
  }
  void on_after_backward(Trainer& t, Module& m) override { call(hooks_.on_after_backward, t, m); }
  void on_before_optimizer_step(Trainer& t, Module& m) override {
    call(hooks_.on_before_optimizer_step, t, m);
  }
  void on_evaluation_start(Trainer& t, Module& m, std::string_view s) override {
    call(hooks_.on_evaluation_start, t, m, s);
  }
  void on_evaluation_end(Trainer& t, Module& m, std::string_view s) override {
    call(hooks_.on_evaluation_end, t, m, s);
  }
  void on_evaluation_batch_start(Trainer& t, Module& m, std::string_view s, const Batch& b,
                                 int64_t i) override {
    call(hooks_.on_evaluation_batch_start, t, m, s, b, i);
  }
  void on_evaluation_batch_end(Trainer& t, Module& m, std::string_view s, const Batch& b,
                               int64_t i) override {
    call(hooks_.on_evaluation_batch_end, t, m, s, b, i);
  }
  void on_predict_batch_end(Trainer& t, Module& m, const at::Tensor& output, const Batch& b,
                            int64_t i) override {
    call(hooks_.on_predict_batch_end, t, m, output, b, i);
  }
  void on_save_weights(Trainer& t, Module& m, State& weights) override {
    call(hooks_.on_save_weights, t, m, weights);
  }
  void on_save_checkpoint(Trainer& t, Module& m, State& checkpoint) override {
    call(hooks_.on_save_checkpoint, t, m, checkpoint);
  }
  void on_load_checkpoint(Trainer& t, Module& m, const State& checkpoint) override {
    call(hooks_.on_load_checkpoint, t, m, checkpoint);
  }

 private:
  template <class Hook, class... Args>
  static void call(const Hook& hook, Args&&... args) {
    if (hook) hook(std::forward<Args>(args)...);
  }

  LambdaCallbackOptions hooks_;
};

}  // namespace

std::shared_ptr<Callback> lambda_callback(LambdaCallbackOptions options) {
  return std::make_shared<LambdaCallback>(std::move(options));
}

}  // namespace levin
