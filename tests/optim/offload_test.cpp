// Optimizers with their state in a file, or in memory of the host: the same bits as in memory, step by step, and the same checkpoints.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/optim/offload/portions.h"
#include "levin/optim/offload/state_memory.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/child_process.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"
#include "tests/support/world.h"

namespace offloaded_optimizers {
namespace {

using namespace levin::optim;  // NOLINT: the descriptions
using levin::NamedTensor;
using levin::OptimizerConfig;
using levin::State;
using levin::test::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* what;
  OptimizerConfig config;
  bool takes_half = true;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.what; }

std::vector<Case> cases() {
  return {
      {"sgd", sgd({.lr = 0.1, .weight_decay = 0.1})},
      {"sgd with momentum", sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.1})},
      {"sgd with nesterov", sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true})},
      {"adam", adam({.lr = 0.01, .weight_decay = 0.1})},
      {"adam with amsgrad", adam({.lr = 0.01, .amsgrad = true})},
      {"adamw", adamw({.lr = 0.01})},
      {"adamw that maximizes", adamw({.lr = 0.01, .amsgrad = true, .maximize = true})},
      {"nadam", nadam({.lr = 0.01, .weight_decay = 0.1})},
      {"radam", radam({.lr = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true})},
      {"lion", lion({.lr = 0.01, .weight_decay = 0.1})},
      {"adafactor", adafactor()},
      {"adafactor with momentum", adafactor({.lr = 0.01, .beta1 = 0.9, .relative_step = false})},
      {"rmsprop", rmsprop({.lr = 0.01})},
      {"rmsprop centered",
       rmsprop({.lr = 0.01, .weight_decay = 0.1, .momentum = 0.5, .centered = true})},
      {"adagrad", adagrad({.lr = 0.1, .lr_decay = 0.1, .initial_accumulator_value = 0.5})},
      {"torch::optim::SGD",
       torch_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9))},
      {"torch::optim::Adam",
       torch_optimizer<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true))},
      {"torch::optim::AdamW",
       torch_optimizer<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))},
  };
}

/// Small, so that the large parameters are cut and a step has many portions.
constexpr int64_t kMemory = 1 << 19;

std::shared_ptr<StateMemory> memory_at(const std::filesystem::path& folder,
                                       int64_t bytes = kMemory) {
  return make_file_memory(
      levin::files::ScratchFile::create({.folder = folder, .allow_tmpfs = true}), bytes);
}

std::shared_ptr<StateMemory> memory_in(const levin::test::Scratch& folder) {
  return memory_at(folder.path());
}

/// Quick where there is memory for it: most of these tests do not need a disk.
std::shared_ptr<StateMemory> quick_memory(int64_t bytes = kMemory) {
  const bool has_memory = ::access("/dev/shm", W_OK) == 0;
  return memory_at(has_memory ? "/dev/shm" : ::testing::TempDir(), bytes);
}

OptimizerConfig kept(OptimizerConfig config, std::shared_ptr<StateMemory> memory) {
  return config.keep_state_in(std::move(memory));
}

/// Large ones of odd sizes, one with its dims the other way round in memory, one of a single number, none at all.
std::vector<NamedTensor> parameters(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  const auto made = [&](const at::Tensor& values) {
    return values.to(type).set_requires_grad(true);
  };
  return {{"embedding.weight", made(torch::randn({37, 1003}))},
          {"net.0.weight", made(torch::randn({57, 33}).t())},
          {"net.0.bias", made(torch::randn({57}))},
          {"empty", made(torch::randn({0, 4}))},
          {"scale", made(torch::randn({}))},
          {"net.1.weight", made(torch::randn({9001}))}};
}

