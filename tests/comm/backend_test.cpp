// One table for every backend: what c10d's collectives must do, whatever carries the bytes.
#include "levin/comm/shm/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/torch.h>

#include <tuple>

#include "levin/comm/gloo/gloo.h"
#include "tests/comm/ranks.h"

namespace {

using at::Tensor;
using levin::test::run_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Tensors = std::vector<Tensor>;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr auto kTimeout = std::chrono::seconds(60);

BackendPointer make_backend(const std::string& name, int64_t rank, int64_t size,
                            const std::filesystem::path& folder) {
  at::set_num_threads(1);
  const auto store =
      c10::make_intrusive<c10d::FileStore>((folder / "store").string(), static_cast<int>(size));
  if (name == "shm") return levin::comm::make_shm_backend(store, rank, size, kTimeout);
  return levin::comm::make_gloo_backend(store, rank, size, kTimeout, "127.0.0.1");
}

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

std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted) {
  if (torch::equal(got, wanted)) return "";
  return what + " gave " + c10::str(got.flatten().slice(0, 0, 8)) + " and not " +
         c10::str(wanted.flatten().slice(0, 0, 8));
}

struct BackendCollective {
  std::string name;
  std::string (*check)(const Ranks& ranks);
};

const std::vector<BackendCollective> kCollectives = {
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
       std::vector<Tensors> gathered, scattered;
       Tensors inputs = {ranks.mine()}, back = {torch::zeros_like(inputs[0])};
       if (ranks.rank == 0) {
         gathered.emplace_back();
         for (int64_t i = 0; i < ranks.size; ++i) gathered[0].push_back(torch::zeros_like(back[0]));
       }
       ranks.backend.gather(gathered, inputs, {.rootRank = 0})->wait();
       for (const Tensors& parts : gathered) {
         for (int64_t i = 0; i < ranks.size; ++i) {
           const auto wrong = difference("gather", parts[i], ranks.of(i, ranks.count));
           if (!wrong.empty()) return wrong;
         }
       }
       ranks.backend.scatter(back, gathered, {.rootRank = 0})->wait();
       return difference("scatter", back[0], inputs[0]);
     }},
    {"ReduceScatter",
     [](const Ranks& ranks) {
       Tensor data = ranks.of(ranks.rank, ranks.size * ranks.count);
       Tensor part = torch::zeros({ranks.count}, ranks.type);
       ranks.backend._reduce_scatter_base(part, data)->wait();
       return difference("reduce_scatter", part,
                         ranks.sum(ranks.size * ranks.count).chunk(ranks.size)[ranks.rank]);
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
       for (int64_t i = 0; i < 20; ++i) {
         data.push_back({ranks.mine() + i});
         works.push_back(ranks.backend.allreduce(data.back()));
       }
       for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
       std::string wrong;
       for (int64_t i = 0; i < 20; ++i) {
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

class BackendTable : public testing::TestWithParam<std::tuple<std::string, BackendCollective>> {};

TEST_P(BackendTable, DoesWhatC10dSays) {
  const auto& [name, collective] = GetParam();
  for (const int64_t size : {1, 2, 3}) {
    const auto words = run_ranks(size, [&](int64_t rank, const auto& folder) {
      const BackendPointer backend = make_backend(name, rank, size, folder);
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kByte}) {
        for (const int64_t count : {1, 5, 100000}) {
          const auto wrong = collective.check({*backend, rank, size, count, type});
          if (!wrong.empty()) return c10::str(wrong, " (", count, " x ", type, ")");
        }
      }
      backend->barrier()->wait();  // nobody leaves while another reads
      return std::string();
    });
    EXPECT_THAT(words, Each("")) << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Comm, BackendTable,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::ValuesIn(kCollectives)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

TEST(ShmBackend, SumsHalfTypesInFloat) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 3, folder);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const auto part = [&](int64_t of) {
        torch::manual_seed(of);
        return torch::randn({3000}).to(type);
      };
      Tensors data = {part(rank)};
      backend->allreduce(data, {.reduceOp = c10d::ReduceOp::AVG})->wait();
      const auto wanted = (part(0).to(at::kFloat) + part(1).to(at::kFloat) + part(2).to(at::kFloat))
                              .mul(static_cast<float>(1.0 / 3))
                              .to(type);
      const auto wrong = difference("mean", data[0], wanted);
      if (!wrong.empty()) return wrong;
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, ReducesItsOwnTensorsWhereTheyLie) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensor bucket = backend->allocateTensor(100000, at::kDouble);
    for (int step = 0; step < 3; ++step) {
      bucket.fill_(rank + step);
      Tensors data = {bucket.slice(0, 1000)};
      backend->allreduce(data)->wait();
      const auto wrong =
          difference("bucket", data[0], torch::full({99000}, 1.0 + 2 * step, at::kDouble));
      if (!wrong.empty()) return wrong;
      backend->barrier()->wait();
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, BroadcastsIntoParameters) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors parameter = {torch::full({4, 2}, rank, at::kFloat).t().requires_grad_()};
    backend->broadcast(parameter, {.rootRank = 1})->wait();
    return difference("parameter", parameter[0], torch::ones({2, 4}));
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, GivesAnErrorToWhoWaits) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors data = {torch::ones({rank + 1})};
    const auto work = backend->allreduce(data);
    std::string said;
    try {
      work->wait();
    } catch (const std::exception& error) {
      said = error.what();
    }
    try {
      backend->barrier({.asyncOp = false});
    } catch (const std::exception& error) {
      said += std::string(" / ") + error.what();
    }
    return said;
  });
  EXPECT_THAT(words,
              Each(AllOf(StartsWith("comm.mismatch: "),
                         HasSubstr(" / comm.closed: the group failed before: comm.mismatch"))));
}

