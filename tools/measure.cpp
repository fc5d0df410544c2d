#include "tools/measure.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string_view>
#include <vector>

#include "levin/accelerator/engine/world.h"
#include "levin/base/check.h"
#include "levin/comm/process_group.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/writing/output.h"
#include "levin/strategy/forecast/cluster.h"

namespace levin::tools {
namespace {

using forecast::Cluster;
using forecast::Link;

constexpr std::string_view kBeginning = "# name of the cluster";  ///< as to_toml begins
constexpr double kLeastSeconds = 0.2;                             ///< of one measurement
constexpr int64_t kLargeBytes = int64_t{16} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double mean_over(comm::ProcessGroup& group, double value) {
  const at::Tensor mean = at::zeros({1}, at::kDouble);
  *mean.mutable_data_ptr<double>() = value;
  group.all_reduce(mean, ReduceOp::kMean);
  return *mean.const_data_ptr<double>();
}

/// Seconds of a call while all ranks make it: the fastest of five groups of calls, which other
/// programs disturb least. Ranks begin each group together, so that none has a core or the memory
/// for itself.
double seconds_of(comm::ProcessGroup& ranks, const std::function<void()>& call,
                  double least = kLeastSeconds) {
  constexpr int kGroups = 5;
  const auto seconds_of_calls = [&](int64_t calls) {
    const double began = now();
    for (int64_t i = 0; i < calls; ++i) call();
    return now() - began;
  };
  call();
  ranks.barrier();
  const double one = std::min({seconds_of_calls(1), seconds_of_calls(1), seconds_of_calls(1)});
  const double wanted = mean_over(ranks, least / kGroups / std::max(one, 1e-9));
  const auto calls = std::max(static_cast<int64_t>(wanted), int64_t{1});
  double best = 0.0;
  for (int i = 0; i < kGroups; ++i) {
    ranks.barrier();
    const double each = seconds_of_calls(calls) / static_cast<double>(calls);
    best = i == 0 ? each : std::min(best, each);
  }
  return best;
}

/// The same number of calls on all ranks, which a collective needs. The slowest rank's time.
double collective_seconds_of(comm::ProcessGroup& group, int64_t calls,
                             const std::function<void()>& call) {
  constexpr int kGroups = 5;
  call();
  double best = 0.0;
  for (int i = 0; i < kGroups; ++i) {
    group.barrier();
    const double began = now();
    for (int64_t j = 0; j < calls; ++j) call();
    const double one = (now() - began) / static_cast<double>(calls);
    best = i == 0 ? one : std::min(best, one);
  }
  const at::Tensor slowest = at::zeros({1}, at::kDouble);
  *slowest.mutable_data_ptr<double>() = best;
  group.all_reduce(slowest, ReduceOp::kMax);
  return *slowest.const_data_ptr<double>();
}

double flops_per_s(comm::ProcessGroup& ranks, at::ScalarType type, int64_t size) {
  const at::Tensor left = at::ones({size, size}, type), right = at::ones({size, size}, type);
  const double seconds = seconds_of(ranks, [&] { at::mm(left, right); });
  return 2.0 * std::pow(static_cast<double>(size), 3) / seconds;
}

/// Measures a sum of two tensors that no cache holds: two are read and one is written.
double bytes_per_s(comm::ProcessGroup& ranks) {
  const at::Tensor left = at::ones({kLargeBytes}), right = at::ones({kLargeBytes});
  at::Tensor sum = at::empty({kLargeBytes});
  const double seconds = seconds_of(ranks, [&] { at::add_out(sum, left, right); });
  return 3.0 * static_cast<double>(left.nbytes()) / seconds;
}

double operator_seconds(comm::ProcessGroup& ranks) {
  const at::Tensor left = at::ones({8}), right = at::ones({8});
  return seconds_of(ranks, [&] { at::add(left, right); }, 0.05);
}

/// The part of the rates that the operators of a step reach: the step of a small network is timed,
/// whose weights take turns in a core's caches. The rates are those of one operator again and again.
double efficiency(comm::ProcessGroup& ranks, const Cluster& cluster) {
  constexpr int64_t kLayers = 8, kRows = 128, kWidth = 1024;
  double expected = 0.0;
  const auto expect = [&](double flops, int64_t elements) {
    const double bytes = static_cast<double>(elements) * sizeof(float);
    expected += forecast::operator_seconds(cluster, flops, bytes, /*is_half=*/false);
  };
  std::vector<at::Tensor> weights, gradients, inputs, products;
  for (int64_t i = 0; i < kLayers; ++i) {
    weights.push_back(at::randn({kWidth, kWidth}) / std::sqrt(static_cast<double>(kWidth)));
    gradients.push_back(at::empty({kWidth, kWidth}));
    inputs.push_back(at::randn({kRows, kWidth}));
    products.push_back(at::empty({kRows, kWidth}));
    const double flops = 2.0 * kRows * kWidth * kWidth;
    for (int product = 0; product < 3; ++product) {
      expect(flops, 2 * kRows * kWidth + kWidth * kWidth);
    }
    expect(0.0, 2 * kRows * kWidth);   // gelu
    expect(0.0, 3 * kRows * kWidth);   // its backward
    expect(0.0, 3 * kWidth * kWidth);  // the update
  }
  at::Tensor output = at::empty({kRows, kWidth});
  const auto step = [&] {
    for (int64_t i = 0; i < kLayers; ++i) {
      at::mm_out(products[i], inputs[i], weights[i].t());
      at::gelu_out(i + 1 < kLayers ? inputs[i + 1] : output, products[i]);
    }
    at::Tensor gradient = output;
    for (int64_t i = kLayers - 1; i >= 0; --i) {
      gradient = at::gelu_backward(gradient, products[i]);
      at::mm_out(gradients[i], gradient.t(), inputs[i]);
      gradient = at::mm(gradient, weights[i]);
    }
    for (int64_t i = 0; i < kLayers; ++i) weights[i].add_(gradients[i], 1e-6);
  };
  return std::min(expected / seconds_of(ranks, step, 1.0), 1.0);
}

/// Anonymous memory of this process before it has tensors.
double runtime_bytes() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string key; in >> key;) {
    double kilobytes = 0.0;
    if (key == "Pss_Anon:" && in >> kilobytes) return kilobytes * 1024;
  }
  return 0.0;
}

