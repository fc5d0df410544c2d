// What training is made of, and what replay has held to.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_ordinary {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

Tensor plain(Own& own, const Batch& batch, int64_t) { return plain_loss(own, batch); }

std::function<void(Own&)> deep() {
  return [](Own& own) {
    own.net = own.register_module(
        "net", nn::Sequential(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::GELU(), nn::Dropout(0.2),
                              nn::LayerNorm(nn::LayerNormOptions({8})), nn::Linear(8, 3)));
  };
}

StepCase of_net(const std::string& name, const std::function<void(Own&)>& build,
                const std::string& field = "x") {
  return {.name = name,
          .step =
              [field](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = cross_entropy(own.net->forward(batch[field]), batch);
                own.log("loss", loss);
                return loss;
              },
          .wanted = Wanted::kReplayed,
          .build = build};
}

StepCase of_optimizer(const std::string& name, const OptimizerConfig& config,
                      const std::function<void(TrainerOptions&)>& options = {}) {
  return {.name = name,
          .step = plain,
          .wanted = Wanted::kReplayed,
          .build = deep(),
          .optimizer = [config](Own&) { return config; },
          .options = options};
}

StepCase of_options(const std::string& name, const std::function<void(TrainerOptions&)>& options) {
  StepCase row = of_optimizer(name, optim::adam({.lr = 1e-2}), options);
  row.epochs = 6;
  return row;
}

StepCase of_loss(const std::string& name,
                 const std::function<Tensor(const Tensor& logits, const Batch& batch)>& loss) {
  return {.name = name,
          .step = [loss](Own& own, const Batch& batch,
                         int64_t) { return loss(own.net->forward(batch["x"]), batch); },
          .wanted = Wanted::kReplayed,
          .optimizer = [](Own&) { return optim::sgd({.lr = 0.1}); }};
}

