// ./21_image_folder --max-epochs 8
// last line: test_acc=0.99
//
// Training on a folder of PNG files, one folder per class: a random split, transforms on batches, the
// recall of each class, the best checkpoint, and predictions in a CSV file. Without --data-dir the
// program first draws a folder of its own: noisy discs, squares and triangles.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <levin/levin.h>

namespace fs = std::filesystem;
namespace nn = torch::nn;
namespace data = levin::data;

// ---- The folder that is drawn

/// Appends a number in big-endian order.
void put(std::string& bytes, uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift);
}

/// A chunk of a PNG file: length, type, content, CRC-32.
std::string chunk(const std::string& type, const std::string& content) {
  std::string bytes;
  put(bytes, static_cast<uint32_t>(content.size()));
  bytes += type + content;
  uint32_t crc = ~0u;
  for (const char byte : type + content) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) * 0xedb88320u);
  }
  put(bytes, ~crc);
  return bytes;
}

/// Writes gray pixels of a square image (below 255 x 255) as a PNG file without compression.
void write_png(const fs::path& path, const std::vector<uint8_t>& pixels, size_t side) {
  std::string rows;
  for (size_t y = 0; y < side; ++y) {
    rows += '\0';  // filter: none
    rows.append(pixels.begin() + y * side, pixels.begin() + (y + 1) * side);
  }
  uint32_t a = 1, b = 0;  // Adler-32
  for (const char byte : rows) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  const size_t size = rows.size();
  std::string packed = {'\x78', '\x01', '\x01'};  // zlib, with one block that is stored
  for (const size_t half : {size, ~size}) {
    packed += {static_cast<char>(half & 255), static_cast<char>(half >> 8 & 255)};
  }
  packed += rows;
  put(packed, b << 16 | a);
  std::string header;
  put(header, static_cast<uint32_t>(side));
  put(header, static_cast<uint32_t>(side));
  header += {8, 0, 0, 0, 0};  // 8 bits, gray
  std::ofstream(path, std::ios::binary)
      << "\x89PNG\r\n\x1a\n"
      << chunk("IHDR", header) << chunk("IDAT", packed) << chunk("IEND", "");
}

/// Draws root/CLASS/NUMBER.png: shapes at random places, of random sizes, with noise.
void draw_folder(const fs::path& root, int64_t images_per_class) {
  constexpr int kSide = 28;
  // NOLINTNEXTLINE(bugprone-random-generator-seed): the same pictures in each run
  std::mt19937 random(1);
  const auto uniform = [&](double from, double to) {
    return from + (to - from) * static_cast<double>(random()) / 4294967296.0;
  };
  for (const std::string shape : {"disc", "square", "triangle"}) {
    fs::create_directories(root / shape);
    for (int64_t i = 0; i < images_per_class; ++i) {
      const double radius = uniform(5, 9), cx = uniform(radius, kSide - radius),
                   cy = uniform(radius, kSide - radius), light = uniform(90, 160);
      std::vector<uint8_t> pixels;
      for (int y = 0; y < kSide; ++y) {
        for (int x = 0; x < kSide; ++x) {
          const double dx = std::abs(x - cx), dy = y - cy;
          const bool inside = shape == "disc"     ? std::hypot(dx, dy) < radius
                              : shape == "square" ? std::max(dx, std::abs(dy)) < 0.9 * radius
                                                  : dy < radius && 2 * dx < dy + radius;
          pixels.push_back(static_cast<uint8_t>(uniform(0, 90) + (inside ? light : 0)));
        }
      }
      write_png(root / shape / (std::to_string(i) + ".png"), pixels, kSide);
    }
  }
}

// ---- The network

struct Cnn : levin::Module {
  nn::Sequential net;
  std::vector<std::string> classes;
  levin::metrics::ConfusionMatrix confusion;

