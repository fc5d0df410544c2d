#include "levin/models/layers/row_arithmetic.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <cstring>

#include "levin/graph/plain_calls.h"

namespace levin::models {
namespace {

#if defined(__x86_64__)
#define LEVIN_HAS_ROW_PRODUCT

using Lanes = float __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;
constexpr int64_t kRows = 4;       // at once
constexpr int64_t kAhead = 4'096;  // floats to prefetch into the cache

/// Not as a result: how a vector of that size is passed depends on what else the machine can do.
__attribute__((always_inline)) inline void load(Lanes& lanes, const float* from) {
  std::memcpy(&lanes, from, sizeof lanes);
}

/// By halves: a loop over the lanes would wait for each addition before the next.
__attribute__((always_inline)) inline float sum_of(const Lanes& lanes) {
  using Half = float __attribute__((vector_size(32)));
  using Quarter = float __attribute__((vector_size(16)));
  Half halves[2];
  std::memcpy(&halves, &lanes, sizeof lanes);
  const Half half = halves[0] + halves[1];
  Quarter quarters[2];
  std::memcpy(&quarters, &half, sizeof half);
  const Quarter quarter = quarters[0] + quarters[1];
  return (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
}

/// y[r] = weight[r] x, for `Rows` rows.
template <int64_t Rows>
__attribute__((always_inline)) inline void some_rows(const float* weight, const float* x, float* y,
                                                     int64_t in) {
  Lanes sums[Rows] = {};
  int64_t k = 0;
  for (; k + kLanes <= in; k += kLanes) {
    Lanes of_x, of_row;
    load(of_x, x + k);
    for (int64_t row = 0; row < Rows; ++row) {
      const float* at = weight + row * in + k;
      __builtin_prefetch(at + kAhead, /*rw=*/0, /*locality=*/3);
      load(of_row, at);
      sums[row] += of_row * of_x;
    }
  }
  for (int64_t row = 0; row < Rows; ++row) {
    float sum = sum_of(sums[row]);
    for (int64_t rest = k; rest < in; ++rest) sum += weight[row * in + rest] * x[rest];
    y[row] = sum;
  }
}

/// y[t] = weight x[t]; rows of the matrix are in the nearest cache after the first text.
__attribute__((target("avx2,fma"))) void all_rows(const float* weight, const float* x, float* y,
                                                  int64_t texts, int64_t out, int64_t in) {
  for (int64_t row = 0; row < out;) {
    const bool has_several = row + kRows <= out;
    for (int64_t text = 0; text < texts; ++text) {
      const float *from = weight + row * in, *of_text = x + text * in;
      float* to = y + text * out + row;
      has_several ? some_rows<kRows>(from, of_text, to, in) : some_rows<1>(from, of_text, to, in);
    }
    row += has_several ? kRows : 1;
  }
}

/// y += the sum of c[k] weight[k], for `Rows` rows.
template <int64_t Rows>
__attribute__((always_inline)) inline void add_rows(const float* weight, const float* c, float* y,
                                                    int64_t out) {
  int64_t j = 0;
  for (; j + kLanes <= out; j += kLanes) {
    Lanes sum, of_row;
    load(sum, y + j);
    for (int64_t row = 0; row < Rows; ++row) {
      const float* at = weight + row * out + j;
      __builtin_prefetch(at + kAhead, /*rw=*/0, /*locality=*/3);
      load(of_row, at);
      sum += of_row * c[row];
    }
    std::memcpy(y + j, &sum, sizeof sum);
  }
  for (; j < out; ++j) {
    for (int64_t row = 0; row < Rows; ++row) y[j] += weight[row * out + j] * c[row];
  }
}

/// y[t] += x[t] weight
__attribute__((target("avx2,fma"))) void add_all_rows(const float* weight, const float* x, float* y,
                                                      int64_t texts, int64_t out, int64_t in) {
  for (int64_t row = 0; row < in;) {
    const bool has_several = row + kRows <= in;
    for (int64_t text = 0; text < texts; ++text) {
      const float *from = weight + row * out, *of_text = x + text * in + row;
      float* to = y + text * out;
      has_several ? add_rows<kRows>(from, of_text, to, out) : add_rows<1>(from, of_text, to, out);
    }
    row += has_several ? kRows : 1;
  }
}

bool has_instructions() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
#endif

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

bool is_of_next_tokens(const at::Tensor& x) {
  return x.dim() >= 3 && x.size(0) <= kFewTexts && x.size(1) == 1 && x.numel() > 0 &&
         graph::has_plain_calls() && is_plain(x);
}

}  // namespace

at::Tensor row_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
#ifdef LEVIN_HAS_ROW_PRODUCT
  const int64_t in = weight.size(1), out = weight.size(0);
  if (!is_of_next_tokens(x) || x.dim() != 3 || x.size(2) != in || !has_instructions() ||
      !is_plain(weight) || (bias.defined() && !is_plain(bias)))
    return {};
  at::DimVector sizes(x.sizes());
  sizes.back() = out;
  at::Tensor y = at::empty(sizes, x.options());
  auto* const to = y.mutable_data_ptr<float>();
  all_rows(weight.const_data_ptr<float>(), x.const_data_ptr<float>(), to, x.size(0), out, in);
  if (bias.defined()) {
    const auto* added = bias.const_data_ptr<float>();
    for (int64_t text = 0; text < x.size(0); ++text) {
      for (int64_t i = 0; i < out; ++i) to[text * out + i] += added[i];
    }
  }
  return y;
#else
  return {};
#endif
}

at::Tensor row_product_transposed(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias) {
#ifdef LEVIN_HAS_ROW_PRODUCT
  const int64_t in = weight.size(0), out = weight.size(1);
  if (!is_of_next_tokens(x) || x.dim() != 3 || x.size(2) != in || !has_instructions() ||
      !is_plain(weight) || !is_plain(bias))
    return {};
  at::Tensor y = at::empty({x.size(0), 1, out}, x.options());
  auto* const to = y.mutable_data_ptr<float>();
  for (int64_t text = 0; text < x.size(0); ++text) {
    std::memcpy(to + text * out, bias.const_data_ptr<float>(), bias.nbytes());
  }
  add_all_rows(weight.const_data_ptr<float>(), x.const_data_ptr<float>(), to, x.size(0), out, in);
  return y;
#else
  return {};
#endif
}

at::Tensor row_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool one_plus) {
  const int64_t width = weight.size(0);
  if (!is_of_next_tokens(x) || x.size(-1) != width || !is_plain(weight)) return {};
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto* from = x.const_data_ptr<float>();
  const auto* scale = weight.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  const float plus = one_plus ? 1.0F : 0.0F;
  for (const float* end = from + x.numel(); from != end; from += width, to += width) {
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += double{from[i]} * double{from[i]};
    const auto factor =
        static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
    for (int64_t i = 0; i < width; ++i) to[i] = from[i] * factor * (plus + scale[i]);
  }
  return y;
}

