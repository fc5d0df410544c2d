#pragma once
// Evaluation: what tensors without memory hold, by running those operators of a BuildLog again that
// had a part in it, in their order, and no others.

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "levin/graph/meta/build_log_impl.h"

namespace levin::graph::meta {

/// Puts a generator where the step's draws come from.
using PutGenerator = std::function<void(const Step& step, at::CPUGeneratorImpl& generator)>;

/// Sets the generator to the place from which ordinary construction would draw.
void put_at_place(const Step& step, at::CPUGeneratorImpl& generator);

/// Runs operators below autograd, autocast and observers of operators, as none of the user's code
/// runs.
class PlainMode {
 public:
  PlainMode();
  ~PlainMode();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sets the default dtype as long as it lives; LibTorch has no default by thread.
class DefaultDtype {
 public:
  explicit DefaultDtype(at::ScalarType dtype);
  ~DefaultDtype();
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  at::ScalarType before_;
};

class Evaluation {
 public:
  explicit Evaluation(PutGenerator put) : put_(std::move(put)) {}

  struct Target {
    ValueRef value;
    size_t bytes = 0;  ///< bytes wanted at least
  };
  /// Memory of the CPU with what each of these storages holds. Nothing else stays.
  std::vector<at::Storage> storages(std::span<const Target> targets);

  /// The step's own results, lists taken apart, and where the generator then stands, if it draws.
  struct Outcome {
    std::vector<at::Tensor> results;
    std::optional<GeneratorState> after;
  };
  Outcome outcome(const Step& step);

 private:
  using Root = std::pair<BuildLog*, int32_t>;
  struct Place {  // in the order in which steps ran
    uint64_t order;
    int32_t index;
    auto operator<=>(const Place&) const = default;
  };
  struct Slice {
    std::map<Place, const Step*> steps;
    std::map<const Step*, BuildLog*> logs;
    std::map<Root, size_t> bytes;
    std::map<Root, Place> last_use;
  };

  static Root root_of(const ValueRef& value);
  static Slice slice_of(std::span<const Target> targets);
  void run(const Slice& slice, std::span<const Target> targets);
  at::Storage& storage_of(const ValueRef& value, size_t bytes);
  std::vector<at::Tensor> arguments(const Step& step, const std::map<Root, size_t>& bytes);
  Outcome run_step(const Step& step, std::vector<at::Tensor> tensors);

  PutGenerator put_;
  std::map<Root, at::Storage> storages_;
};

/// A tensor of memory that is there.
at::Tensor view_of(const at::Storage& storage, const Part& part);

}  // namespace levin::graph::meta
