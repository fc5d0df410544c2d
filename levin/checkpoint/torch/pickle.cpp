#include "levin/checkpoint/torch/pickle.h"

#include <algorithm>
#include <array>
#include <map>

#include "levin/checkpoint/torch/pickle_bytes_impl.h"
#include "levin/checkpoint/torch/pickle_op_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;
using Op = PickleOp;

constexpr int64_t kNewestProtocol = 5;
// A file of torch.save has at least 3.7 bytes for each value, apart from the shared ones.
constexpr size_t kLeastBytes = 3;
constexpr size_t kFreePickled = size_t{1} << 20;
constexpr size_t kMostPickled = size_t{1} << 24;
constexpr size_t kLongestName = 255;
constexpr size_t kSmallIntegers = 256;

}  // namespace

bool PickleValue::is_object_of(std::string_view global) const {
  return kind == Kind::kObject && of != nullptr && of->kind == Kind::kGlobal && of->text == global;
}

const PickleValue* PickleValue::find(std::string_view key) const {
  const PickleValue* place = kind == Kind::kObject && entries.empty() ? state : this;
  if (place == nullptr) return nullptr;
  // The last one: what Python's dict would hold.
  for (auto entry = place->entries.rbegin(); entry != place->entries.rend(); ++entry) {
    if (entry->first->kind == Kind::kText && entry->first->text == key) return entry->second;
  }
  return nullptr;
}

