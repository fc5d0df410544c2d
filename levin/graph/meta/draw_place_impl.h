#pragma once
// DrawPlace: where a random generator of the CPU stands, without its having drawn what lies before.
// DrawPlaces follows the generators that a constructor draws from: each tensor's draws get a place,
// and the generator itself is moved at the end.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <unordered_map>

namespace levin::graph::meta {

/// The full state of a CPU generator.
struct GeneratorState {
  at::mt19937_data_pod engine;
  std::optional<float> next_float;
  std::optional<double> next_double;

  static GeneratorState of(at::CPUGeneratorImpl& generator);
  void put(at::CPUGeneratorImpl& generator) const;
  bool operator==(const GeneratorState& other) const;
};

struct DrawPlace {
  std::shared_ptr<const GeneratorState> start;
  uint64_t words = 0;  ///< 32-bit words drawn from there
  /// Normal numbers drawn one by one are made in pairs, and the generator keeps the second. `pair`:
  /// number of words before the pair of a kept number. is_starts: nothing was drawn so, and `start`
  /// says whether a number is kept.
  struct Kept {
    bool is_starts = true;
    std::optional<uint64_t> pair;
  } kept;

  /// Returns the place behind so many more words.
  DrawPlace after(uint64_t more) const {
    DrawPlace place = *this;
    place.words += more;
    return place;
  }
  bool keeps_one() const {
    return kept.is_starts ? start->next_double.has_value() : kept.pair.has_value();
  }
  /// Puts a generator there.
  void put(at::CPUGeneratorImpl& generator) const;
};

/// The kinds of numbers that fill a CPU tensor, drawn in the order of its elements.
enum class Fill { kUniform, kNormal };

/// The rules by which LibTorch's kernels draw, found by trial.
class DrawRules {
 public:
  /// Words that a number takes; none where the kernels draw in a way of their own.
  std::optional<uint64_t> words_each(Fill fill, at::ScalarType dtype);
  /// Returns a generator's place after it fills a tensor; nothing if that is not known.
  std::optional<DrawPlace> after(const DrawPlace& place, Fill fill, const at::Tensor& tensor);

  /// Normal numbers of a contiguous tensor come in blocks, and the last one is drawn again where it
  /// was cut off. Smaller tensors are drawn one by one.
  static constexpr int64_t kNormalBlock = 16;

 private:
  std::unordered_map<int, std::optional<uint64_t>> words_each_;
};

class DrawPlaces {
 public:
  /// Returns the place from which an operator with this generator (undefined: the default one)
  /// draws. Throws Error "graph.meta.generator" if the generator was moved unseen.
  DrawPlace place(const at::Generator& generator);
  /// The operator's draws are taken to have been made.
  void move(const at::Generator& generator, DrawPlace to);
  /// A kernel without memory may have drawn all the same: the generator stands where it stood.
  void put_back(const at::Generator& generator);
  /// Moves the generator itself to its place: before it is drawn from in truth.
  void settle(const at::Generator& generator);
  void settle_all();
  /// It was drawn from in truth.
  void moved_itself(const at::Generator& generator);

 private:
  struct Followed {
    at::Generator generator;
    DrawPlace place;
  };
  Followed& followed(const at::Generator& generator);
  std::unordered_map<c10::GeneratorImpl*, Followed> generators_;
};

/// The default generator of the CPU where none is given.
at::CPUGeneratorImpl& cpu_generator(const at::Generator& generator);

}  // namespace levin::graph::meta
