"""Opens programs that levin::export_program wrote: the outputs at three sizes, the loss and gradients of the training form, ONNX by
torch.onnx.export and onnxruntime, AOTInductor, and, where it is installed, ExecuTorch.

    python program_exports.py FOLDER [--all]

Each case is a folder with eval.pt2, train.pt2, reference.safetensors and case.json. --all compiles every case marked for AOTInductor and
not the first alone; that takes 20 s each.
"""

import importlib.util
import json
import logging
import pathlib
import sys
import warnings

import onnxruntime
import torch
from program_values import leaves, loss_of
from safetensors.torch import load_file

TOLERANCE = 1e-6
# onnxruntime and AOTInductor have kernels of their own.
OTHER_KERNELS = 1e-4
# What ExecuTorch makes of its attention has strides that its own view of the reshape after it does not take.
NOT_IN_EXECUTORCH = {"gpt2"}


def differs(name, got, wanted, tolerance=TOLERANCE):
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return [f"{name}: {got.dtype} {tuple(got.shape)}, wanted {wanted.dtype} {tuple(wanted.shape)}"]
    if wanted.numel() == 0 or torch.equal(got, wanted):
        return []
    off = (got.detach().double() - wanted.double()).abs().max().item()
    most = max(wanted.double().abs().max().item(), 1e-3)
    return [] if off <= tolerance * most else [f"{name}: off by {off} of {most}"]


def inputs_of(reference, names, turn):
    return [reference[f"in.{turn}.{name}"] for name in names]


def outputs_differ(what, run, reference, names, tolerance):
    wrong = []
    for turn in range(3):
        got = leaves(run(*inputs_of(reference, names, turn)))
        wanted = [reference[f"out.{turn}.{i}"] for i in range(sum(key.startswith(f"out.{turn}.") for key in reference))]
        if len(got) != len(wanted):
            wrong.append(f"{what}: {len(got)} outputs, wanted {len(wanted)}")
            continue
        for i, (one, other) in enumerate(zip(got, wanted)):
            wrong += differs(f"{what} output {i} at size {turn}", one, other, tolerance)
    return wrong


def trains(program, reference, names):
    module = program.module()
    torch.manual_seed(3)
    loss = loss_of(module(*inputs_of(reference, names, 0)))
    if loss.requires_grad:
        loss.backward()
    wrong = differs("loss", loss.detach(), reference["loss"])
    # Parameters that are tied are two of one memory, of which the program uses the first.
    parameters = dict(module.named_parameters(remove_duplicate=False))
    by_memory = {each.data_ptr(): each.grad for each in parameters.values() if each.grad is not None and each.numel() > 0}
    gradients = {name: by_memory[each.data_ptr()] for name, each in parameters.items() if each.data_ptr() in by_memory}
    for key, wanted in reference.items():
        if key.startswith("grad."):
            name = key.removeprefix("grad.")
            wrong += differs(key, gradients[name], wanted) if name in gradients else [f"{key}: none"]
        if key.startswith("buffer."):
            wrong += differs(key, dict(module.named_buffers())[key.removeprefix("buffer.")], wanted)
    return wrong


def in_onnx(program, folder, reference, names):
    file = folder / "net.onnx"
    torch.onnx.export(program, dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    # An input that is a result too has another name there.
    own = [each.name for each in session.get_inputs()]
    assert len(own) == len(names), f"inputs {own}, wanted {names}"

    def run(*inputs):
        return [torch.from_numpy(each) for each in session.run(None, {name: tensor.numpy() for name, tensor in zip(own, inputs)})]

    return outputs_differ("onnx", run, reference, names, OTHER_KERNELS)


def compiled(program, folder, reference, names):
    file = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "compiled.pt2"))
    return outputs_differ("AOTInductor", torch._inductor.aoti_load_package(file), reference, names, OTHER_KERNELS)


def on_device(program, folder, reference, names):
    """Its operators take one size as example: the first."""
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    file = folder / "net.pte"
    file.write_bytes(to_edge_transform_and_lower(program).to_executorch().buffer)
    method = Runtime.get().load_program(file).load_method("forward")
    # It may write into its inputs.
    got = method.execute([each.clone() for each in inputs_of(reference, names, 0)])
    return differs("ExecuTorch", got[0], reference["out.0.0"], OTHER_KERNELS)


def check(folder, compiles):
    case = json.loads((folder / "case.json").read_text())
    reference = load_file(folder / "reference.safetensors")
    program = torch.export.load(folder / "eval.pt2")
    names = list(program.module_call_graph[0].signature.forward_arg_names)
    done = ["python"]
    wrong = outputs_differ("python", program.module(), reference, names, TOLERANCE)
    wrong += trains(torch.export.load(folder / "train.pt2"), reference, names)
    if case["onnx"]:
        wrong += in_onnx(program, folder, reference, names)
        done.append("onnx")
    if compiles:
        wrong += compiled(program, folder, reference, names)
        done.append("aoti")
    if case["compiled"] and folder.name not in NOT_IN_EXECUTORCH and importlib.util.find_spec("executorch"):
        wrong += on_device(program, folder, reference, names)
        done.append("executorch")
    return done, wrong


def main():
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    count = {"python": 0, "onnx": 0, "aoti": 0, "executorch": 0}
    failed = False
    for folder in sorted(file.parent for file in root.glob("*/case.json")):
        wanted = json.loads((folder / "case.json").read_text())["compiled"] and (count["aoti"] == 0 or "--all" in sys.argv)
        try:
            done, wrong = check(folder, wanted)
        except Exception as error:
            done, wrong = [], [f"{type(error).__name__}: {error}"]
        for each in done:
            count[each] += 1
        for each in wrong:
            failed = True
            print(f"{folder.name}: {each}")
    print(count)
    if count["python"] < 30 or count["onnx"] < 20:
        failed = True
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
