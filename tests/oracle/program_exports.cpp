#include "tests/oracle/program_exports.h"

#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "levin/models/gpt2.h"
#include "levin/models/pretrained.h"

namespace levin::test {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using Dims = std::vector<DynamicDim>;

/// A network of one function, with what it registers.
template <class Function>
struct Written : nn::Module {
  explicit Written(Function function) : function(std::move(function)) {}
  template <class... Tensors>
  auto forward(const Tensors&... tensors) -> decltype(std::declval<Function&>()(tensors...)) {
    return function(tensors...);
  }
  Function function;
};

/// A layer whose weight may be another's.
struct Projection : nn::Module {
  explicit Projection(Tensor matrix) : weight(register_parameter("weight", std::move(matrix))) {}
  Tensor forward(const Tensor& x) { return torch::linear(x, weight); }
  Tensor weight;
};

/// A buffer that torch::NoGradGuard keeps out of autograd.
struct RunningMean : nn::Module {
  Tensor forward(const Tensor& x) {
    if (is_training()) {
      const torch::NoGradGuard none;
      mean.mul_(0.9).add_(x.mul(weight).mean(0), 0.1);
    }
    return (x - mean) * weight;
  }
  Tensor weight = register_parameter("weight", torch::randn({6}));
  Tensor mean = register_buffer("mean", torch::zeros({6}));
};

using Parts = std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>;

template <class Function>
std::shared_ptr<Written<Function>> written(Function function, const Parts& parts = {}) {
  auto net = std::make_shared<Written<Function>>(std::move(function));
  for (const auto& [name, part] : parts) net->register_module(name, part);
  return net;
}

auto again(Batch example, Dims dims) {
  return [example = std::move(example), dims = std::move(dims)](
             const std::shared_ptr<ExportedModule>& net, const std::filesystem::path& path) {
    export_program(net, example, path, {.dynamic = dims});
  };
}

class Cases {
 public:
  /// inputs: of sizes that the dynamic dims cover; the first is the example.
  template <class Pointer>
  ExportCase& add(const std::string& name, Pointer net, std::vector<Batch> inputs,
                  const Dims& dims) {
    ExportCase made{.name = name,
                    .module = net->shared_from_this(),
                    .forward = detail::exported_forward(net),
                    .inputs = std::move(inputs)};
    const Batch example = made.inputs.front();
    made.write = [net, example, dims](const std::filesystem::path& path) {
      export_program(net, example, path, {.dynamic = dims});
    };
    made.write_again = again(example, dims);
    return cases.emplace_back(std::move(made));
  }
  std::vector<ExportCase> cases;
};

Tensor tokens(int64_t batch, int64_t length, int64_t most = 12) {
  return torch::randint(most, {batch, length});
}

/// One input "x" of normal numbers, of each of these sizes.
std::vector<Batch> normal(const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<Batch> batches;
  for (const auto& each : sizes) batches.push_back({{"x", torch::randn(each)}});
  return batches;
}

void add_layers(Cases& cases) {
  const Dims batch = {{"x", 0}};
  cases.add("linear", nn::Linear(6, 4), normal({{4, 6}, {7, 6}, {1, 6}}), batch).compiled = true;
  cases.add("linear_3d", nn::Linear(6, 4), normal({{2, 3, 6}, {4, 8, 6}, {1, 2, 6}}),
            {{"x", 0}, {"x", 1}});
  cases
      .add("mlp",
           nn::Sequential(nn::Flatten(), nn::Linear(8, 16), nn::ReLU(nn::ReLUOptions(true)),
                          nn::Dropout(0.2), nn::Linear(16, 3)),
           normal({{4, 2, 4}, {9, 2, 4}, {1, 2, 4}}), batch)
      .compiled = true;
  cases.add("conv1d",
            nn::Sequential(nn::Conv1d(nn::Conv1dOptions(3, 5, 3).padding(1)), nn::GELU(),
                           nn::MaxPool1d(2)),
            normal({{2, 3, 10}, {3, 3, 13}, {1, 3, 8}}), {{"x", 0}, {"x", 2}});
  cases
      .add("conv_net",
           nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).stride(2).bias(false)),
                          nn::BatchNorm2d(4), nn::ReLU(),
                          nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)),
                          nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(1).groups(2)),
                          nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(4, 3)),
           normal({{3, 3, 20, 18}, {2, 3, 27, 31}, {4, 3, 40, 20}}),
           {{"x", 0}, {"x", 2, "height", 12}, {"x", 3, "width", 12}})
      .compiled = true;
  cases.add("conv3d", nn::Conv3d(nn::Conv3dOptions(2, 3, 2).dilation(2)),
            normal({{2, 2, 5, 5, 5}, {3, 2, 5, 5, 5}, {1, 2, 5, 5, 5}}), batch);
  cases.add("conv_transpose", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 2, 3).stride(2)),
            normal({{2, 3, 4, 5}, {3, 3, 6, 5}, {1, 3, 3, 5}}), {{"x", 0}, {"x", 2}});
  cases.add("norms",
            nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({6})), nn::GroupNorm(2, 4),
                           nn::InstanceNorm1d(nn::InstanceNormOptions(4).affine(true))),
            normal({{2, 4, 6}, {3, 4, 6}, {5, 4, 6}}), batch);
  cases.add("activations",
            nn::Sequential(nn::SiLU(), nn::ELU(), nn::CELU(), nn::SELU(), nn::LeakyReLU(),
                           nn::Softplus(), nn::Mish(), nn::Hardtanh(), nn::Tanh(), nn::Sigmoid(),
                           nn::PReLU(), nn::LogSigmoid(), nn::Softmax(-1)),
            normal({{3, 5}, {6, 5}, {1, 5}}), batch);
  cases.add("glu", nn::Sequential(nn::GLU(-1), nn::LogSoftmax(-1), nn::Hardshrink(0.1)),
            normal({{3, 6}, {6, 6}, {1, 6}}), batch);
  cases.add("bilinear", nn::Bilinear(3, 4, 2),
            {{{"x", torch::randn({2, 3})}, {"y", torch::randn({2, 4})}},
             {{"x", torch::randn({5, 3})}, {"y", torch::randn({5, 4})}},
             {{"x", torch::randn({1, 3})}, {"y", torch::randn({1, 4})}}},
            {{"x", 0}, {"y", 0}});
  cases.add(
      "pads_and_shuffles",
      nn::Sequential(
          nn::ReflectionPad2d(1), nn::ReplicationPad2d(1),
          nn::ConstantPad2d(nn::ConstantPad2dOptions(1, 0.5)), nn::PixelShuffle(2),
          nn::Upsample(
              nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest))),
      normal({{2, 4, 5, 6}, {3, 4, 5, 6}, {1, 4, 5, 6}}), batch);
  auto unfold = nn::Unfold(nn::UnfoldOptions({2, 2}));
  cases.add("unfold",
            written([unfold](const Tensor& x) mutable { return unfold(x).square(); },
                    {{"unfold", unfold.ptr()}}),
            normal({{2, 2, 4, 4}, {3, 2, 4, 4}, {1, 2, 4, 4}}), batch);
}

