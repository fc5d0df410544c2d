"""Whether levin and transformers compute the same of a folder that transformers has saved.

    python compare_folder.py FOLDER [--program build/bin/model_numbers]

Both read it in float32 and compute a batch of random tokens, one row of it padded. The end is 0 where the
largest difference is at most 1e-5 of the largest number, and 1 where it is not.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from draw import integers

TOLERANCE = 1e-5


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=here.parent.parent / "build/bin/model_numbers")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()

    config = AutoConfig.from_pretrained(options.folder)
    cls = getattr(transformers, config.architectures[0]) if config.architectures else AutoModel
    model = cls.from_pretrained(options.folder, dtype=torch.float32).eval()
    ids = integers("compare", (3, 24), config.vocab_size)
    mask = torch.ones_like(ids)
    mask[1, 17:] = 0
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)
    if "start_logits" in output:
        wanted = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        wanted = output.logits if "logits" in output else output.last_hidden_state

    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = pathlib.Path(folder) / "inputs.safetensors", pathlib.Path(folder) / "outputs.safetensors"
        save_file({"input_ids": ids, "attention_mask": mask}, inputs)
        done = subprocess.run([options.program, options.folder, inputs, outputs])
        if done.returncode != 0:
            sys.exit(f"levin could not read {options.folder} (its message is above)")
        given = load_file(outputs)
    found = given.get("logits", given["hidden"])
    if found.shape != wanted.shape:
        sys.exit(f"levin gives {tuple(found.shape)}, transformers {tuple(wanted.shape)}")
    if wanted.dim() == 3:  # values of padding are nobody's
        found, wanted = found[mask == 1], wanted[mask == 1]
    difference = ((found - wanted).abs().max() / wanted.abs().max()).item()
    print(f"{options.folder}: {cls.__name__}, largest difference {difference:.1e} of the largest number")
    sys.exit(difference > TOLERANCE)


if __name__ == "__main__":
    main()
