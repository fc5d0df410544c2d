#pragma once
// The work that both C++ peers do; work.py is the same in Python.
// Data and first weights come from a formula, so that all of them compute the same losses.

#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "levin/base/options.h"
#include "levin/models/gpt2.h"

namespace peers {

struct Options {
  std::string work = "mlp_sgd";
  std::string mode;
  int64_t steps = 1;
  int64_t warmup = 1;
  int64_t workers = 0;
  int64_t images = 60000;
  int64_t devices = 1;
  int64_t accumulate = 1;
  int64_t batch_size = 0;
  std::string backend = "auto";
  std::string precision = "float32";
  std::string trace;

  void fields(levin::FieldVisitor& field) {
    field("work", work,
          "mlp_sgd, mlp_adam, mlp_wide_sgd, mlp_wide_adam, cnn, gpt, mlp_10m, gpt_10m, mlp_100m; "
          "loader where the peer has one");
    field("mode", mode, "a variant of this peer");
    field("steps", steps, "timed steps");
    field("warmup", warmup, "steps before them");
    field("workers", workers, "of the loader");
    field("images", images, "of the loader");
    field("devices", devices, "ranks");
    field("accumulate", accumulate, "batches a step");
    field("batch_size", batch_size, "samples of a rank's batch; 0: the work's");
    field("backend", backend, "between ranks");
    field("precision", precision, "float32 or bf16");
    field("trace", trace, "folder: train until killed, from the last checkpoint on; kills.py");
  }
};

/// float32 in [-0.5, 0.5]: a hash of seed * 2^24 + index, the same in every language.
inline at::Tensor formula(int64_t count, int64_t seed) {
  const auto values = at::empty({count}, at::kFloat);
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    auto v = static_cast<uint32_t>(i + (seed << 24)) * 2654435761U;
    v = (v ^ (v >> 15)) * 2246822519U;
    v ^= v >> 13;
    out[i] = static_cast<float>(v / 4294967296.0 - 0.5);
  }
  return values;
}

inline at::Tensor integers(int64_t count, int64_t seed, int64_t below) {
  return ((formula(count, seed) + 0.5) * below).to(at::kLong).clamp_max_(below - 1);
}

/// Weights of two dims or more: formula * 2 / sqrt(size of a row); norms 1; biases 0.
inline void fill(torch::nn::Module& net) {
  const at::NoGradGuard no_grad;
  int64_t seed = 0;
  for (auto& item : net.named_parameters()) {
    at::Tensor& parameter = item.value();
    ++seed;
    if (parameter.dim() > 1) {
      const double scale = 2.0 / std::sqrt(static_cast<double>(parameter[0].numel()));
      parameter.copy_(formula(parameter.numel(), seed).view_as(parameter) * scale);
    } else {
      const bool norm =
          item.key().find(".ln_") != std::string::npos && item.key().ends_with("weight");
      parameter.fill_(norm ? 1.0 : 0.0);
    }
  }
}

/// Calls body with the net of that work, its first weights set.
template <class Body>
void with_net(const std::string& work, const Body& body) {
  using namespace torch::nn;  // NOLINT: one screen of layers
  if (work.starts_with("gpt")) {
    const bool large = work == "gpt_10m";
    levin::models::GPT2 net(levin::models::GPT2Config{.vocab_size = 256,
                                                      .n_positions = 64,
                                                      .n_embd = large ? 320 : 128,
                                                      .n_layer = large ? 8 : 4,
                                                      .n_head = large ? 8 : 4,
                                                      .resid_pdrop = 0.0,
                                                      .embd_pdrop = 0.0,
                                                      .attn_pdrop = 0.0});
    fill(*net);
    body(net);
    return;
  }
  if (work == "mlp_10m") {
    Sequential net(Linear(784, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 2048),
                   ReLU(), Linear(2048, 10));
    fill(*net);
    body(net);
    return;
  }
  if (work == "mlp_100m") {
    Sequential net;
    for (int i = 0; i < 6; ++i) {
      net->push_back(Linear(4096, 4096));
      net->push_back(ReLU());
    }
    net->push_back(Linear(4096, 10));
    fill(*net);
    body(net);
    return;
  }
  if (work.starts_with("mlp_wide")) {
    Sequential net(Linear(784, 1024), ReLU(), Linear(1024, 1024), ReLU(), Linear(1024, 10));
    fill(*net);
    body(net);
    return;
  }
  Sequential net = work == "cnn"
                       ? Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(),
                                    MaxPool2d(2), Conv2d(Conv2dOptions(16, 32, 3).padding(1)),
                                    ReLU(), MaxPool2d(2), Flatten(), Linear(32 * 7 * 7, 10))
                       : Sequential(Linear(64, 128), ReLU(), Linear(128, 10));
  fill(*net);
  body(net);
}

