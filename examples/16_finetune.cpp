// scripts/minilm.sh && scripts/debian_sections.sh && ./16_finetune --lora-r 16
// last line: accuracy=0.71
//
// Fine-tuning by LoRA: MiniLM learns the Debian section of a package (20 classes) from its one-line
// description. The program also prints what two baselines reach on the same rows: guessing the largest
// section, and naive Bayes. Without --lora-r all weights train; --devices 2 splits the rows over two
// processes (data parallel).

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <levin/levin.h>

struct Options {
  std::string model = ".deps/minilm";
  std::string data = ".deps/debian_sections";
  std::string output = "sections";
  int64_t batch_size = 32;
  int64_t lora_r = 0;
  double lr = 0;

  void fields(levin::FieldVisitor& field) {
    field("model", model, "folder of the pretrained model");
    field("data", data, "folder of train.jsonl and test.jsonl (scripts/debian_sections.sh)");
    field("output", output, "folder to write the adapter or the model to");
    field("batch_size", batch_size, "rows per step, over all processes");
    field("lora_r", lora_r, "rank of the LoRA adapter; 0: train all weights");
    field("lr", lr, "learning rate; 0: 1e-3 for an adapter, 2e-4 for all weights");
  }
};

struct Row {
  std::set<std::string> words;
  std::string label;
};

std::vector<Row> rows_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    Row row{.words = {}, .label = json["label"]};
    std::string word;
    for (const char c : json["text"].get<std::string>() + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        row.words.insert(std::exchange(word, ""));
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Of rows that were not seen, the parts that a guess at the largest label and multinomial naive Bayes
/// with one count added to each word get right.
std::pair<double, double> baselines(const std::vector<Row>& seen, const std::vector<Row>& unseen) {
  std::map<std::string, double> rows, words;
  std::map<std::string, std::map<std::string, double>> counts;
  std::set<std::string> known;
  for (const Row& row : seen) {
    rows[row.label] += 1;
    for (const std::string& word : row.words) counts[row.label][word] += 1;
    words[row.label] += static_cast<double>(row.words.size());
    known.insert(row.words.begin(), row.words.end());
  }
  const auto most =
      std::ranges::max_element(rows, {}, [](const auto& entry) { return entry.second; });
  double guessed = 0, right = 0;
  for (const Row& row : unseen) {
    std::pair<double, std::string> best{-INFINITY, ""};
    for (const auto& [label, count] : rows) {
      double score = std::log(count);
      for (const std::string& word : row.words) {
        if (!known.contains(word)) continue;
        const auto found = counts[label].find(word);
        const double times = found == counts[label].end() ? 0 : found->second;
        score += std::log((times + 1) / (words[label] + static_cast<double>(known.size())));
      }
      best = std::max(best, {score, label});
    }
    guessed += row.label == most->first ? 1 : 0;
    right += row.label == best.second ? 1 : 0;
  }
  const auto count = static_cast<double>(unseen.size());
  return {guessed / count, right / count};
}

int main(int argc, char** argv) {
  Options sections;
  levin::TrainerOptions options = {.max_epochs = 3, .seed = 1};
  levin::parse_into(argc, argv, sections, options);
  levin::Trainer trainer(options);
  const std::string train = sections.data + "/train.jsonl", test = sections.data + "/test.jsonl";
  const auto tokenizer = levin::text::Tokenizer::from_pretrained(sections.model);
  const int64_t share = sections.batch_size / trainer.accelerator().num_processes();
  const auto data = levin::text::rows(
      train, tokenizer, {.validation_file = test, .max_length = 64, .batch_size = share});
  data->prepare_data();
  const auto net = levin::models::from_pretrained(
      sections.model, {.task = "text-classification", .label_names = data->label_names()});
  const bool adapts = sections.lora_r > 0;
  if (adapts)
    levin::lora::add(net, {.r = sections.lora_r,
                           .lora_alpha = 2.0 * sections.lora_r,
                           .target_modules = {"all-linear"}});
  const double lr = sections.lr > 0 ? sections.lr : adapts ? 1e-3 : 2e-4;
  trainer.fit(levin::models::fine_tune(net, {.lr = lr}), data);
  const levin::WholeScope whole(*net);
  if (!trainer.accelerator().is_main_process()) return 0;
  net->save_pretrained(sections.output);
  const auto [majority, bayes] = baselines(rows_of(train), rows_of(test));
  std::printf("majority=%.4f naive_bayes=%.4f\naccuracy=%.4f\n", majority, bayes,
              trainer.callback_metrics().at("val_accuracy"));
}
