"""A diagnosis as a page to hand on: what is unusual, and beneath it the run's curves, with tokens where they were recorded."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlviz.markup import Markup, element, joined
from rlviz.page.widget import ALONE, fragment, pack, page
from rlviz.runs.curves import Curve, Graph, Series, bind_data, build_picture, page_payload
from rlviz.runs.diagnosis import diagnose, runs_in
from rlviz.runs.inspector import inspect_run
from rlviz.runs.logs import ImportedRun, import_run, is_rlviz_run
from rlviz.training.files import write_text
from rlviz.types import PART

MOST = 120  # steps with their tokens
COLOURS = ("blue", "vermilion", "green", "grey")
GRAPHS = (
    Graph("Reward", "mean of a step", 0.05, (
        Curve("reward", ""), Curve("held_out_accuracy", "held out", "vermilion", marker="o"))),
    Graph("Entropy", "nats per token", 0.05, (Curve("entropy", ""),)),
    Graph("KL to the reference", "nats per token", 0.01, (Curve("kl", ""),)),
    Graph("Norm of the gradient", "", 0.05, (Curve("grad_norm", ""),)),
    Graph("Groups of equal rewards, responses cut off", "share", 1.02, (
        Curve("zero_variance_groups", "equal"), Curve("truncated", "cut off", "vermilion", dash="6 3"))),
    Graph("Response length", "tokens", 1.0, (Curve("response_length", ""),)),
    Graph("Clipped tokens", "share", 0.05, (
        Curve("clip_fraction_high", "above limit"), Curve("clip_fraction_low", "below limit", "vermilion", dash="6 3"))),
    Graph("Sampler and trainer", "log-probability apart", 0.01, (Curve("sampler_logp_gap", ""),)),
    Graph("Sampler and trainer", "probability apart", 0.01, (Curve("sampler_prob_gap", ""),)),
    Graph("Margin of implicit rewards", "β · nats", 0.05, (Curve("margin", ""),)),
    Graph("Pairs in order", "share", 1.02, (Curve("pair_accuracy", ""),)),
    Graph("Loss", "", 0.01, (Curve("loss", ""),)),
)  # fmt: skip


def save_report(run: str | os.PathLike[str], out: str | os.PathLike[str], *, most: int = MOST) -> Path:
    """Write what `diagnose` says of a run, and the run itself, as a page that needs no kernel and no network.

    run: a run folder, the folder of a comparison, or a log of TRL or verl, as `import_run` reads it. most: steps that have their
    tokens in the page. Raises ValueError for another ending than .html, and what `diagnose` raises.
    """
    file = Path(out)
    if file.suffix != ".html":
        raise ValueError(f"out must end in .html; got {file.name!r}")
    parts: list[Markup] = []
    for folder in runs_in(run) if is_rlviz_run(run) else [Path(run)]:
        log = None if is_rlviz_run(folder) else import_run(folder)
        findings = Markup(diagnose(folder if log is None else log)._repr_html_())
        style = "max-width: 60em; margin: 1em auto; font: 15px/1.45 system-ui, sans-serif"
        parts.append(element("section", findings, style=style))
        if log is None:
            parts.append(inspect_run(folder).html(most=most))
            continue
        parts.append(_curves(log))
        if log.groups:
            with tempfile.TemporaryDirectory() as temporary:
                parts.append(inspect_run(log.save(Path(temporary) / "run")).html(most=most))
    write_text(file, page(f"rlviz: {Path(run).name}", joined(*parts)))
    return file


def _curves(log: ImportedRun) -> Markup:
    """Return the curves of all that was logged and has a place in GRAPHS."""
    logged = log.logged.rename(columns=str)
    graphs = [replace(graph, curves=tuple(c for c in graph.curves if c.column in logged)) for graph in GRAPHS]
    names = [name for name in logged if name.startswith(PART)]
    parts = tuple(Curve(name, name.removeprefix(PART), c) for name, c in zip(names, cycle(COLOURS), strict=False))
    if len(parts) > 1:
        graphs.insert(1, Graph("Parts of the reward", "mean", 0.05, parts))
    graphs = [graph for graph in graphs if graph.curves]
    rows = logged.astype(object).where(logged.notna(), None).to_dict("records")
    records: list[Any] = [SimpleNamespace(**row) for row in rows]
    series = [Series(log.name, [records])]
    picture = replace(build_picture(series, graphs), columns=3)
    bound = bind_data(series, int(logged["step"].max()), "", graphs)
    return fragment(pack(page_payload(picture, bound)), caption="", inside=Markup(), files=ALONE, show="mount")