/// Some have none now and then.
void give_gradients(const std::vector<NamedTensor>& parameters, int64_t step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    parameter.mutable_grad().reset();
    const bool has_one = parameter.requires_grad() && (static_cast<int64_t>(i) + step) % 4 != 3;
    if (!has_one) continue;
    torch::manual_seed(step * 10 + static_cast<int64_t>(i));
    at::Tensor gradient = torch::randn(parameter.sizes()).to(parameter.scalar_type());
    // Backward gives them the parameter's strides; with others ATen rounds half types otherwise.
    const bool is_half = at::isReducedFloatingType(parameter.scalar_type());
    if (is_half) gradient = torch::empty_like(parameter.detach()).copy_(gradient);
    parameter.mutable_grad() = gradient;
  }
}

/// The same numbers; adafactor's averages of no elements are NaN.
bool are_equal(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && torch::allclose(one, other, 0, 0, /*equal_nan=*/true);
}

void expect_equal_values(const std::vector<NamedTensor>& one, const std::vector<NamedTensor>& other,
                         const std::string& where) {
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(are_equal(one[i].tensor, other[i].tensor)) << where << ": " << one[i].name;
  }
}

void expect_equal_states(const State& one, const State& other, const std::string& where) {
  std::vector<std::string> names, others;
  for (const auto& [name, value] : one.values()) names.push_back(name);
  for (const auto& [name, value] : other.values()) others.push_back(name);
  ASSERT_EQ(names, others) << where;
  for (const auto& [name, value] : one.values()) {
    const std::string here = where + "/" + name;
    const State::Value& second = other.values().at(name);
    ASSERT_EQ(value.index(), second.index()) << here;
    if (const auto* state = std::get_if<State>(&value)) {
      expect_equal_states(*state, std::get<State>(second), here);
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      EXPECT_EQ(tensor->scalar_type(), std::get<at::Tensor>(second).scalar_type()) << here;
      if (name != "options") {
        EXPECT_TRUE(are_equal(*tensor, std::get<at::Tensor>(second))) << here;
      }
    } else if (const auto* number = std::get_if<double>(&value)) {
      EXPECT_EQ(*number, std::get<double>(second)) << here;
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      EXPECT_EQ(*integer, std::get<int64_t>(second)) << here;
    }
  }
}

class Offload : public ::testing::TestWithParam<Case> {
 protected:
  const OptimizerConfig& config() const { return GetParam().config; }

  /// In a file, and in memory of the host as for a GPU.
  void expect_same(const OptimizerConfig& config, at::ScalarType type) {
    expect_same(config, type, quick_memory());
    expect_same(config, type, make_host_memory(at::kCPU, kMemory));
  }

  /// Steps with both, compares all that there is, and goes on in each other's state.
  void expect_same(const OptimizerConfig& config, at::ScalarType type,
                   const std::shared_ptr<StateMemory>& memory) {
    auto in_memory = parameters(type), in_file = parameters(type);
    auto one = build_optimizer(config, in_memory);
    auto other = build_optimizer(kept(config, memory), in_file);
    for (int64_t step = 0; step < 7; ++step) {
      const std::string where = std::string(GetParam().what) + " in " + c10::toString(type) +
                                ", step " + std::to_string(step);
      if (step == 2) one->groups()[0].lr = other->groups()[0].lr = 0.003;  // as a schedule would
      for (const auto& [optimizer, given] : {std::pair(&one, &in_memory), {&other, &in_file}}) {
        give_gradients(*given, step);
        (*optimizer)->step();
      }
      expect_equal_values(in_memory, in_file, where);
      expect_equal_states(one->state_dict(), other->state_dict(), where);
      if (step == 3) {  // both resume, from the other's checkpoint
        auto next_one = build_optimizer(config, in_memory);
        auto next_other = build_optimizer(kept(config, memory), in_file);
        next_one->load_state_dict(other->state_dict());
        next_other->load_state_dict(one->state_dict());
        one = std::move(next_one);
        other = std::move(next_other);
        expect_equal_states(one->state_dict(), other->state_dict(), where + ", loaded");
      }
      if (step == 5) other->load_state_dict(one->state_dict());  // in the middle of reading ahead
      if (HasFailure()) return;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Optimizers, Offload, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.what;
  std::erase_if(name, [](char c) { return !std::isalnum(c); });
  return name;
});

TEST_P(Offload, GivesTheBitsOfARunInMemory) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) expect_same(config(), type);
}