void add_sequences(Cases& cases) {
  const std::vector<std::vector<int64_t>> sizes = {{2, 5, 4}, {3, 8, 4}, {1, 3, 4}};
  const Dims both = {{"x", 0}, {"x", 1}};
  auto lstm = nn::LSTM(nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true).batch_first(true));
  cases
      .add("lstm",
           written([lstm](const Tensor& x) mutable { return std::get<0>(lstm(x)); },
                   {{"lstm", lstm.ptr()}}),
           normal(sizes), both)
      .onnx = false;
  auto gru = nn::GRU(nn::GRUOptions(4, 3).batch_first(true));
  cases
      .add("gru",
           written(
               [gru](const Tensor& x) mutable {
                 return std::make_tuple(std::get<0>(gru(x)), std::get<1>(gru(x)));
               },
               {{"gru", gru.ptr()}}),
           normal(sizes), both)
      .onnx = false;
  auto cell = nn::LSTMCell(4, 3);
  cases.add("lstm_cell",
            written(
                [cell](const Tensor& x) mutable {
                  auto state =
                      std::make_tuple(x.new_zeros({x.size(0), 3}), x.new_zeros({x.size(0), 3}));
                  for (int64_t i = 0; i < x.size(1); ++i) state = cell(x.select(1, i), state);
                  return std::get<0>(state);
                },
                {{"cell", cell.ptr()}}),
            normal({{2, 3, 4}, {5, 3, 4}, {1, 3, 4}}), {{"x", 0}});
  auto attention = nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).dropout(0.1));
  cases.add(
      "multihead_attention",
      written([attention](const Tensor& x) mutable { return std::get<0>(attention(x, x, x)); },
              {{"attention", attention.ptr()}}),
      normal({{5, 2, 4}, {7, 3, 4}, {3, 4, 4}}), both);
  cases.add("transformer_encoder",
            nn::TransformerEncoder(nn::TransformerEncoderOptions(
                nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0), 2)),
            normal({{5, 2, 4}, {7, 3, 4}, {3, 4, 4}}), both);
  auto whole = nn::Transformer(nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(8).dropout(0.1));
  const auto pair = [](int64_t source, int64_t target, int64_t batch) {
    return Batch{{"source", torch::randn({source, batch, 4})},
                 {"target", torch::randn({target, batch, 4})}};
  };
  cases.add("transformer",
            written([whole](const Tensor& source,
                            const Tensor& target) mutable { return whole(source, target); },
                    {{"transformer", whole.ptr()}}),
            {pair(5, 4, 2), pair(6, 9, 3), pair(3, 7, 4)},
            {{"source", 0}, {"target", 0}, {"source", 1}, {"target", 1}});
  auto embedding = nn::Embedding(nn::EmbeddingOptions(12, 4).padding_idx(0));
  auto head = nn::Linear(4, 12);
  const auto ids = [](int64_t batch, int64_t length) {
    return Batch{{"ids", tokens(batch, length)}};
  };
  cases.add("causal_mask",
            written(
                [embedding, head](const Tensor& ids) mutable {
                  Tensor h = embedding(ids);
                  const int64_t length = ids.size(1);
                  const Tensor mask = torch::full({length, length}, -1e9).triu(1);
                  const Tensor scores = torch::matmul(h, h.transpose(1, 2)) / std::sqrt(4.0) + mask;
                  h = h + torch::matmul(torch::softmax(scores, -1), h);
                  return head(h + torch::arange(length).to(torch::kFloat).view({1, -1, 1}));
                },
                {{"embedding", embedding.ptr()}, {"head", head.ptr()}}),
            {ids(2, 5), ids(3, 9), ids(1, 4)}, {{"ids", 0}, {"ids", 1}});
  auto bag = nn::EmbeddingBag(nn::EmbeddingBagOptions(12, 4).mode(torch::kMean));
  cases
      .add("embedding_bag",
           written([bag](const Tensor& ids) mutable { return bag(ids); }, {{"bag", bag.ptr()}}),
           {ids(3, 4), ids(5, 4), ids(2, 4)}, {{"ids", 0}})
      .onnx = false;
}

