// A matrix, such as a confusion matrix, as an image.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/observe/logger.h"
#include "levin/observe/loggers/glyphs.h"

namespace levin {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr int64_t kMostCells = 64;
constexpr int64_t kScale = 2;  // pixels of a glyph's pixel
constexpr int64_t kLetter = (detail::kGlyphWidth + 1) * kScale;
constexpr int64_t kLine = detail::kGlyphHeight * kScale;
constexpr int64_t kPad = 8;
constexpr int64_t kCellHeight = kLine + 2 * kPad;
constexpr int64_t kBarWidth = 16;
constexpr size_t kMostLetters = 12;  // of a label
constexpr Color kBlack = {0, 0, 0}, kWhite = {255, 255, 255}, kGray = {200, 200, 200};

/// From white by blue to dark blue, as ColorBrewer's Blues.
Color color_of(double share) {
  constexpr std::array<Color, 5> kBlues = {
      {{247, 251, 255}, {198, 219, 239}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}}};
  const double place = std::clamp(share, 0.0, 1.0) * (kBlues.size() - 1);
  const auto below = std::min(static_cast<size_t>(place), kBlues.size() - 2);
  Color color;
  for (size_t i = 0; i < color.size(); ++i) {
    const double from = kBlues[below][i], to = kBlues[below + 1][i];
    color[i] = static_cast<uint8_t>(std::lround(from + (to - from) * (place - below)));
  }
  return color;
}

bool is_dark(const Color& color) {
  return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] < 140;
}

int64_t text_width(std::string_view text) { return static_cast<int64_t>(text.size()) * kLetter; }

class Canvas {
 public:
  Canvas(int64_t height, int64_t width)
      : pixels_(at::full({height, width, 3}, 255, at::kByte)), width_(width) {}

  void fill(int64_t top, int64_t left, int64_t height, int64_t width, const Color& color) {
    auto* const bytes = pixels_.mutable_data_ptr<uint8_t>();
    for (int64_t y = top; y < top + height; ++y) {
      for (int64_t x = left; x < left + width; ++x) {
        std::ranges::copy(color, bytes + (y * width_ + x) * 3);
      }
    }
  }
  void write(int64_t top, int64_t left, std::string_view text, const Color& color) {
    for (const char letter : text) {
      const auto place = static_cast<size_t>(letter - detail::kFirstGlyph);
      const auto& glyph = detail::kGlyphs[place];
      for (int64_t x = 0; x < detail::kGlyphWidth; ++x) {
        for (int64_t y = 0; y < detail::kGlyphHeight; ++y) {
          if ((glyph[static_cast<size_t>(x)] >> y & 1) == 0) continue;
          fill(top + y * kScale, left + x * kScale, kScale, kScale, color);
        }
      }
      left += kLetter;
    }
  }
  at::Tensor pixels() const { return pixels_; }

 private:
  at::Tensor pixels_;
  int64_t width_;
};

/// The font has ASCII; each other character is a "?".
std::string drawable(const std::string& label) {
  std::string text;
  for (const char c : label) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) continue;
    text += byte >= ' ' && byte <= '~' ? c : '?';
  }
  if (text.size() <= kMostLetters) return text;
  return text.substr(0, kMostLetters - 2) + "..";
}

std::string number_text(double value, bool is_count) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (is_count && std::abs(value) < 1e7) return fmt::format("{:.0f}", value);
  if (!is_count && std::abs(value) < 100) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

std::vector<std::string> names_of(int64_t count, const std::vector<std::string>& labels) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) {
    names.push_back(labels.empty() ? std::to_string(i) : drawable(labels[static_cast<size_t>(i)]));
  }
  return names;
}

int64_t widest(const std::vector<std::string>& texts) {
  int64_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text_width(text));
  return width;
}

}  // namespace

at::Tensor picture_of_matrix(const at::Tensor& matrix, const std::vector<std::string>& labels) {
  const bool is_matrix = matrix.defined() && matrix.dim() == 2 && matrix.numel() > 0 &&
                         !matrix.is_complex() && matrix.size(0) <= kMostCells &&
                         matrix.size(1) <= kMostCells;
  LEVIN_CHECK(is_matrix, "observe.logger.image",
              "got {} for a picture of a matrix, wanted real numbers [R, C] with 1 to {} rows and "
              "columns; choose one matrix, or a part of it",
              matrix.defined() ? fmt::format("the shape [{}]", fmt::join(matrix.sizes(), ", "))
                               : "an undefined tensor",
              kMostCells);
  const int64_t num_rows = matrix.size(0), num_columns = matrix.size(1);
  const auto num_labels = static_cast<int64_t>(labels.size());
  LEVIN_CHECK(labels.empty() || (num_labels == num_rows && num_labels == num_columns),
              "observe.logger.image", "got {} labels for a matrix of {} x {}, wanted one per row",
              num_labels, num_rows, num_columns);
  const at::NoGradGuard no_grad;
  const at::Tensor values = matrix.detach().cpu().to(at::kDouble).contiguous();
  const auto* const numbers = values.const_data_ptr<double>();
  const std::vector<double> all(numbers, numbers + values.numel());
  double least = 0, most = 0;
  bool is_count = true;
  for (const double value : all) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
    is_count = is_count && std::floor(value) == value;
  }
  std::vector<std::string> texts;
  for (const double value : all) texts.push_back(number_text(value, is_count));
  const std::vector<std::string> row_names = names_of(num_rows, labels);
  const std::vector<std::string> column_names = names_of(num_columns, labels);
  const int64_t cell = std::max(widest(texts), widest(column_names)) + 2 * kPad;
  const int64_t left = widest(row_names) + 2 * kPad, top = kCellHeight;
  const std::string low = number_text(least, is_count), high = number_text(most, is_count);
  const int64_t bar = left + num_columns * cell + kPad;
  const int64_t height = top + std::max<int64_t>(num_rows, 2) * kCellHeight + kPad;
  Canvas canvas(height, bar + kBarWidth + widest({low, high}) + 2 * kPad);
  for (int64_t column = 0; column < num_columns; ++column) {
    const std::string& name = column_names[static_cast<size_t>(column)];
    canvas.write(kPad, left + column * cell + (cell - text_width(name)) / 2, name, kBlack);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t y = top + row * kCellHeight;
    const std::string& name = row_names[static_cast<size_t>(row)];
    canvas.write(y + kPad, left - kPad - text_width(name), name, kBlack);
    for (int64_t column = 0; column < num_columns; ++column) {
      const auto place = static_cast<size_t>(row * num_columns + column);
      const double value = all[place];
      const double share = most > least ? (value - least) / (most - least) : 0;
      const Color color = std::isnan(value) ? kGray : color_of(share);
      const int64_t x = left + column * cell;
      canvas.fill(y, x, kCellHeight - 1, cell - 1, color);  // the pixel beside it parts two cells
      canvas.write(y + kPad, x + (cell - text_width(texts[place])) / 2, texts[place],
                   is_dark(color) ? kWhite : kBlack);
    }
  }
  const int64_t bar_height = height - top - kPad;
  for (int64_t y = 0; y < bar_height; ++y) {
    const double share = 1 - static_cast<double>(y) / static_cast<double>(bar_height - 1);
    canvas.fill(top + y, bar, 1, kBarWidth, color_of(share));
  }
  canvas.write(top, bar + kBarWidth + kPad, high, kBlack);
  canvas.write(top + bar_height - kLine, bar + kBarWidth + kPad, low, kBlack);
  return canvas.pixels();
}

}  // namespace levin
