#include "levin/models/layers/cache.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace levin::models {
namespace {

/// Of position p all numbers are p: [1, count, 2, 3].
at::Tensor of_positions(int64_t first, int64_t count) {
  return at::arange(first, first + count, at::kFloat)
      .view({1, count, 1, 1})
      .expand({1, count, 2, 3});
}

/// The positions that a view is of, in their order.
at::Tensor positions_in(const at::Tensor& view) {
  return std::get<0>(view.select(1, 1).select(2, 2).flatten().sort());
}

TEST(LayerCache, HasAllTokensAlsoWhenItsMemoryGrew) {
  LayerCache cache;
  cache.fill(of_positions(0, 5), -of_positions(0, 5), /*window=*/0, /*capacity=*/300);
  for (int64_t next = 5; next < 300; ++next) {
    const auto [key, value] = cache.append(of_positions(next, 1), -of_positions(next, 1));
    ASSERT_EQ(key.sizes(), (std::vector<int64_t>{1, 2, next + 1, 3}));
    if (next % 60 != 0) continue;
    EXPECT_TRUE(
        at::equal(key.select(1, 0).select(2, 0).flatten(), at::arange(next + 1, at::kFloat)));
    EXPECT_TRUE(at::equal(value, -key));
  }
}

// Shorter and longer prompts than the window, which the ring turns in several times.
TEST(LayerCache, OfAWindowKeepsItsTokensAlone) {
  constexpr int64_t kWindow = 7;
  for (const int64_t prompt : {1, 6, 7, 8, 16, 20}) {
    LayerCache cache;
    cache.fill(of_positions(0, prompt), -of_positions(0, prompt), kWindow, /*capacity=*/100);
    for (int64_t next = prompt; next < prompt + 20; ++next) {
      const auto [key, value] = cache.append(of_positions(next, 1), -of_positions(next, 1));
      const int64_t first = std::max<int64_t>(0, next + 1 - kWindow);
      EXPECT_TRUE(at::equal(positions_in(key), at::arange(first, next + 1, at::kFloat)))
          << prompt << " " << next;
      EXPECT_TRUE(at::equal(value, -key));
      EXPECT_LE(key.storage().nbytes(), size_t{2} * 3 * kWindow * sizeof(float));
    }
  }
}

// As a turn of a chat goes on: what was there in its order, then what is new.
TEST(LayerCache, SeveralTokensSeeWhatIsThereAndThemselvesInOrder) {
  for (const int64_t window : {0, 7, 50}) {
    LayerCache cache;
    cache.fill(of_positions(0, 5), -of_positions(0, 5), window, /*capacity=*/30);
    int64_t length = 5;
    for (const int64_t count : {2, 1, 4, 9, 1, 1, 3, 20, 2, 30}) {
      cache.allow(length + count + 1);
      const int64_t past = window == 0 ? length : std::min(length, window);
      const auto [key, value] =
          cache.append(of_positions(length, count), -of_positions(length, count));
      const auto wanted = at::arange(length - past, length + count, at::kFloat);
      if (count > 1) {
        EXPECT_TRUE(at::equal(key.select(1, 1).select(2, 2).flatten(), wanted)) << window;
      } else {
        const int64_t seen = window == 0 ? length + 1 : std::min(length + 1, window);
        EXPECT_TRUE(at::equal(positions_in(key), wanted.narrow(0, wanted.size(0) - seen, seen)));
      }
      EXPECT_TRUE(at::equal(value, -key));
      length += count;
    }
  }
}

TEST(LayerCache, ARingThatWentRoundCannotBeCut) {
  LayerCache whole, ring;
  whole.fill(of_positions(0, 9), of_positions(0, 9), /*window=*/0, /*capacity=*/30);
  ring.fill(of_positions(0, 9), of_positions(0, 9), /*window=*/7, /*capacity=*/30);
  EXPECT_TRUE(whole.can_be_cut(4));
  EXPECT_FALSE(ring.can_be_cut(8));
  EXPECT_TRUE(ring.can_be_cut(9));
  whole.cut(4);
  EXPECT_TRUE(at::equal(positions_in(whole.append(of_positions(4, 2), of_positions(4, 2)).key),
                        at::arange(6, at::kFloat)));
}

// Padding is hidden where it lies, until a token takes its place in the ring.
TEST(Cache, MasksAreOfTheSlotsThatAreSeen) {
  constexpr int64_t kWindow = 4;
  const at::Tensor mask = torch::tensor({{0, 0, 0, 0, 1, 1}, {1, 1, 1, 1, 1, 1}}) != 0;
  Cache cache(10, mask);
  cache.advance(6);
  for (int64_t next = 6; next < 10; ++next) {
    const at::Tensor whole = cache.mask(0, at::kFloat), ring = cache.mask(kWindow, at::kDouble);
    EXPECT_EQ(whole.sizes(), (std::vector<int64_t>{2, 1, 1, next + 1}));
    EXPECT_EQ(whole.isinf().sum().item<int64_t>(), 4);
    EXPECT_EQ(whole[0].flatten()[3].item<float>(), -INFINITY);
    EXPECT_EQ(ring.sizes(), (std::vector<int64_t>{2, 1, 1, kWindow}));
    EXPECT_EQ(ring.scalar_type(), at::kDouble);
    // Of the last four of 0..next in the first row, those below 4 are padding.
    EXPECT_EQ(ring.isinf().sum().item<int64_t>(), std::max<int64_t>(0, 4 - (next - 3)));
    cache.advance(1);
  }
}

TEST(Cache, WithoutPaddingHasNoMask) {
  Cache cache(10, {});
  cache.advance(6);
  EXPECT_FALSE(cache.mask(0, at::kFloat).defined());
}

}  // namespace
}  // namespace levin::models