TEST(ShmBackend, LivesAsLongAsItsWork) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    BackendPointer backend = make_backend("shm", rank, 2, folder);
    Tensors data = {torch::ones({1000})};
    const auto work = backend->allreduce(data);
    backend = nullptr;
    work->wait();
    return difference("all_reduce", data[0], torch::full({1000}, 2.0F));
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmBackend, RefusesTensorsThatItCannotCarry) {
  const auto words = run_ranks(1, [](int64_t rank, const auto& folder) {
    const BackendPointer backend = make_backend("shm", rank, 1, folder);
    std::string said;
    const auto note = [&](const auto& call) {
      try {
        call();
      } catch (const std::exception& error) {
        said += std::string(error.what()) + "\n";
      }
    };
    Tensors meta = {torch::ones({3}, at::kMeta)}, fine = {torch::ones({3})};
    note([&] { backend->allreduce(meta); });
    Tensor four = torch::ones({4});
    note([&] { backend->_allgather_base(four, fine[0]); });
    std::vector<int64_t> rows = {2}, none;
    note([&] { backend->alltoall_base(four, four, rows, none); });
    return said;
  });
  EXPECT_THAT(words[0], AllOf(HasSubstr("comm.shm.tensor: got a Strided tensor on meta"),
                              HasSubstr("all_gather: got 4 x Float for the whole and 3 x Float"),
                              HasSubstr("4 rows cannot be cut into 1 parts of 2 rows")));
}

TEST(GlooBackend, SaysWhenTheOthersDoNotCome) {
  const auto words = run_ranks(1, [](int64_t, const auto& folder) {
    const auto store = c10::make_intrusive<c10d::FileStore>((folder / "store").string(), 2);
    levin::comm::make_gloo_backend(store, 0, 2, std::chrono::milliseconds(300), "127.0.0.1");
    return std::string("no error");
  });
  EXPECT_THAT(words, Each(StartsWith("comm.gloo: rank 0 of 2 found no way to the others: ")));
}

}  // namespace
