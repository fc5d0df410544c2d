// 3: a checkpoint of the card is one of the CPU, byte for byte, and a run goes on from it where it stood.
#include "levin/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/random.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/gpu/tasks.h"

namespace levin::test::gpu {
namespace checkpoint_test {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

/// A loop with dropout, batch norm and Adam, whose state can be saved.
struct Loop {
  Accelerator accelerator;
  torch::nn::Sequential net;
  PreparedModel<torch::nn::SequentialImpl> model;
  PreparedOptimizer optimizer;
  PreparedLoader loader;

  explicit Loop(const std::string& where)
      : accelerator({.accelerator = where}),
        net((torch::manual_seed(4),
             torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16),
                                   torch::nn::ReLU(), torch::nn::Dropout(0.4),
                                   torch::nn::Linear(16, 3)))),
        model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(optim::adamw({.lr = 1e-2})))),
        loader(std::get<0>(accelerator.prepare(
            DataLoader(small_run::dataset(64), {.batch_size = 8, .shuffle = true})))) {}

  /// Steps of the running epoch, which has 8 batches; after: told how many are done.
  void train(int64_t steps, const std::function<void(int64_t)>& after = {}) {
    int64_t done = 0;
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(
          torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["y"]));
      optimizer.step();
      ++done;
      if (after) after(done);
      if (done == steps) return;
    }
  }
};

/// Bytes of the files below a folder that hold tensors, by their paths in it.
std::map<std::string, std::string> tensor_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    files[fs::relative(entry.path(), folder).string()] = get(entry.path());
  }
  return files;
}

/// Names of the tensors that are not the same bits in both, generators left out: another machine has others.
std::vector<std::string> differing(const State& a, const State& b, const std::string& path = "") {
  std::vector<std::string> names;
  for (const auto& [name, value] : a.values()) {
    const std::string full = path + "/" + name;
    if (name == "random") continue;
    if (const auto* child = std::get_if<State>(&value)) {
      if (!b.contains(name)) {
        names.push_back(full);
        continue;
      }
      const auto more = differing(*child, b.child(name), full);
      names.insert(names.end(), more.begin(), more.end());
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (!b.contains(name) || !at::equal(tensor->cpu(), b.tensor(name).cpu()))
        names.push_back(full);
    }
  }
  return names;
}

class Gpu3Checkpoint : public OnGpu {};

TEST_F(Gpu3Checkpoint, GoesToTheCpuAndBackByteForByte) {
  const Scratch scratch;
  {
    Loop there(accelerator());
    there.train(5);
    there.accelerator.save_state(scratch / "card");
  }
  {
    Loop on_cpu("cpu");
    on_cpu.accelerator.load_state(scratch / "card");
    on_cpu.accelerator.save_state(scratch / "cpu");
  }
  {
    Loop back(accelerator());
    back.accelerator.load_state(scratch / "cpu");
    back.accelerator.save_state(scratch / "back");
  }
  const auto first = tensor_files(scratch / "card");
  ASSERT_FALSE(first.empty());
  for (const char* other : {"cpu", "back"}) {
    const auto files = tensor_files(scratch / other);
    ASSERT_EQ(files.size(), first.size()) << other;
    EXPECT_EQ(files.at("model.safetensors"), first.at("model.safetensors")) << other;
    const Checkpoint left = load_checkpoint(scratch / "card"),
                     right = load_checkpoint(scratch / other);
    EXPECT_THAT(differing(left.weights.at("model"), right.weights.at("model")), IsEmpty()) << other;
    EXPECT_THAT(differing(left.training, right.training), IsEmpty()) << other;
  }
}

TEST_F(Gpu3Checkpoint, OfTheCpuIsTheSameFileAsOfTheCard) {
  const Scratch scratch;
  for (const std::string& where : {std::string("cpu"), accelerator()}) {
    Loop untrained(where);
    untrained.accelerator.save_state(scratch / (where + ".state"));
  }
  EXPECT_EQ(get(scratch / "cpu.state" / "model.safetensors"),
            get(scratch / (accelerator() + ".state") / "model.safetensors"));
}

