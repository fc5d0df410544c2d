#pragma once
// Option types that Lightning's users write as a fraction or a count, a number or a word.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin {

/// Part of an epoch: a floating number is a fraction of its batches (1.0: all), an integer a count.
/// As text "1.0" is the fraction and "1" the count.
class LEVIN_API Portion {
 public:
  template <std::integral T>
  Portion(T count) : count_(count) {}  // NOLINT: reads as the number it is
  template <std::floating_point T>
  Portion(T fraction) : is_fraction_(true), fraction_(fraction) {}  // NOLINT

  /// Of total batches, rounded down.
  int64_t of(int64_t total) const;
  bool is_fraction() const { return is_fraction_; }
  /// The fraction 1.0.
  bool is_whole() const { return is_fraction_ && fraction_ == 1.0; }
  /// 0 or 0.0.
  bool is_none() const { return is_fraction_ ? fraction_ == 0.0 : count_ == 0; }
  /// False for a negative number or a fraction above 1.
  bool valid() const;

  friend LEVIN_API std::string to_text(const Portion& portion);
  friend LEVIN_API void from_text(std::string_view text, Portion& portion);

 private:
  bool is_fraction_ = false;
  int64_t count_ = 0;
  double fraction_ = 0.0;
};

/// A number of devices, at least 1, or "auto".
class LEVIN_API Devices {
 public:
  template <std::integral T>
  Devices(T count) : count_(count) {}                    // NOLINT: reads as the number it is
  Devices(const char* text) { from_text(text, *this); }  // NOLINT

  /// 0 stands for "auto".
  int64_t count() const { return is_auto_ ? 0 : count_; }
  bool valid() const { return is_auto_ || count_ > 0; }

  friend LEVIN_API std::string to_text(const Devices& devices);
  friend LEVIN_API void from_text(std::string_view text, Devices& devices);

 private:
  bool is_auto_ = false;
  int64_t count_ = 0;
};

LEVIN_API std::string to_text(const Portion& portion);
LEVIN_API void from_text(std::string_view text, Portion& portion);
LEVIN_API std::string to_text(const Devices& devices);
LEVIN_API void from_text(std::string_view text, Devices& devices);

}  // namespace levin
