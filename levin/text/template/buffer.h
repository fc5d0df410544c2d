#pragma once
// Buffer: collects an interpreter's output for the length of a block, and restores the scope at the
// block's end. Not for users.
//
//   Buffer buffer(*this);
//   execute(block);        // into buffer.text

#include <string>

#include "levin/text/template/interpreter.h"

namespace levin::text::jinja {

/// Directs output into itself as long as it lives.
struct Interpreter::Buffer {
  explicit Buffer(Interpreter& interpreter) : interpreter(interpreter), before(interpreter.out_) {
    interpreter.out_ = &text;
  }
  ~Buffer() {
    interpreter.out_ = before;
    interpreter.run_.drop_buffer(text);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Interpreter& interpreter;
  std::string* before;
  std::string text;
};

/// Puts back what scope the interpreter works in.
struct ScopeKeeper {
  explicit ScopeKeeper(Scope*& scope) : scope(scope), before(scope) {}
  ~ScopeKeeper() { scope = before; }
  ScopeKeeper(const ScopeKeeper&) = delete;
  ScopeKeeper& operator=(const ScopeKeeper&) = delete;
  Scope*& scope;
  Scope* before;
};

}  // namespace levin::text::jinja
