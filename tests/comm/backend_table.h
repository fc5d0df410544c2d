#pragma once
// One table for every backend: what c10d's collectives must do, whatever carries the bytes. Each
// row runs in every rank of a group and says what was wrong, "" for nothing.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/torch.h>

#include <numeric>
#include <string>
#include <vector>

namespace levin::test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Ranks {
  c10d::Backend& backend;
  int64_t rank;
  int64_t size;
  int64_t count;  ///< elements of a tensor
  at::ScalarType type;

  /// Small whole numbers: exact in every type.
  Tensor of(int64_t of_rank, int64_t elements) const {
    return torch::arange(elements).add(3 * of_rank).remainder(7).to(type);
  }
  Tensor mine() const { return of(rank, count); }
  Tensor sum(int64_t elements) const {
    Tensor total = torch::zeros({elements}, type);
    for (int64_t from = 0; from < size; ++from) total += of(from, elements);
    return total;
  }
};

/// Of each rank, the second's is empty.
inline std::vector<int64_t> uneven_counts(const Ranks& ranks) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < ranks.size; ++rank) {
    counts.push_back(rank == 1 ? 0 : ranks.count + 3 * rank);
  }
  return counts;
}

inline int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// What a reduction must give, bit for bit: rank after rank, in one process. The hierarchical
/// backend sums host by host: what any order gives the same bits of.
struct ReductionCase {
  c10d::ReduceOp::RedOpType op;
  bool of_floats, of_integers;
  Tensor (*combine)(const Tensor& a, const Tensor& b);

  /// One type of floats and one of integers see them all.
  bool is_for(at::ScalarType type) const {
    const bool has_it = at::isFloatingType(type) ? of_floats : of_integers;
    return has_it && (type == at::kFloat || type == at::kLong || op == c10d::ReduceOp::SUM);
  }
};
inline const ReductionCase kReductions[] = {
    {c10d::ReduceOp::SUM, true, true, [](const Tensor& a, const Tensor& b) { return a + b; }},
    {c10d::ReduceOp::AVG, true, false, [](const Tensor& a, const Tensor& b) { return a + b; }},
    {c10d::ReduceOp::MIN, true, true,
     [](const Tensor& a, const Tensor& b) { return torch::minimum(a, b); }},
    {c10d::ReduceOp::MAX, true, true,
     [](const Tensor& a, const Tensor& b) { return torch::maximum(a, b); }},
    {c10d::ReduceOp::PRODUCT, true, true, [](const Tensor& a, const Tensor& b) { return a * b; }},
    {c10d::ReduceOp::BAND, false, true,
     [](const Tensor& a, const Tensor& b) { return torch::bitwise_and(a, b); }},
    {c10d::ReduceOp::BOR, false, true,
     [](const Tensor& a, const Tensor& b) { return torch::bitwise_or(a, b); }},
    {c10d::ReduceOp::BXOR, false, true,
     [](const Tensor& a, const Tensor& b) { return torch::bitwise_xor(a, b); }}};

struct Reduced {
  const Ranks& ranks;
  int64_t elements;

  bool is_exact() const {
    return ranks.backend.getBackendName() == "hierarchical" || !at::isFloatingType(ranks.type);
  }
  Tensor of(int64_t rank) const {
    if (is_exact()) return ranks.of(rank, elements);
    torch::manual_seed(1000 * rank + elements);
    return torch::randn({elements}, torch::TensorOptions(ranks.type));
  }
  Tensor by(const ReductionCase& reduction) const {
    Tensor all = of(0);
    for (int64_t rank = 1; rank < ranks.size; ++rank) all = reduction.combine(all, of(rank));
    if (reduction.op != c10d::ReduceOp::AVG) return all;
    if (is_exact()) return all / ranks.size;
    const auto scale = torch::full({}, 1.0 / static_cast<double>(ranks.size), ranks.type);
    return all * scale;
  }
};

inline std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted) {
  if (torch::equal(got, wanted)) return "";
  return what + " gave " + c10::str(got.flatten().slice(0, 0, 8)) + " and not " +
         c10::str(wanted.flatten().slice(0, 0, 8));
}

