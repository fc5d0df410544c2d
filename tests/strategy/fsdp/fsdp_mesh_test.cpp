// --mesh: copies of the parameters, and the ranks that shard each of them.
#include "levin/strategy/fsdp/fsdp_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/module/parameters.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::comm::MeshShape;
using levin::fsdp::fsdp_mesh_shape;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using levin::test::some_inputs;
using levin::test::Trained;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(FsdpMesh, HasTheSizesOfTheText) {
  EXPECT_EQ(fsdp_mesh_shape("", 4, 1), (MeshShape{{"fsdp", 4}}));
  EXPECT_EQ(fsdp_mesh_shape("replicate=2,fsdp=4", 8, 1),
            (MeshShape{{"replicate", 2}, {"fsdp", 4}}));
  EXPECT_EQ(fsdp_mesh_shape("dp_shard=4,dp_replicate=2", 8, 1),
            (MeshShape{{"replicate", 2}, {"fsdp", 4}}));
  EXPECT_EQ(fsdp_mesh_shape("shard=4", 8, 1), (MeshShape{{"replicate", 2}, {"fsdp", 4}}));
  EXPECT_EQ(fsdp_mesh_shape("dp=4", 8, 1), (MeshShape{{"replicate", 4}, {"fsdp", 2}}));
  EXPECT_EQ(fsdp_mesh_shape("hosts", 8, 2), (MeshShape{{"replicate", 2}, {"fsdp", 4}}));
  EXPECT_EQ(fsdp_mesh_shape("hosts", 8, 1), (MeshShape{{"fsdp", 8}})) << "one host has one copy";
  EXPECT_EQ(fsdp_mesh_shape("replicate=1,fsdp=8", 8, 1), (MeshShape{{"fsdp", 8}}));
}

TEST(FsdpMesh, RefusesOtherText) {
  for (const char* text : {"fsdp", "fsdp=", "fsdp=0", "fsdp=-2", "fsdp=2x", "tp=2", "fsdp=2,fsdp=4",
                           "replicate=2,", "2,4", "replicate=2;fsdp=4"}) {
    EXPECT_THAT(error_of([&] { fsdp_mesh_shape(text, 8, 1); }),
                HasSubstr(std::string("strategy.fsdp.mesh: got --mesh '") + text + "', wanted"))
        << text;
  }
  EXPECT_THAT(error_of([&] { fsdp_mesh_shape("replicate=2,fsdp=3", 8, 1); }),
              HasSubstr("for 8 ranks, wanted sizes whose product is 8"));
  EXPECT_THAT(error_of([&] { fsdp_mesh_shape("fsdp=3", 8, 1); }), HasSubstr("whose product is 8"));
}

// A rank holds its part of one copy, and the ranks with the same part have the same bits after steps
// on different data.
TEST(FsdpMesh, KeepsTheCopiesEqual) {
  const auto words = run_world(4, [&](int64_t rank, const auto&) -> std::string {
    auto group = connect();
    Trained trained(group, levin::test::net_of_layers(), {.mesh = "replicate=2,fsdp=2"});
    for (int64_t step = 0; step < 3; ++step) trained.step(some_inputs(4 * step + rank));
    levin::State rows;
    for (const auto& [name, parameter] : levin::named_parameters(*trained.net)) {
      rows.set(name, parameter.detach().clone());
    }
    const std::vector<levin::State> all = group.all_gather(rows);
    const levin::State& copy = all[static_cast<size_t>((rank + 2) % 4)];
    const levin::State& other = all[static_cast<size_t>((rank + 1) % 4)];
    bool differs = false;
    for (const auto& [name, value] : rows.values()) {
      if (!at::equal(rows.tensor(name), copy.tensor(name))) return "another " + name;
      differs |= !at::equal(rows.tensor(name), other.tensor(name));
    }
    if (!differs) return "nothing is sharded";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
