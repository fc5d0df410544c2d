// A save that does not come to its end leaves the checkpoint from before.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"

namespace {

using levin::Checkpoint;
using levin::load_checkpoint;
using levin::save_checkpoint;
using levin::test::difference;
using levin::test::error_of;
using levin::test::names_in;
using levin::test::sample;
using levin::test::Scratch;

constexpr size_t kPage = 4096;

/// Whose model.safetensors takes so many pages of the disk, and a training state of another page.
Checkpoint of_pages(int64_t pages) {
  Checkpoint checkpoint = sample(2);
  checkpoint.weights["model"].set(
      "large", torch::ones({(pages - 1) * static_cast<int64_t>(kPage)}, torch::kByte));
  return checkpoint;
}

/// On a disk of 32 pages, saves a small checkpoint and over it ones that fit less and less, so that
/// the disk is full at each of their files. 0: all went as it should.
int fill_up(const Scratch& scratch) {
  at::set_num_threads(1);
  if (!levin::test::mount_small_disk(scratch.str(), 32 * kPage)) return levin::test::kSkipped;
  int64_t failed = 0;
  for (int64_t pages = 2; pages <= 40; ++pages) {
    save_checkpoint(scratch / "c", sample(1));
    const Checkpoint larger = of_pages(pages);
    const std::string error = error_of([&] { save_checkpoint(scratch / "c", larger); });
    const bool full = error.starts_with("files.write: ") &&
                      error.find("no space left on device") != std::string::npos;
    if (!full && error != "no error") return 1;
    const Checkpoint& wanted = full ? sample(1) : larger;
    if (!difference(wanted, load_checkpoint(scratch / "c")).empty()) return 2;
    if (names_in(scratch.path()).size() != 1) return 3;
    failed += full ? 1 : 0;
  }
  return failed >= 10 && failed <= 37 ? 0 : 4;
}

TEST(InterruptedSave, OnAFullDiskLeavesTheOldOneWholeAndNothingElse) {
  const Scratch scratch;
  const int code = levin::test::run_child([&] { return fill_up(scratch); });
  if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  EXPECT_EQ(code, 0) << "see fill_up";
}

/// The same for a file of weights on a disk of 16 pages, so that the disk is full at each of its parts.
int fill_up_with_weights(const Scratch& scratch, const std::string& name) {
  at::set_num_threads(1);
  if (!levin::test::mount_small_disk(scratch.str(), 16 * kPage)) return levin::test::kSkipped;
  const levin::State small = sample(1).weights.at("model");
  int64_t failed = 0;
  for (int64_t pages = 2; pages <= 20; ++pages) {
    levin::save_weights(scratch / name, small);
    const levin::State larger = of_pages(pages).weights.at("model");
    const std::string error = error_of([&] { levin::save_weights(scratch / name, larger); });
    const bool full = error.starts_with("files.write: ") &&
                      error.find("no space left on device") != std::string::npos;
    if (!full && error != "no error") return 1;
    const levin::State& wanted = full ? small : larger;
    if (!difference(wanted, levin::load_weights(scratch / name)).empty()) return 2;
    if (names_in(scratch.path()).size() != 1) return 3;
    failed += full ? 1 : 0;
  }
  return failed >= 3 && failed <= 17 ? 0 : 4;
}

TEST(InterruptedSave, OfWeightsOnAFullDiskLeavesTheOldFileWhole) {
  for (const char* name : {"w.safetensors", "w.pt"}) {
    const Scratch scratch;
    const int code = levin::test::run_child([&] { return fill_up_with_weights(scratch, name); });
    if (code == levin::test::kSkipped) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
    EXPECT_EQ(code, 0) << name << ": see fill_up_with_weights";
  }
}

/// Saves over and over, each time other values in every file; writes a byte after each save.
int save_for_ever(const Scratch& scratch, int done) {
  at::set_num_threads(1);
  for (int64_t seed = 1;; ++seed) {
    save_checkpoint(scratch / "c", sample(seed));
    if (::write(done, "", 1) != 1) return 1;
  }
}

TEST(InterruptedSave, KilledAtAnyMomentLeavesOneWholeCheckpoint) {
  const Scratch scratch;
  for (int round = 0; round < 20; ++round) {
    int done[2];
    ASSERT_EQ(::pipe(done), 0);
    const pid_t child = levin::test::start_child([&] { return save_for_ever(scratch, done[1]); });
    ::close(done[1]);
    char byte = 0;
    ASSERT_EQ(::read(done[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 777));
    ::kill(child, SIGKILL);
    ASSERT_EQ(levin::test::wait_for(child), -SIGKILL);
    ::close(done[0]);
    const Checkpoint loaded = load_checkpoint(scratch / "c");
    const int64_t seed = loaded.training.child("optimizer").integer("step");
    EXPECT_GE(seed, 1);
    EXPECT_EQ(difference(sample(seed), loaded), "") << "round " << round;
  }
}

TEST(InterruptedSave, WhatAKilledOneLeftDoesNotHinderTheNext) {
  const Scratch scratch;
  const pid_t child = levin::test::start_child([&] {
    const levin::files::StagedDirectory staged(scratch / "c");
    levin::test::put(staged.path() / "model.safetensors", "half of it");
    ::raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(levin::test::wait_for(child), -SIGKILL);
  save_checkpoint(scratch / "c", sample(5));
  EXPECT_EQ(difference(sample(5), load_checkpoint(scratch / "c")), "");
}

}  // namespace
