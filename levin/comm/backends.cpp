#include "levin/comm/backends.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/hierarchical/backend.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/reach.h"
#include "levin/comm/shm/backend.h"

namespace levin::comm {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

constexpr size_t kLongestWord = 256;

/// A word of each rank, which the first gathers and tells to all: every rank asks the store a few
/// times, however many there are.
class Words {
 public:
  Words(c10d::Store& store, std::string_view topic, int64_t rank, int64_t size)
      : store_(store), topic_(topic), rank_(rank), size_(size) {}

  /// Waits until all are there, for as long as the store does.
  std::vector<std::string> exchange(const std::string& word) {
    put(key(rank_), word);
    try {
      if (rank_ == 0) put(topic_ + "/all", gather());
      return table(text_at(topic_ + "/all"));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

 private:
  std::string key(int64_t rank) const { return fmt::format("{}{}", topic_, rank); }
  void put(const std::string& at, const std::string& text) {
    store_.set(at, std::vector<uint8_t>(text.begin(), text.end()));
  }
  std::string text_at(const std::string& at) {
    const auto text = store_.get(at);
    return {text.begin(), text.end()};
  }

  std::string gather() {
    nlohmann::json words = nlohmann::json::array();
    for (int64_t rank = 0; rank < size_; ++rank) words.push_back(text_at(key(rank)));
    return words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::vector<std::string> table(const std::string& text) const {
    std::vector<std::string> words;
    try {
      words =
          nlohmann::json::parse(levin::detail::shallow_json(text)).get<std::vector<std::string>>();
    } catch (const nlohmann::json::exception&) {
      words.clear();
    }
    const bool fits =
        std::ssize(words) == size_ &&
        std::ranges::all_of(words, [](const auto& word) { return word.size() <= kLongestWord; });
    LEVIN_CHECK(
        fits, "comm.connect",
        "got no {} of each of {} ranks from the store of the run ({} letters); run the same "
        "version of levin on all ranks",
        topic_, size_, text.size());
    return words;
  }

  // The first rank tells the others whom it misses, unless it is missing itself.
  [[noreturn]] void fail(std::string_view what) {
    std::string missing;
    try {
      missing = rank_ == 0 ? missing_ranks() : missing_by_first();
      if (rank_ == 0) put(topic_ + "/missing", missing);
    } catch (const std::exception&) {
      missing.clear();  // the store itself is gone
    }
    LEVIN_CHECK(!missing.empty(), "comm.connect",
                "the store of the run was lost while the ranks came ({}); look for what ended rank "
                "0 or its launcher",
                what.substr(0, what.find('\n')));
    LEVIN_FAIL("comm.connect",
               "rank {} of {} did not come within {} s; look at whether it was started, and what "
               "it says",
               missing, size_, std::chrono::duration<double>(store_.getTimeout()).count());
  }

  std::string missing_ranks() {
    std::vector<std::string> missing;
    for (int64_t rank = 0; rank < size_; ++rank) {
      if (!store_.check({key(rank)})) missing.push_back(std::to_string(rank));
    }
    return to_text(missing);
  }

  std::string missing_by_first() {
    if (!store_.check({key(0)})) return "0";
    constexpr std::chrono::seconds kLater(2);  // it may have begun to wait after this rank
    try {
      store_.wait({topic_ + "/missing"}, kLater);
    } catch (const std::exception&) {
      return missing_ranks();
    }
    return text_at(topic_ + "/missing");
  }

  c10d::Store& store_;
  std::string topic_;
  int64_t rank_;
  int64_t size_;
};

HostLayout layout_of(c10d::Store& store, int64_t rank, int64_t size) {
  return HostLayout::of(Words(store, "host", rank, size).exchange(host_identity()));
}

struct Maker {
  std::string_view name;
  BackendPointer (*make)(const BackendPlan&);
};

BackendPointer make_shm(const BackendPlan& plan) {
  return make_shm_backend(plan.store, plan.rank, plan.size, plan.timeout);
}

BackendPointer make_gloo(const BackendPlan& plan) {
  return make_gloo_backend(plan.store, plan.rank, plan.size, plan.timeout, plan.own_address);
}

BackendPointer make_mpi(const BackendPlan& plan) {
  return make_mpi_backend(plan.rank, plan.size, plan.timeout, plan.global_ranks);
}

BackendPointer make_hierarchical(const BackendPlan& plan) {
  return make_hierarchical_backend(plan.store, plan.rank,
                                   layout_of(*plan.store, plan.rank, plan.size), plan.timeout,
                                   {.carrier = Carrier::kGloo, .own_address = plan.own_address});
}

BackendPointer make_hierarchical_mpi(const BackendPlan& plan) {
  return make_hierarchical_backend(plan.store, plan.rank,
                                   layout_of(*plan.store, plan.rank, plan.size), plan.timeout,
                                   {.carrier = Carrier::kMpi, .global_ranks = plan.global_ranks});
}

constexpr std::array<Maker, 5> kMakers = {{{"shm", make_shm},
                                           {"gloo", make_gloo},
                                           {"mpi", make_mpi},
                                           {"hierarchical", make_hierarchical},
                                           {"hierarchical-mpi", make_hierarchical_mpi}}};

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"auto"};
  for (const Maker& maker : kMakers) names.emplace_back(maker.name);
  return names;
}

}  // namespace

std::string choose_backend(c10d::Store& store, int64_t rank, int64_t size,
                           const ProcessGroupOptions& options) {
  const auto num_hosts = std::ssize(layout_of(store, rank, size).hosts);
  LEVIN_CHECK(options.backend != "shm" || num_hosts == 1, "comm.backend",
              "got backend shm for ranks on {} hosts, wanted hierarchical, gloo or auto; set "
              "--backend",
              num_hosts);
  if (options.backend != "auto") return options.backend;
  if (num_hosts == 1) return "shm";
  return num_hosts == size ? "gloo" : "hierarchical";
}

// A host's own name need not resolve to an address that the others reach: on the master's host it
// is often a loopback, which the way to any other host is not.
std::string choose_address(c10d::Store& store, int64_t rank, int64_t size,
                           const std::string& master_address) {
  const bool is_file = master_address.starts_with("file://");
  const std::string own = is_file ? "" : address_towards(master_address);
  const auto addresses = Words(store, "address", rank, size).exchange(own);
  if (!own.empty() && !is_loopback(own)) return own;
  for (const std::string& theirs : addresses) {
    if (!theirs.empty() && !is_loopback(theirs)) return address_towards(theirs);
  }
  return own;
}

BackendPointer make_backend(const std::string& name, const BackendPlan& plan) {
  for (const Maker& maker : kMakers) {
    if (maker.name == name) return maker.make(plan);
  }
  const auto names = backend_names();
  const auto close = nearest(name, names);
  LEVIN_FAIL("comm.backend", "got '{}', wanted one of {}; {}", name, to_text(names),
             close ? fmt::format("did you mean '{}'?", *close) : "set --backend");
}

}  // namespace levin::comm
