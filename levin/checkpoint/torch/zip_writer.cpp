#include "levin/checkpoint/torch/zip_writer.h"

#include <caffe2/serialize/inline_container.h>

#include <exception>
#include <utility>

namespace levin::detail {

/// LibTorch's writer of zip files.
struct ZipWriter::Impl {
  explicit Impl(Sink sink)
      : sink(std::move(sink)),
        zip([this](const void* bytes, size_t count) { return write(bytes, count); },
            /*compute_crc32=*/true, kAlignment) {}

  // LibTorch's code in C is between this and whoever called: what went wrong is thrown by give_up.
  size_t write(const void* bytes, size_t count) noexcept {
    if (failure) return 0;
    try {
      sink(std::span(static_cast<const std::byte*>(bytes), count));
      return count;
    } catch (...) {
      failure = std::current_exception();
      return 0;
    }
  }

  [[noreturn]] void give_up() const {
    if (failure) std::rethrow_exception(failure);
    throw;
  }

  Sink sink;
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter zip;
};

ZipWriter::ZipWriter(Sink sink) : impl_(std::make_unique<Impl>(std::move(sink))) {}

ZipWriter::~ZipWriter() {
  // LibTorch's destructor would end the archive, and what that throws would end the program.
  try {
    if (!impl_->zip.finalized()) impl_->zip.writeEndOfFile();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever gave it up knows why
  }
}

void ZipWriter::add(const std::string& name, std::string_view text) {
  add(name, std::as_bytes(std::span(text.data(), text.size())));
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  try {
    impl_->zip.writeRecord(name, bytes.data(), bytes.size());
  } catch (const c10::Error&) {
    impl_->give_up();
  }
}

void ZipWriter::finish() {
  try {
    impl_->zip.writeEndOfFile();
  } catch (const c10::Error&) {
    impl_->give_up();
  }
}

}  // namespace levin::detail
