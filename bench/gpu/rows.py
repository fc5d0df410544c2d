"""The benchmarks in the order of their worth: systems, how long they run, what is wanted of them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class System:
    name: str
    mode: str
    is_levin: bool = False
    workers: int = 0
    needs_gpu: bool = False

    @property
    def compiles(self):
        return self.mode in ("compile", "reduce-overhead")


def levin(name, mode="eager", workers=0):
    return System(name, mode, is_levin=True, workers=workers)


EAGER, REPLAY, COMPILED = "PyTorch, eager", "levin, replay", "PyTorch, torch.compile"
TRAINING = (levin(REPLAY, "replay"), levin("levin, eager"), System(EAGER, "eager"), System(COMPILED, "compile"))


@dataclasses.dataclass(frozen=True)
class Row:
    title: str
    unit: str
    systems: tuple
    timed: int  # steps of a round
    goals: tuple = ()  # (system, against, at least this many times its rate)
    tolerance: float = 1e-4  # relative, of the losses
    untimed: int = 3  # steps before them in each round, which take up memory again
    measures_card: bool = False

    def steps(self, small):
        return 2 if small else self.timed

    def rounds(self, small):
        return 1 if small else 3

    def warm(self, small):
        """Steps whose losses are compared. levin runs one step as it is, records two, and captures at its third
        replay, so that the last of these are what is timed."""
        return 8 if small else 10


# bfloat16 has 8 bits: the order of sums alone moves a loss by some 1e-3, and the steps that follow add to it.
BF16 = 1e-2
GPT2 = Row("GPT-2 124M: batch 16, 1024 tokens, bf16, AdamW, vocabulary padded to 50304", "tokens/s", TRAINING, 15,
           ((REPLAY, COMPILED, 1.0), (REPLAY, EAGER, 1.1)), BF16, measures_card=True)
ROWS = {
    "gpt2": GPT2,
    "mlp": Row("MLP of 4 layers of 256, batch 64, fp32, Adam: bound by launches", "steps/s",
               (levin(REPLAY, "replay"), levin("levin, eager"), System(EAGER, "eager"),
                System("PyTorch, fused Adam", "fused"),
                System("PyTorch, torch.compile reduce-overhead", "reduce-overhead", needs_gpu=True),
                System("PyTorch, whole step in a CUDA graph by hand", "graph", needs_gpu=True)),
               400, ((REPLAY, EAGER, 5.0),)),
    "resnet50": Row("ResNet-50: batch 128, 224x224, bf16, channels last, SGD with momentum", "images/s", TRAINING, 15,
                    (), 5e-2),
    "minilm": Row("MiniLM (6 layers of 384), LoRA of rank 16 in all linear layers: batch 32, 128 tokens, bf16",
                  "samples/s", TRAINING, 40, (), 2 * BF16),
    "start": Row("From the start of a process to the end of its first step, the MLP; seconds, less is better", "s",
                 (levin("levin"), System("PyTorch", "eager")), 1),
    "loader": Row("Batches of 128 float32 images of 3x224x224 from memory to the device", "images/s",
                  (levin("levin, 0 workers"), levin("levin, 4 workers", workers=4),
                   System("PyTorch, 0 workers", "eager"), System("PyTorch, 4 workers", "eager", workers=4),
                   System("PyTorch, 4 workers, whole batches by indexing", "whole", workers=4)), 16),
    "gpt2-50257": dataclasses.replace(
        GPT2, title="GPT-2 124M as above with the vocabulary as it is, 50257", measures_card=False),
}
