"""The command that serves the playground as a web page."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz import web
from rlviz.cli import app, lab


def test_the_page_is_served_on_loopback_with_a_token():
    command = web.page_command(port=9999, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "--ServerApp.port=9999" in command
    assert "--no-browser" in command
    assert not [word for word in command if "token" in word or "password" in word]
    assert ("--allow-root" in command) == (os.name == "posix" and os.geteuid() == 0)
    assert "--no-browser" not in web.page_command(port=8866, browser=True)


def test_without_voila_a_sentence_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "voila" else find(name))
    monkeypatch.setattr(lab, "serve", lambda command, **folders: 0)
    result = CliRunner().invoke(app, ["playground"])
    assert result.exit_code == 2
    assert f"{sys.executable} -m pip install 'rlviz[web]'" in " ".join(result.output.split())


def test_the_command_line_serves_it(monkeypatch):
    served = []
    monkeypatch.setattr(lab, "serve", lambda command, **folders: served.append(command) or 7)
    result = CliRunner().invoke(app, ["playground", "--no-browser", "--port", "9123"])
    assert result.exit_code == 7
    assert served == [web.page_command(port=9123, browser=False)]


@pytest.mark.skipif(os.name != "posix", reason="becomes the server")
def test_voila_finds_the_page_s_own_template(monkeypatch):
    environments = []

    def become(program, command, environment):
        environments.append(environment)
        raise SystemExit(0)

    monkeypatch.setenv("JUPYTER_PATH", "/somewhere/else")
    monkeypatch.setattr(os, "execve", become)
    assert CliRunner().invoke(app, ["playground"]).exit_code == 0
    first, second = environments[0]["JUPYTER_PATH"].split(os.pathsep)
    assert (Path(first) / "voila" / "templates" / "playground" / "index.html.j2").is_file()
    assert second == "/somewhere/else"
    assert (Path(environments[0]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0]) / "labconfig").is_dir()


def test_the_page_is_one_playground():
    (cell,) = json.loads((web.HERE / web.PAGE).read_text(encoding="utf-8"))["cells"]
    names = {}
    *imports, line = cell["source"]
    exec("".join([*imports, "made = ", line]), names)
    assert names["made"].caption.startswith("Press Train.")
