#include "levin/strategy/forecast/cluster.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>

#include "levin/base/check.h"
#include "levin/base/options/option_section.h"
#include "levin/base/options/read_options.h"

namespace levin::forecast {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

/// Sections have state of their own, so that they live as long as the walk.
struct ClusterFields {
  Cluster& cluster;
  OptionSection inside{"inside"};
  OptionSection across{"across"};

  void operator()(FieldVisitor& field) {
    cluster.fields(field);
    inside.fields(field, cluster.inside);
    across.fields(field, cluster.across);
  }
};

/// As TOML, each behind its help.
template <class Options>
std::string options_as_text(Options& options) {
  std::set<std::string> names;
  class Names final : public FieldVisitor {
   public:
    explicit Names(std::set<std::string>& names) : names_(names) {}

   private:
    void visit(Field field) override { names_.insert(field.name); }
    std::set<std::string>& names_;
  } visitor(names);
  options.fields(visitor);
  return levin::detail::options_as_toml([&](FieldVisitor& field) { options.fields(field); }, names);
}

void check(const Cluster& cluster) {
  const bool has_rates = cluster.memory_bytes > 0 && cluster.float32_flops_per_s > 0 &&
                         cluster.bytes_per_s > 0 && cluster.efficiency > 0 &&
                         cluster.ranks_per_node > 0;
  LEVIN_CHECK(has_rates, "strategy.forecast.cluster",
              "cluster {} has a memory size, FLOP/s, bandwidth, efficiency or ranks_per_node of 0, "
              "wanted numbers above 0; let `levin env --measure` write the file",
              cluster.name);
  LEVIN_CHECK(cluster.device == "cpu" || cluster.device == "gpu", "strategy.forecast.cluster",
              "got device = '{}', wanted cpu or gpu", cluster.device);
}

/// Halves where a file gives the rate of float32 alone.
void fill_rates(Cluster& cluster) {
  if (cluster.bfloat16_flops_per_s <= 0) cluster.bfloat16_flops_per_s = cluster.float32_flops_per_s;
  if (cluster.float16_flops_per_s <= 0) cluster.float16_flops_per_s = cluster.bfloat16_flops_per_s;
  for (Link* link : {&cluster.inside, &cluster.across}) {
    if (link->all_gather_bytes_per_s <= 0) {
      link->all_gather_bytes_per_s = link->all_reduce_bytes_per_s;
    }
    if (link->reduce_scatter_bytes_per_s <= 0) {
      link->reduce_scatter_bytes_per_s = link->all_reduce_bytes_per_s;
    }
  }
}

Link nccl(double alpha_s, double bytes_per_s) {
  return {"nccl", alpha_s, bytes_per_s, bytes_per_s, bytes_per_s};
}

/// Eight GPUs a node; a network card of 50 GB/s (400 Gb/s) for each GPU, but 25 GB/s for an A100.
Cluster gpus(std::string name, double gigabytes, double half_tera, double float32_tera,
             double bandwidth_giga, double nvlink_giga, double network_giga, std::string source) {
  Cluster cluster{.name = std::move(name),
                  .source = std::move(source),
                  .device = "gpu",
                  .memory_bytes = gigabytes * kGiga,
                  .float32_flops_per_s = float32_tera * kTera,
                  .bfloat16_flops_per_s = half_tera * kTera,
                  .float16_flops_per_s = half_tera * kTera,
                  .bytes_per_s = bandwidth_giga * kGiga,
                  .operator_s = 5e-6,
                  .efficiency = 0.65,
                  .ranks_per_node = 8,
                  .runtime_bytes = 1.5 * kGiga,
                  .inside = nccl(20e-6, nvlink_giga * kGiga),
                  .across = nccl(30e-6, network_giga * kGiga)};
  fill_rates(cluster);
  return cluster;
}

}  // namespace

void Link::fields(FieldVisitor& field) {
  field("backend", backend, "shm, gloo, mpi or nccl");
  field("alpha_s", alpha_s, "seconds to start a collective");
  field("all_reduce_bytes_per_s", all_reduce_bytes_per_s, "bus bandwidth of all-reduce, bytes/s");
  field("all_gather_bytes_per_s", all_gather_bytes_per_s, "bus bandwidth of all-gather, bytes/s");
  field("reduce_scatter_bytes_per_s", reduce_scatter_bytes_per_s,
        "bus bandwidth of reduce-scatter, bytes/s");
}

