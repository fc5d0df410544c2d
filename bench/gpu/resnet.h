#pragma once
// ResNet (He et al. 2015) of bottleneck blocks, the stride on the 3x3 convolution, with torchvision's names;
// nets.py has the same.

#include <torch/torch.h>

#include <vector>

namespace gpu {

inline torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BottleneckImpl : torch::nn::Module {
  static constexpr int64_t kExpansion = 4;
  torch::nn::Conv2d conv1, conv2, conv3;
  torch::nn::BatchNorm2d bn1, bn2, bn3;
  torch::nn::Sequential downsample;

  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(register_module("conv1", convolution(in, width, 1, 1))),
        conv2(register_module("conv2", convolution(width, width, 3, stride))),
        conv3(register_module("conv3", convolution(width, kExpansion * width, 1, 1))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
        bn3(register_module("bn3", torch::nn::BatchNorm2d(kExpansion * width))) {
    if (stride == 1 && in == kExpansion * width) return;
    downsample->push_back(convolution(in, kExpansion * width, 1, stride));
    downsample->push_back(torch::nn::BatchNorm2d(kExpansion * width));
    register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1->forward(conv1->forward(x)).relu_();
    y = bn2->forward(conv2->forward(y)).relu_();
    y = bn3->forward(conv3->forward(y));
    return y.add_(downsample->is_empty() ? x : downsample->forward(x)).relu_();
  }
};
TORCH_MODULE(Bottleneck);

struct ResNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  std::vector<torch::nn::Sequential> layers;
  torch::nn::Linear fc;

  /// width: channels of the first stage's 3x3 convolutions, 64 in ResNet-50; blocks: of each of the 4 stages.
  ResNetImpl(const std::vector<int64_t>& blocks, int64_t width, int64_t classes)
      : conv1(register_module("conv1", convolution(3, width, 7, 2))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        fc(nullptr) {
    int64_t in = width;
    for (size_t stage = 0; stage < blocks.size(); ++stage) {
      torch::nn::Sequential layer;
      const int64_t own = width << stage;
      for (int64_t block = 0; block < blocks[stage]; ++block) {
        layer->push_back(Bottleneck(in, own, block == 0 && stage > 0 ? 2 : 1));
        in = BottleneckImpl::kExpansion * own;
      }
      layers.push_back(register_module("layer" + std::to_string(stage + 1), layer));
    }
    fc = register_module("fc", torch::nn::Linear(in, classes));
  }

  /// [B, 3, H, W] -> [B, classes]
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1->forward(conv1->forward(x)).relu_();
    y = torch::max_pool2d(y, 3, 2, 1);
    for (torch::nn::Sequential& layer : layers) y = layer->forward(y);
    return fc->forward(torch::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }
};
TORCH_MODULE(ResNet);

}  // namespace gpu