struct BackendCollective {
  std::string name;
  std::string (*check)(const Ranks& ranks);
};

// A test program may end where it begins. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const std::vector<BackendCollective> kCollectives = {
    {"AllReduce",
     [](const Ranks& ranks) {
       Tensors data = {ranks.mine()};
       ranks.backend.allreduce(data)->wait();
       return difference("all_reduce", data[0], ranks.sum(ranks.count));
     }},
    {"AllReduceMax",
     [](const Ranks& ranks) {
       Tensors data = {torch::full({ranks.count}, ranks.rank, ranks.type)};
       ranks.backend.allreduce(data, {.reduceOp = c10d::ReduceOp::MAX})->wait();
       return difference("max", data[0], torch::full({ranks.count}, ranks.size - 1, ranks.type));
     }},
    {"AllReduceOfATransposedTensor",
     [](const Ranks& ranks) {
       Tensors data = {ranks.of(ranks.rank, 4 * ranks.count).view({4, ranks.count}).t()};
       ranks.backend.allreduce(data)->wait();
       return difference("transposed", data[0],
                         ranks.sum(4 * ranks.count).view({4, ranks.count}).t());
     }},
    {"Broadcast",
     [](const Ranks& ranks) {
       Tensors data = {ranks.mine()};
       ranks.backend.broadcast(data, {.rootRank = ranks.size - 1})->wait();
       return difference("broadcast", data[0], ranks.of(ranks.size - 1, ranks.count));
     }},
    {"Reduce",
     [](const Ranks& ranks) {
       Tensors data = {ranks.mine()};
       ranks.backend.reduce(data, {.rootRank = 0})->wait();
       return ranks.rank != 0 ? "" : difference("reduce", data[0], ranks.sum(ranks.count));
     }},
    {"AllGather",
     [](const Ranks& ranks) {
       Tensors wanted, parts;
       for (int64_t rank = 0; rank < ranks.size; ++rank) {
         wanted.push_back(ranks.of(rank, ranks.count));
         parts.push_back(torch::zeros({ranks.count}, ranks.type));
       }
       Tensor whole = torch::zeros({ranks.size * ranks.count}, ranks.type), mine = ranks.mine();
       ranks.backend._allgather_base(whole, mine)->wait();
       std::vector<Tensors> outputs = {parts};
       Tensors inputs = {mine};
       ranks.backend.allgather(outputs, inputs)->wait();
       return difference("_allgather_base", whole, torch::cat(wanted)) +
              difference("allgather", torch::cat(outputs[0]), torch::cat(wanted));
     }},
    {"GatherAndScatter",
     [](const Ranks& ranks) {
       for (int64_t root = 0; root < ranks.size; ++root) {
         std::vector<Tensors> gathered;
         Tensors inputs = {ranks.mine()}, back = {torch::zeros_like(inputs[0])};
         if (ranks.rank == root) {
           gathered.emplace_back();
           for (int64_t i = 0; i < ranks.size; ++i) {
             gathered[0].push_back(torch::zeros_like(back[0]));
           }
         }
         ranks.backend.gather(gathered, inputs, {.rootRank = root})->wait();
         for (const Tensors& parts : gathered) {
           for (int64_t i = 0; i < ranks.size; ++i) {
             const auto wrong = difference("gather", parts[i], ranks.of(i, ranks.count));
             if (!wrong.empty()) return wrong;
           }
         }
         ranks.backend.scatter(back, gathered, {.rootRank = root})->wait();
         const auto wrong = difference("scatter", back[0], inputs[0]);
         if (!wrong.empty()) return wrong;
       }
       return std::string();
     }},
    {"ReduceScatter",
     [](const Ranks& ranks) {
       Tensor data = ranks.of(ranks.rank, ranks.size * ranks.count);
       Tensor part = torch::zeros({ranks.count}, ranks.type);
       ranks.backend._reduce_scatter_base(part, data)->wait();
       return difference("reduce_scatter", part,
                         ranks.sum(ranks.size * ranks.count).chunk(ranks.size)[ranks.rank]);
     }},
    {"UnevenAllGather",
     [](const Ranks& ranks) {
       const auto counts = uneven_counts(ranks);
       Tensors wanted, apart;
       for (int64_t rank = 0; rank < ranks.size; ++rank) {
         wanted.push_back(ranks.of(rank, counts[rank]));
         apart.push_back(torch::zeros({counts[rank]}, ranks.type));
       }
       const Tensor whole = torch::zeros({sum_of(counts)}, ranks.type);
       Tensors mine = {wanted[ranks.rank].clone()};
       std::vector<Tensors> in_one = {whole.split_with_sizes(counts)}, each = {apart};
       ranks.backend.allgather(in_one, mine)->wait();
       ranks.backend.allgather(each, mine)->wait();
       return difference("uneven all_gather", whole, torch::cat(wanted)) +
              difference("into tensors apart", torch::cat(apart), torch::cat(wanted));
     }},
    {"UnevenReduceScatterOfEveryReduction",
     [](const Ranks& ranks) {
       const auto counts = uneven_counts(ranks);
       const Reduced data = {ranks, sum_of(counts)};
       for (const ReductionCase& reduction : kReductions) {
         if (!reduction.is_for(ranks.type)) continue;
         const Tensor own = data.of(ranks.rank), before = own.clone();
         std::vector<Tensors> parts = {own.split_with_sizes(counts)};
         Tensors result = {torch::zeros({counts[ranks.rank]}, ranks.type)};
         ranks.backend.reduce_scatter(result, parts, {.reduceOp = reduction.op})->wait();
         const Tensor wanted = data.by(reduction).split_with_sizes(counts)[ranks.rank];
         const auto wrong =
             difference("reduction " + std::to_string(reduction.op), result[0], wanted) +
             difference("the data", own, before);
         if (!wrong.empty()) return wrong;
       }
       return std::string();
     }},
    {"ReduceToEachRoot",
     [](const Ranks& ranks) {
       const Reduced data = {ranks, ranks.count};
       for (int64_t root = 0; root < ranks.size; ++root) {
         for (const ReductionCase& reduction : kReductions) {
           if (!reduction.is_for(ranks.type)) continue;
           Tensors own = {data.of(ranks.rank)};
           ranks.backend.reduce(own, {.reduceOp = reduction.op, .rootRank = root})->wait();
           const auto wrong = difference(
               "reduce", own[0], ranks.rank == root ? data.by(reduction) : data.of(ranks.rank));
           if (!wrong.empty()) return wrong;
         }
       }
       return std::string();
     }},
    {"BroadcastFromEachRoot",
     [](const Ranks& ranks) {
       std::string wrong;
       for (int64_t root = 0; root < ranks.size; ++root) {
         Tensors data = {ranks.mine()};
         ranks.backend.broadcast(data, {.rootRank = root})->wait();
         wrong += difference("broadcast", data[0], ranks.of(root, ranks.count));
       }
       return wrong;
     }},
    {"AllToAll",
     [](const Ranks& ranks) {
       // Rank r sends r + q + 1 rows to rank q.
       std::vector<int64_t> to, from;
       Tensors wanted, sent;
       for (int64_t q = 0; q < ranks.size; ++q) {
         to.push_back(ranks.rank + q + 1);
         from.push_back(ranks.rank + q + 1);
         sent.push_back(torch::full({ranks.rank + q + 1, 2}, ranks.rank * 10 + q, ranks.type));
         wanted.push_back(torch::full({ranks.rank + q + 1, 2}, q * 10 + ranks.rank, ranks.type));
       }
       Tensor input = torch::cat(sent), output = torch::zeros_like(torch::cat(wanted));
       ranks.backend.alltoall_base(output, input, from, to)->wait();
       return difference("all_to_all", output, torch::cat(wanted));
     }},
    {"ManyAtATime",
     [](const Ranks& ranks) {
       std::vector<Tensors> data;
       std::vector<c10::intrusive_ptr<c10d::Work>> works;
       const int64_t many = ranks.type == at::kFloat ? 20 : 4;
       for (int64_t i = 0; i < many; ++i) {
         data.push_back({ranks.mine() + i});
         works.push_back(ranks.backend.allreduce(data.back()));
       }
       for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
       std::string wrong;
       for (int64_t i = 0; i < many; ++i) {
         wrong += difference("one of many", data[i][0], ranks.sum(ranks.count) + i * ranks.size);
       }
       return wrong;
     }},
    {"Barrier",
     [](const Ranks& ranks) {
       ranks.backend.barrier()->wait();
       return std::string();
     }},
};

