"""The playground as a web page: Voila, as an extension of a Jupyter server, on this machine only."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from rlviz.page.script import classic
from rlviz.runs.recordings import packed
from small_models.checks import pip_install

HERE = Path(__file__).resolve().parent  # in JUPYTER_PATH, so that Voila finds the page's own template
PAGE = "playground.ipynb"
RECORDED = "grpo"  # the run that plays while the kernel starts
EXTENSIONS = {"voila.server_extension": True} | dict.fromkeys(
    ("jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook", "notebook_shim", "nbclassic"), False
)
FRONTEND = ["@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget"]
OWN_MATHJAX = {"mathjax_url": None, "mathjax_config": None}  # else Voila fetches it from a content delivery network
IDLE_SECONDS = 300  # after which a kernel without a page ends, should a closing tab not have ended it


def page_command(*, port: int, browser: bool) -> list[str]:
    """Return the command that serves the page: loopback only, Jupyter's own token on, a kernel for each tab.

    Raises ValueError when Voila is not installed.
    """
    if importlib.util.find_spec("voila") is None:
        raise ValueError(f"the playground as a web page needs Voila: {pip_install('rlviz[web]')}")
    command = [sys.executable, "-m", "rlviz.web", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    command += [f"--ServerApp.root_dir={HERE}", f"--ServerApp.default_url=/voila/render/{PAGE}"]
    command += [f"--ServerApp.jpserver_extensions={EXTENSIONS}", "--ServerApp.answer_yes=True"]
    command += [f"--ServerApp.tornado_settings={OWN_MATHJAX}", "--VoilaConfiguration.template=playground"]
    command += [f"--VoilaConfiguration.extension_allowlist={FRONTEND}"]
    command += [f"--MappingKernelManager.cull_idle_timeout={IDLE_SECONDS}", "--MappingKernelManager.cull_interval=30"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers run as root; loopback and token stay
    return command


def greeting() -> dict[str, str]:
    """Return what the page's template puts into the page before there is a kernel: a recorded run, and what plays it."""
    return {"run": packed(RECORDED), "script": classic("packed", "curves", "player", "greeting")}