void add_functions(Cases& cases) {
  const Dims batch = {{"x", 0}};
  const std::vector<std::vector<int64_t>> sizes = {{4, 6}, {7, 6}, {1, 6}};
  cases.add("results_by_name",
            written([](const Tensor& x) { return Batch{{"mean", x.mean(-1)}, {"twice", x * 2}}; }),
            normal(sizes), batch);
  cases.add("nested_results", written([](const Tensor& x) {
              return std::make_tuple(x + 1, std::vector<Tensor>{x.sin(), x});
            }),
            normal(sizes), batch);
  const auto head = std::make_shared<Projection>(torch::randn({6, 6}));
  const auto tied = std::make_shared<Projection>(head->weight);
  cases.add("tied_and_shared",
            written(
                [head, tied](const Tensor& x) {
                  return tied->forward(head->forward(torch::relu(head->forward(x))));
                },
                {{"head", head}, {"tied", tied}}),
            normal(sizes), batch);
  cases.add("host_constants", written([](const Tensor& x) {
              Tensor table = torch::zeros({2, 3});
              auto rows = table.accessor<float, 2>();
              for (int64_t i = 0; i < 2; ++i) rows[i][i + 1] = 2;
              const Tensor weights = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
              return x * weights + torch::cat({table[0], table[1]}) + torch::tensor(0.5);
            }),
            normal(sizes), batch);
  cases.add("no_gradient", written([](const Tensor& x) {
              Tensor scale;
              {
                const torch::NoGradGuard none;
                scale = x.abs().amax(-1, true) + 1e-3;
              }
              return (x / scale, x / scale.detach() + x.data());
            }),
            normal(sizes), batch);
  cases.add("sizes", written([](const Tensor& x) {
              const int64_t batch = x.size(0), width = x.size(1);
              const Tensor rows =
                  x.reshape({batch * 2, width / 2}).sum(0, true) / static_cast<double>(batch);
              return rows.expand({batch + 1, -1}) * (0.5 * static_cast<double>(batch)) +
                     torch::ones({batch + 1, 1});
            }),
            normal(sizes), batch);
  cases.add("halves", written([](const Tensor& x) {
              const int64_t half = x.size(1) / 2;
              return x.narrow(1, 0, half) * x.narrow(1, half, half);
            }),
            normal({{3, 8}, {3, 14}, {3, 4}}), {{.input = "x", .dim = 1, .multiple_of = 2}});
  cases.add("einsum_and_sort", written([](const Tensor& x) {
              const Tensor products = torch::einsum("bi,bj->bij", {x, x}).cumsum(1);
              const auto [values, order] = x.topk(3, -1);
              return std::make_tuple(products, values, x.gather(1, order).flip({1}),
                                     std::get<1>(x.sort(-1)));
            }),
            normal(sizes), batch);
  cases
      .add("index_put", written([](const Tensor& x, const Tensor& places) {
             Tensor table = x.clone();
             table.index_put_({places}, torch::ones({1}));
             table.select(1, 0).mul_(2);
             return table.index({places}) + table.narrow(0, 0, 1);
           }),
           {{{"x", torch::randn({4, 6})}, {"places", tokens(1, 3, 4)[0]}},
            {{"x", torch::randn({4, 6})}, {"places", tokens(1, 5, 4)[0]}},
            {{"x", torch::randn({4, 6})}, {"places", tokens(1, 2, 4)[0]}}},
           {{"places", 0}})
      .onnx = false;
  cases
      .add("grid_sample", written([](const Tensor& x) {
             const Tensor theta =
                 torch::tensor({0.8F, 0.1F, 0.0F, -0.1F, 0.9F, 0.1F}).view({1, 2, 3});
             const Tensor grid =
                 F::affine_grid(theta.expand({x.size(0), 2, 3}), {x.size(0), 2, 5, 6});
             return F::grid_sample(x, grid, F::GridSampleFuncOptions().align_corners(false));
           }),
           normal({{2, 2, 4, 4}, {3, 2, 4, 4}, {1, 2, 4, 4}}), batch)
      .onnx = false;
  cases
      .add("fft", written([](const Tensor& x) {
             return torch::view_as_real(torch::fft::rfft(x)).square().sum(-1);
           }),
           normal(sizes), batch)
      .onnx = false;
  auto wide = nn::Linear(6, 3);
  wide->to(torch::kDouble);
  cases.add("double",
            written([wide](const Tensor& x) mutable { return wide(x.to(torch::kDouble)).cos(); },
                    {{"wide", wide.ptr()}}),
            normal(sizes), batch);
  auto classifier = nn::Linear(6, 3);
  const auto labelled = [](int64_t count) {
    return Batch{{"x", torch::randn({count, 6})}, {"label", tokens(1, count, 3)[0]}};
  };
  cases
      .add("loss",
           written(
               [classifier](const Tensor& x, const Tensor& label) mutable {
                 return F::cross_entropy(classifier(x), label) +
                        F::mse_loss(x, torch::zeros_like(x));
               },
               {{"classifier", classifier.ptr()}}),
           {labelled(4), labelled(6), labelled(2)}, {{"x", 0}, {"label", 0}})
      .onnx = false;
  const auto mean = std::make_shared<RunningMean>();
  cases.add("written_without_gradients",
            written([mean](const Tensor& x) { return mean->forward(x); }, {{"mean", mean}}),
            normal(sizes), batch);
  auto under_autocast = nn::Linear(6, 6);
  cases
      .add("autocast",
           written(
               [under_autocast](const Tensor& x) mutable {
                 const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
                 return under_autocast(x).to(at::kFloat);
               },
               {{"linear", under_autocast.ptr()}}),
           normal(sizes), batch)
      .onnx = false;
}