TEST_F(Gpu3Checkpoint, ARunGoesOnBitForBit) {
  const Scratch scratch;
  torch::manual_seed(21);
  Loop whole(accelerator());
  torch::manual_seed(22);
  whole.train(8, [&](int64_t done) {
    if (done == 3) whole.accelerator.save_state(scratch / "state");
  });
  Loop resumed(accelerator());
  torch::manual_seed(99);  // what dropout draws is the saved state's
  resumed.accelerator.load_state(scratch / "state");
  resumed.train(5);
  expect_same_weights(*resumed.net, *whole.net);
}

TEST_F(Gpu3Checkpoint, HoldsTheStateOfTheCardsGenerator) {
  const auto draw = [] { return torch::cat({torch::rand({7}, device()).cpu(), torch::rand({3})}); };
  torch::manual_seed(5);
  torch::rand({11}, device());
  const State state = random_state();
  EXPECT_EQ(state.contains("cuda"), torch::cuda::is_available());
  const at::Tensor first = draw();
  EXPECT_FALSE(at::equal(draw(), first));
  load_random_state(state);
  EXPECT_TRUE(at::equal(draw(), first));
}

TEST_F(Gpu3Checkpoint, ATrainersRunGoesOnBitForBitAndOnTheCpuToo) {
  struct Stop : Callback {  // as a signal would
    int64_t step;
    explicit Stop(int64_t step) : step(step) {}
    std::string state_key() const override { return "stop"; }
    void on_train_batch_end(Trainer& trainer, levin::Module&, const at::Tensor&, const Batch&,
                            int64_t) override {
      if (trainer.global_step() == step) trainer.request_stop("interrupted");
    }
  };
  const auto run = [](const std::string& where, int64_t steps, const std::string& root,
                      const std::string& from) {
    TrainerOptions options = small_run::quiet(root);
    options.accelerator = where;
    options.max_epochs = 3;
    options.seed = 11;
    options.ckpt_path = from;
    options.callbacks = {std::make_shared<Stop>(steps),
                         model_checkpoint({.dirpath = root + "/ckpt", .every_n_train_steps = 5})};
    Trainer trainer(options);
    const auto net = std::make_shared<small_run::Net>();
    trainer.fit(net, DataLoader(small_run::dataset(56),
                                {.batch_size = 8, .shuffle = true, .num_workers = 2}));
    return on_cpu(*net);
  };
  const Scratch whole, broken, elsewhere;
  const State wanted = run(accelerator(), 15, whole.str(), "");
  run(accelerator(), 10, broken.str(), "");
  const std::string last = (broken / "ckpt" / "last").string();
  const State resumed = run(accelerator(), 15, broken.str(), last);
  for (const auto& [name, value] : wanted.values()) {
    EXPECT_TRUE(at::equal(resumed.tensor(name), wanted.tensor(name))) << name;
  }
  // Another device draws other numbers for dropout; the run goes on from the same weights all the same.
  run(accelerator(), 10, elsewhere.str(), "");
  const State moved = run("cpu", 15, elsewhere.str(), (elsewhere / "ckpt" / "last").string());
  EXPECT_EQ(moved.values().size(), wanted.values().size());
}

TEST_F(Gpu3Checkpoint, IsWrittenBehindTrainingAsItStoodThen) {
  const Scratch scratch;
  Loop run(accelerator());
  run.train(3);
  const State before = on_cpu(*run.net);
  run.accelerator.save_state(scratch / "state", {.async_save = true});
  run.train(5);  // parameters move while the files are written
  run.accelerator.finish_saves();
  const Checkpoint checkpoint = load_checkpoint(scratch / "state");
  const State& saved = checkpoint.weights.at("model");
  for (const auto& [name, value] : before.values()) {
    EXPECT_TRUE(at::equal(saved.tensor(name), before.tensor(name))) << name;
  }
}

}  // namespace
}  // namespace checkpoint_test
}  // namespace levin::test::gpu