std::vector<StepCase> nets() {
  return {
      of_net("Mlp", deep()),
      of_net(
          "Linear",
          [](Own& own) { own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3))); }),
      of_net(
          "Cnn",
          [](Own& own) {
            own.net = own.register_module(
                "net", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)),
                                      nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
                                      nn::Dropout2d(0.2), nn::Flatten(), nn::Linear(36, 3)));
          },
          "image"),
      of_net(
          "CnnOfGroups",
          [](Own& own) {
            own.net = own.register_module(
                "net", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).groups(2)),
                                      nn::GroupNorm(nn::GroupNormOptions(2, 4)), nn::SiLU(),
                                      nn::AdaptiveAvgPool2d(2), nn::Flatten(), nn::Linear(16, 3)));
          },
          "image"),
      of_net(
          "UpAndDown",
          [](Own& own) {
            own.net = own.register_module(
                "net",
                nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 3, 2).stride(2)), nn::Tanh(),
                               nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 2, 2).stride(2)),
                               nn::Flatten(), nn::Linear(72, 3)));
          },
          "image"),
      replayed(
          {.name = "LstmOfTokens",
           .step =
               [](Own& own, const Batch& batch, int64_t) {
                 const Tensor x = own.part<nn::EmbeddingImpl>("in").forward(batch["tokens"]);
                 const auto out = own.part<nn::LSTMImpl>("middle").forward(x);
                 return cross_entropy(
                     own.part<nn::LinearImpl>("out").forward(std::get<0>(out).select(1, 5)), batch);
               },
           .build =
               [](Own& own) {
                 own.register_module("in", nn::Embedding(12, 4));
                 own.register_module(
                     "middle",
                     nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2).dropout(0.2).batch_first(true)));
                 own.register_module("out", nn::Linear(5, 3));
               }}),
      replayed({.name = "GruOfTwoDirections",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor x = batch["x"].reshape({batch.size(), 3, 2});
                      const auto out = own.part<nn::GRUImpl>("middle").forward(x);
                      return cross_entropy(
                          own.part<nn::LinearImpl>("out").forward(std::get<0>(out).mean(1)), batch);
                    },
                .build =
                    [](Own& own) {
                      own.register_module(
                          "middle",
                          nn::GRU(nn::GRUOptions(2, 4).bidirectional(true).batch_first(true)));
                      own.register_module("out", nn::Linear(8, 3));
                    }}),
      replayed({.name = "CellInALoop",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      auto state = std::tuple(torch::zeros({batch.size(), 4}),
                                              torch::zeros({batch.size(), 4}));
                      for (int64_t i = 0; i < 3; ++i) {
                        state = own.part<nn::LSTMCellImpl>("cell").forward(
                            batch["x"].slice(1, 2 * i, 2 * i + 2), state);
                      }
                      return cross_entropy(
                          own.part<nn::LinearImpl>("out").forward(std::get<0>(state)), batch);
                    },
                .build =
                    [](Own& own) {
                      own.register_module("cell", nn::LSTMCell(2, 4));
                      own.register_module("out", nn::Linear(4, 3));
                    }}),
      replayed({.name = "TiedWeights",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      auto& in = own.part<nn::EmbeddingImpl>("in");
                      const Tensor x = in.forward(batch["tokens"]).mean(1);
                      return F::cross_entropy(x.matmul(in.weight.t()),
                                              batch["tokens"].select(1, 0));
                    },
                .build = [](Own& own) { own.register_module("in", nn::Embedding(12, 4)); }}),
      replayed({.name = "Residuals",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      Tensor x = batch["x"];
                      for (const char* name : {"one", "two"}) {
                        x = x + own.part<nn::LinearImpl>(name).forward(x).relu();
                      }
                      return cross_entropy(own.part<nn::LinearImpl>("out").forward(x), batch);
                    },
                .build =
                    [](Own& own) {
                      own.register_module("one", nn::Linear(6, 6));
                      own.register_module("two", nn::Linear(6, 6));
                      own.register_module("out", nn::Linear(6, 3));
                    }}),
      replayed({.name = "Attention",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor x =
                          own.part<nn::EmbeddingImpl>("in").forward(batch["tokens"]).unsqueeze(1);
                      const Tensor y = at::scaled_dot_product_attention(x, x, x, {}, 0.0, true);
                      return cross_entropy(
                          own.part<nn::LinearImpl>("out").forward(y.squeeze(1).mean(1)), batch);
                    },
                .build =
                    [](Own& own) {
                      own.register_module("in", nn::Embedding(12, 4));
                      own.register_module("out", nn::Linear(4, 3));
                    }}),
      replayed({.name = "ComplexNumbers",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor spectrum = torch::fft::rfft(batch["x"]);
                      const Tensor filtered =
                          torch::fft::irfft(spectrum * own.named_parameters()["filter"], 6);
                      return cross_entropy(own.net->forward(filtered), batch);
                    },
                .build =
                    [](Own& own) {
                      own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
                      own.register_parameter("filter", torch::ones({4}));
                    }}),
      replayed({.name = "ComplexProducts",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor z =
                          torch::complex(own.net->forward(batch["x"]), batch["t"].expand({-1, 3}));
                      return cross_entropy(torch::real(z * z.conj()), batch);
                    }}),
      replayed({.name = "OperatorsInPlace",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      Tensor x = batch["x"].clone();
                      x.mul_(2).add_(1).clamp_(-3, 3);
                      x.slice(1, 0, 2).zero_();
                      x[0].fill_(0.5);
                      Tensor logits = own.net->forward(x);
                      logits.add_(1).relu_();
                      return cross_entropy(logits, batch);
                    }}),
      replayed({.name = "VaeWithoutWarmUp",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor code = own.part<nn::LinearImpl>("in").forward(batch["x"]);
                      const Tensor mean = code.slice(1, 0, 2), log_var = code.slice(1, 2, 4);
                      const Tensor z = mean + torch::randn_like(mean) * (0.5 * log_var).exp();
                      const Tensor kl =
                          0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1).mean();
                      own.log("kl", kl);
                      return F::mse_loss(own.part<nn::LinearImpl>("out").forward(z), batch["x"]) +
                             0.1 * kl;
                    },
                .build =
                    [](Own& own) {
                      own.register_module("in", nn::Linear(6, 4));
                      own.register_module("out", nn::Linear(2, 6));
                    }}),
      replayed({.name = "Mixup",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor order = torch::randperm(batch.size());
                      const Tensor part = torch::rand({});
                      const Tensor x =
                          part * batch["x"] + (1 - part) * batch["x"].index_select(0, order);
                      const Tensor logits = own.net->forward(x);
                      return part * cross_entropy(logits, batch) +
                             (1 - part) *
                                 F::cross_entropy(logits, batch["y"].index_select(0, order));
                    }}),
      replayed({.name = "Contrastive",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const auto view = [&] {
                        return F::normalize(
                            own.net->forward(batch["x"] + 0.1 * torch::randn_like(batch["x"])));
                      };
                      const Tensor a = view(), b = view();
                      return F::cross_entropy(a.matmul(b.t()) / 0.2, torch::arange(batch.size()));
                    }}),
      replayed({.name = "GradientPenalty",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor x = batch["x"].clone().requires_grad_();
                      const Tensor logits = own.net->forward(x);
                      const Tensor slope =
                          torch::autograd::grad({logits.sum()}, {x}, {}, true, true)[0];
                      return cross_entropy(logits, batch) + (slope.norm(2, 1) - 1).square().mean();
                    }}),
      replayed({.name = "LearntTemperature",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      own.log("temperature", own.named_parameters()["temperature"]);
                      return cross_entropy(own.net->forward(batch["x"]) *
                                               own.named_parameters()["temperature"].exp(),
                                           batch);
                    },
                .build =
                    [](Own& own) {
                      own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
                      own.register_parameter("temperature", torch::zeros({}));
                    }}),
      replayed({.name = "WeightNoise",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor weight = own.net->parameters()[0],
                                   bias = own.net->parameters()[1];
                      return cross_entropy(
                          F::linear(batch["x"], weight + 0.01 * torch::randn_like(weight), bias),
                          batch);
                    },
                .build =
                    [](Own& own) {
                      own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
                    }}),
      replayed({.name = "EmaOfTheWeights",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor teacher = own.named_buffers()["teacher"];
                      const Tensor weight = own.net->parameters()[0];
                      {
                        const at::NoGradGuard no_grad;
                        teacher.mul_(0.9).add_(weight, 0.1);
                      }
                      const Tensor target = batch["x"].matmul(teacher.t());
                      return plain_loss(own, batch) +
                             F::mse_loss(own.net->forward(batch["x"]), target.detach());
                    },
                .build =
                    [](Own& own) {
                      own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
                      own.register_buffer("teacher", torch::zeros({3, 6}));
                    }}),
      replayed({.name = "FrozenBody",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor x = own.part<nn::LinearImpl>("body").forward(batch["x"]).relu();
                      return cross_entropy(own.part<nn::LinearImpl>("head").forward(x), batch);
                    },
                .build =
                    [](Own& own) {
                      own.register_module("body", nn::Linear(6, 8));
                      own.register_module("head", nn::Linear(8, 3));
                      for (Tensor& one : own.part<nn::LinearImpl>("body").parameters()) {
                        one.requires_grad_(false);
                      }
                    }}),
      replayed({.name = "SpeaksToItsUser",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor loss = plain_loss(own, batch);
                      own.log_dict({{"loss", loss}, {"twice", loss * 2}});
                      own.log("epoch", loss.detach(), {.on_step = false, .on_epoch = true});
                      return loss;
                    }}),
      replayed({.name = "SparseGradientsAreNot",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      const Tensor target =
                          torch::zeros({batch.size(), 3}).scatter_(1, batch["y"].unsqueeze(1), 1.0);
                      return F::mse_loss(own.net->forward(batch["x"]), target);
                    }}),
      replayed({.name = "LossWeightOfATensor",
                .step =
                    [](Own& own, const Batch& batch, int64_t) {
                      own.set_loss_weight(batch["y"].ne(0).sum().add(1).to(torch::kDouble));
                      return plain_loss(own, batch);
                    },
                .options = [](TrainerOptions& options) { options.accumulate_grad_batches = 2; }}),
      replayed({.name = "SeveralShapes",
                .step = plain,
                .build = deep(),
                .epochs = 10,
                .batch_size = 20}),
      replayed({.name = "WithValidation", .step = plain, .build = deep(), .validates = true}),
  };
}