void Cluster::fields(FieldVisitor& field) {
  field("name", name, "name of the cluster");
  field("source", source, "where the numbers are from");
  field("device", device, "cpu or gpu");
  field("memory_bytes", memory_bytes, "memory of a device; of a node if the devices are CPUs");
  field("float32_flops_per_s", float32_flops_per_s, "float32 FLOP/s of a rank");
  field("bfloat16_flops_per_s", bfloat16_flops_per_s, "bfloat16 FLOP/s of a rank");
  field("float16_flops_per_s", float16_flops_per_s, "float16 FLOP/s of a rank");
  field("bytes_per_s", bytes_per_s, "memory bandwidth of a rank, bytes/s");
  field("operator_s", operator_s, "seconds to start an operator");
  field("efficiency", efficiency, "part of the rates that operators reach");
  field("ranks_per_node", ranks_per_node, "ranks of a node");
  field("overlap_cost", overlap_cost, "part of a hidden collective's time that compute loses");
  field("runtime_bytes", runtime_bytes, "memory of a process without a model, bytes");
  field("disk_read_bytes_per_s", disk_read_bytes_per_s, "disk bandwidth of reads, bytes/s");
  field("disk_write_bytes_per_s", disk_write_bytes_per_s, "disk bandwidth of writes, bytes/s");
}

const std::vector<Cluster>& known_clusters() {
  static const std::vector<Cluster> kClusters = [] {
    Cluster cpu{.name = "cpu",
                .source = "one core of a server, as `levin plan` has it for --device cpu",
                .memory_bytes = 16 * kGiga,
                .float32_flops_per_s = 60 * kGiga,
                .bfloat16_flops_per_s = 60 * kGiga,
                .bytes_per_s = 10 * kGiga,
                .operator_s = 2e-6,
                .ranks_per_node = 8,
                .overlap_cost = 1.0,
                .runtime_bytes = 0.1 * kGiga,
                .inside = {"shm", 5e-6, 4 * kGiga, 8 * kGiga, 4 * kGiga},
                .across = {"gloo", 100e-6, 1 * kGiga, 1 * kGiga, 0.5 * kGiga}};
    fill_rates(cpu);
    return std::vector<Cluster>{
        cpu,
        gpus("a100", 80, 312, 19.5, 2039, 300, 25,
             "NVIDIA A100 80GB SXM data sheet (312 TFLOPS bfloat16, 2039 GB/s, NVLink 600 GB/s in "
             "both directions); 8 network cards of 200 Gb/s a node; efficiency: assumed"),
        gpus("h100", 80, 989, 67, 3350, 450, 50,
             "NVIDIA H100 SXM data sheet (989 TFLOPS bfloat16 dense, 3350 GB/s, NVLink 900 GB/s in "
             "both directions); 8 network cards of 400 Gb/s a node; efficiency: assumed"),
        gpus("h200", 141, 989, 67, 4800, 450, 50,
             "NVIDIA H200 SXM data sheet (989 TFLOPS bfloat16 dense, 4800 GB/s, NVLink 900 GB/s in "
             "both directions); 8 network cards of 400 Gb/s a node; efficiency: assumed")};
  }();
  return kClusters;
}

Cluster read_cluster(const std::string& name_or_file) {
  const auto known = std::ranges::find(known_clusters(), name_or_file, &Cluster::name);
  if (known != known_clusters().end()) return *known;
  std::string names;
  for (const Cluster& cluster : known_clusters()) {
    names += (names.empty() ? "" : ", ") + cluster.name;
  }
  std::error_code error;
  LEVIN_CHECK(
      std::filesystem::is_regular_file(name_or_file, error), "strategy.forecast.cluster",
      "got cluster '{}', wanted {} or the path of a TOML file; `levin env --measure` writes "
      "one",
      name_or_file, names);
  Cluster cluster;
  ClusterFields fields{cluster};
  try {
    levin::detail::read_options({"--config", name_or_file}, {},
                                [&](FieldVisitor& field) { fields(field); });
  } catch (const Error& error) {
    throw Error("strategy.forecast.cluster", error.text());
  }
  fill_rates(cluster);
  check(cluster);
  return cluster;
}

std::string to_toml(const Cluster& cluster) {
  Cluster copy = cluster;
  return options_as_text(copy) + "\n[inside]\n" + options_as_text(copy.inside) + "\n[across]\n" +
         options_as_text(copy.across);
}

double operator_seconds(const Cluster& cluster, double flops, double bytes, bool is_half) {
  const double rate = is_half ? cluster.bfloat16_flops_per_s : cluster.float32_flops_per_s;
  return std::max(flops / (rate * cluster.efficiency),
                  bytes / (cluster.bytes_per_s * cluster.efficiency)) +
         cluster.operator_s;
}

double collective_seconds(const Cluster& cluster, std::string_view name, int64_t ranks,
                          int64_t bytes, bool within) {
  if (ranks < 2) return 0.0;
  const Link& link = within ? cluster.inside : cluster.across;
  const auto n = static_cast<double>(ranks);
  const double share = (name == "all_reduce" ? 2.0 : 1.0) * (n - 1) / n;
  const double rate = name == "all_gather"       ? link.all_gather_bytes_per_s
                      : name == "reduce_scatter" ? link.reduce_scatter_bytes_per_s
                                                 : link.all_reduce_bytes_per_s;
  const double moved = rate > 0 ? share * static_cast<double>(bytes) / rate : 0.0;
  return link.alpha_s * std::ceil(std::log2(n)) + moved;
}

}  // namespace levin::forecast
