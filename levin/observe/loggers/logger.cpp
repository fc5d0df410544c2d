// Logger's defaults, and the loggers that have a folder.

#include "levin/observe/logger.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/base/log.h"
#include "levin/base/text/utf8.h"
#include "levin/observe/loggers/pictures.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

void say_dropped(const char* what, const std::string& name) {
  log::warn("the logger has no {}, so it drops '{}' and later ones", what, name);
}

}  // namespace

Logger::~Logger() = default;

void Logger::log_image(const std::string& name, const at::Tensor& image, int64_t,
                       std::string_view format) {
  static_cast<void>(detail::pixels_of(name, image, format));
  if (!std::exchange(warned_of_images_, true)) say_dropped("images", name);
}

void Logger::log_histogram(const std::string& name, const at::Tensor& values, int64_t) {
  static_cast<void>(detail::elements_of(name, values));
  if (!std::exchange(warned_of_histograms_, true)) say_dropped("histograms", name);
}

void Logger::log_text(const std::string& name, const std::string&, int64_t) {
  if (!std::exchange(warned_of_texts_, true)) say_dropped("texts", name);
}

namespace detail {

std::string prefixed(const std::string& prefix, std::string_view name) {
  return utf8::lossy(prefix.empty() ? std::string(name) : prefix + "-" + std::string(name));
}

std::string file_name_of(std::string_view name) {
  constexpr size_t kLongest = 200;  // a file's name has 255 bytes
  std::string file = utf8::lossy(name.substr(0, kLongest));
  std::ranges::replace_if(
      file, [](unsigned char c) { return c < ' ' || c == '/' || c == '\\' || c == 127; }, '_');
  if (file.starts_with('.')) file[0] = '_';
  return file;
}

void FolderLogger::log_hyperparams(const std::map<std::string, std::string>& hyperparams) {
  directory_->attempt([&] { directory_->write_hyperparams(hyperparams); });
}

void FolderLogger::log_image(const std::string& name, const at::Tensor& image, int64_t step,
                             std::string_view format) {
  const at::Tensor pixels = pixels_of(name, image, format);
  directory_->attempt([&] {
    directory_->write_beside("images", full_name(name), step, "png", png_of_pixels(pixels));
  });
}

void FolderLogger::log_text(const std::string& name, const std::string& text, int64_t step) {
  directory_->attempt(
      [&] { directory_->write_beside("texts", full_name(name), step, "txt", text); });
}

std::string FolderLogger::version() const {
  return std::filesystem::path(directory_->path()).filename().string();
}

}  // namespace detail
}  // namespace levin
