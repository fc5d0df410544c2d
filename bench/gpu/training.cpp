// Training steps by levin's Accelerator: the loop of one's own, as the Python side's is. The Trainer adds
// logging, checkpoints and a bar, which have benchmarks of their own (bench/peers).

#include <stdexcept>
#include <utility>

#include "bench/gpu/resnet.h"
#include "bench/gpu/session.h"
#include "bench/peers/adapter.h"

namespace gpu {
namespace {

/// Net: a class of modules. Made by make(sizes); its loss of a batch is loss_of(model, batch).
template <class Net, class Make, class LossOf>
class TrainingSession final : public Session {
 public:
  TrainingSession(const Options& options, const levin::OptimizerConfig& optimizer, const Make& make,
                  LossOf loss_of)
      : Session(options), batches_(batches()) {
    const std::shared_ptr<Net> net = make(sizes_);
    if (has_weights()) load(*net);
    use_channels_last(*net);
    for (const at::Tensor& parameter : net->parameters()) num_parameters += parameter.numel();
    auto [prepared_model, prepared_optimizer] = accelerator_.prepare(net, optimizer);
    auto step = accelerator_.compile([this, model = prepared_model, optimizer = prepared_optimizer,
                                      loss_of](const levin::Batch& batch) mutable {
      optimizer.zero_grad();
      const at::Tensor loss = loss_of(model, batch);
      accelerator_.backward(loss);
      optimizer.step();
      return loss.detach();
    });
    report_ = [step] { return step.report(); };
    step_ = std::move(step);
  }

  at::Tensor step(int64_t number) override {
    return step_(batches_[static_cast<size_t>(number) % batches_.size()]);
  }
  std::vector<levin::graph::ReplayReport> replays() const override { return report_().replays; }
  std::vector<std::string> refusals() const override { return report_().refusals; }

 private:
  bool has_weights() const {
    return std::filesystem::exists(std::filesystem::path(options_.folder) / "weights.safetensors");
  }
  static void use_channels_last(torch::nn::Module& net) {
    for (at::Tensor& parameter : net.parameters()) {
      if (parameter.dim() != 4) continue;
      parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
  }

  std::vector<levin::Batch> batches_;
  std::function<at::Tensor(const levin::Batch&)> step_;
  std::function<levin::graph::CompiledReport()> report_;
};

template <class Net, class Make, class LossOf>
std::unique_ptr<Session> training(const Options& options, const levin::OptimizerConfig& optimizer,
                                  const Make& make, const LossOf& loss_of) {
  return std::make_unique<TrainingSession<Net, Make, LossOf>>(options, optimizer, make, loss_of);
}

/// Of logits [B, classes] or [B, T, classes].
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, -2), labels.flatten());
}

std::unique_ptr<Session> gpt2(const Options& options, double lr) {
  using Net = levin::models::GPT2Impl;
  return training<Net>(
      options, levin::optim::adamw({.lr = lr}),
      [](const levin::models::Config& sizes) {
        return std::make_shared<Net>(
            levin::models::GPT2Config{.vocab_size = sizes.integer("vocab_size"),
                                      .n_positions = sizes.integer("n_positions"),
                                      .n_embd = sizes.integer("n_embd"),
                                      .n_layer = sizes.integer("n_layer"),
                                      .n_head = sizes.integer("n_head"),
                                      .resid_pdrop = 0.0,
                                      .embd_pdrop = 0.0,
                                      .attn_pdrop = 0.0});
      },
      [](auto& model, const levin::Batch& batch) {
        return cross_entropy(model->forward(batch["x"]), batch["y"]);
      });
}

std::unique_ptr<Session> resnet50(const Options& options, double lr) {
  return training<ResNetImpl>(
      options, levin::optim::sgd({.lr = lr, .momentum = 0.9}),
      [](const levin::models::Config& sizes) {
        return std::make_shared<ResNetImpl>(sizes.integers("blocks"), sizes.integer("width"),
                                            sizes.integer("classes"));
      },
      [](auto& model, const levin::Batch& batch) {
        return cross_entropy(model->forward(batch["x"]), batch["y"]);
      });
}

std::unique_ptr<Session> mlp(const Options& options, double lr) {
  using Net = torch::nn::SequentialImpl;
  return training<Net>(
      options, levin::optim::adam({.lr = lr}),
      [](const levin::models::Config& sizes) {
        auto net = std::make_shared<Net>();
        for (int64_t i = 0; i + 1 < sizes.integer("layers"); ++i) {
          net->push_back(torch::nn::Linear(sizes.integer("width"), sizes.integer("width")));
          net->push_back(torch::nn::ReLU());
        }
        net->push_back(torch::nn::Linear(sizes.integer("width"), sizes.integer("classes")));
        return net;
      },
      [](auto& model, const levin::Batch& batch) {
        return cross_entropy(model->forward(batch["x"]), batch["y"]);
      });
}

std::unique_ptr<Session> minilm(const Options& options, double lr) {
  using Net = levin::models::Pretrained;
  const std::string folder = (std::filesystem::path(options.folder) / "model").string();
  return training<Net>(
      options, levin::optim::adamw({.lr = lr}),
      [folder](const levin::models::Config& sizes) {
        auto net = levin::models::from_pretrained(folder,
                                                  {.task = "text-classification", .num_labels = 2});
        peers::adapt(*net, sizes.integer("lora_r"), "all-linear");
        peers::fill_adapter(*net);
        return net;
      },
      [](auto& model, const levin::Batch& batch) {
        return model->forward(batch, levin::models::ForwardOptions{.logits = false}).loss;
      });
}

}  // namespace

std::unique_ptr<Session> make_session(const Options& options) {
  if (options.work == "loader") return make_loader_session(options);
  const double lr = levin::models::Config::from_folder(options.folder).number("lr");
  if (options.work == "gpt2") return gpt2(options, lr);
  if (options.work == "resnet50") return resnet50(options, lr);
  if (options.work == "mlp") return mlp(options, lr);
  if (options.work == "minilm") return minilm(options, lr);
  throw std::invalid_argument("got --work " + options.work +
                              ", wanted gpt2, resnet50, mlp, minilm or loader");
}

}  // namespace gpu
