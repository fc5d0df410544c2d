#include "levin/models/heads/task.h"

#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::models {
namespace {

struct Named {
  Task task;
  const char* name;
};
constexpr Named kTasks[] = {{Task::kFeatureExtraction, "feature-extraction"},
                            {Task::kTextGeneration, "text-generation"},
                            {Task::kFillMask, "fill-mask"},
                            {Task::kTextClassification, "text-classification"},
                            {Task::kTokenClassification, "token-classification"},
                            {Task::kQuestionAnswering, "question-answering"},
                            {Task::kSentenceSimilarity, "sentence-similarity"}};

}  // namespace

std::string name_of(Task task) {
  for (const Named& each : kTasks) {
    if (each.task == task) return each.name;
  }
  return "";
}

Task task_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Named& each : kTasks) {
    if (each.name == name) return each.task;
    names.emplace_back(each.name);
  }
  const auto near = nearest(name, names);
  LEVIN_FAIL("models.task", "got task '{}', wanted one of {}{}", printable(name), to_text(names),
             near ? "; nearest is " + *near : "");
}

}  // namespace levin::models
