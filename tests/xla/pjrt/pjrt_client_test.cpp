#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <filesystem>
#include <iterator>
#include <thread>

#include "levin/xla/pjrt/client.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/xla/plugins.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::test::error_of;
using levin::test::OnCpuDevices;
using levin::test::Variable;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PjrtClient : public OnCpuDevices {};

class FakeClient : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  }
  static pjrt::Client make(const pjrt::ClientOptions& options = {}) {
    return pjrt::Client(pjrt::Plugin(levin::test::fake_pjrt()), options);
  }
};

TEST_F(PjrtClient, HasAsManyDevicesAsAskedFor) {
  for (const int64_t count : {1, 2, 4, 8}) {
    const pjrt::Client& client = devices(count);
    EXPECT_EQ(client.platform(), "cpu");
    EXPECT_EQ(client.addressable_devices().size(), static_cast<size_t>(count));
    EXPECT_EQ(client.devices().size(), static_cast<size_t>(count));
    EXPECT_EQ(client.devices().back().id, count - 1);
    EXPECT_EQ(client.devices().back().kind, "cpu");
    EXPECT_EQ(client.devices().back().process, 0);
    EXPECT_TRUE(client.devices().back().is_addressable);
  }
}

/// A device that waits for the others in an exchange holds a thread.
TEST_F(PjrtClient, HasMoreThreadsThanDevices) {
  const auto count = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = count();
  const pjrt::Client client(pjrt::Plugin(path_), {.num_devices = 8});
  EXPECT_GE(count() - before, 2 * 8);
  EXPECT_EQ(std::getenv("NPROC"), nullptr);
}

TEST_F(PjrtClient, KnowsNoMemoryOfCpus) { EXPECT_FALSE(device().memory(0).has_value()); }

TEST_F(PjrtClient, HasNoOtherDevices) {
  EXPECT_THAT(error_of([&] { device().memory(1); }),
              StartsWith("xla.device: got device 1, wanted 0 to 0"));
  EXPECT_THAT(error_of([&] { device().upload(torch::ones(2), -1); }), StartsWith("xla.device: "));
}

TEST_F(PjrtClient, OfSeveralProcessesNeedsAStore) {
  const pjrt::Plugin plugin(path_);
  EXPECT_THAT(error_of([&] { pjrt::Client client(plugin, {.world_size = 2}); }),
              StartsWith("xla.option: got world_size 2"));
  EXPECT_THAT(error_of([&] { pjrt::Client client(plugin, {.rank = 2, .world_size = 2}); }),
              StartsWith("xla.option: got rank 2"));
  EXPECT_THAT(error_of([&] { pjrt::Client client(plugin, {.num_devices = -1}); }),
              StartsWith("xla.option: got num_devices -1"));
}

TEST_F(FakeClient, TellsMemoryWhereThePluginDoes) {
  const auto memory = make().memory(0);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->bytes_in_use, 5);
  EXPECT_EQ(memory->bytes_limit, 80);
  EXPECT_FALSE(memory->peak_bytes_in_use.has_value());
}

TEST_F(FakeClient, HandsOptionsOn) {
  EXPECT_EQ(make({.plugin_options = {{"word", "hello"}}}).platform_version(), "hello");
  EXPECT_THAT(error_of([] { make({.plugin_options = {{"refuse", true}}}); }),
              AllOf(StartsWith("xla.client: plugin "), HasSubstr("refused")));
  EXPECT_THAT(error_of([] { make({.num_devices = 2}); }),
              StartsWith("xla.option: got num_devices 2 for a cuda plugin"));
}

TEST_F(FakeClient, TradesKeysAndValuesThroughTheStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::optional<pjrt::Client>> clients(2);
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      clients[static_cast<size_t>(rank)] = make({.store = store, .rank = rank, .world_size = 2});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  using std::string_literals::operator""s;
  EXPECT_EQ(clients[0]->platform_version(), "word\0of 1"s);
  EXPECT_EQ(clients[1]->platform_version(), "word\0of 0"s);
  EXPECT_EQ(clients[1]->devices().size(), 2U);
  ASSERT_EQ(clients[1]->addressable_devices().size(), 1U);
  EXPECT_EQ(clients[1]->addressable_devices()[0].process, 1);
}

TEST_F(FakeClient, WithoutItsPeerGivesUp) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "impatient");
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(error_of([&] { make({.store = store, .rank = 0, .world_size = 2}); }),
              AllOf(StartsWith("xla.client: "), HasSubstr("no process put 'word/1' within 50 ms")));
}

TEST_F(FakeClient, ThatKnowsNoOthersIsNoneOfSeveral) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "knows no others");
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(
      error_of([&] { make({.store = store, .rank = 0, .world_size = 2}); }),
      AllOf(StartsWith("xla.client: "), HasSubstr("devices of 1 process, wanted those of 2")));
}

}  // namespace
