"""What the GPU benchmarks found, as text."""

import json


def goals(row, systems):
    """What is wanted of a system's rate, and what it is."""
    found = []
    for system, against, wanted in row.goals:
        if system in systems and against in systems:
            ratio = systems[system]["value"] / systems[against]["value"]
            found.append({"system": system, "against": against, "wanted": wanted, "ratio": ratio})
    return found


def shown(value):
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def section(result):
    systems = result["systems"]
    reference = next((system["value"] for name, system in systems.items() if name.startswith("PyTorch")), None)
    has_peak = any(system.get("part_of_peak") for system in systems.values())
    lines = [f"## {result['title']}", ""]
    if result["is_small"]:
        lines += ["Small sizes, which prove that it runs: no figure to compare.", ""]
    for trouble in result["trouble"]:
        lines += [f"**Failed: {trouble}**", ""]
    for note in result["notes"]:
        lines += [f"Not measured: {note}.", ""]
    for goal in [] if result["is_small"] else result["goals"]:
        met = "yes" if goal["ratio"] >= goal["wanted"] else "NO"
        lines += [f"{goal['system']} / {goal['against']}: {goal['ratio']:.3g}, wanted at least {goal['wanted']:g}: {met}", ""]
    title = f"| | {result['unit']} | this / first of PyTorch | peak memory, MB | operators in graphs |"
    lines += [title + (" TFLOP/s | of the card's bf16 peak |" if has_peak else ""),
              "|---" * (5 + 2 * has_peak) + "|"]
    for name, system in systems.items():
        replays = system["replays"]
        captured = f"{sum(r['captured'] for r in replays)} of {sum(r['operators'] for r in replays)}" if replays else ""
        spread = f"{shown(system['value'])} ({shown(min(system['values']))} .. {shown(max(system['values']))})"
        ratio = f"{system['value'] / reference:.3g}" if reference else ""
        cells = [name, spread, ratio, f"{system['peak_mb']:,.0f}" if system["peak_mb"] else "", captured]
        if has_peak:
            cells += [f"{system['tflops']:.0f}", f"{100 * system['part_of_peak']:.1f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    if result["matmul_tflops"]:
        lines += [f"A bf16 product of two 8192x8192 matrices: {result['matmul_tflops']:.0f} TFLOP/s.", ""]
    return lines


def objects_in(value):
    """All objects in a JSON value that are a benchmark's result."""
    if isinstance(value, dict):
        if "benchmark" in value:
            yield value
        else:
            for inner in value.values():
                yield from objects_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects_in(inner)


def results_in(text):
    """The newest of each benchmark, in a JSON document or in JSON lines."""
    try:
        documents = [json.loads(text)]
    except json.JSONDecodeError:
        documents = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return list({found["benchmark"]: found for found in objects_in(documents)}.values())


def document(results):
    lines = ["# On a GPU, levin and PyTorch", ""]
    for card, date in dict.fromkeys((result["card"], result["date"]) for result in results):
        versions = next(result["versions"] for result in results if (result["card"], result["date"]) == (card, date))
        lines += [f"{card}; {date}; " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    lines += ["Made by `bench/gpu/run.py`: medians of three rounds in which all systems are timed in turn, on one card, "
              "in processes that are warm. First weights and data are the same; the losses of the first steps were "
              "found equal. levin's steps are those of its Accelerator; `replay` is `--compile replay` with "
              "`--compile-check no`.", ""]
    for result in results:
        lines += section(result)
    return "\n".join(lines).rstrip() + "\n"
