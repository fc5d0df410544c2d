#include "levin/comm/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::DeviceMesh;
using levin::comm::ProcessGroup;
using levin::test::connect;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

double sum_over(ProcessGroup& group, int64_t value) {
  const at::Tensor data = torch::full({1}, double(value));
  group.all_reduce(data, ReduceOp::kSum);
  return data.item<double>();
}

TEST(DeviceMesh, AxesHaveGroupsAndTheLastVariesFastest) {
  EXPECT_THAT(run_world(6,
                        [](int64_t rank, const auto&) {
                          DeviceMesh mesh(connect(), {{"replicate", 2}, {"shard", 3}});
                          const int64_t row = rank / 3, column = rank % 3;
                          std::string wrong;
                          if (mesh.coordinate("replicate") != row) wrong += "row ";
                          if (mesh.coordinate("shard") != column) wrong += "column ";
                          if (mesh.size("shard") != 3 || mesh.size() != 6) wrong += "size ";
                          if (mesh.group("shard").rank() != column) wrong += "rank ";
                          if (sum_over(mesh.group("shard"), rank) != 9 * row + 3) wrong += "shard ";
                          if (sum_over(mesh.group("replicate"), rank) != 2 * column + 3) {
                            wrong += "replicate ";
                          }
                          return wrong;
                        }),
              Each(""));
}

TEST(DeviceMesh, SomeOfItsAxesAreAMeshOfTheirOwn) {
  EXPECT_THAT(run_world(8,
                        [](int64_t rank, const auto&) {
                          DeviceMesh mesh(connect(), {{"a", 2}, {"b", 2}, {"c", 2}});
                          DeviceMesh part = mesh[{"a", "c"}];
                          const int64_t b = rank / 2 % 2;
                          std::string wrong;
                          if (part.axes().size() != 2 || part.size() != 4) wrong += "size ";
                          if (part.coordinate("a") != rank / 4) wrong += "a ";
                          if (part.coordinate("c") != rank % 2) wrong += "c ";
                          // 0, 1, 4, 5 or 2, 3, 6, 7.
                          if (sum_over(part.flat(), rank) != 10 + 8 * b) wrong += "flat ";
                          return wrong;
                        }),
              Each(""));
}

/// What this process has open: a group of several ranks costs some.
int64_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

TEST(DeviceMesh, SubMeshesAreMadeOnceAndSharedByCopies) {
  EXPECT_THAT(run_world(4,
                        [](int64_t rank, const auto&) {
                          DeviceMesh mesh(connect(), {{"a", 2}, {"b", 2}, {"c", 1}});
                          const std::vector<DeviceMesh> copies(3, mesh);
                          const int64_t at_first = open_files();
                          const DeviceMesh part = mesh[{"a", "c"}];
                          const int64_t after_one = open_files();
                          std::string wrong;
                          if (after_one <= at_first) wrong += "no group ";
                          for (const DeviceMesh& copy : copies) {
                            if (&copy[{"a", "c"}].flat() != &part.flat()) wrong += "another ";
                          }
                          if (open_files() != after_one) wrong += "files ";
                          // 0, 2 or 1, 3.
                          if (sum_over(part.flat(), rank) != 2 * (rank % 2) + 2) wrong += "sum ";
                          return wrong;
                        }),
              Each(""));
}

TEST(DeviceMesh, NoGroupIsMadeTwice) {
  EXPECT_THAT(run_world(4,
                        [](int64_t rank, const auto&) {
                          const ProcessGroup world = connect();
                          const int64_t at_first = open_files();
                          DeviceMesh line(world, {{"a", 4}});
                          std::string wrong;
                          if (open_files() != at_first) wrong += "a group of all ";
                          if (sum_over(line.group("a"), rank) != 6) wrong += "line ";
                          DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
                          const int64_t after_axes = open_files();
                          const DeviceMesh row = mesh[{"b"}], whole = mesh[{"a", "b"}];
                          const int64_t sum = rank < 2 ? 1 : 5;
                          if (open_files() != after_axes) wrong += "a group of an axis ";
                          if (sum_over(row.flat(), rank) != sum) wrong += "row ";
                          if (sum_over(whole.group("b"), rank) != sum) {
                            wrong += "whole ";
                          }
                          return wrong;
                        }),
              Each(""));
}

TEST(DeviceMesh, MistakesAreErrorsThatSayWhatThereIs) {
  const ProcessGroup one;
  EXPECT_THAT(error_of([&] { DeviceMesh(one, {{"a", 2}}); }),
              HasSubstr("comm.mesh: got axes a=2 for 1 ranks"));
  EXPECT_THAT(error_of([&] { DeviceMesh(one, {{"a", 1}, {"a", 1}}); }),
              HasSubstr("wanted a different name for each axis"));
  EXPECT_THAT(error_of([&] { DeviceMesh(one, {{"a", 0}}); }), HasSubstr("at least 1"));
  DeviceMesh mesh(one, {{"a", 1}, {"b", 1}});
  EXPECT_THAT(error_of([&] { mesh.group("c"); }),
              HasSubstr("comm.mesh: got axis 'c', wanted one of a=1, b=1"));
  EXPECT_THAT(error_of([&] { mesh[{"b", "a"}]; }), HasSubstr("wanted the order of the mesh"));
}

}  // namespace
