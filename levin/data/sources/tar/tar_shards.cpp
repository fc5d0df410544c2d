#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {
namespace {

constexpr size_t kTarBlock = 512;
constexpr size_t kMostTarShards = 1'000'000;  // of one path with ranges

struct TarFile {
  std::string path;
  std::span<const std::byte> bytes;
};

/// The regular files of an archive, one after another: ustar, with the long names and sizes of GNU
/// tar and PAX.
class TarReader {
 public:
  TarReader(const std::string& path) : path_(path), map_(path) {}

  const std::string& path() const { return path_; }

  std::optional<TarFile> next() {
    std::string long_name;
    std::optional<uint64_t> long_size;
    while (at_ < all().size()) {
      const std::string_view header = take(kTarBlock, "a header");
      if (header.find_first_not_of('\0') == std::string_view::npos) return std::nullopt;
      check_sum(header);
      const char kind = header[156];
      const bool names_next = kind == 'x' || kind == 'g' || kind == 'L' || kind == 'K';
      const uint64_t size = names_next || !long_size ? number(header.substr(124, 12)) : *long_size;
      const size_t begin = at_;
      // Links, folders and devices have no data, whatever their size says.
      const bool has_data = names_next || kind == '0' || kind == '\0' || kind == '7' || kind == 'S';
      const std::string_view data = take(has_data ? size : 0, "the data of a file");
      at_ = std::min(begin + (data.size() + kTarBlock - 1) / kTarBlock * kTarBlock, all().size());
      if (kind == 'x') {
        read_pax(data, long_name, long_size);
      } else if (kind == 'L') {
        long_name = data.substr(0, data.find('\0'));
      } else if (kind == 'S') {
        fail("is a sparse file, which is not read");
      } else if (!names_next && has_data) {
        return TarFile{long_name.empty() ? name_in(header) : long_name,
                       std::as_bytes(std::span(data))};
      } else if (!names_next) {
        long_name.clear();
        long_size.reset();
      }
    }
    return std::nullopt;
  }

 private:
  std::string_view all() const {
    return {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  }

  [[noreturn]] void fail(const char* reason) const {
    LEVIN_FAIL("data.tar",
               "{} is no tar file that is read, or it is corrupt: the entry before offset {} {}; "
               "write an uncompressed archive again",
               path_, at_, reason);
  }

  std::string_view take(uint64_t size, const char* what) {
    LEVIN_CHECK(size <= all().size() - at_, "data.tar",
                "{} is truncated: {} at offset {} has {} bytes of {}; write it again", path_, what,
                at_, all().size() - at_, size);
    const std::string_view taken = all().substr(at_, size);
    at_ += size;
    return taken;
  }

  void check_sum(std::string_view header) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < kTarBlock; ++i) {
      sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
    }
    if (sum != number(header.substr(148, 8))) fail("has a wrong checksum");
  }

  /// Octal digits, or a number of base 256 whose first bit is set.
  uint64_t number(std::string_view field) const {
    uint64_t value = 0;
    if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
      for (const char byte : field.substr(field.size() - 8)) {
        value = value << 8 | static_cast<uint8_t>(byte);
      }
      return value;
    }
    const size_t begin = std::min(field.find_first_not_of(' '), field.size());
    for (const char digit : field.substr(begin)) {
      if (digit == ' ' || digit == '\0') break;
      if (digit < '0' || digit > '7') fail("has a field that is no number");
      value = value << 3 | static_cast<uint64_t>(digit - '0');
    }
    return value;
  }

  static std::string text_in(std::string_view field) {
    return std::string(field.substr(0, field.find('\0')));
  }
  static std::string name_in(std::string_view header) {
    const std::string name = text_in(header.substr(0, 100));
    const bool is_ustar = header.substr(257, 6) == std::string_view("ustar\0", 6);
    const std::string prefix = is_ustar ? text_in(header.substr(345, 155)) : "";
    return prefix.empty() ? name : prefix + "/" + name;
  }

  /// Lines of "LENGTH KEY=VALUE\n".
  void read_pax(std::string_view data, std::string& name, std::optional<uint64_t>& size) const {
    while (!data.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(data.data(), data.data() + data.size(), length);
      const auto digits = static_cast<size_t>(end - data.data());
      if (error != std::errc() || length <= digits + 1 || length > data.size()) {
        fail("has a PAX header that is not understood");
      }
      const std::string_view line = data.substr(digits + 1, length - digits - 2);
      data.remove_prefix(length);
      if (line.starts_with("path=")) name = line.substr(5);
      if (!line.starts_with("size=")) continue;
      uint64_t value = 0;
      if (std::from_chars(line.data() + 5, line.data() + line.size(), value).ec != std::errc()) {
        fail("has a PAX header that is not understood");
      }
      size = value;
    }
  }

  std::string path_;
  files::MemoryMap map_;
  size_t at_ = 0;
};

