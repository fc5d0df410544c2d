#include "levin/comm/collectives/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>

#include "levin/base/check.h"

namespace levin::comm {
namespace {

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;
/// The type that sums and products of T are computed in.
template <class T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

// Small enough to stay in the first cache between the sources. Loops over whole blocks have a
// length that the compiler knows, which is what it vectorizes at -O2.
constexpr int64_t kBlock = 1024;

template <class T, class Combine>
void reduce_block(const Combine& combine, bool mean, std::byte* result,
                  std::span<const std::byte* const> sources, int64_t begin, int64_t length) {
  std::array<Wide<T>, kBlock> sum;
  const auto each = [&](const auto& body) {
    if (length == kBlock) {
      for (int64_t i = 0; i < kBlock; ++i) body(i);
    } else {
      for (int64_t i = 0; i < length; ++i) body(i);
    }
  };
  const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
  each([&](int64_t i) { sum[i] = static_cast<Wide<T>>(first[i]); });
  for (const std::byte* source : sources.subspan(1)) {
    const T* next = reinterpret_cast<const T*>(source) + begin;
    each([&](int64_t i) { sum[i] = combine(sum[i], static_cast<Wide<T>>(next[i])); });
  }
  if constexpr (std::is_floating_point_v<Wide<T>>) {
    const auto scale = static_cast<Wide<T>>(1.0 / static_cast<double>(sources.size()));
    if (mean) each([&](int64_t i) { sum[i] *= scale; });
  }
  T* out = reinterpret_cast<T*>(result) + begin;
  each([&](int64_t i) { out[i] = static_cast<T>(sum[i]); });
}

template <class T, class Combine>
void reduce_by(const Combine& combine, bool mean, std::byte* result,
               std::span<const std::byte* const> sources, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<T>(combine, mean, result, sources, begin, std::min(kBlock, count - begin));
  }
}

template <class T>
bool reduce_typed(Reduction reduction, std::byte* result, std::span<const std::byte* const> sources,
                  int64_t count) {
  using W = Wide<T>;
  const auto by = [&](const auto& combine) {
    reduce_by<T>(combine, reduction == Reduction::kMean, result, sources, count);
    return true;
  };
  switch (reduction) {
    case Reduction::kMean:
      if (!std::is_floating_point_v<W>) return false;
      [[fallthrough]];
    case Reduction::kSum:
      return by([](W a, W b) { return static_cast<W>(a + b); });
    case Reduction::kMin:  // a NaN wins, as in at::minimum
      return by([](W a, W b) { return a != a || a < b ? a : b; });
    case Reduction::kMax:
      return by([](W a, W b) { return a != a || a > b ? a : b; });
    case Reduction::kProduct:
      return by([](W a, W b) { return static_cast<W>(a * b); });
    default:
      break;
  }
  if constexpr (std::is_integral_v<W>) {
    if (reduction == Reduction::kAnd) return by([](W a, W b) { return static_cast<W>(a & b); });
    if (reduction == Reduction::kOr) return by([](W a, W b) { return static_cast<W>(a | b); });
    if (reduction == Reduction::kXor) return by([](W a, W b) { return static_cast<W>(a ^ b); });
  }
  return false;
}

bool reduce_any(Reduction reduction, at::ScalarType type, std::byte* result,
                std::span<const std::byte* const> sources, int64_t count) {
  switch (type) {
    case at::kFloat:
      return reduce_typed<float>(reduction, result, sources, count);
    case at::kDouble:
      return reduce_typed<double>(reduction, result, sources, count);
    case at::kBFloat16:
      return reduce_typed<c10::BFloat16>(reduction, result, sources, count);
    case at::kHalf:
      return reduce_typed<c10::Half>(reduction, result, sources, count);
    case at::kLong:
      return reduce_typed<int64_t>(reduction, result, sources, count);
    case at::kInt:
      return reduce_typed<int32_t>(reduction, result, sources, count);
    case at::kShort:
      return reduce_typed<int16_t>(reduction, result, sources, count);
    case at::kChar:
      return reduce_typed<int8_t>(reduction, result, sources, count);
    case at::kByte:
      return reduce_typed<uint8_t>(reduction, result, sources, count);
    case at::kBool:
      return reduce_typed<bool>(reduction, result, sources, count);
    default:
      return false;
  }
}

constexpr std::array<std::string_view, 8> kNames = {"sum",     "mean", "min", "max",
                                                    "product", "and",  "or",  "xor"};

}  // namespace

void reduce(Reduction reduction, at::ScalarType type, std::byte* result,
            std::span<const std::byte* const> sources, int64_t count) {
  LEVIN_CHECK(reduce_any(reduction, type, result, sources, count), "comm.reduce",
              "{} is not defined for {}; convert the tensor first",
              kNames[static_cast<size_t>(reduction)], c10::toString(type));
}

void check_reducible(Reduction reduction, at::ScalarType type) {
  const std::byte* nothing = nullptr;
  reduce(reduction, type, nullptr, std::span(&nothing, 1), 0);
}

}  // namespace levin::comm
