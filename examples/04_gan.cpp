// ./04_gan --max-epochs 60
// last line: distance=0.02
//
// A GAN: manual optimization with two optimizers. A generator learns to put points on a ring; a critic
// learns to tell them from real points (Goodfellow et al. 2014).

#include <cmath>
#include <cstdio>
#include <numbers>

#include <levin/levin.h>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kNoise = 4;

nn::Sequential mlp(int64_t in, int64_t out) {
  return nn::Sequential(nn::Linear(in, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                        nn::Linear(64, out));
}

struct Gan : levin::Module {
  nn::Sequential generator = register_module("generator", mlp(kNoise, 2));
  nn::Sequential critic = register_module("critic", mlp(2, 1));

  Gan() { automatic_optimization = false; }

  torch::Tensor generate(int64_t count) {
    return generator->forward(torch::randn({count, kNoise}));
  }

  torch::Tensor says(const torch::Tensor& points, double real) {
    auto scores = critic->forward(points);
    return F::binary_cross_entropy_with_logits(scores, torch::full_like(scores, real));
  }

  torch::Tensor training_step(const levin::Batch& batch) override {
    optimizer(0).toggle();
    auto fooled = says(generate(batch.size()), 1.0);
    step(0, fooled);
    optimizer(1).toggle();
    auto judged = says(batch["point"], 0.9) + says(generate(batch.size()).detach(), 0.0);
    step(1, judged);
    log_dict({{"generator_loss", fooled}, {"critic_loss", judged}}, {.prog_bar = true});
    return judged;
  }

  void step(int64_t index, const torch::Tensor& loss) {
    optimizer(index).zero_grad();
    manual_backward(loss);
    optimizer(index).step();
    optimizer(index).untoggle();
  }

  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 1e-3, .betas = {0.5, 0.999}}).of(generator),
            levin::optim::adam({.lr = 1e-3, .betas = {0.5, 0.999}}).of(critic)};
  }
};

int main(int argc, char** argv) {
  auto options = levin::parse<levin::TrainerOptions>(argc, argv, {.max_epochs = 60, .seed = 1});
  levin::Trainer trainer(options);
  const auto angle = torch::rand({4096}) * 2 * std::numbers::pi;
  auto ring = levin::data::tensors({{"point", torch::stack({angle.cos(), angle.sin()}, 1)}});
  auto gan = std::make_shared<Gan>();
  trainer.fit(gan, levin::DataLoader(ring, {.batch_size = 128, .shuffle = true}));

  const torch::NoGradGuard no_grad;
  const auto radius = gan->generate(1000).norm(2, 1);
  if (trainer.accelerator().is_main_process())
    std::printf("distance=%.3f\n", (radius - 1).abs().mean().item<double>());
}