/// What two ranks send each other.
// A test program may end where it begins. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
inline const std::vector<BackendCollective> kMessages = {
    {"RoundTheRing",
     [](const Ranks& ranks) {
       if (ranks.size == 1) return std::string();
       const int64_t next = (ranks.rank + 1) % ranks.size;
       const int64_t last = (ranks.rank + ranks.size - 1) % ranks.size;
       Tensors sent = {ranks.mine()}, came = {torch::zeros_like(sent[0])};
       const auto work = ranks.backend.send(sent, static_cast<int>(next), 3);
       ranks.backend.recv(came, static_cast<int>(last), 3)->wait();
       work->wait();
       return difference("recv", came[0], ranks.of(last, ranks.count));
     }},
    {"ManyInOrder",
     [](const Ranks& ranks) {
       // From rank 0 to the last and back, while the ranks between do something else.
       if (ranks.size == 1 || (ranks.rank != 0 && ranks.rank != ranks.size - 1)) {
         return std::string();
       }
       const int other = static_cast<int>(ranks.size - 1 - ranks.rank);
       std::vector<Tensors> data;
       std::vector<c10::intrusive_ptr<c10d::Work>> works;
       for (int tag = 0; tag < 6; ++tag) {
         data.push_back({ranks.mine() + tag});
         works.push_back(ranks.backend.send(data.back(), other, tag));
       }
       std::string wrong;
       for (int tag = 0; tag < 6; ++tag) {
         Tensors came = {torch::zeros({ranks.count}, ranks.type)};
         ranks.backend.recv(came, other, tag)->wait();
         wrong += difference("one of many", came[0], ranks.of(other, ranks.count) + tag);
       }
       for (const auto& work : works) work->wait();
       return wrong;
     }},
    {"BesideACollective",
     [](const Ranks& ranks) {
       // A receive that is waited for later holds up no collective.
       if (ranks.size == 1) return std::string();
       Tensors came = {torch::zeros({ranks.count}, ranks.type)}, sum = {ranks.mine()};
       c10::intrusive_ptr<c10d::Work> work;
       if (ranks.rank == 0) work = ranks.backend.recv(came, 1, 0);
       ranks.backend.allreduce(sum)->wait();
       if (ranks.rank == 1) {
         Tensors sent = {ranks.mine()};
         ranks.backend.send(sent, 0, 0)->wait();
       }
       if (ranks.rank == 0) work->wait();
       return difference("all_reduce", sum[0], ranks.sum(ranks.count)) +
              (ranks.rank == 0 ? difference("recv", came[0], ranks.of(1, ranks.count)) : "");
     }},
};

/// A row with tensors of several types and lengths. How long ones are cut depends on the size of an
/// element, of which there is one type each.
inline std::string check_collective(const BackendCollective& collective, c10d::Backend& backend) {
  const int64_t rank = backend.getRank(), size = backend.getSize();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kByte}) {
    for (const int64_t count : {1, 5, 100000}) {
      if (count > 5 && (type == at::kDouble || type == at::kInt)) continue;
      const auto wrong = collective.check({backend, rank, size, count, type});
      if (!wrong.empty()) return c10::str(wrong, " (", count, " x ", type, ")");
    }
  }
  backend.barrier()->wait();  // nobody leaves while another reads
  return "";
}

}  // namespace levin::test