void add_models(Cases& cases) {
  const auto ids = [](int64_t batch, int64_t length) {
    return Batch{{"input_ids", tokens(batch, length)}};
  };
  const std::vector<Batch> inputs = {ids(2, 6), ids(3, 9), ids(1, 4)};
  const Dims dims = {{.input = "input_ids", .dim = 0}, {.input = "input_ids", .dim = 1, .max = 16}};
  cases
      .add("gpt2",
           models::GPT2(models::GPT2Config{
               .vocab_size = 12, .n_positions = 16, .n_embd = 8, .n_layer = 2, .n_head = 2}),
           inputs, dims)
      .compiled = true;
  struct Family {
    const char* name;
    const char* config;
    const char* task;
  };
  for (const Family& family : std::vector<Family>{
           {"llama", R"("model_type": "llama", "num_key_value_heads": 1)", "text-generation"},
           {"qwen2", R"("model_type": "qwen2", "num_key_value_heads": 1)", "text-generation"},
           {"mistral", R"("model_type": "mistral", "num_key_value_heads": 1)", "text-generation"},
           {"bert", R"("model_type": "bert")", "text-classification"},
           {"roberta", R"("model_type": "roberta", "pad_token_id": 1)", "fill-mask"}}) {
    const auto net = models::from_config(
        models::Config::from_json(std::string("{") + family.config +
                                  R"(, "vocab_size": 12, "hidden_size": 8, "intermediate_size": 16,
                                     "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 24})"),
        {.task = family.task});
    ExportCase made{.name = family.name, .module = net, .inputs = inputs};
    const auto forward = [net](const Batch& batch) { return net->forward(batch).logits; };
    made.forward = [forward](const Batch& batch) { return detail::exported_value(forward(batch)); };
    made.write = [net, forward, example = inputs.front(), dims](const std::filesystem::path& path) {
      export_program(net, forward, example, path, {.dynamic = dims});
    };
    made.write_again = again(inputs.front(), dims);
    made.compiled = made.name == "llama";
    cases.cases.push_back(std::move(made));
  }
}

}  // namespace

std::vector<ExportCase> export_cases() {
  torch::manual_seed(5);
  Cases cases;
  add_layers(cases);
  add_sequences(cases);
  add_functions(cases);
  add_models(cases);
  return std::move(cases.cases);
}

}  // namespace levin::test
