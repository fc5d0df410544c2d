"""What scaling.py writes: tables, errors and the plot."""

import re
import statistics

import report
import scaling_model as model
import scaling_plot

NAMES = {"mlp_10m": "MLP of 10 M", "gpt_10m": "GPT of 10 M"}
RANKS_PER_HOST = 8
RANKS = [2**power for power in range(11)]
STRONG_BATCH = 1024  # samples of all ranks together


def parts(results, fitted):
    """Markdown by the name of the marker that it stands at."""
    errors = list(all_errors(results, fitted))
    return {name: "\n".join(lines) for name, lines in {
        "machine": machine_lines(results),
        "fit": fit_lines(fitted),
        "measured": measured_lines(fitted),
        "errors": error_summary(errors),
        "tables": table_lines(fitted),
        "plot": ["![Efficiency of weak scaling by ranks: the model and what was measured](scaling.svg)"],
        "every-error": error_lines(errors),
    }.items()}


def filled(text, parts):
    """The text with what stands between `<!-- NAME -->` and `<!-- end -->` replaced."""
    for name, lines in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda found: found[1] + lines + "\n" + found[2], text)
        if count != 1:
            raise SystemExit(f"the marker <!-- {name} --> is there {count} times, wanted once")
    return text


def percent(share):
    return f"{share * 100:.0f} %"


def milliseconds(us):
    return report.number(us / 1e3)


def machine_lines(results):
    of = results["machine"]
    return [f"{of['cpu']}, {results['cores']} cores, {of['memory_gb']} GB, {of['system']}; "
            f"load {of['load_before']} before the run. {of['compiler']}, {of['build_type']}, torch "
            f"{of['torch']}; {of['date']}. Medians of {results['rounds']} rounds, one thread a rank."]


def fit_lines(fitted):
    yield "| | alpha, us | beta, ns a byte | that is |"
    yield "|---|---|---|---|"
    for backend, line in fitted.lines.items():
        rate = f"{1e-3 / line.beta:.2g} GB/s" if line.beta else ""
        yield f"| {backend} | {line.alpha:.3g} | {line.beta * 1e3:.3g} | {rate} |"
    yield ""
    yield "| | a step, ms | and a sample, ms | slower with 2 processes | with 4 | buckets, MB |"
    yield "|---|---|---|---|---|---|"
    for name, work in fitted.works.items():
        slower = fitted.slowdown[name]
        sizes = ", ".join(f"{size / 1e6:.1f}" for size, _ in work.plan)
        yield (f"| {NAMES[name]} | {milliseconds(work.compute.alpha)} | {milliseconds(work.compute.beta)} "
               f"| x{slower[2]:.2f} | x{slower[4]:.2f} | {sizes} |")


def step_points(fitted):
    """(work, backend, ranks, batch of a rank, scaling, measured us, model's us)"""
    for (name, backend, ranks, batch), us in fitted.medians["steps"].items():
        ranks, batch = int(ranks), int(batch)
        kind = "weak" if (name, str(batch)) == full_batch(fitted, name) else "strong"
        yield name, backend, ranks, batch, kind, us, fitted.step(name, backend, ranks, batch)


def full_batch(fitted, name):
    return max((at for at in fitted.medians["alone"] if at[0] == name), key=lambda at: int(at[1]))


def measured_lines(fitted):
    yield ("| | scaling | ranks | batch of a rank | shm, ms | efficiency | of what the cores allow | "
           "gloo, ms | efficiency | of what the cores allow |")
    yield "|---" * 10 + "|"
    rows = {}
    for name, backend, ranks, batch, kind, us, _ in step_points(fitted):
        one = fitted.medians["alone"][full_batch(fitted, name)]
        efficiency = one / us / (ranks if kind == "strong" else 1)
        allowed = fitted.works[name].alone(batch, fitted.slowdown[name][ranks]) / us
        rows.setdefault((name, kind, ranks, batch), []).append(
            f"{milliseconds(us)} | {percent(efficiency)} | {percent(allowed)}")
    for name in fitted.works:
        at = full_batch(fitted, name)
        one = milliseconds(fitted.medians["alone"][at])
        yield f"| {NAMES[name]} | | 1 | {at[1]} | {one} | 100 % | 100 % | {one} | 100 % | 100 % |"
        for (of, kind, ranks, batch), cells in sorted(rows.items(), key=lambda row: row[0][1:3]):
            if of == name:
                yield f"| {NAMES[name]} | {kind} | {ranks} | {batch} | {' | '.join(cells)} |"


