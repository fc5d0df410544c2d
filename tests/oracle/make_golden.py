"""Writes the golden files that the C++ tests compare with; --check recomputes and compares them.

    python tests/oracle/make_golden.py            writes tests/oracle/golden/
    python tests/oracle/make_golden.py --check    exit code 1 and the differences, if there are any
"""

import argparse
import json
import math
import pathlib
import sys

import safetensors.torch
import torch

import amp
import clipping
import gpt2
import layouts
import lightning_grid
import metrics
import optimizers
import schedules
import text_tokens
import text_training

SUBJECTS = {
    "amp": amp.make,
    "clipping": clipping.make,
    "gpt2": gpt2.make,
    "layouts": layouts.make,
    "lightning": lightning_grid.make,
    "metrics": metrics.make,
    "optimizers": optimizers.make,
    "schedules": schedules.make,
    "text_tokens": text_tokens.make,
    "text_training": text_training.make,
}
GOLDEN = pathlib.Path(__file__).parent / "golden"
# Vector units round differently from machine to machine.
RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-10}
ABSOLUTE = {torch.float32: 1e-6, torch.float64: 1e-12}
# Of subjects that compute in a half type: one rounding more or less is a thousandth. Lightning's
# numbers are kept with 7 digits.
COARSE = {"amp": 2e-2, "lightning": 2e-6}
# Of large ones, no blank more than needed.
COMPACT = {"lightning", "text_tokens", "text_training"}


def write(name, tensors, facts):
    if tensors:
        # Not save_file: it makes files that only their owner may read.
        (GOLDEN / f"{name}.safetensors").write_bytes(safetensors.torch.save(tensors))
    if facts:
        blanks = (",", ":") if name in COMPACT else (", ", ": ")
        lines = [f"  {json.dumps(key)}: {json.dumps(value, separators=blanks)}"
                 for key, value in facts.items()]
        (GOLDEN / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def tensor_difference(got, wanted, coarse):
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {list(got.shape)}, in the file {wanted.dtype} {list(wanted.shape)}"
    rtol, atol = RELATIVE.get(got.dtype, 0.0), ABSOLUTE.get(got.dtype, 0.0)
    if coarse and got.is_floating_point():
        rtol = atol = coarse
    if torch.allclose(got, wanted, rtol=rtol, atol=atol):
        return None
    return f"differs by up to {(got.double() - wanted.double()).abs().max().item():.3g}"


def fact_difference(got, wanted, coarse):
    if isinstance(got, float) and isinstance(wanted, float):
        same = math.isclose(got, wanted, rel_tol=coarse or 1e-6, abs_tol=coarse or 1e-12)
        return None if same else f"{got}, in the file {wanted}"
    if type(got) is not type(wanted):
        return f"{got}, in the file {wanted}"
    if isinstance(got, dict) and got.keys() == wanted.keys():
        return next(filter(None, (fact_difference(got[key], wanted[key], coarse) for key in got)),
                    None)
    if isinstance(got, list) and len(got) == len(wanted):
        return next(filter(None, (fact_difference(*pair, coarse) for pair in zip(got, wanted))), None)
    return None if got == wanted else f"{got}, in the file {wanted}"


def differences(name, kind, made, stored, compare):
    for key in sorted(made.keys() | stored.keys()):
        if key not in stored:
            yield f"{name}.{kind}: {key} is not in the file"
        elif key not in made:
            yield f"{name}.{kind}: {key} is in the file and is no longer made"
        elif difference := compare(made[key], stored[key], COARSE.get(name)):
            yield f"{name}.{kind}: {key} is {difference}"


def check(name, tensors, facts):
    stored_tensors, stored_facts = {}, {}
    tensor_file, fact_file = GOLDEN / f"{name}.safetensors", GOLDEN / f"{name}.json"
    if tensor_file.exists():
        stored_tensors = safetensors.torch.load_file(tensor_file)
    if fact_file.exists():
        stored_facts = json.loads(fact_file.read_text())
    facts = json.loads(json.dumps(facts))
    yield from differences(name, "safetensors", tensors, stored_tensors, tensor_difference)
    yield from differences(name, "json", facts, stored_facts, fact_difference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("subjects", nargs="*", help="all by default: " + ", ".join(SUBJECTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - SUBJECTS.keys():
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    torch.set_num_threads(1)
    found = []
    for name in arguments.subjects or SUBJECTS:
        tensors, facts = SUBJECTS[name]()
        if arguments.check:
            found.extend(check(name, tensors, facts))
        else:
            write(name, tensors, facts)
    if found:
        print("\n".join(found))
        print(f"{len(found)} differences between Python and tests/oracle/golden; run make_golden.py "
              "without --check and look at what changed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
