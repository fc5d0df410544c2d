"""Programs of torch.export for levin, and what Python computes of them.

    exported_programs.py FOLDER [NAME...]

For each: FOLDER/NAME/net.pt2, case.json (arguments, whether it is to be refused), reference.safetensors with inputs,
outputs, loss, gradients, and parameters and buffers after 20 steps of SGD, computed by the module itself.
"""

import json
import pathlib
import sys
import warnings

import torch
from program_values import leaves, loss_of
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
F = nn.functional
STEPS, RATE = 20, 0.01
BF16 = ("mlp", "llama", "resnet", "t5")  # trained under autocast too
CASES = {}


class Case:
    def __init__(self, module, args=(), kwargs=None, dynamic=None, refused=None, mode="train", strict=False, evaluation=None, rate=RATE):
        self.module, self.args, self.kwargs = module, args, kwargs or {}
        self.dynamic, self.refused, self.mode, self.strict = dynamic, refused, mode, strict
        self.rate = rate
        self.evaluation = evaluation  # how levin is told of it: "twice" exported, or the "same" as in training


def case(function):
    CASES[function.__name__] = function
    return function


def lambda_module(function, *modules, **tensors):
    """A module whose forward is a function of itself and its inputs."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            for i, module in enumerate(modules):
                self.add_module(f"m{i}", module)
            for name, tensor in tensors.items():
                setattr(self, name, tensor)

        def forward(self, *args, **kwargs):
            return function(self, *args, **kwargs)

    return Own()


def sequential(*layers):
    return nn.Sequential(*layers)


# Layers of torch.nn.

@case
def mlp():
    return Case(sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)), (torch.randn(4, 6),),
                dynamic=({0: Dim("batch")},))


@case
def dropouts():
    return Case(sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.Linear(16, 3)),
                (torch.randn(4, 6),))


@case
def conv_net():
    return Case(sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                           nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding="same", groups=4), nn.GroupNorm(2, 8),
                           nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
                (torch.randn(4, 3, 16, 16),), dynamic=({0: Dim("batch")},))


@case
def conv_1d_3d_transposed():
    return Case(lambda_module(lambda s, x, y: (s.m0(x), s.m1(y), s.m2(x)), nn.Conv1d(4, 6, 3, dilation=2),
                              nn.Conv3d(2, 3, 2), nn.ConvTranspose1d(4, 2, 4, stride=2, output_padding=1)),
                (torch.randn(2, 4, 12), torch.randn(2, 2, 4, 4, 4)))


@case
def reflect_padded():
    return Case(sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
                           nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), nn.ReplicationPad2d(1)),
                (torch.randn(2, 2, 6, 6),))


@case
def instance_norm():
    return Case(sequential(nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.InstanceNorm2d(3)),
                (torch.randn(2, 3, 5, 5),))


@case
def batch_norm_without_statistics():
    return Case(sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.BatchNorm1d(5, affine=False)),
                (torch.randn(6, 5),))


@case
def lstm():
    return Case(lambda_module(lambda s, x: s.m0(x), nn.LSTM(5, 7, num_layers=2, batch_first=True, dropout=0.2)),
                (torch.randn(3, 4, 5),))


@case
def bidirectional_lstm_of_states():
    return Case(lambda_module(lambda s, x, h: s.m0(x, h), nn.LSTM(5, 7, bidirectional=True, proj_size=3)),
                (torch.randn(4, 3, 5), (torch.randn(2, 3, 3), torch.randn(2, 3, 7))))


@case
def gru_and_rnn():
    return Case(lambda_module(lambda s, x: (s.m0(x)[0], s.m1(x)[0]), nn.GRU(5, 7, batch_first=True),
                              nn.RNN(5, 4, nonlinearity="relu")), (torch.randn(3, 4, 5),))


@case
def lstm_cells():
    def forward(s, x):
        state = (x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6))
        for step in range(3):
            state = s.m0(x[:, step], state)
        return state[0]
    return Case(lambda_module(forward, nn.LSTMCell(4, 6)), (torch.randn(2, 3, 4),), dynamic=(({0: Dim("batch")},),))


@case
def transformer_encoder():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True, norm_first=True)
    return Case(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 5, 16),))


@case
def transformer_decoder():
    layer = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return Case(nn.TransformerDecoder(layer, 1), (torch.randn(2, 5, 16), torch.randn(2, 7, 16)))


@case
def attention_with_masks():
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    return Case(lambda_module(lambda s, x, m: s.m0(x, x, x, attn_mask=m, need_weights=True), nn.MultiheadAttention(
        12, 3, batch_first=True)), (torch.randn(2, 5, 12), mask))


@case
def embeddings():
    return Case(lambda_module(lambda s, ids, bags: (s.m0(ids), s.m1(bags)), nn.Embedding(10, 4, padding_idx=0),
                              nn.EmbeddingBag(10, 4, mode="mean")),
                (torch.tensor([[1, 0, 3], [4, 5, 0]]), torch.tensor([[1, 2], [3, 4]])))


@case
def losses():
    def forward(s, logits, labels, target):
        return {"ce": F.cross_entropy(logits, labels, label_smoothing=0.1, weight=s.weight),
                "nll": F.nll_loss(F.log_softmax(logits, -1), labels),
                "mse": F.mse_loss(logits, target), "huber": F.huber_loss(logits, target, delta=0.5),
                "bce": F.binary_cross_entropy_with_logits(logits, target.sigmoid()),
                "kl": F.kl_div(logits.log_softmax(-1), target.softmax(-1), reduction="batchmean"),
                "margin": F.multi_margin_loss(logits, labels), "cos": F.cosine_similarity(logits, target).mean()}
    module = lambda_module(lambda s, x, *rest: forward(s, s.m0(x), *rest), nn.Linear(6, 4))
    module.register_buffer("weight", torch.tensor([1.0, 2.0, 0.5, 1.0]))
    return Case(module, (torch.randn(5, 6), torch.tensor([0, 1, 2, 3, 1]), torch.randn(5, 4)))


@case
def weight_norm():
    return Case(sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh(),
                           nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), (torch.randn(3, 5),))


@case
def spectral_norm():
    return Case(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), (torch.randn(3, 5),), evaluation="twice")


@case
def orthogonal():
    return Case(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="cayley"), (torch.randn(3, 4),))


@case
def activations():
    layers = [nn.ELU(), nn.CELU(), nn.SELU(), nn.Softplus(), nn.Mish(), nn.Hardswish(), nn.LeakyReLU(), nn.PReLU(),
              nn.GLU(), nn.Softmax(-1), nn.LogSigmoid(), nn.Softsign(), nn.Hardtanh(), nn.Tanhshrink(), nn.ReLU6()]
    return Case(lambda_module(lambda s, x: sum(m(s.m0(x)).mean() for m in list(s.children())[1:]), nn.Linear(6, 8),
                              *layers), (torch.randn(4, 6),))


@case
def random_relu():
    return Case(sequential(nn.Linear(6, 8), nn.RReLU(), nn.Dropout1d(0.3)), (torch.randn(4, 6),))


@case
def pixel_shuffle_and_pooling():
    return Case(sequential(nn.Conv2d(2, 8, 3, padding=1), nn.PixelShuffle(2), nn.AvgPool2d(2), nn.LPPool2d(2, 2),
                           nn.Upsample(scale_factor=2, mode="bilinear")), (torch.randn(2, 2, 8, 8),))


# What people write themselves.

@case
def tied_and_shared():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.lin = nn.Embedding(10, 4), nn.Linear(4, 4)
            self.again, self.head = self.lin, nn.Linear(4, 10, bias=False)
            self.head.weight = self.emb.weight
            self.unused = nn.Linear(2, 2)

        def forward(self, ids):
            return self.head(self.again(self.lin(self.emb(ids)).relu()))
    return Case(Net(), (torch.tensor([[1, 2, 3]]),))


@case
def dict_in_and_out():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(5, 4)})

        def forward(self, batch, *, labels=None, scale=2.0):
            hidden = self.layers["a"](batch["x"]) + self.layers["b"](batch["y"][1]) * scale
            out = {"hidden": [hidden, hidden.sum(-1)], "logits": hidden.softmax(-1)}
            if labels is not None:
                out["loss"] = F.cross_entropy(hidden, labels)
            return out
    return Case(Net(), ({"x": torch.randn(2, 3), "y": (torch.zeros(1), torch.randn(2, 5))},),
                {"labels": torch.tensor([1, 3]), "scale": 2.0})


@case
def several_dynamic_sizes():
    def forward(s, x, y):
        joined = torch.cat([x, y], 1)
        return s.m0(joined).view(joined.size(0) * joined.size(1), -1)[: joined.size(1) * 2] / joined.shape[1]
    return Case(lambda_module(forward, nn.Linear(4, 4)), (torch.randn(3, 5, 4), torch.randn(3, 2, 4)),
                dynamic=(({0: Dim("batch", max=64), 1: Dim("left")}, {0: Dim("batch", max=64), 1: Dim("right")}),))


@case
def even_sizes():
    half = Dim("half", min=2, max=100)
    return Case(lambda_module(lambda s, x: s.m0(x)[:, : x.shape[1] // 2] * s.m0(x)[:, x.shape[1] // 2:], nn.Linear(3, 3)),
                (torch.randn(2, 8, 3),), dynamic=(({1: 2 * half},),))


@case
def buffers_written():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)

        def forward(self, x):
            self.steps += 1
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return self.lin(x - self.mean) * self.scale
    return Case(Net(), (torch.randn(4, 3),), evaluation="same")


@case
def constants():
    table = torch.arange(6.0).view(2, 3)
    return Case(lambda_module(lambda s, x: s.m0(x) @ table.t() + torch.tensor([1.0, 2.0]) + torch.arange(2, dtype=x.dtype),
                              nn.Linear(3, 3)), (torch.randn(4, 3),))


@case
def no_grad_regions():
    def forward(s, x):
        with torch.no_grad():
            target = s.m0(x) * 2
            with torch.enable_grad():
                inner = s.m1(x)
        return inner + target + s.m0(x).detach() + s.m0(x)
    return Case(lambda_module(forward, nn.Linear(3, 3), nn.Linear(3, 3)), (torch.randn(4, 3),))


@case
def autocast_regions():
    def forward(s, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = s.m0(x)
            with torch.autocast("cpu", enabled=False):
                high = s.m0(x)
        return low.float() + high
    return Case(lambda_module(forward, nn.Linear(3, 3)), (torch.randn(4, 3),))


@case
def checkpointed():
    from torch.utils.checkpoint import checkpoint
    return Case(lambda_module(lambda s, x: checkpoint(lambda y: s.m1(s.m0(y).relu()), x, use_reentrant=False),
                              nn.Linear(3, 8), nn.Linear(8, 3)), (torch.randn(4, 3),))


@case
def doubles():
    return Case(sequential(nn.Linear(4, 4), nn.Tanh()).double(), (torch.randn(3, 4, dtype=torch.float64),))


@case
def complex_numbers():
    def forward(s, x):
        spectrum = torch.fft.rfft(s.m0(x))
        return torch.fft.irfft(spectrum * s.filter, n=8), torch.view_as_real(spectrum)
    return Case(lambda_module(forward, nn.Linear(8, 8), filter=nn.Parameter(torch.randn(5, dtype=torch.complex64))),
                (torch.randn(2, 8),))


@case
def einsum_and_matmul():
    return Case(lambda_module(lambda s, x, y: torch.einsum("bij,jk,bkl->bil", s.m0(x), s.w, y).matmul(y[0].t()) * 0.05,
                              nn.Linear(4, 4), w=nn.Parameter(torch.randn(4, 5))),
                (torch.randn(2, 3, 4), torch.randn(2, 5, 6)))


@case
def sort_topk_index_put():
    def forward(s, x, where):
        y = s.m0(x)
        values, places = y.topk(2, -1)
        z = y.clone()
        z[:, where] = values
        z.index_put_((torch.tensor([0]), torch.tensor([1])), torch.tensor(0.5), accumulate=True)
        return z.sort(-1).values, places, z.gather(1, places), z.scatter(1, places, 0.0), z.cumsum(-1)
    return Case(lambda_module(forward, nn.Linear(4, 5)), (torch.randn(3, 4), torch.tensor([0, 3])))


@case
def masks_and_where():
    def forward(s, x, mask):
        y = s.m0(x).masked_fill(mask, float("-inf")).softmax(-1)
        return torch.where(mask, 0.0, y), y.clamp(min=0.1), torch.tril(y), y.flip(0).roll(1, 0)
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[0, 1] = True
    return Case(lambda_module(forward, nn.Linear(4, 4)), (torch.randn(4, 4), mask))


@case
def interpolate_and_grid_sample():
    def forward(s, x, grid):
        y = s.m0(x)
        return (F.interpolate(y, size=(7, 5), mode="bicubic", align_corners=False), F.grid_sample(y, grid, align_corners=True),
                F.interpolate(y, scale_factor=2.0, mode="nearest"), F.unfold(y, 2), F.affine_grid(s.theta, [1, 2, 3, 3], False))
    return Case(lambda_module(forward, nn.Conv2d(2, 2, 1), theta=nn.Parameter(torch.randn(1, 2, 3))),
                (torch.randn(1, 2, 6, 6), torch.rand(1, 3, 3, 2) * 2 - 1))


@case
def loops_over_modules():
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block(6) for _ in range(3))
            self.scales = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(3))

        def forward(self, x):
            for block, scale in zip(self.blocks, self.scales):
                x = block(x) * scale
            return x
    return Case(Net(), (torch.randn(2, 3, 6),), dynamic=({0: Dim("batch"), 1: Dim("time")},))


@case
def random_numbers():
    return Case(lambda_module(lambda s, x: s.m0(x + 0.1 * torch.randn_like(x)) * torch.bernoulli(torch.full_like(x[:, :1], 0.5))
                              + torch.rand(3) + torch.randint(0, 5, (3,)), nn.Linear(4, 3)), (torch.randn(5, 4),), evaluation="same")


@case
def numbers_as_inputs():
    return Case(lambda_module(lambda s, x, n, flag: s.m0(x) * n if flag else x, nn.Linear(3, 3)), (torch.randn(2, 3), 3, True))


@case
def integers_and_bools():
    def forward(s, ids):
        return (ids * 2 // 3, ids > 2, (ids & 1).bool().logical_not(), s.m0(ids).sum(1), ids.float().mean(), ids.bincount(minlength=6))
    return Case(lambda_module(forward, nn.Embedding(8, 3)), (torch.tensor([1, 5, 2]),))


@case
def frozen_parameters():
    net = sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    return Case(net, (torch.randn(3, 4),))


@case
def linear_algebra():
    def forward(s, x):
        a = s.m0(x) @ s.m0(x).transpose(-1, -2) * 0.1 + 4 * torch.eye(3)
        return torch.linalg.inv(a), torch.linalg.cholesky(a), torch.linalg.solve(a, x) * 0.01, torch.linalg.vector_norm(a) * 0.01
    return Case(lambda_module(forward, nn.Linear(3, 3)), (torch.randn(2, 3, 3),))


@case
def views_and_splits():
    def forward(s, x):
        y = s.m0(x)
        a, b, c = y.chunk(3, -1)
        d, e = y.split([1, 5], -1)
        parts = torch.unbind(y, 0)
        return (a * b + c, d.expand(-1, 5) * e, torch.stack(parts).permute(1, 0), y.reshape(-1).unfold(0, 4, 2),
                torch.meshgrid(y[0], y[1], indexing="ij")[0], y.squeeze().unsqueeze(1).repeat(1, 2, 1), y.T.contiguous(), y.diagonal())
    return Case(lambda_module(forward, nn.Linear(4, 6)), (torch.randn(4, 4),))


@case
def in_place_operators():
    def forward(s, x):
        y = s.m0(x)
        y.add_(1).mul_(2)
        y[:, 0] = 0
        z = y.view(-1)
        z[3:5].relu_()
        return y, z.sum()
    return Case(lambda_module(forward, nn.Linear(4, 4)), (torch.randn(3, 4),))


@case
def exported_strictly():
    return Case(sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.BatchNorm1d(8), nn.Linear(8, 2)), (torch.randn(6, 4),), strict=True)


@case
def data_dependent_sizes():
    def forward(s, x, count):
        n = count.item()
        torch._check(n >= 1)
        torch._check(n <= x.size(0))
        return s.m0(x[:n]) if False else s.m0(x.narrow(0, 0, n))
    return Case(lambda_module(forward, nn.Linear(3, 3)), (torch.randn(5, 3), torch.tensor(2)))


@case
def cond_is_refused():
    def forward(s, x):
        return torch.cond(x.sum() > 0, lambda y: s.m0(y), lambda y: y * 2, (x,))
    return Case(lambda_module(forward, nn.Linear(3, 3)), (torch.randn(2, 3),), refused="torch.ops.higher_order.cond")


@case
def while_loop_is_refused():
    from torch._higher_order_ops.while_loop import while_loop
    return Case(lambda_module(lambda s, x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), s.m0(x))),
                              nn.Linear(3, 3)), (torch.randn(2, 3),), refused="torch.ops.higher_order.while_loop")


@case
def custom_operator_is_refused():
    @torch.library.custom_op("somebody::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2
    twice.register_fake(lambda x: torch.empty_like(x))
    return Case(lambda_module(lambda s, x: twice(s.m0(x)), nn.Linear(3, 3)), (torch.randn(2, 3),), refused="torch.ops.somebody.twice.default")


# Models of transformers.

def text(name, head, labels=None, **config):
    def make():
        import transformers
        settings = getattr(transformers, name + "Config")(
            **{**dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2), **config})
        settings.return_dict = True
        settings.use_cache = False
        model = getattr(transformers, name + head)(settings)
        ids = torch.randint(3, 60, (2, 7))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if labels == "tokens":
            inputs["labels"] = ids
        elif labels is not None:
            inputs["labels"] = labels
        return Case(model, (), inputs)
    return make


CLASSES = torch.tensor([0, 1])
for _name, _case in {
    "bert": text("Bert", "ForSequenceClassification", CLASSES),
    "roberta": text("Roberta", "ForTokenClassification", None, max_position_embeddings=40),
    "distilbert": text("DistilBert", "ForSequenceClassification", CLASSES, dim=16, hidden_dim=32, n_layers=2, n_heads=2),
    "electra": text("Electra", "ForSequenceClassification", CLASSES, embedding_size=8),
    "albert": text("Albert", "ForSequenceClassification", CLASSES, embedding_size=8),
    "deberta": text("DebertaV2", "Model", None),
    "mpnet": text("MPNet", "Model", None),
    "modernbert": text("ModernBert", "ForMaskedLM", "tokens", pad_token_id=0, attn_implementation="sdpa"),
    "gpt2": text("GPT2", "LMHeadModel", "tokens", n_embd=16, n_layer=2, n_head=2, n_positions=32),
    "opt": text("OPT", "ForCausalLM", "tokens", ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=32),
    "bloom": text("Bloom", "ForCausalLM", "tokens", n_layer=2, n_head=2),
    "llama": text("Llama", "ForCausalLM", "tokens"),
    "mistral": text("Mistral", "ForCausalLM", "tokens", num_key_value_heads=1),
    "qwen2": text("Qwen2", "ForCausalLM", "tokens", num_key_value_heads=1),
    "qwen3": text("Qwen3", "ForCausalLM", "tokens", num_key_value_heads=1, head_dim=8),
    "gemma2": text("Gemma2", "ForCausalLM", "tokens", num_key_value_heads=1, head_dim=8, attn_implementation="eager"),
    "phi": text("Phi", "ForCausalLM", "tokens"),
    "mamba": text("Mamba", "ForCausalLM", "tokens", state_size=4),
}.items():
    CASES[_name] = _case


def transformer(name, config, inputs, evaluation=None, rate=RATE, **settings):
    def make():
        import transformers
        own = getattr(transformers, config)(**settings)
        own.use_cache = False
        return Case(getattr(transformers, name)(own), (), inputs(), evaluation=evaluation, rate=rate)
    return make


PIXELS = lambda: {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}
SMALL = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
for _name, _case in {
    "t5": transformer("T5ForConditionalGeneration", "T5Config", lambda: {
        "input_ids": torch.randint(3, 60, (2, 6)), "labels": torch.randint(3, 60, (2, 4))},
        vocab_size=64, d_model=16, d_ff=32, d_kv=8, num_layers=2, num_heads=2, decoder_start_token_id=0),
    "bart": transformer("BartForConditionalGeneration", "BartConfig", lambda: {
        "input_ids": torch.randint(3, 60, (2, 6)), "labels": torch.randint(3, 60, (2, 4))},
        vocab_size=64, d_model=16, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32),
    "whisper": transformer("WhisperForConditionalGeneration", "WhisperConfig", lambda: {
        "input_features": torch.randn(1, 8, 40), "labels": torch.randint(3, 60, (1, 4))},
        vocab_size=64, num_mel_bins=8, d_model=16, encoder_ffn_dim=32, decoder_ffn_dim=32, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, max_source_positions=20,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, apply_spec_augment=False),
    "vit": transformer("ViTForImageClassification", "ViTConfig", PIXELS, image_size=32, patch_size=8, **SMALL),
    "deit": transformer("DeiTForImageClassification", "DeiTConfig", PIXELS, image_size=32, patch_size=8, **SMALL),
    "swin": transformer("SwinForImageClassification", "SwinConfig", PIXELS, image_size=32, patch_size=4, embed_dim=8,
                        depths=[1, 1], num_heads=[1, 2], window_size=4, evaluation="twice"),
    "resnet": transformer("ResNetForImageClassification", "ResNetConfig", PIXELS, embedding_size=8, hidden_sizes=[8, 16],
                          depths=[1, 1], layer_type="bottleneck"),
    "convnext": transformer("ConvNextForImageClassification", "ConvNextConfig", PIXELS, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "mobilenet": transformer("MobileNetV2ForImageClassification", "MobileNetV2Config", PIXELS, rate=1e-4,  # at RATE it diverges
                             depth_multiplier=0.35, image_size=32),
    "efficientnet": transformer("EfficientNetForImageClassification", "EfficientNetConfig", PIXELS, image_size=32, width_coefficient=0.25,
                                depth_coefficient=0.25, hidden_dim=320),
    "segformer": transformer("SegformerForImageClassification", "SegformerConfig", PIXELS, hidden_sizes=[8, 8, 8, 8],
                             depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 1, 1], decoder_hidden_size=8, evaluation="twice"),
    "clip": transformer("CLIPModel", "CLIPConfig", lambda: {
        "input_ids": torch.randint(3, 60, (2, 6)), "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True},
        text_config=dict(vocab_size=64, max_position_embeddings=16, **SMALL), vision_config=dict(image_size=32, patch_size=8, **SMALL),
        projection_dim=8),
    "wav2vec2": transformer("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", lambda: {
        "input_values": torch.randn(2, 400), "labels": torch.tensor([0, 1])}, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, **SMALL),
}.items():
    CASES[_name] = _case


def encoded(value, tensors, name):
    """JSON of an argument whose tensors are in a file."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().clone()
        return {"tensor": name}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encoded(item, tensors, f"{name}.{i}") for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": {key: encoded(item, tensors, f"{name}.{key}") for key, item in value.items()}}
    return {"value": value}


