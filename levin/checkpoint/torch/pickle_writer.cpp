#include "levin/checkpoint/torch/pickle_writer.h"

#include <utility>

namespace levin::detail {
namespace {

// Names and meanings are those of Python's pickletools.
constexpr char kProto = '\x80';
constexpr char kGlobal = 'c';
constexpr char kBinUnicode = 'X';
constexpr char kBinInt = 'J';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kLong1 = '\x8a';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kMark = '(';
constexpr char kTuple = 't';
constexpr char kEmptyTuple = ')';
constexpr char kEmptyDict = '}';
constexpr char kReduce = 'R';
constexpr char kBinPersId = 'Q';
constexpr char kSetItems = 'u';
constexpr char kStop = '.';

}  // namespace

PickleWriter::PickleWriter() {
  add(kProto);
  add('\x02');
}

void PickleWriter::add_number(uint64_t value, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) add(static_cast<char>((value >> (8 * i)) & 0xff));
}

PickleWriter& PickleWriter::global(std::string_view module, std::string_view name) {
  add(kGlobal);
  bytes_.append(module).append("\n").append(name).append("\n");
  return *this;
}

PickleWriter& PickleWriter::text(std::string_view utf8) {
  add(kBinUnicode);
  add_number(utf8.size(), 4);
  bytes_.append(utf8);
  return *this;
}

// The shortest form that holds it, as Python's.
PickleWriter& PickleWriter::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (bits <= 0xff) {
    add(kBinInt1);
    add_number(bits, 1);
  } else if (bits <= 0xffff) {
    add(kBinInt2);
    add_number(bits, 2);
  } else if (std::in_range<int32_t>(value)) {
    add(kBinInt);
    add_number(bits, 4);
  } else {
    add(kLong1);
    add_number(sizeof bits, 1);
    add_number(bits, sizeof bits);
  }
  return *this;
}

PickleWriter& PickleWriter::integers(std::span<const int64_t> values) {
  if (values.empty()) return empty_tuple();
  mark();
  for (const int64_t value : values) integer(value);
  return tuple();
}

PickleWriter& PickleWriter::boolean(bool value) {
  add(value ? kNewTrue : kNewFalse);
  return *this;
}

PickleWriter& PickleWriter::mark() {
  add(kMark);
  return *this;
}

PickleWriter& PickleWriter::tuple() {
  add(kTuple);
  return *this;
}

PickleWriter& PickleWriter::empty_tuple() {
  add(kEmptyTuple);
  return *this;
}

PickleWriter& PickleWriter::empty_dict() {
  add(kEmptyDict);
  return *this;
}

PickleWriter& PickleWriter::call() {
  add(kReduce);
  return *this;
}

PickleWriter& PickleWriter::persistent() {
  add(kBinPersId);
  return *this;
}

PickleWriter& PickleWriter::entries() {
  add(kSetItems);
  return *this;
}

std::string PickleWriter::end() && {
  add(kStop);
  return std::move(bytes_);
}

}  // namespace levin::detail