at::Tensor row_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          double eps) {
  const int64_t width = weight.size(0);
  if (!is_of_next_tokens(x) || x.size(-1) != width || !is_plain(weight) ||
      (bias.defined() && !is_plain(bias)))
    return {};
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto* from = x.const_data_ptr<float>();
  const auto* scale = weight.const_data_ptr<float>();
  const auto* added = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  auto* to = y.mutable_data_ptr<float>();
  for (const float* end = from + x.numel(); from != end; from += width, to += width) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) sum += double{from[i]};
    const double mean = sum / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (int64_t i = 0; i < width; ++i) {
      to[i] = static_cast<float>((from[i] - mean) * factor) * scale[i];
      if (added != nullptr) to[i] += added[i];
    }
  }
  return y;
}

at::Tensor row_rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (!is_of_next_tokens(x) || x.dim() != 4 || !is_plain(cos) || !is_plain(sin)) return {};
  const int64_t heads = x.size(2), half = x.size(3) / 2;
  const int64_t step = cos.size(0) == 1 ? 0 : half;  // texts at one position share their angles
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  for (int64_t text = 0; text < x.size(0); ++text) {
    const auto* c = cos.const_data_ptr<float>() + text * step;
    const auto* s = sin.const_data_ptr<float>() + text * step;
    for (int64_t head = 0; head < heads; ++head, from += 2 * half, to += 2 * half) {
      for (int64_t i = 0; i < half; ++i) {
        to[i] = from[i] * c[i] - from[half + i] * s[i];
        to[half + i] = from[half + i] * c[i] + from[i] * s[i];
      }
    }
  }
  return y;
}

}  // namespace levin::models
