// Statements beside a network of C++ that is to be a program of torch.export.
void run(int, char**) {
  torch::nn::Sequential net(torch::nn::Conv2d(1, 4, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(4 * 26 * 26, 10));
  const auto images = torch::randn({4, 1, 28, 28});
  // LISTING
}