Link measured_link(comm::ProcessGroup& group) {
  constexpr int64_t kSmallCalls = 200, kLargeCalls = 5;
  const int64_t count = kLargeBytes / static_cast<int64_t>(sizeof(float));
  const auto n = static_cast<double>(group.size());
  const int64_t part = count / group.size(), whole = part * group.size();
  const at::Tensor small = at::ones({1});
  const at::Tensor large = group.allocate(whole, at::kFloat).fill_(1.0);
  const at::Tensor own = at::ones({part});
  Link link{.backend = group.backend()};
  const double small_s =
      collective_seconds_of(group, kSmallCalls, [&] { group.all_reduce(small, ReduceOp::kMean); });
  link.alpha_s = small_s / std::ceil(std::log2(n));
  const auto rate = [&](double share, const std::function<void()>& call) {
    const double seconds = collective_seconds_of(group, kLargeCalls, call) - small_s;
    return share * static_cast<double>(large.nbytes()) / std::max(seconds, 1e-9);
  };
  link.all_reduce_bytes_per_s =
      rate(2.0 * (n - 1) / n, [&] { group.all_reduce(large, ReduceOp::kMean); });
  link.all_gather_bytes_per_s = rate((n - 1) / n, [&] { group.all_gather(large, own); });
  link.reduce_scatter_bytes_per_s =
      rate((n - 1) / n, [&] { group.reduce_scatter(own, large, ReduceOp::kMean); });
  return link;
}

