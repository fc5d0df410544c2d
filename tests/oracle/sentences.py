"""Sentences and what sentence-transformers makes of them.

    python sentences.py MODEL FOLDER COUNT     writes FOLDER/sentences.txt, a line each, and FOLDER/vectors.safetensors
"""

import pathlib
import random
import sys

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer


def sentences(count):
    """Of words in several scripts, short ones as a rule, some longer than the model reads."""
    source = random.Random("sentences")
    words = pathlib.Path(__file__).read_text().split() + pathlib.Path(__file__).with_name("README.md").read_text().split()
    words += "naïve Überraschung señor Привет мир 你好 世界 こんにちは मानक 안녕하세요 don't 3.14 e-mail@example.org \U0001f600".split()
    for number in range(count):
        length = source.choice((1, 3, 8, 8, 15, 15, 30)) if number % 50 else source.choice((200, 260, 400))
        yield " ".join(source.choice(words) for _ in range(length))


def main():
    torch.set_num_threads(2)
    model, folder, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    texts = ["", " "] + list(sentences(count - 2))
    encoder = SentenceTransformer(model, device="cpu")
    vectors = encoder.encode(texts, convert_to_tensor=True, show_progress_bar=False)
    (folder / "sentences.txt").write_text("".join(text + "\n" for text in texts))
    save_file({"vectors": vectors.contiguous()}, folder / "vectors.safetensors")


if __name__ == "__main__":
    main()
