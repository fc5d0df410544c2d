#include "levin/trainer/predictions/row_file.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <span>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/files/safetensors_dtype.h"
#include "levin/files/writing/output.h"

namespace levin::detail {
namespace {

/// Bytes of a header, which is written again when the number of rows is known.
constexpr size_t kHeaderBytes = 256;
constexpr int64_t kMostDims = 8;  ///< their digits fit into the header

constexpr std::array<std::pair<at::ScalarType, const char*>, 11> kNpyTypes = {{
    {at::kFloat, "<f4"},
    {at::kDouble, "<f8"},
    {at::kHalf, "<f2"},
    {at::kLong, "<i8"},
    {at::kInt, "<i4"},
    {at::kShort, "<i2"},
    {at::kChar, "|i1"},
    {at::kByte, "|u1"},
    {at::kBool, "|b1"},
    {at::kComplexFloat, "<c8"},
    {at::kComplexDouble, "<c16"},
}};

const char* npy_type(at::ScalarType dtype) {
  for (const auto& [known, name] : kNpyTypes) {
    if (known == dtype) return name;
  }
  return nullptr;
}

std::span<const std::byte> bytes_of(const at::Tensor& rows) {
  return {static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()};
}

/// "2, 3, " with "{}, " for each.
std::string listed(int64_t rows, const std::vector<int64_t>& sizes, std::string_view between) {
  std::string text = std::to_string(rows);
  for (const int64_t size : sizes) text += fmt::format("{}{}", between, size);
  return text;
}

}  // namespace

int64_t RowKind::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

int64_t RowKind::bytes() const {
  return elements() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string RowKind::text() const {
  return fmt::format("{} [{}]", c10::toString(dtype), fmt::join(sizes, ", "));
}

void check_kind(RowFormat format, const RowKind& kind) {
  const bool is_number =
      c10::isFloatingType(kind.dtype) || c10::isIntegralType(kind.dtype, /*includeBool=*/true);
  const bool has = format == RowFormat::kNpy   ? npy_type(kind.dtype) != nullptr
                   : format == RowFormat::kCsv ? is_number
                                               : files::safetensors_dtype(kind.dtype).has_value();
  LEVIN_CHECK(has && std::ssize(kind.sizes) <= kMostDims, "trainer.prediction_writer",
              "got predictions of {}, which the format cannot hold; return another dtype from "
              "predict_step, at most {} dims, or choose another format",
              kind.text(), kMostDims + 1);
}

RowFile::RowFile(const std::filesystem::path& path, RowFormat format, RowKind kind)
    : staged_(path), format_(format), kind_(std::move(kind)), file_(staged_.path()) {
  check_kind(format_, kind_);
  file_.write(header());
}

std::string RowFile::header() const {
  if (format_ == RowFormat::kCsv) {
    const int64_t columns = kind_.elements();
    if (columns == 1) return "prediction\n";
    std::string line;
    for (int64_t i = 0; i < columns; ++i) line += fmt::format("{}prediction_{}", i ? "," : "", i);
    return line + "\n";
  }
  if (format_ == RowFormat::kNpy) {  // numpy.lib.format
    std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                   npy_type(kind_.dtype), listed(rows_, kind_.sizes, ", "));
    text.resize(kHeaderBytes - 10, ' ');
    text.back() = '\n';
    const auto length = static_cast<unsigned>(text.size());
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 0xff) +
           static_cast<char>(length >> 8) + text;
  }
  // A safetensors file begins with the length of its JSON, which may end in spaces.
  std::string text = fmt::format(
      R"({{"__metadata__":{{"format":"pt"}},"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
      kPredictions, *files::safetensors_dtype(kind_.dtype), listed(rows_, kind_.sizes, ","),
      rows_ * kind_.bytes());
  text.resize(kHeaderBytes - 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

void RowFile::append(const at::Tensor& rows) {
  rows_ += rows.size(0);
  if (format_ == RowFormat::kCsv) return append_text(rows);
  file_.write(bytes_of(rows.contiguous()));
}

void RowFile::append_text(const at::Tensor& rows) {
  const int64_t columns = kind_.elements();
  const auto write = [&](const at::Tensor& values, const auto* data) {
    std::string text;
    for (int64_t i = 0; i < values.numel(); ++i) {
      fmt::format_to(std::back_inserter(text), "{}{}", data[i],
                     (i + 1) % columns == 0 ? "\n" : ",");
    }
    file_.write(text);
  };
  if (!c10::isFloatingType(kind_.dtype)) {
    const at::Tensor values = rows.to(at::kLong).contiguous();
    return write(values, values.const_data_ptr<int64_t>());
  }
  if (kind_.dtype == at::kDouble) {
    const at::Tensor values = rows.contiguous();
    return write(values, values.const_data_ptr<double>());
  }
  const at::Tensor values = rows.to(at::kFloat).contiguous();
  write(values, values.const_data_ptr<float>());
}

void RowFile::commit() {
  file_.close();
  if (format_ != RowFormat::kCsv) {
    const std::string text = header();
    posix::Descriptor file = files::open_own(staged_.path(), O_WRONLY);
    const bool is_written =
        file && posix::write_all(file, std::as_bytes(std::span(text))) == text.size();
    LEVIN_CHECK(is_written && file.close(), "files.write", "could not write {}: {}",
                staged_.path().string(), posix::reason(errno));
    posix::sync_path(staged_.path());
  }
  staged_.commit();
}

}  // namespace levin::detail
