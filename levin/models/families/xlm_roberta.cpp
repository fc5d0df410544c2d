// XLM-RoBERTa (Conneau et al. 2019): RoBERTa of a hundred languages.

#include "levin/models/families/bert_kin.h"
#include "levin/models/families/families.h"

namespace levin::models {

Family xlm_roberta() { return roberta_family("xlm-roberta", "XLMRoberta"); }

}  // namespace levin::models
