#pragma once
// Parts that the families of BERT's shape share.

#include <string>
#include <utility>
#include <vector>

#include "levin/models/bodies/encoder.h"
#include "levin/models/family.h"

namespace levin::models {

/// Reads a config with BERT's keys.
EncoderOptions bert_options(const Config& config);
/// Returns "classifier_dropout", or the body's dropout if the key is absent.
double classifier_dropout(const Config& config);
/// Scores of all words: with the embedding's matrix and a bias of that path, or where the config does
/// not tie them, with a matrix of their own.
void add_word_scores(HeadPlan& plan, const std::string& bias, const std::string& own,
                     const Config& config);
/// Old names of norms, in files that came from TensorFlow.
std::vector<std::pair<std::string, std::string>> bert_old_names();

}  // namespace levin::models
