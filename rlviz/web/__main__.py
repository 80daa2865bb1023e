"""`python -m rlviz.web`: Jupyter Server with what the playground's page greets with, which is too long for a command line."""

from __future__ import annotations

from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from rlviz.web import greeting

if __name__ == "__main__":
    ServerApp.launch_instance(config=Config({"VoilaConfiguration": {"resources": {"greeting": greeting()}}}))
