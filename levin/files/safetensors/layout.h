#pragma once
// SafetensorsLayout: where the tensors of a safetensors file lie, before there is any file.
// It follows from names, dtypes and shapes, so that several processes can write one file.
//
//   const SafetensorsLayout layout({{"weight", "F32", {2, 3}}}, {{"format", "pt"}}, "the file");
//   create_file(path, layout.size());
//   file.write_at(0, std::as_bytes(std::span(layout.header())));
//   file.write_at(layout.places()[0].begin, bytes_of_weight);

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::files {

using TensorMetadata = std::map<std::string, std::string>;

/// See TensorEntry for what the fields may be.
struct TensorDescription {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

class LEVIN_API SafetensorsLayout {
 public:
  struct Place {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t begin = 0;  ///< byte of the file
    int64_t end = 0;
  };

  /// Orders the tensors as Hugging Face's library does: wide dtypes first, then by name. Throws
  /// Error "files.safetensors" that names the file.
  SafetensorsLayout(const std::vector<TensorDescription>& tensors, const TensorMetadata& metadata,
                    const std::string& file);
  /// Reads the layout from a file's first bytes. Throws Error "files.safetensors".
  static SafetensorsLayout of_header(std::string_view header, const std::string& file);

  /// The file's first bytes: the length of the JSON, and the JSON.
  const std::string& header() const { return header_; }
  /// In the order of the file, each beginning where the one before ends.
  const std::vector<Place>& places() const { return places_; }
  int64_t size() const { return size_; }

 private:
  SafetensorsLayout() = default;

  std::string header_;
  std::vector<Place> places_;
  int64_t size_ = 0;
};

}  // namespace levin::files
