"""`rlviz explain`: text for people, JSON for programs, a file or what is piped in, refusals in a sentence."""

import json

import pytest
from typer.testing import CliRunner

from rlviz.cli import app

TEXT = "num_generations: 8\nbeta: 0.04\nloss_type: grpo\nuse_bias_correction_kl: false\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "grpo.yaml"
    path.write_text(TEXT)
    return path


def test_text_says_what_it_is(rlviz, config):
    result = rlviz("explain", config, "--devices", 4)
    assert result.exit_code == 0, result.output
    assert "GRPO, as in its paper." in result.output and "Batch: 4 devices × 8 × 1" in result.output


def test_json_has_every_part(rlviz, config):
    told = json.loads(rlviz("explain", config, "--format", "json").output)
    assert (told["algorithm"], told["kind"], told["differs"]) == ("GRPO", "GRPOConfig", [])
    assert {"slots", "batch", "columns", "first_ten_steps", "without_effect", "symptoms", "unknown", "unread"} <= set(
        told
    )


def test_what_is_piped_in_is_read():
    result = CliRunner().invoke(
        app, ["explain", "-"], input="actor_rollout_ref.actor.clip_ratio_high=0.28 algorithm.adv_estimator=grpo"
    )
    assert result.exit_code == 0 and result.output.startswith("ppo_trainer.yaml, read as verl")


def test_an_option_says_what_it_configures(rlviz, tmp_path):
    (tmp_path / "x.yaml").write_text("beta: 0.1")
    assert "say which with kind" in rlviz("explain", tmp_path / "x.yaml").stderr
    assert rlviz("explain", tmp_path / "x.yaml", "--kind", "DPOConfig").output.startswith("DPOConfig")


@pytest.mark.parametrize("text", ["", "beta: [", "GRPOConfig("])
def test_refusals_are_one_sentence(rlviz, tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    for path in (tmp_path / "x.yaml", tmp_path / "none.yaml"):
        result = rlviz("explain", path)
        assert (
            result.exit_code == 2
            and len(result.stderr.strip().splitlines()) == 1
            and result.stderr.startswith("Error: ")
        )


def test_what_stands_in_a_file_is_not_obeyed(rlviz, tmp_path):
    (tmp_path / "x.py").write_text("GRPOConfig(num_generations=8, beta=f('\x1b[31m[red]'), **{'[bold]': 1})")
    result = rlviz("explain", tmp_path / "x.py")
    assert result.exit_code == 0 and "\x1b" not in result.output and "[red]" in result.output
