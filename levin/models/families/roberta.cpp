// RoBERTa (Liu et al. 2019).

#include "levin/models/families/bert_kin.h"
#include "levin/models/families/families.h"

namespace levin::models {

Family roberta() { return roberta_family("roberta", "Roberta"); }

}  // namespace levin::models