std::vector<StepCase> settings() {
  return {
      of_optimizer("Sgd", optim::sgd({.lr = 0.1})),
      of_optimizer("SgdNesterov", optim::sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true})),
      of_optimizer(
          "SgdScheduled",
          optim::sgd({.lr = 0.1, .momentum = 0.9}).schedule(optim::cosine({.warmup_steps = 4}))),
      of_optimizer("AdamScheduled",
                   optim::adam({.lr = 1e-2}).schedule(optim::cosine({.warmup_steps = 4}))),
      of_optimizer("AdamAmsgrad", optim::adam({.lr = 1e-2, .amsgrad = true})),
      of_optimizer("AdamWOfGroups",
                   optim::adamw({.lr = 1e-2}).group("*.bias", {.weight_decay = 0.0})),
      of_options("ClippedByNorm", [](TrainerOptions& options) { options.gradient_clip_val = 0.1; }),
      of_options("ClippedByValue",
                 [](TrainerOptions& options) {
                   options.gradient_clip_val = 0.01;
                   options.gradient_clip_algorithm = "value";
                 }),
      of_options("Accumulated",
                 [](TrainerOptions& options) { options.accumulate_grad_batches = 2; }),
      of_options("AccumulatedUnevenly",
                 [](TrainerOptions& options) { options.accumulate_grad_batches = 4; }),
      of_options("Bf16Mixed", [](TrainerOptions& options) { options.precision = "bf16-mixed"; }),
      of_options("Bf16True", [](TrainerOptions& options) { options.precision = "bf16-true"; }),
      of_options("Double", [](TrainerOptions& options) { options.precision = "64-true"; }),
      of_options("WithLessMemory",
                 [](TrainerOptions& options) {
                   if (options.engine.compile == "replay")
                     options.engine.activation_memory_budget = 0.6;
                 }),
  };
}

