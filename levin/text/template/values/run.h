#pragma once
// Run: one rendering of a template, with the values that it made and its limits. A template is
// foreign code, so its steps, depth, output and memory are counted. Not for users.
//
//   Run run(limits);
//   run.step();                     // Error "text.template.steps" where there were too many

#include <memory>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/text/template/values/value.h"
#include "levin/text/tokenizer.h"

namespace levin::text::jinja {

class Run {
 public:
  explicit Run(const TemplateLimits& limits) : limits_(limits) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The template's line, for errors.
  int line = 0;

  /// Throws Error "text.template" with the line.
  [[noreturn]] void fail(const std::string& problem) const;
  /// "line 3 of the chat template".
  std::string place() const;

  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  /// Work on so many bytes.
  void work(size_t bytes) { step(1 + static_cast<int64_t>(bytes / 64)); }

  /// Counts the run one level deeper as long as it lives.
  class Deeper {
   public:
    explicit Deeper(Run& run) : run_(run) {
      if (++run.depth_ > run.limits_.max_depth) {
        --run.depth_;
        run.fail_depth(run.limits_.max_depth);
      }
    }
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Run& run_;
  };

  /// Text that is put out, or into a buffer that becomes a value.
  void put_out(std::string& buffer, std::string_view text) {
    buffered_ += text.size();
    if (buffered_ > static_cast<uint64_t>(limits_.max_output_bytes)) {
      fail_output();
    }
    work(text.size());
    buffer += text;
  }
  void drop_buffer(const std::string& buffer) { buffered_ -= buffer.size(); }

  Value text(std::string bytes, bool safe = false);
  /// Throws where it would be deeper than values may be.
  List* list(std::vector<Value> items, List::Kind kind = List::Kind::kList,
             const char* name = nullptr);
  List* tuple(std::vector<Value> items) { return list(std::move(items), List::Kind::kTuple); }
  Dict* dict() { return make<Dict>(); }
  /// Throws where the key cannot be one.
  void put(Dict& dict, Value key, Value value);
  Value missing(std::string why) {
    return Value(static_cast<const Missing*>(make<Missing>(std::move(why))));
  }

  template <class Made, class... Arguments>
  Made* make(Arguments&&... arguments) {
    take(sizeof(Made) + 16);
    auto object = std::make_unique<Made>(std::forward<Arguments>(arguments)...);
    Made* made = object.get();
    objects_.push_back(std::move(object));
    return made;
  }
  /// Call it before so much memory is used.
  void take(size_t bytes) {
    memory_ += bytes;
    if (memory_ > static_cast<uint64_t>(limits_.max_memory_bytes)) {
      memory_ -= bytes;
      fail_memory();
    }
  }
  void free(size_t bytes) { memory_ -= bytes; }

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth(int64_t limit) const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_memory() const;
  void check_depth(int64_t depth) const;

  TemplateLimits limits_;
  int64_t steps_ = 0;
  int64_t depth_ = 0;
  uint64_t buffered_ = 0;
  uint64_t memory_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace levin::text::jinja
