"""The YAML for verl as verl itself reads it: hydra composes it, and verl's own checks pass. Skipped without verl 0.9.1 and hydra.

`pip install --no-deps verl==0.9.1 tensordict==0.10.0 pyvers hydra-core==1.3.2 omegaconf==2.3.0 antlr4-python3-runtime==4.9.3
codetiming orjson`, and Ray: verl as a whole asks for another transformers than the lock has.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlviz import DAPO, GRPO, PPO, TrainSettings, load_policy
from rlviz.algorithms import ALGORITHMS, RELATIVES, PreferenceOptimization
from rlviz.interop import to_verl
from rlviz.interop.writing import yaml_text

hydra = pytest.importorskip("hydra", reason="hydra is not installed")
omegaconf = pytest.importorskip("omegaconf", reason="omegaconf comes with hydra")
verl = pytest.importorskip("verl", reason="verl is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

FAMILY = [a for a in (*ALGORITHMS, *RELATIVES) if not isinstance(a, PreferenceOptimization)]
FREE = "reward.reward_kwargs."  # what a reward manager is called with, whatever it is


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a small model, in place of the reader's."""
    folder = tmp_path_factory.mktemp("verl") / "model"
    load_policy("chain", device="cpu").save(folder)
    return folder


def composed(text, folder, model, *overrides):
    """Return what `python -m verl.trainer.main_ppo --config-dir FOLDER --config-name exported` trains with."""
    (folder / "exported.yaml").write_text(text, encoding="utf-8")
    files = ("data.train_files=train.parquet", "data.val_files=test.parquet", f"actor_rollout_ref.model.path={model}")
    with hydra.initialize_config_dir(str(folder), version_base=None):
        return hydra.compose("exported", overrides=[*files, *overrides])


def validate(config):
    """Do what verl's main does before it starts its workers, and build the options that these begin with."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    omegaconf.OmegaConf.resolve(config)
    assert omegaconf.OmegaConf.missing_keys(config) == {
        "reward.reward_model.rollout.name"
    }  # of a model that is not enabled
    omega_conf_to_dataclass(config.algorithm)
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    if need_critic(config):
        assert config.critic.model.path == config.actor_rollout_ref.model.path


@pytest.mark.parametrize("algorithm", FAMILY, ids=lambda a: a.name)
def test_verl_begins_with_what_is_written(algorithm, model, tmp_path):
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    export = to_verl(algorithm)
    config = composed(yaml_text(export), tmp_path, model)
    validate(config)
    if export.at("advantage").fit == "inexpressible":
        with pytest.raises(ValueError, match="Unknown advantage estimator"):
            get_adv_estimator_fn(config.algorithm.adv_estimator)
    else:
        get_adv_estimator_fn(config.algorithm.adv_estimator)


@pytest.mark.parametrize(
    ("settings", "accumulation"),
    [
        (TrainSettings(num_prompts=8, group_size=4, minibatches=2, updates_per_rollout=4), 4),
        (TrainSettings(micro_batch_tokens=4096), 1),
    ],
    ids=["minibatches, accumulated", "parts by tokens"],
)
@pytest.mark.parametrize("algorithm", [PPO, GRPO], ids=lambda a: a.name)
def test_verl_begins_with_other_settings(algorithm, settings, accumulation, model, tmp_path):
    validate(composed(yaml_text(to_verl(algorithm, settings, accumulation=accumulation)), tmp_path, model))


def test_every_option_is_one_of_verl_s(model, tmp_path):
    """Hydra takes an option that verl has not without a word."""
    own = composed("defaults: [ppo_trainer]\nhydra: {searchpath: ['pkg://verl.trainer.config']}", tmp_path, model)
    named = {name for algorithm in FAMILY for name in to_verl(algorithm).fields if not name.startswith(FREE)}
    unknown = []
    for name in named:
        folder, _, last = name.rpartition(".")
        unknown += [name] if last not in set(omegaconf.OmegaConf.select(own, folder)) else []
    assert unknown == [] and len(named) > 60


def test_the_warm_up_is_that_of_verl_s_scheduler_which_goes_on_once_a_rollout():
    from verl.utils.torch_functional import get_constant_schedule_with_warmup

    worker = (Path(verl.__file__).parent / "workers" / "engine_workers.py").read_text(encoding="utf-8")
    assert "update_lr_scheduler=batch_idx == total_num_iterations - 1" in worker  # the last update of a rollout
    settings = TrainSettings(updates_per_rollout=8, lr_warmup_steps=5)
    fields = to_verl(DAPO, settings).fields
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = get_constant_schedule_with_warmup(optimizer, fields["actor_rollout_ref.actor.optim.lr_warmup_steps"])
    theirs = []
    for _ in range(8):
        theirs.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    ours = [min(1.0, (rollout + 1) / 5) for rollout in range(8)]
    assert [mine - other for mine, other in zip(ours, theirs, strict=True)] == pytest.approx([0.2] * 5 + [0] * 3)
    line = to_verl(DAPO, settings).at("settings: warm-up")
    assert line.fit == "approximate" and "20% of the peak less than ours" in line.why
