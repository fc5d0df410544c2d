// The same by LibTorch alone, over a loader of torch::data.
struct Images : torch::data::datasets::Dataset<Images> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({1, 28, 28}), torch::randint(10, {})};
  }
  torch::optional<size_t> size() const override { return 64; }
};

void run(int, char**) {
  auto net = given::net();
  const torch::Device device = torch::kCPU;
  auto loader = torch::data::make_data_loader(Images().map(torch::data::transforms::Stack<>()), 16);
  const auto before = given::copies(*net);
  // LISTING
  given::check_trained(before, *net);
}