/// Products run beside collectives: the part of the collectives' time by which they take longer.
double overlap_cost(comm::ProcessGroup& group) {
  constexpr int64_t kCalls = 3;
  const int64_t count = kLargeBytes / static_cast<int64_t>(sizeof(float));
  const at::Tensor data = group.allocate(count, at::kFloat).fill_(1.0);
  const at::Tensor left = at::ones({512, 512}), right = at::ones({512, 512});
  const double one = seconds_of(group, [&] { at::mm(left, right); }, 0.05);
  const double collective =
      collective_seconds_of(group, kCalls, [&] { group.all_reduce(data, ReduceOp::kMean); });
  const auto products = static_cast<int64_t>(std::ceil(2.0 * collective / one));
  const auto compute = [&] {
    for (int64_t i = 0; i < products; ++i) at::mm(left, right);
  };
  const double alone = collective_seconds_of(group, kCalls, compute);
  const double both = collective_seconds_of(group, kCalls, [&] {
    comm::Work work = group.all_reduce(data, ReduceOp::kMean, comm::Return::kAsync);
    compute();
    work.wait();
  });
  return std::clamp((both - alone) / std::max(collective, 1e-9), 0.0, 1.0);
}

/// A file of 128 MiB that is on the disk when it counts as written, and that the cache has dropped
/// when it is read.
void measure_disk(Cluster& cluster, const std::filesystem::path& folder) {
  std::string name = (folder / "levin_measure_XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return;
  ::unlink(name.c_str());
  const std::vector<char> block(size_t{8} << 20, 'x');
  constexpr int kBlocks = 16;
  const auto bytes = static_cast<double>(block.size() * kBlocks);
  bool is_whole = true;
  double began = now();
  for (int i = 0; i < kBlocks; ++i) {
    is_whole &= ::write(file, block.data(), block.size()) == std::ssize(block);
  }
  is_whole &= ::fsync(file) == 0;
  if (is_whole) cluster.disk_write_bytes_per_s = bytes / (now() - began);
  std::vector<char> read(block.size());
  const bool is_dropped =
      ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 && ::lseek(file, 0, SEEK_SET) == 0;
  began = now();
  for (int i = 0; i < kBlocks && is_whole; ++i) {
    is_whole &= ::read(file, read.data(), read.size()) == std::ssize(read);
  }
  if (is_whole && is_dropped) cluster.disk_read_bytes_per_s = bytes / (now() - began);
  ::close(file);
}

}  // namespace

void measure(const MeasureOptions& options) {
  LEVIN_CHECK(options.ranks >= 1, "tools.measure", "got --ranks {}, wanted at least 1",
              options.ranks);
  files::check_own(options.file, kBeginning);
  const WorldOptions world_options{.devices_alone = options.ranks,
                                   .comm = {.backend = options.backend}};
  const comm::Environment environment = join_launch(world_options);
  const at::NoGradGuard no_grad;
  Cluster cluster{.runtime_bytes = runtime_bytes()};
  comm::ProcessGroup world = connect_world(environment, world_options);
  const RankInfo& rank = environment.rank;
  cluster.ranks_per_node = rank.local_world_size;
  world.barrier();  // ranks share cores and memory from here on, as in training
  cluster.float32_flops_per_s = mean_over(world, flops_per_s(world, at::kFloat, 768));
  cluster.bfloat16_flops_per_s = mean_over(world, flops_per_s(world, at::kBFloat16, 512));
  cluster.float16_flops_per_s = mean_over(world, flops_per_s(world, at::kHalf, 128));
  cluster.bytes_per_s = mean_over(world, bytes_per_s(world));
  cluster.operator_s = mean_over(world, operator_seconds(world));
  cluster.efficiency = mean_over(world, efficiency(world, cluster));
  cluster.memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (world.size() > 1) {
    cluster.inside = cluster.across = measured_link(world);
    cluster.overlap_cost = mean_over(world, overlap_cost(world));
  }
  cluster.source = fmt::format(
      "levin env --measure, {} ranks on {} machine{} of {} cores, {} threads a rank, backend {}",
      rank.world_size, rank.world_size / std::max<int64_t>(rank.local_world_size, 1),
      rank.world_size == rank.local_world_size ? "" : "s", sysconf(_SC_NPROCESSORS_ONLN),
      at::get_num_threads(), world.backend());
  if (rank.rank != 0) return;
  measure_disk(cluster, files::temporary_folder());
  files::write_file_atomically(options.file, forecast::to_toml(cluster));
  std::cout << fmt::format("the cluster's constants are in {}\n", options.file);
}

}  // namespace levin::tools