  explicit Cnn(std::vector<std::string> names)
      : net(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
            nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
            nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)), nn::ReLU(),
            nn::AdaptiveMaxPool2d(1), nn::Flatten(),
            nn::Linear(64, static_cast<int64_t>(names.size()))),
        classes(std::move(names)),
        confusion({.num_classes = static_cast<int64_t>(classes.size())}) {
    register_module("net", net);
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto loss = nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
    log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]),
        {.prog_bar = true});
  }
  void test_step(const levin::Batch& batch, int64_t) override {
    const auto logits = net->forward(batch["image"]);
    confusion.update(logits, batch["label"]);
    log("test_acc", levin::metrics::accuracy(logits, batch["label"]));
  }
  // Labels are in the rows of the matrix, predictions in its columns.
  void on_test_epoch_end() override {
    const auto counts = confusion.compute().to(torch::kDouble);
    const auto recall = counts.diagonal() / counts.sum(1);
    for (size_t i = 0; i < classes.size(); ++i) {
      log("recall_" + classes[i], recall[static_cast<int64_t>(i)]);
    }
    confusion.reset();
  }
  torch::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["image"]).softmax(1);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 3e-3}).schedule(levin::optim::cosine({.warmup_steps = 20}));
  }
};

struct Options {
  std::string data_dir;
  std::string output = "predictions.csv";
  int64_t images_per_class = 400;
  int64_t batch_size = 32;

  void fields(levin::FieldVisitor& field) {
    field("data_dir", data_dir, "folder with a folder of images per class; empty: draw one");
    field("output", output, "CSV file to write the predictions to");
    field("images_per_class", images_per_class, "images of each class that are drawn");
    field("batch_size", batch_size, "samples per batch");
  }
};

int main(int argc, char** argv) {
  Options chosen;
  levin::TrainerOptions options = {.devices = 1, .max_epochs = 8, .seed = 1};
  levin::parse_into(argc, argv, chosen, options);
  options.callbacks = {levin::model_checkpoint({.monitor = "val_acc", .mode = "max"})};
  levin::Trainer trainer(options);
  if (chosen.data_dir.empty()) {
    chosen.data_dir = "shapes";
    draw_folder(chosen.data_dir, chosen.images_per_class);
  }

  const auto images =
      data::image_folder(chosen.data_dir, {.gray = true, .resize = {28}, .center_crop = {28}});
  const auto parts = data::random_split(data::cache(images), {0.7, 0.15, 0.15}, 42);
  const auto scale = data::normalize({.mean = {0.3}, .std = {0.25}});
  const auto train = data::transform(parts[0], {data::random_crop({.size = {28, 28}, .padding = 2}),
                                                data::random_horizontal_flip(), scale});
  const auto loader = [&](const levin::DatasetPtr& dataset, bool shuffle = false) {
    return levin::DataLoader(
        dataset, {.batch_size = chosen.batch_size, .shuffle = shuffle, .num_workers = 1});
  };

  const auto net = std::make_shared<Cnn>(images->classes());
  trainer.fit(net, loader(train, /*shuffle=*/true), loader(data::transform(parts[1], {scale})));
  const auto test =
      trainer.test(net, loader(data::transform(parts[2], {scale})), {.ckpt_path = "best"});

  // Outputs come in the order of the files.
  const auto scores =
      torch::cat(trainer.predict(net, loader(data::transform(images, {scale})))).cpu();
  const auto [best, which] = scores.max(1);
  std::ofstream csv(chosen.output);
  csv << "file,class,probability\n";
  for (int64_t row = 0; row < scores.size(0); ++row) {
    csv << images->files()[static_cast<size_t>(row)].first.string() << ','
        << images->classes()[static_cast<size_t>(which[row].item<int64_t>())] << ','
        << best[row].item<float>() << '\n';
  }
  for (const auto& [name, value] : test) {
    if (name != "test_acc") std::printf("%s=%.4f\n", name.c_str(), value);
  }
  std::printf("test_acc=%.4f\n", test.at("test_acc"));
}
