"""A model by its hub name, over HTTP from a small server on this machine that answers as the hub does."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from small_models.policies import load_policy
from tests.small_models.test_policies import save_gpt2

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = """
from small_models.policies import load_policy
policy = load_policy("some-owner/some-model", device="cpu")
print(sum(float(weight.double().sum()) for weight in policy.model.parameters()), policy.end_id)
try:
    load_policy("some-owner/nothing", device="cpu")
except ValueError as error:
    print("refused:", error)
"""


class Hub(BaseHTTPRequestHandler):
    """Files of one repository at /some-owner/some-model/resolve/main/NAME, or its commit's; 404 for all else."""

    def __init__(self, folder, *args):
        self.folder = folder
        super().__init__(*args)

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, *, with_body):
        path = self.path.partition("?")[0].removeprefix("/api/models").removeprefix("/some-owner/some-model")
        name = path.removeprefix("/resolve/main/").removeprefix(f"/resolve/{COMMIT}/")
        if "some-owner/nothing" in self.path:
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)
        elif not path:
            about = {"id": "some-owner/some-model", "sha": COMMIT, "siblings": []}
            self.reply(200, json.dumps(about).encode(), {}, with_body)
        elif name != path and (self.folder / name).is_file():
            body = (self.folder / name).read_bytes()
            self.reply(200, body, {"ETag": f'"{hashlib.sha1(body).hexdigest()}"'}, with_body)
        else:
            self.reply(404, b"{}", {"X-Error-Code": "EntryNotFound"}, with_body)

    def reply(self, status, body, headers, with_body):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_):
        """Stay silent."""


@pytest.fixture
def hub(tmp_path):
    """The folder of the server's files, and its address."""
    (tmp_path / "files").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, tmp_path / "files"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path / "files", f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_model_comes_from_the_hub_and_a_name_that_it_has_not_is_refused(hub, tmp_path):
    files, address = hub
    save_gpt2(files)
    policy = load_policy(files, device="cpu")
    total = sum(float(weight.detach().double().sum()) for weight in policy.model.parameters())
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), "")
    online = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
    }
    result = subprocess.run(
        [sys.executable, "-c", LOAD],
        env={**os.environ, **proxies, **online},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    loaded, refused = result.stdout.splitlines()
    assert loaded == f"{total} {policy.end_id}"
    assert refused.startswith("refused: policy: 'some-owner/nothing' is no folder here, no shipped policy")
