"""Programs of torch.export and what Python's reset_parameters gives their parameters.

    exported_init.py FOLDER

FOLDER/NAME.pt2 for each network, and FOLDER/NAME.safetensors: its state dict after seed 5 and reset_parameters of each module.
"""

import pathlib
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch import nn
from torch.export import export, save

warnings.filterwarnings("ignore")


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv1d(4, 6, 3, groups=2), nn.Conv2d(1, 3, 3), nn.Conv3d(1, 2, 2, bias=False)
        self.d, self.e = nn.ConvTranspose1d(6, 2, 3), nn.ConvTranspose2d(3, 2, 3)
        self.f, self.g, self.h = nn.BatchNorm1d(2), nn.GroupNorm(1, 2), nn.InstanceNorm2d(3, affine=True, track_running_stats=True)

    def forward(self, x):
        image = self.h(self.b(x[:, None]))
        return self.g(self.f(self.d(self.a(x)))), self.e(image), self.c(x[:, None, None].expand(-1, -1, 2, -1, -1))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.bags = nn.Embedding(12, 8, padding_idx=3), nn.EmbeddingBag(12, 8, padding_idx=1)
        self.quiet = nn.Embedding(12, 8, padding_idx=2)
        self.lstm, self.gru = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True, proj_size=4), nn.GRU(8, 8, batch_first=True)
        self.rnn, self.cell = nn.RNN(8, 8, batch_first=True, bias=False), nn.LSTMCell(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
        self.across = nn.MultiheadAttention(8, 2, batch_first=True, kdim=8, vdim=8)
        self.other = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=8)
        self.six, self.norm, self.rms, self.pair = nn.Linear(8, 6), nn.LayerNorm(8), nn.RMSNorm(8), nn.Bilinear(8, 8, 5)
        self.slope = nn.PReLU(8)

    def forward(self, ids):
        with torch.no_grad():
            still = self.quiet(ids)
        x = self.gru(self.lstm(self.words(ids) + still)[0])[0]
        x = self.attention(x, x, x)[0] + self.across(x, x, x)[0]
        x = self.rms(self.norm(self.rnn(x)[0] + self.other(x, self.six(x), x)[0]))
        return self.pair(self.slope(x[:, 0]), self.cell(x[:, 1])[0] + self.bags(ids))


class Translation(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer, self.head = nn.Transformer(8, 2, 1, 1, 16, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.transformer(x, x))


NETWORKS = {
    "convolutions": (Convolutions(), torch.randn(2, 4, 9)[:, :, :9]),
    "language": (Language(), torch.randint(0, 12, (3, 5))),
    "translation": (Translation(), torch.randn(2, 4, 8)),
}


def reset(net):
    """As the constructors draw, which reset MultiheadAttention and Transformer after their children."""
    inside = set()
    for module in net.modules():
        if module in inside:
            continue
        if isinstance(module, nn.MultiheadAttention):
            inside.add(module.out_proj)
            nn.init.kaiming_uniform_(module.out_proj.weight, a=5**0.5)
            module._reset_parameters()
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for module in net.modules():
        if isinstance(module, nn.Transformer):
            module._reset_parameters()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (net, example) in NETWORKS.items():
        net.train()
        with torch.no_grad():
            for tensor in net.state_dict().values():
                tensor.fill_(7)
        save(export(net, (example,)), folder / f"{name}.pt2")
        torch.manual_seed(5)
        reset(net)
        save_file(net.state_dict(), folder / f"{name}.safetensors")


main()