class TarStream final : public SampleStream {
 public:
  TarStream(const std::string& path, std::function<Sample(const TarSample&)> decode)
      : reader_(path), decode_(std::move(decode)) {}

  bool next(Sample& sample) override {
    std::optional<TarSample> files = next_files();
    if (!files) return false;
    sample = decode_(*files);
    return true;
  }
  /// Without decoding.
  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count && next_files()) ++skipped;
    return skipped;
  }

 private:
  std::optional<TarSample> next_files() {
    TarSample sample;
    sample.shard = reader_.path();
    while (true) {
      if (!ahead_) ahead_ = reader_.next();
      if (!ahead_) break;
      const size_t folder = ahead_->path.rfind('/') + 1;  // 0 if there is none
      const size_t dot = ahead_->path.find('.', folder);
      if (dot == std::string::npos || dot == folder) {  // as WebDataset: no key or no extension
        ahead_.reset();
        continue;
      }
      const std::string key = ahead_->path.substr(0, dot);
      if (!sample.files.empty() && key != sample.key) break;
      sample.key = key;
      sample.files.emplace_back(ahead_->path.substr(dot + 1), ahead_->bytes);
      ahead_.reset();
    }
    if (sample.files.empty()) return std::nullopt;
    return sample;
  }

  TarReader reader_;
  std::function<Sample(const TarSample&)> decode_;
  std::optional<TarFile> ahead_;
};

class TarShards final : public IterableDataset {
 public:
  TarShards(std::vector<std::string> paths, std::function<Sample(const TarSample&)> decode)
      : paths_(std::move(paths)), decode_(std::move(decode)) {}

  int64_t num_shards() const override { return std::ssize(paths_); }
  std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext&) const override {
    return std::make_unique<TarStream>(paths_[static_cast<size_t>(shard)], decode_);
  }

 private:
  std::vector<std::string> paths_;
  std::function<Sample(const TarSample&)> decode_;
};

/// Appends the paths that a path with ranges "{000..127}" stands for, the first range outermost.
void expand_ranges(const std::string& path, std::vector<std::string>& paths) {
  const size_t open = path.find('{');
  if (open == std::string::npos) {
    paths.push_back(path);
    return;
  }
  const size_t close = path.find('}', open), dots = path.find("..", open);
  const auto fail = [&] {
    LEVIN_FAIL("data.tar.options",
               "got the path '{}', wanted a range {{FIRST..LAST}} of ascending numbers, at most {} "
               "paths",
               printable(path), kMostTarShards);
  };
  if (close == std::string::npos || dots == std::string::npos || dots > close) fail();
  const std::string_view first = std::string_view(path).substr(open + 1, dots - open - 1);
  const std::string_view last = std::string_view(path).substr(dots + 2, close - dots - 2);
  const auto parsed = [&](std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) fail();
    return value;
  };
  const uint64_t begin = parsed(first), end = parsed(last);
  if (begin > end || end - begin >= kMostTarShards) fail();
  for (uint64_t i = begin; i <= end; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    expand_ranges(path.substr(0, open) + digits + path.substr(close + 1), paths);
    if (paths.size() > kMostTarShards) fail();
  }
}

}  // namespace

std::span<const std::byte> TarSample::bytes(std::string_view extension) const {
  std::string known;
  for (const auto& [name, content] : files) {
    if (name == extension) return content;
    known += (known.empty() ? "" : ", ") + name;
  }
  LEVIN_FAIL("data.tar.field", "{} has no file with the extension '{}', only {}", where(),
             extension, printable(known));
}

std::string TarSample::text(std::string_view extension) const {
  const auto content = bytes(extension);
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

int64_t TarSample::integer(std::string_view extension) const {
  const std::string content = text(extension);
  const size_t begin = std::min(content.find_first_not_of(" \n\r\t"), content.size());
  const size_t end = content.find_last_not_of(" \n\r\t") + 1;
  int64_t value = 0;
  const auto [stop, error] =
      std::from_chars(content.data() + begin, content.data() + std::max(begin, end), value);
  LEVIN_CHECK(error == std::errc() && begin < end && stop == content.data() + end, "data.tar.field",
              "{}: the file '{}' is no integer; correct it or read it as text", where(), extension);
  return value;
}

std::string TarSample::where() const { return shard + ": " + printable(key); }

IterableDatasetPtr tar_shards(const std::vector<std::string>& paths,
                              std::function<Sample(const TarSample& sample)> decode) {
  LEVIN_CHECK(!paths.empty() && decode, "data.tar.options",
              "got {} paths and {}, wanted at least one path and a function from files to a sample",
              paths.size(), decode ? "a function" : "no function");
  std::vector<std::string> expanded;
  for (const std::string& path : paths) expand_ranges(path, expanded);
  for (const std::string& path : expanded) {
    LEVIN_CHECK(std::filesystem::exists(path), "files.read", "cannot read {}: no such file", path);
  }
  return std::make_shared<TarShards>(std::move(expanded), std::move(decode));
}

}  // namespace levin::data
