#pragma once
// Names of transformers' tokenizer classes, and which of them each model_type has. The tables are compared with
// transformers by tests/oracle/tokenizer_classes.py. Not for users.
//
//   model_type("qwen3").tokenizer_class;      // "Qwen2Tokenizer"

#include <string>
#include <string_view>

namespace levin::text {

struct ModelType {
  std::string tokenizer_class;  ///< "" if it is a class that levin does not make
  bool is_backend = false;      ///< TokenizersBackend, whatever a folder says
  bool replaces = false;        ///< its class stands, and not the one that a folder names
};

ModelType model_type(std::string_view name);

/// Returns the class that this name is an alias of, or that is made alike.
std::string class_by_alias(std::string_view name);

/// Returns whether transformers has a class of this name that does not take tokenizer.json
/// unchanged.
bool makes_parts_of_its_own(std::string_view name);

}  // namespace levin::text
