#include <nlohmann/json.hpp>

#include <limits>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/safetensors/header_impl.h"

namespace levin::files::detail {
namespace {

/// Receives the header's JSON event by event, the interface nlohmann's sax_parse asks for. The
/// grammar is in place_: a header holds tensors and one map of texts, a tensor three fields.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  Header header;

  bool null() {
    // Hugging Face's reader takes "__metadata__": null for an absent one.
    if (place_ != Place::kTop || key_ != "__metadata__") unexpected("null");
    return true;
  }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(int64_t) { unexpected("a negative number"); }
  bool number_float(double, const std::string& text) { unexpected("the number " + text); }
  bool binary(std::vector<uint8_t>&) { unexpected("binary data"); }

  bool number_unsigned(uint64_t number) {
    if (place_ == Place::kShape) {
      constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
      if (number > kLargest) unexpected("the size " + std::to_string(number));
      tensor().shape.push_back(static_cast<int64_t>(number));
    } else if (place_ == Place::kOffsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? tensor().begin : tensor().end) = number;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::kMetadata) {
      header.metadata[key_] = text;
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      tensor().dtype = text;
    } else {
      unexpected("a text");
    }
    return true;
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTop:
        keys_.clear();
        place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
        if (place_ == Place::kTensor) header.entries.push_back({.name = key_});
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& name) {
    auto& seen = place_ == Place::kTop ? names_ : keys_;
    key_ = name;
    if (!seen.insert(name).second) fail("'" + name + "' stands twice in " + where());
    const bool known = name == "dtype" || name == "shape" || name == "data_offsets";
    if (place_ == Place::kTensor && !known) fail("unknown field '" + name + "' in " + where());
    return true;
  }

  bool end_object() {
    if (place_ == Place::kTensor && keys_.size() != 3) {
      fail(where() + " lacks one of dtype, shape and data_offsets");
    }
    place_ = Place::kTop;
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      num_offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      fail("data_offsets of " + where() + " are not two numbers");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    // The position counts the bytes read, the one at fault included.
    fail("invalid JSON from byte " + std::to_string(8 + position - 1) + " on");
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  HeaderEntry& tensor() { return header.entries.back(); }

  std::string where() const {
    if (place_ == Place::kMetadata) return "__metadata__";
    if (place_ == Place::kStart || place_ == Place::kTop) return "the header";
    return "tensor '" + header.entries.back().name + "'";
  }

  [[noreturn]] void fail(const std::string& what) const {
    LEVIN_FAIL("files.safetensors", "{}: {}; the file is damaged or not a safetensors file", file_,
               printable(what));
  }

  [[noreturn]] void unexpected(const std::string& what) const {
    fail("got " + what + " as '" + key_ + "' in " + where());
  }

  const std::string& file_;
  Place place_ = Place::kStart;
  std::string key_;
  int num_offsets_ = 0;
  std::unordered_set<std::string> names_;  // names of the header
  std::unordered_set<std::string> keys_;   // keys of the tensor or of the metadata
};

}  // namespace

Header parse_header(std::string_view json, const std::string& file) {
  HeaderReader reader(file);
  nlohmann::json::sax_parse(json, &reader);
  return std::move(reader.header);
}

}  // namespace levin::files::detail
