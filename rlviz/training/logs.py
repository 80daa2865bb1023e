"""Metrics where people look: TensorBoard, Weights & Biases, Trackio, MLflow. A row a logger; each is imported when asked for."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from rlviz.names import closest
from rlviz.training.files import write_json
from rlviz.training.run import TrainingRun
from rlviz.training.run_folder import metrics_of
from small_models.checks import pip_install, shown
from small_models.files import convert, read_json, reason, said

FILE = "log.json"  # of a run's folder: its logger, and by which id that goes on with the run's log
LONGEST_ID = 250  # characters
NOT_LOGGED = ("step",)


@dataclass(frozen=True)
class Log:
    """A log that is open. id: by which it is gone on with; write: (numbers by name, step); close: finish it."""

    id: str
    write: Callable[[dict[str, float], int], Any]
    close: Callable[[], Any]


@dataclass(frozen=True)
class Begun:
    """What a logger begins with. folder: the run's; config: of the run; id: of the log that it goes on with, None: a new one;
    step: how many steps are done.
    """

    folder: Path
    config: dict[str, Any]
    id: str | None
    step: int

    @property
    def name(self) -> str:
        return self.folder.resolve().name


def _tensorboard(begun: Begun) -> Log:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(begun.folder / "tensorboard"), purge_step=begun.step + 1 if begun.id else None)
    if begun.id is None:
        writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in begun.config.items()))

    def write(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return Log("tensorboard", write, writer.close)


def _wandb(begun: Begun) -> Log:
    import wandb

    run = begun.id or uuid4().hex[:8]
    wandb.init(project="rlviz", name=begun.name, id=run, resume="allow", config=begun.config, dir=str(begun.folder))
    return Log(run, lambda numbers, step: wandb.log(numbers, step=step), wandb.finish)


def _trackio(begun: Begun) -> Log:
    import trackio

    name = begun.id or f"{begun.name}-{uuid4().hex[:8]}"
    trackio.init(project="rlviz", name=name, config=begun.config, resume="allow")
    return Log(name, lambda numbers, step: trackio.log(numbers, step=step), trackio.finish)


def _mlflow(begun: Begun) -> Log:
    import mlflow

    if begun.id is None:
        mlflow.set_experiment("rlviz")
        run = mlflow.start_run(run_name=begun.name)
        mlflow.log_params({name: str(value)[:500] for name, value in begun.config.items()})
    else:
        run = mlflow.start_run(run_id=begun.id)
    return Log(run.info.run_id, lambda numbers, step: mlflow.log_metrics(numbers, step=step), mlflow.end_run)


@dataclass(frozen=True)
class Logger:
    """A logger. package: what must be installed for it."""

    package: str
    begin: Callable[[Begun], Log]


LOGGERS: Mapping[str, Logger] = MappingProxyType(
    {
        "tensorboard": Logger("tensorboard", _tensorboard),
        "wandb": Logger("wandb", _wandb),
        "trackio": Logger("trackio", _trackio),
        "mlflow": Logger("mlflow", _mlflow),
    }
)


@dataclass(frozen=True)
class _Kept:
    log: str
    id: str


def check_log(log: str) -> str:
    """Return the logger's name. Raises ValueError for an unknown one, and with the pip command for one that is not installed."""
    name = closest("log", log, list(LOGGERS))
    package = LOGGERS[name].package
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"log: {package} is not installed; install it with: {pip_install(package)}")
    return name


def log_of(folder: str | os.PathLike[str]) -> str | None:
    """Return the logger of a run's folder, None where it has none. Raises ValueError where log.json is damaged."""
    kept = _kept(Path(folder))
    return None if kept is None else kept.log


def _kept(folder: Path) -> _Kept | None:
    file = folder / FILE
    if not os.path.lexists(file):
        return None
    kept = convert(read_json(file, dict), _Kept, said(file))
    if kept.log not in LOGGERS or not (0 < len(kept.id) <= LONGEST_ID and kept.id.isprintable()):
        raise ValueError(f"{said(file)} names no log that can be gone on with; got {shown(kept.log)}, {shown(kept.id)}")
    return kept


def logged(
    run: TrainingRun[Any], log: str, *, warn: Callable[[str], Any] = warnings.warn
) -> Generator[Any, None, None]:
    """Yield the run's records and write their numbers to a logger: tensorboard (into the run's folder), wandb, trackio or mlflow.

    The run needs a folder, whose log.json says how its log is gone on with when the run is. A log that fails on the way ends,
    which `warn` is told, and the run goes on: its own folder has all. Raises ValueError for an unknown logger, for one that is
    not installed, and where it cannot begin.
    """
    name = check_log(log)
    if run.folder is None:
        raise ValueError("log: a run without a folder keeps nothing to go on with; give train(…, out=FOLDER)")
    writing: Log | None = _begin(name, run)
    try:
        for record in run:
            if writing is not None:
                writing = _written(name, writing, record, warn)
            yield record
    finally:
        if writing is not None:
            with suppress(Exception):  # the run is kept, whatever becomes of its log
                writing.close()


def _begin(name: str, run: TrainingRun[Any]) -> Log:
    assert run.folder is not None
    folder = run.folder.path
    kept = _kept(folder)
    same = kept is not None and kept.log == name
    config = _flat(run.folder.config)
    try:
        log = LOGGERS[name].begin(Begun(folder, config, kept.id if kept is not None and same else None, run.step))
    except Exception as error:  # of many unrelated types
        how = "; WANDB_MODE=offline keeps it on this machine" if name == "wandb" else ""
        raise ValueError(f"log: {name} cannot begin ({reason(error)}){how}") from error
    if not same:
        write_json(folder / FILE, {"log": name, "id": log.id})
    return log


def _written(name: str, log: Log, record: Any, warn: Callable[[str], Any]) -> Log | None:
    """Write a record's numbers; return the log, None where that failed."""
    numbers = {
        metric: float(value)
        for metric, value in metrics_of(record).items()
        if isinstance(value, Real) and metric not in NOT_LOGGED
    }
    try:
        log.write(numbers, record.step)
    except Exception as error:
        warn(
            f"log: {name} failed at step {record.step} ({reason(error)}) and ends; the run goes on, and its folder has all"
        )
        with suppress(Exception):
            log.close()
        return None
    return log


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return flat
