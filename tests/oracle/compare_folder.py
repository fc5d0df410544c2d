"""Whether levin and transformers compute the same of a folder that transformers has saved.

    python compare_folder.py FOLDER [--program build/bin/model_numbers]

Both read it in float32 and compute a batch of random tokens, one row of it padded. The end is 0 where the
largest difference is at most 1e-5 of the largest number, and 1 where it is not, or where one or both cannot read the
folder: the words of both are printed.
"""

import argparse
import json
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


def computed_by_transformers(folder, ids, mask):
    """The name of the class, and its numbers."""
    config = AutoConfig.from_pretrained(folder)
    cls = getattr(transformers, config.architectures[0]) if config.architectures else AutoModel
    model = cls.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)
    if "start_logits" in output:
        return cls.__name__, torch.stack([output.start_logits, output.end_logits], -1)
    return cls.__name__, output.logits if "logits" in output else output.last_hidden_state


def computed_by_levin(folder, ids, mask, program):
    """The numbers; nothing where it cannot read the folder."""
    with tempfile.TemporaryDirectory() as place:
        inputs, outputs = pathlib.Path(place) / "inputs.safetensors", pathlib.Path(place) / "outputs.safetensors"
        save_file({"input_ids": ids, "attention_mask": mask}, inputs)
        if subprocess.run([program, folder, inputs, outputs]).returncode != 0:
            return None
        given = load_file(outputs)
    return given.get("logits", given["hidden"])


def difference(found, wanted, mask):
    """What differs, in words; and the largest difference, of the largest number."""
    if found.shape != wanted.shape:
        return f"levin gives {tuple(found.shape)}, transformers {tuple(wanted.shape)}", 1
    if wanted.dim() == 3:  # values of padding are nobody's
        found, wanted = (one.masked_fill((mask == 0).unsqueeze(-1), 0) for one in (found, wanted))
    bad = [(~torch.isfinite(one)).sum().item() for one in (found, wanted)]
    if any(bad):
        return f"of {wanted.numel()} numbers {bad[0]} of levin's and {bad[1]} of transformers' are not finite", 1
    apart = (found - wanted).abs()
    largest = (apart.max() / wanted.abs().max()).item()
    place = [int(at) for at in torch.unravel_index(apart.argmax(), apart.shape)]
    return f"largest difference {largest:.1e} of the largest number" + (f", at {place}" if largest > TOLERANCE else ""), largest


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=here.parent.parent / "build/bin/model_numbers")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    try:
        words = json.loads((options.folder / "config.json").read_text())["vocab_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{options.folder}: no vocab_size in a config.json ({error}); give a folder of transformers")
    ids = integers("compare", (3, 24), words)
    mask = torch.ones_like(ids)
    mask[1, 17:] = 0
    problem = None
    try:
        name, wanted = computed_by_transformers(options.folder, ids, mask)
    except Exception as error:  # whatever it is: it is what transformers says of the folder
        problem = f"{type(error).__name__}: {str(error).strip()}"
    found = computed_by_levin(options.folder, ids, mask, options.program)
    if problem or found is None:
        who = "neither levin nor transformers" if problem and found is None else "not transformers, only levin," if problem else "not levin, only transformers,"
        sys.exit(f"{who} can read {options.folder}" + (" (levin's words are above)" if found is None else "") +
                 (f"; transformers says {problem}" if problem else ""))
    words, largest = difference(found, wanted, mask)
    print(f"{options.folder}: {name}, {words}")
    sys.exit(largest > TOLERANCE)


if __name__ == "__main__":
    main()
