#pragma once
// Task: what a model is asked for, in the words of transformers' pipelines.

#include <optional>
#include <string>
#include <string_view>

namespace levin::models {

enum class Task {
  kFeatureExtraction,    ///< "feature-extraction": one vector a token
  kTextGeneration,       ///< "text-generation": the next token
  kFillMask,             ///< "fill-mask"
  kTextClassification,   ///< "text-classification"
  kTokenClassification,  ///< "token-classification"
  kQuestionAnswering,    ///< "question-answering": where an answer begins and ends
  kSentenceSimilarity    ///< "sentence-similarity": one vector a text
};

std::string name_of(Task task);
/// Throws Error "models.task" for another text, naming those there are.
Task task_of(std::string_view name);

}  // namespace levin::models
