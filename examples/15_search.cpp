// ./15_search --model .deps/minilm --query "make a film out of pictures"
// last line: best=0.45
//
// Semantic search: finds Debian packages by meaning, not by words. A model of sentence-transformers turns
// the one-line description of each package, and the query, into vectors (embeddings); near vectors have
// a similar meaning. scripts/minilm.sh fetches the model. By default the program searches the packages that
// are installed here. To search all 60,000 of Debian, run
//
//   apt-cache dumpavail > packages && ./15_search --packages packages --index packages.safetensors
//
// This takes some minutes once: the index keeps the vectors for the next query.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <levin/levin.h>

struct Options {
  std::string model = ".deps/minilm";
  std::string packages = "/var/lib/dpkg/status";
  std::string index;
  std::string query = "make a film out of pictures";
  int64_t count = 5;

  void fields(levin::FieldVisitor& field) {
    field("model", model, "folder of the model, as sentence-transformers saves it");
    field("packages", packages, "list of packages, as dpkg or `apt-cache dumpavail` writes it");
    field("index", index, "file to keep the embeddings in; empty: none");
    field("query", query, "text to search for");
    field("count", count, "number of packages to show");
  }
};

struct Packages {
  std::vector<std::string> names, descriptions;

  explicit Packages(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path + "; name a list by --packages");
    std::string name;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Package: ")) name = line.substr(9);
      if (!line.starts_with("Description: ")) continue;
      names.push_back(name);
      descriptions.push_back(line.substr(13));
    }
  }
};

/// Of the index where that has them, else computed and kept there.
torch::Tensor vectors_of(const Packages& packages, levin::models::SentenceEncoder& encoder,
                         const std::string& index) {
  const auto count = static_cast<int64_t>(packages.names.size());
  if (!index.empty() && std::filesystem::exists(index)) {
    const auto kept = levin::load_weights(index).tensor("vectors");
    if (kept.size(0) == count) return kept;
    std::fprintf(stderr, "%s was made from other packages; it is made again\n", index.c_str());
  }
  const auto vectors =
      encoder.encode(packages.descriptions, {.progress = [&](int64_t done) {
                       std::fprintf(stderr, "\r%ld of %ld packages", long(done), long(count));
                     }});
  std::fprintf(stderr, "\n");
  levin::State state;
  if (!index.empty()) levin::save_weights(index, state.set("vectors", vectors));
  return vectors;
}

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  auto encoder = levin::models::SentenceEncoder::from_pretrained(options.model);
  const Packages packages(options.packages);
  const auto vectors = vectors_of(packages, encoder, options.index);

  const auto question = encoder.encode(std::vector{options.query});
  const auto likeness = vectors.mv(question[0]);  // [packages]: cosines, as vectors have length 1
  const auto [scores, places] = likeness.topk(std::min(options.count, likeness.size(0)));
  std::printf("%s\n", options.query.c_str());
  for (int64_t i = 0; i < scores.size(0); ++i) {
    const auto place = places[i].item<int64_t>();
    std::printf("  %.2f  %-24s %s\n", scores[i].item<float>(), packages.names[place].c_str(),
                packages.descriptions[place].c_str());
  }
  std::printf("best=%.2f\n", scores[0].item<float>());
}