def all_errors(results, fitted):
    """(group, point, measured us, model's us), a group being fitted to its points or not."""
    for (backend, ranks, size), us in fitted.medians["all_reduce"].items():
        ranks, size = int(ranks), int(size)
        kind = "fitted" if ranks == 2 else "predicted"
        yield (f"all-reduce over {backend}, {ranks} ranks ({kind})", f"{size:,} bytes", us,
               fitted.all_reduce(backend, ranks)(size))
    for (name, batch), us in fitted.medians["alone"].items():
        yield ("step of 1 rank (fitted)", f"{NAMES[name]}, batch {batch}", us,
               fitted.works[name].alone(int(batch)))
    for name, backend, ranks, batch, kind, us, predicted in step_points(fitted):
        yield (f"step of {ranks} ranks over {backend} (predicted)",
               f"{NAMES[name]}, {kind}, batch {batch}", us, predicted)


def error_summary(errors):
    groups = {}
    for group, _, us, predicted in errors:
        groups.setdefault(group, []).append(predicted / us - 1)
    yield "| | points | median of the error's size | worst |"
    yield "|---|---|---|---|"
    for group, values in groups.items():
        worst = max(values, key=abs)
        yield (f"| {group} | {len(values)} | {percent(statistics.median(map(abs, values)))} | "
               f"{worst * 100:+.0f} % |")


def error_lines(errors):
    yield "| | | measured, us | model, us | error |"
    yield "|---|---|---|---|---|"
    for group, point, us, predicted in errors:
        yield (f"| {group} | {point} | {report.number(us)} | {report.number(predicted)} | "
               f"{(predicted / us - 1) * 100:+.0f} % |")


def cluster_step(fitted, name, cluster, ranks, batch, way, hides=True):
    """Two processes' sharing of memory here stands for that of any number there."""
    slowdown = fitted.slowdown[name][min(ranks, 2)]
    return fitted.works[name].step(batch, lambda size: way(cluster)(size, ranks) if ranks > 1 else 0.0,
                                   slowdown, hides)


def flat(cluster):
    return cluster.flat


def hierarchical(cluster):
    return cluster.hierarchical


def table_lines(fitted):
    for name, work in fitted.works.items():
        batch = int(full_batch(fitted, name)[1])
        for cluster in fitted.clusters(RANKS_PER_HOST):
            yield f"### {NAMES[name]}, weak, {batch} samples a rank; {cluster.network.name}"
            yield ("| ranks | hosts | flat ring, ms | efficiency | hierarchical, ms | efficiency | "
                   "with nothing hidden |")
            yield "|---" * 7 + "|"
            for ranks in RANKS:
                times = [cluster_step(fitted, name, cluster, ranks, batch, flat),
                         cluster_step(fitted, name, cluster, ranks, batch, hierarchical),
                         cluster_step(fitted, name, cluster, ranks, batch, hierarchical, False)]
                shares = [work.alone(batch) / us for us in times]
                yield (f"| {ranks:,} | {max(1, ranks // RANKS_PER_HOST)} | {milliseconds(times[0])} | "
                       f"{percent(shares[0])} | {milliseconds(times[1])} | {percent(shares[1])} | "
                       f"{percent(shares[2])} |")
            yield ""
    yield f"### Strong, {STRONG_BATCH:,} samples of all ranks together, hierarchical"
    columns = [(name, cluster) for name in fitted.works for cluster in fitted.clusters(RANKS_PER_HOST)]
    yield ("| ranks | " + " | ".join(f"{NAMES[name]}, {cluster.network.name}, ms | efficiency"
                                     for name, cluster in columns) + " |")
    yield "|---" * (1 + 2 * len(columns)) + "|"
    for ranks in RANKS:
        cells = []
        for name, cluster in columns:
            us = cluster_step(fitted, name, cluster, ranks, STRONG_BATCH / ranks, hierarchical)
            share = fitted.works[name].alone(STRONG_BATCH) / ranks / us
            cells.append(f"{milliseconds(us)} | {percent(share)}")
        yield f"| {ranks:,} | {' | '.join(cells)} |"


def plot(fitted):
    """Efficiency of weak scaling by ranks, an SVG."""
    panels = []
    for name, work in fitted.works.items():
        batch = int(full_batch(fitted, name)[1])
        curves = [(cluster.network.name, label, [
            (ranks, work.alone(batch) / cluster_step(fitted, name, cluster, ranks, batch, way))
            for ranks in RANKS])
            for cluster in fitted.clusters(RANKS_PER_HOST)
            for label, way in (("hierarchical", hierarchical), ("flat ring", flat))]
        one = fitted.medians["alone"][full_batch(fitted, name)]
        # The curves have a core for each rank.
        dots = [(1, 1.0)] + [(ranks, one / us * max(1.0, ranks / fitted.cores))
                             for of, backend, ranks, _, kind, us, _ in step_points(fitted)
                             if (of, backend, kind) == (name, "shm", "weak")]
        panels.append((f"{NAMES[name]}, {batch} samples a rank", curves, dots))
    return scaling_plot.svg(panels, "measured over shm; where ranks share a core, by the number of cores")