TEST_P(Offload, GivesTheBitsOfARunInMemoryOnOneThread) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  expect_same(config(), at::kFloat);
  at::set_num_threads(threads);
}

TEST_P(Offload, GivesTheBitsOfARunInMemoryForHalfParameters) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) expect_same(config(), type);
}

TEST_P(Offload, KeepsMasterWeights) {
  expect_same(OptimizerConfig(config()).master_weights(), at::kBFloat16);
}

TEST_P(Offload, GivesGroupsTheirOptions) {
  OptimizerConfig config = this->config();
  const bool sets_lr_itself = std::string_view(GetParam().what) == "adafactor";
  sets_lr_itself ? config.group("*bias", {.weight_decay = 0.1})
                 : config.group("*bias", {.lr = 0.5});
  expect_same(config, at::kFloat);
}

TEST_P(Offload, TakesUpAParameterThatIsUnfrozen) {
  const auto memory = quick_memory();
  auto in_memory = parameters(), in_file = parameters();
  for (auto* given : {&in_memory, &in_file}) (*given)[0].tensor.set_requires_grad(false);
  auto one = build_optimizer(config(), in_memory);
  auto other = build_optimizer(kept(config(), memory), in_file);
  for (int64_t step = 0; step < 4; ++step) {
    if (step == 2) {
      for (auto* given : {&in_memory, &in_file}) (*given)[0].tensor.set_requires_grad(true);
    }
    for (const auto& [optimizer, given] : {std::pair(&one, &in_memory), {&other, &in_file}}) {
      give_gradients(*given, step);
      (*optimizer)->step();
    }
    expect_equal_values(in_memory, in_file, GetParam().what);
    expect_equal_states(one->state_dict(), other->state_dict(), GetParam().what);
  }
}

TEST_P(Offload, RefusesAStateOfOtherSizesAndChangesNothing) {
  std::vector<NamedTensor> small = {{"w", torch::ones({3, 4}).requires_grad_()}};
  std::vector<NamedTensor> large = {{"w", torch::ones({5, 4}).requires_grad_()}};
  auto one = build_optimizer(config(), small);
  auto other = build_optimizer(kept(config(), quick_memory()), large);
  small[0].tensor.mutable_grad() = torch::ones({3, 4});
  large[0].tensor.mutable_grad() = torch::ones({5, 4});
  one->step();
  other->step();
  std::map<std::string, at::Tensor> before;
  for (const NamedTensor& each : other->named_state()) before[each.name] = each.tensor.clone();
  if (before.empty()) return;  // it keeps no tensors
  EXPECT_EQ(levin::test::error_id([&] { other->load_state_dict(one->state_dict()); }),
            "optim.state.shape");
  for (const NamedTensor& each : other->named_state()) {
    EXPECT_TRUE(torch::equal(each.tensor, before.at(each.name))) << each.name;
  }
}