/// Python's pickle machine without its calls.
class Pickle::Machine : PickleBytes {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view source,
          std::deque<PickleValue>& values, std::deque<std::string>& names)
      : PickleBytes(bytes, source),
        values_(values),
        names_(names),
        most_(std::min(kMostPickled, kFreePickled + bytes.size() / kLeastBytes)) {}

  const PickleValue* run() {
    while (true) {
      const auto op = static_cast<Op>(number<uint8_t>());
      if (op == Op::kStop) break;
      if (!scalar(op) && !text(op) && !collection(op) && !memory(op) && !object(op)) {
        fail(fmt::format("the unknown operation 0x{:02x}", static_cast<uint8_t>(op)));
      }
    }
    return pop();
  }
  using PickleBytes::place;

 private:
  [[noreturn]] void fail_too_many() const {
    fail(fmt::format("more values than torch.save writes into {} bytes", size()));
  }

  PickleValue& new_value(Kind kind) {
    if (values_.size() >= most_) fail_too_many();
    PickleValue& value = values_.emplace_back();
    value.kind = kind;
    return value;
  }
  void push(PickleValue* value) {
    if (stack_.size() >= kMostPickled) fail_too_many();
    stack_.push_back(value);
  }
  PickleValue& make(Kind kind) {
    PickleValue& value = new_value(kind);
    push(&value);
    return value;
  }
  /// A value that nothing changes, made when it comes for the first time.
  bool share(PickleValue*& shared, Kind kind, int64_t number = 0) {
    if (shared == nullptr) {
      shared = &new_value(kind);
      shared->boolean = kind == Kind::kBool && number != 0;
      shared->integer = kind == Kind::kInteger ? number : 0;
    }
    return push(shared), true;
  }
  PickleValue* pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) {
      fail("a value is missing");
    }
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& last() {
    if (stack_.empty()) fail("a value is missing");
    return *stack_.back();
  }
  /// Returns the last value, to which something is added: it has the kind, or is an object of a
  /// class of that kind.
  PickleValue& last(Kind kind) {
    PickleValue& value = last();
    if (value.kind != kind && value.kind != Kind::kObject)
      fail("items for an object that takes none");
    return value;
  }
  /// Returns all values since the last mark.
  std::vector<const PickleValue*> marked() {
    if (marks_.empty()) fail("a mark is missing");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<const PickleValue*> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  void integer(int64_t value) {
    if (value >= 0 && value < std::ssize(integers_)) {
      share(integers_[static_cast<size_t>(value)], Kind::kInteger, value);
    } else {
      make(Kind::kInteger).integer = value;
    }
  }

  bool scalar(Op op) {
    switch (op) {
      case Op::kNone:
        return share(none_, Kind::kNone);
      case Op::kNewTrue:
        return share(true_, Kind::kBool, 1);
      case Op::kNewFalse:
        return share(false_, Kind::kBool);
      case Op::kBinInt:
        return integer(number<int32_t>()), true;
      case Op::kBinInt1:
        return integer(number<uint8_t>()), true;
      case Op::kBinInt2:
        return integer(number<uint16_t>()), true;
      case Op::kLong1:
        return integer(long_integer()), true;
      case Op::kBinFloat:
        return make(Kind::kNumber).number = big_endian(), true;
      default:
        return false;
    }
  }

  bool text(Op op) {
    switch (op) {
      case Op::kShortBinUnicode:
      case Op::kShortBinString:
        return make_text(Kind::kText, number<uint8_t>());
      case Op::kBinUnicode:
      case Op::kBinString:
        return make_text(Kind::kText, number<uint32_t>());
      case Op::kBinUnicode8:
        return make_text(Kind::kText, number<uint64_t>());
      case Op::kShortBinBytes:
        return make_text(Kind::kBytes, number<uint8_t>());
      case Op::kBinBytes:
        return make_text(Kind::kBytes, number<uint32_t>());
      case Op::kBinBytes8:
        return make_text(Kind::kBytes, number<uint64_t>());
      default:
        return false;
    }
  }
  bool make_text(Kind kind, uint64_t length) {
    const std::string_view taken = letters(length);
    make(kind).text = taken;
    return true;
  }

  bool collection(Op op) {
    switch (op) {
      case Op::kMark:
        if (marks_.size() >= kFreePickled) fail_too_many();
        return marks_.push_back(stack_.size()), true;
      case Op::kEmptyTuple:
        return share(empty_tuple_, Kind::kTuple);
      case Op::kTuple1:
      case Op::kTuple2:
      case Op::kTuple3:
        return tuple_of(static_cast<size_t>(op) - static_cast<size_t>(Op::kTuple1) + 1);
      case Op::kTuple:
        return list_of(Kind::kTuple);
      case Op::kList:
      case Op::kFrozenSet:
        return list_of(Kind::kList);
      case Op::kEmptyList:
      case Op::kEmptySet:
        return make(Kind::kList), true;
      case Op::kEmptyDict:
        return make(Kind::kDict), true;
      case Op::kDict: {
        const auto values = marked();
        make(Kind::kDict);
        return set_items(values);
      }
      case Op::kAppend: {
        const PickleValue* value = pop();
        return last(Kind::kList).items.push_back(value), true;
      }
      case Op::kAppends:
      case Op::kAddItems: {
        const auto values = marked();
        auto& items = last(Kind::kList).items;
        return items.insert(items.end(), values.begin(), values.end()), true;
      }
      case Op::kSetItem: {
        const PickleValue* value = pop();
        const PickleValue* key = pop();
        return set_items({key, value});
      }
      case Op::kSetItems:
        return set_items(marked());
      default:
        return false;
    }
  }

  bool tuple_of(size_t count) {
    std::vector<const PickleValue*> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    make(Kind::kTuple).items = std::move(items);
    return true;
  }
  bool list_of(Kind kind) {
    auto items = marked();
    make(kind).items = std::move(items);
    return true;
  }
  bool set_items(const std::vector<const PickleValue*>& values) {
    if (values.size() % 2 != 0) fail("a key without a value");
    auto& entries = last(Kind::kDict).entries;
    for (size_t i = 0; i < values.size(); i += 2) entries.emplace_back(values[i], values[i + 1]);
    return true;
  }

  bool memory(Op op) {
    switch (op) {
      case Op::kProto:
        if (number<uint8_t>() > kNewestProtocol) fail("a protocol that is newer than 5");
        return true;
      case Op::kFrame:
        return number<uint64_t>(), true;
      case Op::kPop:
        return pop(), true;
      case Op::kPopMark:
        return marked(), true;
      case Op::kDup:
        return push(&last()), true;
      case Op::kBinPut:
        return remember(number<uint8_t>());
      case Op::kLongBinPut:
        return remember(number<uint32_t>());
      case Op::kMemoize:
        return remember(num_remembered_);
      case Op::kBinGet:
        return recall(number<uint8_t>());
      case Op::kLongBinGet:
        return recall(number<uint32_t>());
      default:
        return false;
    }
  }
  /// Picklers count up.
  bool remember(size_t number) {
    if (number >= most_) fail_too_many();
    if (number >= memo_.size()) memo_.resize(number + 1, nullptr);
    if (memo_[number] == nullptr) ++num_remembered_;
    memo_[number] = &last();
    return true;
  }
  bool recall(size_t number) {
    if (number >= memo_.size() || memo_[number] == nullptr)
      fail("a memo value that was not stored");
    return push(memo_[number]), true;
  }

  bool object(Op op) {
    switch (op) {
      case Op::kGlobal: {
        const std::string_view module = line(), name = line();
        return global(module, name);
      }
      case Op::kStackGlobal: {
        const PickleValue* name = pop();
        const PickleValue* module = pop();
        return global(module->text, name->text);
      }
      case Op::kNewObjEx: {
        pop();  // keyword arguments
        return object_of(pop());
      }
      case Op::kReduce:
      case Op::kNewObj:
        return object_of(pop());
      case Op::kBuild: {
        const PickleValue* state = pop();
        if (!last().is(Kind::kObject)) fail("a state for an object that takes none");
        return last().state = state, true;
      }
      case Op::kBinPersid: {
        const PickleValue* of = pop();
        return make(Kind::kPersistent).of = of, true;
      }
      default:
        return false;
    }
  }
  bool global(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kLongestName) fail("the name of a class is too long");
    PickleValue*& found = globals_[fmt::format("{} {}", module, name)];
    if (found == nullptr) {
      found = &new_value(Kind::kGlobal);
      found->text = names_.emplace_back(fmt::format("{} {}", module, name));
    }
    return push(found), true;
  }
  bool object_of(const PickleValue* arguments) {
    const PickleValue* of = pop();
    PickleValue& object = make(Kind::kObject);
    object.of = of;
    object.arguments = arguments;
    return true;
  }

  std::deque<PickleValue>& values_;
  std::deque<std::string>& names_;
  size_t most_;  // values
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleValue*> memo_;
  size_t num_remembered_ = 0;
  std::map<std::string, PickleValue*, std::less<>> globals_;
  std::array<PickleValue*, kSmallIntegers> integers_ = {};
  PickleValue *none_ = nullptr, *true_ = nullptr, *false_ = nullptr, *empty_tuple_ = nullptr;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::string_view source) {
  Machine machine(bytes, source, values_, names_);
  top_ = machine.run();
  size_ = machine.place();
}

}  // namespace levin::detail