def step_sgd(parameters, rate):
    with torch.no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-rate)


def make(name):
    torch.manual_seed(0)
    made = CASES[name]()
    made.module.train(made.mode == "train")
    return made


def trained_in_bf16(name):
    """As levin's bf16-mixed: the module alone runs under autocast. The dtypes that the network derived from its
    tensors are written into the program, so that it is the program, run by Python, and not the network."""
    made = make(name)
    module = torch.export.export(made.module, made.args, made.kwargs, dynamic_shapes=made.dynamic).module()
    # Which say float32 before a conversion that takes any dtype, and refuse all of autocast.
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            module.graph.erase_node(node)
    module.recompile()
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        module.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = module(*made.args, **made.kwargs)
        loss_of(output).backward()
        step_sgd(module.parameters(), made.rate)
    return {"bf16." + key: value.clone() for key, value in module.state_dict().items()}


def write(name, folder):
    made = make(name)
    folder.mkdir(parents=True, exist_ok=True)
    module = made.module
    torch.manual_seed(1)
    program = torch.export.export(module, made.args, made.kwargs, dynamic_shapes=made.dynamic, strict=made.strict)
    torch.export.save(program, folder / "net.pt2")
    if made.evaluation == "twice":
        module.eval()
        torch.export.save(torch.export.export(module, made.args, made.kwargs, dynamic_shapes=made.dynamic), folder / "net_eval.pt2")
        module.train()
    tensors = {}
    description = {"args": [encoded(value, tensors, f"in.{i}") for i, value in enumerate(made.args)],
                   "kwargs": {key: encoded(value, tensors, f"in.{key}") for key, value in made.kwargs.items()},
                   "refused": made.refused, "evaluation": made.evaluation, "steps": STEPS, "rate": made.rate}
    (folder / "case.json").write_text(json.dumps(description))
    if made.refused is None:
        parameters = dict(module.named_parameters())
        for step in range(STEPS):
            torch.manual_seed(100 + step)
            module.zero_grad()
            output = module(*made.args, **made.kwargs)
            loss = loss_of(output)
            if loss.requires_grad:
                loss.backward()
            if step == 0:
                for i, leaf in enumerate(leaves(output)):
                    tensors[f"out.{i}"] = leaf.detach().clone()
                tensors["loss"] = loss.detach()
                for key, parameter in parameters.items():
                    if parameter.grad is not None:
                        tensors["grad." + key] = parameter.grad.clone()
            step_sgd(parameters.values(), made.rate)
        for key, value in module.state_dict(keep_vars=True).items():
            tensors["after." + key] = value.detach().clone()
        module.eval()
        with torch.no_grad():
            torch.manual_seed(7)
            for i, leaf in enumerate(leaves(module(*made.args, **made.kwargs))):
                tensors[f"eval.{i}"] = leaf.clone()
        if name in BF16:
            tensors.update(trained_in_bf16(name))
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "reference.safetensors")


def main():
    root = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or list(CASES)
    failed = {}
    for name in names:
        try:
            write(name, root / name)
        except Exception as error:  # of Python's own export
            failed[name] = str(error).splitlines()[0][:200] if str(error) else repr(error)
    for name, why in failed.items():
        print(f"{name}: {why}")
    print(f"{len(names) - len(failed)} of {len(names)} programs")


if __name__ == "__main__":
    main()