/// muon takes matrices only.
TEST(OffloadMuon, GivesTheBitsOfARunInMemory) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool has_masters : {false, true}) {
      OptimizerConfig config = muon({.lr = 0.1});
      config.master_weights(has_masters);
      std::vector<NamedTensor> in_memory, in_file;
      for (auto* given : {&in_memory, &in_file}) {
        torch::manual_seed(1);
        *given = {{"a", torch::randn({40, 30}).to(type).requires_grad_()},
                  {"b", torch::randn({30, 50}).to(type).requires_grad_()}};
      }
      auto one = build_optimizer(config, in_memory);
      auto other = build_optimizer(kept(config, quick_memory(20'000)), in_file);
      for (int64_t step = 0; step < 5; ++step) {
        for (const auto& [optimizer, given] : {std::pair(&one, &in_memory), {&other, &in_file}}) {
          give_gradients(*given, step);
          (*optimizer)->step();
        }
        expect_equal_values(in_memory, in_file, "muon");
        expect_equal_states(one->state_dict(), other->state_dict(), "muon");
      }
    }
  }
}

TEST(Offloaded, FollowsWritesOfOthersWithItsMasterWeights) {
  OptimizerConfig config = adamw({.lr = 0.01});
  config.master_weights();
  auto in_memory = parameters(at::kBFloat16), in_file = parameters(at::kBFloat16);
  auto one = build_optimizer(config, in_memory);
  auto other = build_optimizer(kept(config, quick_memory()), in_file);
  for (int64_t step = 0; step < 8; ++step) {
    for (const auto& [optimizer, given] : {std::pair(&one, &in_memory), {&other, &in_file}}) {
      if (step >= 2) {
        const at::NoGradGuard no_grad;
        (*given)[0].tensor.mul_(0.5);
        (*given)[5].tensor.add_(1);  // one without a gradient in some of these steps
      }
      give_gradients(*given, step);
      (*optimizer)->step();
    }
    expect_equal_values(in_memory, in_file, "step " + std::to_string(step));
    expect_equal_states(one->state_dict(), other->state_dict(), "step " + std::to_string(step));
  }
}

TEST(Offloaded, StepsWaveByWaveAsInMemory) {
  auto in_memory = parameters(), in_file = parameters();
  auto one = build_optimizer(adamw(), in_memory);
  auto other = build_optimizer(kept(adamw(), quick_memory()), in_file);
  EXPECT_FALSE(
      build_optimizer(kept(lion(), quick_memory()), in_file)->set_waves({0, 0, 1, 1, 1, 0}));
  for (auto* optimizer : {&one, &other}) EXPECT_TRUE((*optimizer)->set_waves({0, 0, 1, 1, 1, 0}));
  for (int64_t step = 0; step < 3; ++step) {
    for (const auto& [optimizer, given] : {std::pair(&one, &in_memory), {&other, &in_file}}) {
      give_gradients(*given, step);
      (*optimizer)->step_wave(0);
      give_gradients(*given, step + 10);
      (*optimizer)->step_wave(1);
    }
    expect_equal_values(in_memory, in_file, "wave");
  }
}

TEST(Offloaded, TellsAutogradThatAParameterIsWritten) {
  for (const auto& config : {adamw(), lion(), rmsprop()}) {
    auto given = parameters();
    auto optimizer = build_optimizer(kept(config, quick_memory()), given);
    give_gradients(given, 0);
    const auto before = given[0].tensor._version();
    optimizer->step();
    EXPECT_GT(given[0].tensor._version(), before) << config.name();
  }
}

TEST(Offloaded, KeepsItsStateOutOfMemory) {
  const levin::test::Scratch folder;
  const auto memory = memory_in(folder);
  auto given = parameters();
  auto optimizer = build_optimizer(kept(adamw(), memory), given);
  int64_t numel = 0;
  for (const NamedTensor& one : given) numel += one.tensor.numel();
  EXPECT_GE(memory->file()->size(), numel * 8);
  for (int64_t step = 0; step < 2; ++step) {
    give_gradients(given, step * 4 + 1);
    optimizer->step();
  }
  for (const NamedTensor& one : optimizer->named_state()) {
    if (one.tensor.numel() == 0) continue;
    EXPECT_TRUE(levin::files::scratch_place(one.tensor.const_data_ptr())) << one.name;
  }
  EXPECT_GT(memory->file()->bytes_read(), numel * 8);
  EXPECT_GT(memory->file()->bytes_written(), numel * 8);
}

void add_slices(const State& state, std::vector<at::Tensor>& all) {
  for (const auto& [name, value] : state.values()) {
    if (const auto* inner = std::get_if<State>(&value)) add_slices(*inner, all);
    const auto* slice = std::get_if<levin::TensorSlice>(&value);
    if (slice == nullptr) continue;
    all.push_back(slice->local.clone());
    all.push_back(torch::tensor(slice->sizes));
    all.push_back(torch::tensor(slice->offsets));
  }
}

/// Returns this rank's shards after some steps, values and state, in one list.
std::vector<at::Tensor> after_steps(const OptimizerConfig& config, at::ScalarType type,
                                    const levin::comm::DeviceMesh& mesh) {
  auto given = parameters(type);
  std::erase_if(given, [](const NamedTensor& one) { return one.tensor.dim() == 0; });
  const auto divided = levin::test::divide(given, mesh);
  auto optimizer = build_optimizer(config, given);
  for (int64_t step = 0; step < 3; ++step) {
    give_gradients(given, step);
    optimizer->step();
  }
  std::vector<at::Tensor> all;
  add_slices(optimizer->state_dict(), all);
  for (const NamedTensor& one : given) all.push_back(one.tensor.detach().clone());
  return all;
}

TEST(Offloaded, ShardsHaveTheirStateInTheFileOfTheirRank) {
  const auto said = levin::test::run_world(2, [](int64_t, const std::filesystem::path& folder) {
    levin::comm::ProcessGroup group = levin::test::connect();
    const levin::comm::DeviceMesh mesh(group, {{"dp", 2}});
    for (const auto& base : {adamw({.lr = 0.1}), radam(), rmsprop(), sgd({.momentum = 0.9})}) {
      for (const bool has_masters : {false, true}) {
        const OptimizerConfig config = OptimizerConfig(base).master_weights(has_masters);
        const auto type = has_masters ? at::kBFloat16 : at::kFloat;
        const auto memory = memory_at(folder);
        const auto one = after_steps(config, type, mesh),
                   other = after_steps(kept(config, memory), type, mesh);
        if (one.size() < 15 || one.size() != other.size()) return std::string("other tensors");
        for (size_t i = 0; i < one.size(); ++i) {
          if (!torch::equal(one[i], other[i])) return config.name() + " differs";
        }
      }
    }
    return std::string();
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

TEST(OffloadRefused, ByNameForWhatCannotBeInAFile) {
  const auto memory = quick_memory();
  const auto error = [&](const OptimizerConfig& config, std::vector<NamedTensor> given) {
    return error_of([&] { build_optimizer(kept(config, memory), std::move(given)); });
  };
  EXPECT_THAT(
      error(torch_optimizer<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1)), parameters()),
      AllOf(StartsWith("optim.offload: "), HasSubstr("LBFGS"), HasSubstr("--offload")));
  EXPECT_THAT(error(adamw(), {{"w", torch::ones({4, 4}).slice(1, 0, 2).requires_grad_()}}),
              AllOf(StartsWith("optim.offload: w has memory with gaps")));
  EXPECT_THAT(error(adamw(), {{"w", torch::ones({4}, torch::kMeta).requires_grad_()}}),
              AllOf(StartsWith("optim.offload: w is on meta, but --offload optimizer updates its "
                               "state on cpu")));
  EXPECT_THAT(error(adafactor({.lr = 0.1, .beta1 = 0.9, .relative_step = false}),
                    {{"w", torch::ones({1024, 1024}).requires_grad_()}}),
              AllOf(StartsWith("optim.offload: adafactor updates whole parameters"),
                    HasSubstr("set --offload-memory-mb to at least 5")));
  EXPECT_THAT(error(muon(), {{"w", torch::ones({4}).requires_grad_()}}),
              StartsWith("optim.muon: "));
  EXPECT_THAT(error(lion(), {{"w", torch::ones({4}, torch::kComplexFloat).requires_grad_()}}),
              StartsWith("optim.parameters: "));
  auto given = parameters();
  auto optimizer = build_optimizer(kept(adamw(), memory), given);
  given[1].tensor.mutable_grad() = given[1].tensor.detach().to_sparse();
  EXPECT_THAT(error_of([&] { optimizer->step(); }),
              StartsWith("optim.sparse: adamw with --offload"));
}

// State in memory of the host.

SlotPlace place_of(int64_t begin, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  SlotPlace place{"s", begin, std::move(sizes), std::move(strides), at::kFloat, 1};
  for (const int64_t size : place.sizes) place.numel *= size;
  return place;
}

/// 3 MiB and some are taken as chunks of 2 MiB, 1 MiB and less.
TEST(HostMemory, KeepsTensorsThatCrossItsChunks) {
  const auto memory = make_host_memory(at::kCPU, 1 << 20);
  EXPECT_EQ(memory->take(100), 0);
  const int64_t begin = memory->take((3 << 20) + 5000);
  EXPECT_EQ(begin, 128);
  EXPECT_EQ(memory->size(), 128 + (3 << 20) + 5056);
  const at::Tensor values = torch::randn({1000, 700});
  const SlotPlace crossing = place_of(begin, {1000, 700}, {1, 1000}),
                  inside = place_of(begin + (1000 * 700 + 32) / 16 * 64, {9}, {1});
  EXPECT_TRUE(torch::equal(memory->at_rest(crossing), torch::zeros({1000, 700})));
  memory->copy_into(crossing, values);
  memory->fill(inside, 3.0);
  EXPECT_TRUE(torch::equal(memory->at_rest(crossing), values));
  EXPECT_EQ(memory->at_rest(crossing).stride(1), 1000);
  EXPECT_TRUE(torch::equal(memory->at_rest(inside), torch::full({9}, 3.0)));
  // A lease over the end of the first chunk.
  const levin::files::ByteRange range{begin + (2 << 20) - 256, begin + (2 << 20) + 256};
  const auto lease = memory->lease({range});
  const at::Tensor bytes = lease->bytes(0);
  ASSERT_EQ(bytes.numel(), 512);
  const at::Tensor flat = values.t().contiguous().view({-1}).view(at::kByte);
  EXPECT_TRUE(torch::equal(bytes, flat.slice(0, (2 << 20) - 256, (2 << 20) + 256)));
  bytes.fill_(0);
  lease->write_back();
  memory->wait();
  const at::Tensor zeroed = flat.clone();
  zeroed.slice(0, (2 << 20) - 256, (2 << 20) + 256).zero_();
  EXPECT_TRUE(
      torch::equal(memory->at_rest(crossing).t().contiguous().view({-1}).view(at::kByte), zeroed));
}

TEST(HostMemory, ForgetsALeaseThatIsNotWrittenBack) {
  const auto memory = make_host_memory(at::kCPU, 4096);
  const int64_t begin = memory->take(4096);
  {
    memory->lease({{begin, begin + 4096}})->bytes(0).fill_(7);
  }
  EXPECT_EQ(memory->lease({{begin, begin + 4096}})->bytes(0).max().item<int64_t>(), 0);
}

TEST(HostMemory, ReadsAgainWhatIsWrittenAfterItWasReadAhead) {
  const auto memory = make_host_memory(at::kCPU, 1 << 16);
  const int64_t begin = memory->take(8192);
  const levin::files::ByteRanges first = {{begin, begin + 4096}},
                                 both = {{begin + 1024, begin + 8192}};
  const auto lease = memory->lease(first);
  memory->read_ahead(both);
  lease->bytes(0).fill_(9);
  lease->write_back();
  const at::Tensor read = memory->lease(both)->bytes(0);
  EXPECT_EQ(read.eq(9).sum().item<int64_t>(), 3072);
}

TEST(HostMemory, TakesTheMemoryOfWhatWasReadAheadAndRefusesMore) {
  const auto memory = make_host_memory(at::kCPU, 4096);
  const int64_t begin = memory->take(1 << 14);
  memory->read_ahead({{begin, begin + 4096}});
  memory->read_ahead({{begin + 4096, begin + 8192}});  // no memory is left for it
  EXPECT_EQ(memory->lease({{begin + 8192, begin + 12288}})->bytes(0).numel(), 4096);
  const auto lease = memory->lease({{begin, begin + 64}});
  EXPECT_THAT(
      error_of([&] { memory->lease({{begin, begin + 4096}}); }),
      StartsWith("files.scratch.memory: got 4096 bytes of memory for offload, but 4096 bytes are "
                 "needed at once beside 64 that are in use; set --offload-memory-mb"));
}

TEST(OffloadRefused, StateThatIsAnArchiveOfAClass) {
  auto given = parameters();
  auto other = build_optimizer(
      kept(torch_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1)), quick_memory()),
      given);
  State state = other->state_dict();
  State of_parameters = state.child("parameters");
  State first = of_parameters.child(given[0].name);
  first.erase("options");
  first.set("archive", torch::zeros({3}, torch::kByte));
  of_parameters.set(given[0].name, first);
  state.set("parameters", of_parameters);
  EXPECT_THAT(error_of([&] { other->load_state_dict(state); }),
              AllOf(StartsWith("optim.offload: "), HasSubstr("leave --offload out")));
}

