// How the mpi backend finds an MPI, and what it says of one that fails; without mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "levin/comm/mpi/library.h"
#include "levin/comm/mpi/mpi.h"
#include "tests/comm/ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace {

using levin::comm::make_mpi_backend;
using levin::test::run_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a process of its own said that made the backend and called a barrier twice.
std::string barriers_with(const std::string& module, const char* behaviour) {
  return run_ranks(1, [&](int64_t, const auto&) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"}) {
      ::unsetenv(name);
    }
    if (!module.empty()) ::setenv("LEVIN_MPI_MODULE", module.c_str(), 1);
    ::setenv("LEVIN_FAKE_MPI", behaviour, 1);
    const auto backend = make_mpi_backend(0, 1, std::chrono::milliseconds(200));
    std::string said;
    for (int i = 0; i < 2; ++i) {
      try {
        backend->barrier({.asyncOp = i == 0})->wait();
        said += "fine ";
      } catch (const std::exception& error) {
        said += std::string(error.what()) + "; then ";
      }
    }
    return said;
  })[0];
}

TEST(MpiModule, IsLoadedFromTheFileThatTheVariableNames) {
  EXPECT_EQ(barriers_with(levin::test::fake_mpi(), ""), "fine fine ");
}

TEST(MpiModule, IsNotLookedForWithoutMpirun) {
  EXPECT_THAT(barriers_with("", ""),
              StartsWith("comm.mpi.start: this process was not started by mpirun; start it with"));
}

TEST(MpiModule, ThatIsMissingOrNoneIsAClearError) {
  EXPECT_THAT(barriers_with("/nowhere/module.so", ""),
              AllOf(StartsWith("comm.mpi.absent: LEVIN_MPI_MODULE=/nowhere/module.so cannot be "
                               "loaded: "),
                    HasSubstr("No such file")));
  EXPECT_THAT(barriers_with("libz.so.1", ""),
              StartsWith("comm.mpi.absent: libz.so.1 is not an MPI module of levin"));
}

TEST(MpiModule, IsNotTakenFromWhereOthersWrite) {
  const levin::test::Scratch scratch;
  const auto file = levin::test::put(scratch / "liblevin_mpi_openmpi.so", "");
  levin::comm::mpi::check_trust(file.string());
  std::filesystem::permissions(file, std::filesystem::perms::all);
  EXPECT_THAT(levin::test::error_of([&] { levin::comm::mpi::check_trust(file.string()); }),
              AllOf(StartsWith("comm.mpi.trust: "), HasSubstr("the file may be written by other")));
}

TEST(MpiModule, SaysWhenMpiIsForOneThread) {
  EXPECT_THAT(barriers_with(levin::test::fake_mpi(), "no threads"),
              StartsWith("comm.mpi.threads: got MPI initialized for one thread"));
}

TEST(MpiModule, GivesMpisErrorsTheirOperation) {
  EXPECT_THAT(
      barriers_with(levin::test::fake_mpi(), "error"),
      AllOf(StartsWith("comm.mpi: barrier: MPI_Iallgatherv: MPI_ERR_OTHER: known error"),
            HasSubstr("; then comm.closed: the group has already failed: comm.mpi: barrier")));
}

TEST(MpiModule, SaysWhatItWaitedFor) {
  EXPECT_THAT(barriers_with(levin::test::fake_mpi(), "silence"),
              StartsWith("comm.timeout: waited 0.2 s in the start of a group for "));
}

}  // namespace
