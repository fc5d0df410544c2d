// levin::chunked_nll, the loss of a large vocabulary: chunk by chunk, so that a program holds some scores at
// a time as the CPU's kernel does. Positions that do not count are computed here, and left out of the sums:
// a program's shapes cannot depend on labels.
#include <algorithm>
#include <limits>
#include <vector>

#include "levin/xla/stablehlo/term.h"

namespace levin::xla {
namespace {

constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kNotCounted = -100;
/// Scores of a chunk, 64 MB of float32, larger if there would be too many chunks for one program.
constexpr int64_t kScores = int64_t{1} << 24;
constexpr int64_t kMostChunks = 16;

/// A divisor of the positions, so that all chunks are of one size.
int64_t num_chunks(int64_t positions, int64_t vocabulary) {
  const int64_t wanted = (positions * vocabulary + kScores - 1) / kScores;
  for (int64_t count = std::clamp<int64_t>(wanted, 1, kMostChunks); count > 1; --count) {
    if (positions % count == 0) return count;
  }
  return 1;
}

/// Chunk j of n holds the positions j, j + n, ...: where devices share the positions each has an n-th of
/// its own, and nothing moves between them.
struct Chunks {
  Lowering& at;
  int64_t count;

  Hlo part(const Hlo& x, int64_t number) const {
    if (count == 1) return x;
    Dims split = x.sizes;
    split[0] /= count;
    const Dims own = split;
    split.insert(split.begin() + 1, count);
    Dims start(split.size(), 0), limit = split;
    start[1] = number;
    limit[1] = number + 1;
    const Hlo rows = at.hlo.slice(at.hlo.reshape(x, split), start, limit, Dims(split.size(), 1));
    return at.hlo.reshape(rows, own);
  }

  Hlo joined(std::vector<Hlo> parts, const Dims& sizes) const {
    if (count == 1) return parts.front();
    for (Hlo& part : parts) {
      Dims split = part.sizes;
      split.insert(split.begin() + 1, 1);
      part = at.hlo.reshape(part, split);
    }
    return at.hlo.reshape(at.hlo.concatenate(parts, 1), sizes);
  }
};

struct Output {
  Hlo matrix, bias;  ///< the bias' id is below 0 if there is none
  double softcap = 0;
};

struct Scored {
  Term nll;       ///< [R]
  Term d_scores;  ///< [R, vocabulary]: of the sum
};

/// f32, of positions [R, width] with labels [R].
Scored scored(Lowering& at, const Hlo& hidden, const Output& output, const Hlo& labels) {
  Builder& hlo = at.hlo;
  Hlo product = hlo.dot_general(hidden, output.matrix, {}, {}, {1}, {1});
  if (output.bias.id >= 0)
    product = hlo.binary("add", product, hlo.expand(output.bias, product.sizes));
  Term scores(hlo, hlo.convert(product, at::kFloat)), slope = scores;
  if (output.softcap > 0) {
    const Term bent = tanh(scores / output.softcap);
    slope = 1.0 - bent * bent;
    scores = bent * output.softcap;
  }
  const Dims& sizes = scores.sizes();
  const auto over_row = [&](const Hlo& of_positions) {
    return Term(hlo, hlo.broadcast_in_dim(of_positions, sizes, {0}));
  };
  const Term label(hlo, labels);
  const Term counts = !same(label, static_cast<double>(kNotCounted));
  const Term is_class = (label >= 0) & (label < static_cast<double>(sizes[1]));
  const Term is_label = same(Term(hlo, hlo.iota(at::kLong, sizes, 1)), over_row(labels));
  const Term most(hlo, at.maximum(scores, {1}, /*keepdim=*/false));
  const Term powers = exp(scores - over_row(most));
  const Term sum(hlo, at.sum(powers, {1}, /*keepdim=*/false));
  const Term picked(hlo, at.sum(where(is_label, scores, 0), {1}, /*keepdim=*/false));
  const Term nll = where(is_class, log(sum) + most - picked, kNoLoss);
  Term d_scores = powers / over_row(sum) - is_label.as(at::kFloat);
  if (output.softcap > 0) d_scores = d_scores * slope;
  return {where(counts, nll, 0), where(over_row(counts), d_scores, 0)};
}

/// hidden, matrix, bias, labels, scale, softcap, of_hidden, of_matrix -> nll and gradients of
/// hidden, matrix and bias; unwanted gradients are empty.
void lower_chunked_nll(Lowering& at) {
  Builder& hlo = at.hlo;
  const Hlo hidden = at.tensor(0), labels = at.tensor(3, at::kLong);
  const Output output{
      .matrix = at.tensor(1), .bias = at.has(2) ? at.tensor(2) : Hlo(), .softcap = at.number(5)};
  const bool of_hidden = at.flag(6), of_matrix = at.flag(7);
  const Chunks chunks{at, num_chunks(hidden.sizes[0], output.matrix.sizes[0])};
  std::vector<Hlo> nll, d_hidden, d_matrix, d_bias;
  const auto add_to = [&](std::vector<Hlo>& sum, const Hlo& more) {
    sum = {sum.empty() ? more : hlo.binary("add", sum.front(), more)};
  };
  for (int64_t i = 0; i < chunks.count; ++i) {
    const Hlo rows = chunks.part(hidden, i);
    const Scored chunk = scored(at, rows, output, chunks.part(labels, i));
    nll.push_back(chunk.nll);
    Term slopes = chunk.d_scores;
    if (at.has(4)) {
      const Hlo scale = chunks.part(at.tensor(4, at::kFloat), i);
      slopes = slopes * Term(hlo, hlo.broadcast_in_dim(scale, slopes.sizes(), {0}));
    }
    const Hlo given = hlo.convert(slopes, rows.dtype);
    if (of_hidden) d_hidden.push_back(hlo.dot_general(given, output.matrix, {}, {}, {1}, {0}));
    if (!of_matrix) continue;
    add_to(d_matrix, hlo.convert(hlo.dot_general(given, rows, {}, {}, {0}, {0}), at::kFloat));
    if (output.bias.id >= 0) add_to(d_bias, at.sum(slopes, {0}, /*keepdim=*/false));
  }
  const auto or_empty = [&](const std::vector<Hlo>& value, size_t result) {
    return value.empty() ? hlo.constant(0, at.dtype(result), {0}) : value.front();
  };
  at.give(0, chunks.joined(nll, {hidden.sizes[0]}));
  at.give(1, of_hidden ? chunks.joined(d_hidden, hidden.sizes) : or_empty({}, 1));
  at.give(2, or_empty(d_matrix, 2));
  at.give(3, or_empty(d_bias, 3));
}

}  // namespace

void add_chunked_nll(LoweringTable& table) { table["levin::chunked_nll"] = lower_chunked_nll; }

}  // namespace levin::xla
