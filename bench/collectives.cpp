// Collectives of 2 ranks from 40 bytes to 400 MB: microseconds a call, by backend.
//
//   bench_collectives --devices 2 --backend shm                     starts its ranks itself
//   mpirun -n 2 bench_collectives --backend mpi
//
// One line of JSON for each operation and size; "shared": the tensors lie in memory that
// ProcessGroup::allocate gave, as gradient buckets do.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "levin/accelerator/engine/world.h"
#include "levin/base/options.h"

namespace {

using levin::ReduceOp;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string backend = "auto";
  int64_t devices = 0;
  double seconds = 0.5;
  int64_t most_bytes = 400'000'000;
  std::string operation;

  void fields(levin::FieldVisitor& field) {
    field("backend", backend, "shm, gloo, hierarchical or mpi");
    field("devices", devices, "ranks to start; 0: as they were started");
    field("seconds", seconds, "for each operation and size");
    field("most_bytes", most_bytes, "of the largest size");
    field("operation", operation, "this one alone; empty: all");
  }
};

class Measure {
 public:
  Measure(const Options& options, levin::comm::ProcessGroup group)
      : options_(options), group_(std::move(group)) {}

  void run() {
    for (int64_t bytes = 40; bytes <= options_.most_bytes; bytes *= 10) {
      for (const bool shared : {false, true}) {
        if (shared && group_.backend() != "shm") continue;
        measure_size(bytes, shared);
      }
    }
  }

 private:
  void measure_size(int64_t bytes, bool shared) {
    const int64_t count = std::max<int64_t>(bytes / 4, group_.size());
    const int64_t part = count / group_.size();
    const auto made = [&](int64_t length) {
      at::Tensor data = shared ? group_.allocate(length, at::kFloat) : at::empty({length});
      return data.fill_(1);
    };
    const at::Tensor whole = made(part * group_.size()), small = made(part);
    report("all_reduce", bytes, shared, [&] { group_.all_reduce(whole, ReduceOp::kSum); });
    report("reduce_scatter", bytes, shared,
           [&] { group_.reduce_scatter(small, whole, ReduceOp::kSum); });
    report("all_gather", bytes, shared, [&] { group_.all_gather(whole, small); });
    report("broadcast", bytes, shared, [&] { group_.broadcast(whole, 0); });
  }

  template <class Call>
  void report(const char* name, int64_t bytes, bool shared, const Call& call) {
    if (!options_.operation.empty() && options_.operation != name) return;
    call();
    const double once = seconds_of(1, call);
    const auto batch = std::clamp<int64_t>(static_cast<int64_t>(0.02 / once), 1, 10000);
    const auto batches = std::clamp<int64_t>(
        static_cast<int64_t>(options_.seconds / (once * static_cast<double>(batch))), 3, 25);
    std::vector<double> times;
    for (int64_t i = 0; i < batches; ++i) {
      times.push_back(seconds_of(batch, call) / static_cast<double>(batch) * 1e6);
    }
    std::ranges::sort(times);
    if (group_.rank() != 0) return;
    std::printf(
        "{\"backend\": \"%s\", \"ranks\": %d, \"operation\": \"%s\", \"bytes\": %lld, \"shared\": "
        "%s, \"us\": %.3f, \"least_us\": %.3f}\n",
        group_.backend().c_str(), static_cast<int>(group_.size()), name,
        static_cast<long long>(bytes), shared ? "true" : "false", times[times.size() / 2],
        times.front());
    std::fflush(stdout);
  }

  /// Of the slowest rank, so that all take the same number of turns.
  template <class Call>
  double seconds_of(int64_t times, const Call& call) {
    group_.barrier();
    const auto began = Clock::now();
    for (int64_t i = 0; i < times; ++i) call();
    const at::Tensor took = at::zeros({1}, at::kDouble);
    took.fill_(std::chrono::duration<double>(Clock::now() - began).count());
    group_.all_reduce(took, ReduceOp::kMax);
    return took.item<double>();
  }

  Options options_;
  levin::comm::ProcessGroup group_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  at::set_num_threads(1);
  const levin::WorldOptions world = {.devices = options.devices,
                                     .comm = {.backend = options.backend}};
  Measure(options, levin::connect_world(levin::join_launch(world), world)).run();
}