std::vector<StepCase> losses() {
  const auto target = [](const Batch& batch) { return batch["x"].slice(1, 0, 3); };
  const auto sign = [](const Batch& batch) { return batch["t"].sign(); };
  return {
      of_loss("Mse", [=](const Tensor& z, const Batch& b) { return F::mse_loss(z, target(b)); }),
      of_loss("L1", [=](const Tensor& z, const Batch& b) { return F::l1_loss(z, target(b)); }),
      of_loss("SmoothL1",
              [=](const Tensor& z, const Batch& b) { return F::smooth_l1_loss(z, target(b)); }),
      of_loss("Huber",
              [=](const Tensor& z, const Batch& b) { return F::huber_loss(z, target(b)); }),
      of_loss("BinaryCrossEntropy",
              [=](const Tensor& z, const Batch& b) {
                return F::binary_cross_entropy_with_logits(z, target(b).sigmoid());
              }),
      of_loss("Nll", [](const Tensor& z,
                        const Batch& b) { return F::nll_loss(z.log_softmax(1), b["y"]); }),
      of_loss("KlDivergence",
              [=](const Tensor& z, const Batch& b) {
                return F::kl_div(z.log_softmax(1), target(b).softmax(1),
                                 F::KLDivFuncOptions(torch::kBatchMean));
              }),
      of_loss("Hinge", [=](const Tensor& z,
                           const Batch& b) { return (1 - z * sign(b)).clamp_min(0).mean(); }),
      of_loss("CosineEmbedding",
              [=](const Tensor& z, const Batch& b) {
                return F::cosine_embedding_loss(z, target(b), sign(b).squeeze(1));
              }),
      of_loss("Triplet",
              [=](const Tensor& z, const Batch& b) {
                return F::triplet_margin_loss(z, target(b), target(b).flip(0));
              }),
      of_loss("MultiMargin",
              [](const Tensor& z, const Batch& b) { return F::multi_margin_loss(z, b["y"]); }),
      of_loss("Poisson", [=](const Tensor& z,
                             const Batch& b) { return F::poisson_nll_loss(z, target(b).abs()); }),
      of_loss("Focal",
              [](const Tensor& z, const Batch& b) {
                const Tensor picked = z.log_softmax(1).gather(1, b["y"].unsqueeze(1)).squeeze(1);
                return -((1 - picked.exp()).square() * picked).mean();
              }),
  };
}

}  // namespace rows_of_step_ordinary

std::vector<StepCase> ordinary_steps() {
  using namespace rows_of_step_ordinary;  // NOLINT
  std::vector<StepCase> all = nets();
  for (const auto& more : {settings(), losses()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace levin::test