TEST(OffloadRefused, OnADiskThatIsTooSmallBeforeAnyStep) {
  const levin::test::Scratch folder;
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    if (!levin::test::mount_small_disk(folder.str(), 1 << 18)) return levin::test::kSkipped;
    const std::string error =
        error_of([&] { build_optimizer(kept(adamw(), memory_in(folder)), parameters()); });
    return error.starts_with("files.scratch: cannot take ") &&
                   error.find("no space left on device") != std::string::npos
               ? 0
               : 1;
  });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0);
}

// Portions: 3 slots of float32, 12 bytes an element.
std::vector<SlotPlace> places(int64_t first, int64_t numel, int64_t all) {
  std::vector<SlotPlace> slots;
  for (int64_t slot = 0; slot < 3; ++slot) {
    slots.push_back({"s", slot * all + first, {numel}, {1}, at::kFloat, numel});
  }
  return slots;
}

TEST(Portions, JoinWhatFollowsInTheFileAndCutWhatIsLarge) {
  const auto a = places(0, 16, 1 << 20), b = places(64, 10, 1 << 20),
             c = places(128, 10'000, 1 << 20);
  const std::vector<PortionItem> items = {
      {0, 16, true, &a}, {1, 10, true, &b}, {2, 10'000, true, &c}};
  const std::vector<Portion> portions = cut_portions(items, 60'000);
  ASSERT_EQ(portions.size(), 3U);
  ASSERT_EQ(portions[0].pieces.size(), 3U);
  EXPECT_EQ(portions[0].ranges.size(), 3U) << "one for each slot";
  EXPECT_EQ(portions[0].ranges[0], (levin::files::ByteRange{0, 128 + 4096 * 4}));
  EXPECT_EQ(portions[0].pieces[1].slots[1].byte, 64);
  EXPECT_EQ(portions[0].pieces[2].count, 4096);
  EXPECT_EQ(portions[1].pieces[0].begin, 4096);
  EXPECT_EQ(portions[1].pieces[0].count, 4096);
  EXPECT_EQ(portions[2].pieces[0].count, 10'000 - 2 * 4096);
}

TEST(Portions, NeverCutWhatIsUpdatedAsAWhole) {
  const auto a = places(0, 10'000, 1 << 20), b = places(40'000, 10, 1 << 20);
  const std::vector<PortionItem> items = {{0, 10'000, false, &a}, {1, 10, false, &b}};
  const std::vector<Portion> portions = cut_portions(items, 1000);
  ASSERT_EQ(portions.size(), 2U);
  EXPECT_EQ(portions[0].pieces[0].count, 10'000);
  EXPECT_EQ(portions[0].bytes, 120'000);
  EXPECT_EQ(portions[1].pieces[0].item, 1U);
  EXPECT_TRUE(cut_portions({}, 1000).empty());
}

}  // namespace
}  // namespace offloaded_optimizers
