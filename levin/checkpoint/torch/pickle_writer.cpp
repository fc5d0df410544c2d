#include "levin/checkpoint/torch/pickle_writer.h"

#include <utility>

#include "levin/checkpoint/torch/pickle_op_impl.h"

namespace levin::detail {

PickleWriter::PickleWriter() {
  constexpr uint64_t kProtocol = 2;
  add(Op::kProto).add_number(kProtocol, 1);
}

PickleWriter& PickleWriter::add_number(uint64_t value, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) bytes_ += static_cast<char>((value >> (8 * i)) & 0xff);
  return *this;
}

PickleWriter& PickleWriter::global(std::string_view module, std::string_view name) {
  add(Op::kGlobal);
  bytes_.append(module).append("\n").append(name).append("\n");
  return *this;
}

PickleWriter& PickleWriter::text(std::string_view utf8) {
  add(Op::kBinUnicode).add_number(utf8.size(), 4);
  bytes_.append(utf8);
  return *this;
}

// The shortest form that holds it, as Python's.
PickleWriter& PickleWriter::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (bits <= 0xff) return add(Op::kBinInt1).add_number(bits, 1);
  if (bits <= 0xffff) return add(Op::kBinInt2).add_number(bits, 2);
  if (std::in_range<int32_t>(value)) return add(Op::kBinInt).add_number(bits, 4);
  return add(Op::kLong1).add_number(sizeof bits, 1).add_number(bits, sizeof bits);
}

PickleWriter& PickleWriter::integers(std::span<const int64_t> values) {
  if (values.empty()) return empty_tuple();
  mark();
  for (const int64_t value : values) integer(value);
  return tuple();
}

PickleWriter& PickleWriter::boolean(bool value) {
  return add(value ? Op::kNewTrue : Op::kNewFalse);
}
PickleWriter& PickleWriter::mark() { return add(Op::kMark); }
PickleWriter& PickleWriter::tuple() { return add(Op::kTuple); }
PickleWriter& PickleWriter::empty_tuple() { return add(Op::kEmptyTuple); }
PickleWriter& PickleWriter::empty_dict() { return add(Op::kEmptyDict); }
PickleWriter& PickleWriter::call() { return add(Op::kReduce); }
PickleWriter& PickleWriter::persistent() { return add(Op::kBinPersid); }
PickleWriter& PickleWriter::entries() { return add(Op::kSetItems); }

std::string PickleWriter::end() && {
  add(Op::kStop);
  return std::move(bytes_);
}

}  // namespace levin::detail
