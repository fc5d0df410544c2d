// Units that lie in memory which the ranks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/strategy/strategies.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::error_of;
using levin::test::net_of_layers;
using levin::test::run_world;
using levin::test::same;
using levin::test::some_inputs;
using levin::test::Trained;
using levin::test::trained_alone;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(FsdpShared, TakesRanksThatRunOutOfData) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    Trained trained(connect("shm"));
    auto& joinable = dynamic_cast<levin::Joinable&>(*trained.strategy);
    joinable.begin_join(/*by_present=*/true);
    for (int64_t i = 0; i < (rank == 0 ? 3 : 1); ++i) trained.step(some_inputs(i));
    trained.optimizer->zero_grad();
    while (joinable.shadow_step()) {
      trained.strategy->update(*trained.optimizer);
      trained.optimizer->zero_grad();
    }
    return same(levin::full(*trained.net), trained_alone(3), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(FsdpShared, RefusesTwoParametersInOneMemory) {
  struct Net : torch::nn::Module {
    Net() {
      const at::Tensor memory = torch::ones({6, 4});
      register_parameter("first", memory.narrow(0, 0, 4));
      register_parameter("second", memory.narrow(0, 2, 4));
    }
  };
  const auto strategy = levin::make_strategy("fsdp", {});
  const auto net = std::make_shared<Net>();
  EXPECT_THAT(error_of([&] { strategy->setup(*net, at::kCPU); }),
              HasSubstr("strategy.fsdp.shared_memory: first and second"));
}
/// Of the mapping that an address is in: its rights, and the kilobytes in it that no other process has
/// mapped.
std::pair<std::string, int64_t> mapping_of(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  std::pair<std::string, int64_t> found;
  bool within = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream range(line), field(line);
    uintptr_t begin = 0, end = 0;
    char dash = ' ';
    std::string rights, name;
    int64_t kilobytes = 0;
    if (range >> std::hex >> begin >> dash >> end >> rights && dash == '-') {
      within = begin <= wanted && wanted < end;
      if (within) found.first = rights;
    } else if (within && field >> name >> kilobytes && name.starts_with("Private_")) {
      found.second += kilobytes;
    }
  }
  return found;
}

TEST(FsdpShared, OneMemoryIsThatOfAllRanks) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    ProcessGroup group = connect("shm");
    Trained trained(group, torch::nn::Sequential(torch::nn::Linear(512, 512)));
    for (int i = 0; i < 2; ++i) trained.step(torch::randn({4, 512}));
    const at::Tensor weight = trained.net->parameters().front();
    std::pair<std::string, int64_t> mapping;
    {
      const auto scope = trained.strategy->compute_scope();
      group.barrier();
      mapping = mapping_of(weight.const_data_ptr());
      group.barrier();
    }
    if (mapping.first != "r--s") return "mapped as " + mapping.first;
    return mapping.second < 64 ? "" : std::to_string(mapping.second) + " of 1024 kB are private";
  });
  EXPECT_THAT(words, Each(""));
}

// Later passes pay nothing to see writes; the kernel does.
TEST(FsdpSharedDeathTest, ALaterWriteEndsTheProcessWithWordsThatNameTheParameter) {
  struct sigaction of_program = {};
  ::sigaction(SIGSEGV, nullptr, &of_program);
  std::signal(SIGSEGV,
              SIG_DFL);  // a sanitizer's handler, which levin's calls, ends a process by exit
  {
    Trained trained({}, net_of_layers());
    for (int64_t i = 0; i < 6; ++i) trained.step(some_inputs(i));
    const auto scope = trained.strategy->compute_scope();
    const at::Tensor weight = trained.net->ptr(2)->as<torch::nn::Linear>()->weight;
    const auto write = [&] {
      *static_cast<float*>(const_cast<void*>(weight.const_data_ptr())) = 1;
    };
    EXPECT_EXIT(write(), ::testing::KilledBySignal(SIGSEGV),
                "strategy.fsdp.write: something writes to 2.weight of unit 0 within a forward");
  }
  ::sigaction(SIGSEGV, &of_program, nullptr);
}

TEST(FsdpShared, LeavesTheHandlersOfTheProgramAsTheyWere) {
  struct sigaction before = {}, within = {}, after = {};
  ::sigaction(SIGSEGV, nullptr, &before);
  {
    Trained trained({}, net_of_layers());
    ::sigaction(SIGSEGV, nullptr, &within);
  }
  ::sigaction(SIGSEGV, nullptr, &after);
  EXPECT_NE(within.sa_sigaction, before.sa_sigaction);
  EXPECT_EQ(after.sa_sigaction, before.sa_sigaction);
}

TEST(FsdpShared, GivesTheModuleBackWhole) {
  const auto words = run_world(2, [&](int64_t, const auto&) -> std::string {
    torch::nn::Sequential net = net_of_layers();
    {
      Trained trained(connect("shm"), net);
      trained.step(some_inputs(0));
      trained.step(some_inputs(1));
    }
    if (levin::shard::layout_of(net->parameters().front()) != nullptr) return "still divided";
    net->parameters().front().detach().add_(0);  // is memory of its own
    return same(levin::module_state(*net), trained_alone(2), 1e-6) ? "" : "weights";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
