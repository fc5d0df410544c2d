#pragma once
// Session: one system on one work, whose steps the caller counts. The program serves one of them to run.py.
//
//   auto session = make_session("gpt2", {.device = "cuda", .folder = "work"});
//   const at::Tensor loss = session->step(0);

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <levin/levin.h>

namespace gpu {

struct Options {
  std::string work = "mlp";
  std::string mode = "eager";
  std::string device = "cuda";
  std::string folder;
  int64_t workers = 0;
  bool once = false;

  void fields(levin::FieldVisitor& field) {
    field("work", work, "gpt2, resnet50, mlp, minilm or loader");
    field("mode", mode, "eager, or replay: --compile replay, CUDA graphs on a GPU");
    field("device", device, "cuda or cpu");
    field("folder", folder, "that work.py has written: sizes, first weights, batches");
    field("workers", workers, "threads of the loader");
    field("once", once, "one step, then the end: what a start takes");
  }
};

class Session {
 public:
  explicit Session(const Options& options);
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Step `number`, from 0. Returns its loss on the device; nothing waits for it.
  virtual at::Tensor step(int64_t number) = 0;
  /// Elements of all parameters.
  int64_t num_parameters = 0;
  /// Of the recording that is replayed; empty where nothing is.
  virtual std::vector<levin::graph::ReplayReport> replays() const { return {}; }
  virtual std::vector<std::string> refusals() const { return {}; }

  /// Waits for the device.
  void synchronize() const;
  /// Gives memory that is not in use back to the device, for the other systems there.
  void trim() const;
  /// The most bytes that tensors took on the device; 0 on a CPU.
  int64_t peak_bytes() const;

 protected:
  /// batches.safetensors, its first dim cut into batches, on the device.
  std::vector<levin::Batch> batches() const;
  /// The first weights, weights.safetensors, by their names.
  void load(torch::nn::Module& net) const;

  Options options_;
  levin::models::Config sizes_;  ///< config.json of the folder
  levin::Accelerator accelerator_;
};

/// Throws std::invalid_argument for a work that is not known, and what levin throws.
std::unique_ptr<Session> make_session(const Options& options);
std::unique_ptr<Session> make_loader_session(const Options& options);

}  // namespace gpu