template <class Net>
at::Tensor loss_of(Net& net, const at::Tensor& x, const at::Tensor& y) {
  using torch::nn::functional::cross_entropy;
  if constexpr (std::is_same_v<Net, levin::models::GPT2>) {
    return cross_entropy(net->forward(x).flatten(0, 1), y.flatten());
  } else {
    return cross_entropy(net->forward(x), y);
  }
}

struct Data {
  at::Tensor x, y;
  int64_t batch_size;
};

inline int64_t batch_size_of(const std::string& work) {
  if (work == "gpt_10m") return 4;
  if (work == "gpt") return 8;
  if (work == "mlp_100m") return 16;
  if (work.starts_with("mlp_wide")) return 128;
  return work == "cnn" || work == "mlp_10m" ? 64 : 32;
}

/// Of rank 0; every other has data of its own.
inline Data data_of(const std::string& work, int64_t batches, int64_t rank = 0,
                    int64_t batch_size = 0) {
  if (batch_size == 0) batch_size = batch_size_of(work);
  const int64_t count = batches * batch_size;
  const int64_t seed = 1000 + rank;
  if (work.starts_with("gpt")) {
    const auto ids = integers(count * 65, seed, 256).view({count, 65});
    return {ids.narrow(1, 0, 64).contiguous(), ids.narrow(1, 1, 64).contiguous(), batch_size};
  }
  // The class of a sample is the largest of its first ten values: something to learn.
  const bool small = work == "mlp_sgd" || work == "mlp_adam";
  const int64_t width = small ? 64 : work == "mlp_100m" ? 4096 : 784;
  at::Tensor x = formula(count * width, seed).view({count, width});
  if (work == "cnn") x = x.view({count, 1, 28, 28});
  return {x, x.flatten(1).narrow(1, 0, 10).argmax(1), batch_size};
}

/// Called at the top of each training step, so that what it times is whole steps.
class StepClock {
 public:
  explicit StepClock(const Options& options)
      : first_timed_(options.warmup + 1), last_(options.warmup + options.steps + 1) {}

  int64_t last() const { return last_; }

  /// Waits for all that was begun, where steps run beside the host.
  void settle_by(std::function<void()> settle) { settle_ = std::move(settle); }

  void operator()() {
    ++count_;
    if (settle_ && (count_ == first_timed_ || count_ == last_)) settle_();
    if (count_ == first_timed_) began_ = Clock::now();
    if (count_ == last_) ended_ = Clock::now();
    if (count_ == 2) say("first step done\n");
  }
  void keep(const at::Tensor& loss) {
    if (count_ == 1) first_loss_ = loss.detach();
    if (count_ == last_) last_loss_ = loss.detach();
  }
  void report() const {
    TORCH_CHECK(count_ == last_, count_, " steps were run, wanted ", last_);
    const double us = std::chrono::duration<double, std::micro>(ended_ - began_).count();
    // On a line of its own, whatever a progress bar has written before.
    std::printf("\n{\"step_us\": %.9g, \"first_loss\": %.9g, \"last_loss\": %.9g}\n",
                us / static_cast<double>(last_ - first_timed_), first_loss_.item<double>(),
                last_loss_.item<double>());
  }

 private:
  using Clock = std::chrono::steady_clock;

  static void say(const char* line) {
    std::fputs(line, stdout);
    std::fflush(stdout);
  }

  int64_t first_timed_, last_;
  int64_t count_ = 0;
  Clock::time_point began_, ended_;
  std::function<void()> settle_;
  at::Tensor first_loss_, last_loss_;
};

}  // namespace peers
