"""`train` begins a run, `resume` continues one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn

import rlviz
from rlviz.algorithms import find_algorithm
from rlviz.algorithms.describe import from_json, to_json
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.names import nearest
from rlviz.settings import (
    LARGE_LR,
    LORA_LR,
    SMALL_LR,
    PairSettings,
    Settings,
    TrainSettings,
    UsualNumber,
    declarations,
    settings_from,
)
from rlviz.training.files import write_json
from rlviz.training.preferences import PreferenceRun
from rlviz.training.reading import ADVICE
from rlviz.training.run import RolloutRun, TrainingRun, compute_precision
from rlviz.training.run_folder import RunFolder
from rlviz.training.settings import default_settings
from rlviz.training.state import Beginning
from rlviz.training.tasks import check_prompts, find_task, is_file, start_of
from small_models.adapters import has_adapter
from small_models.checks import check_type, checked, cut, short_repr
from small_models.files import display_path, reason
from small_models.memory import check_fits, check_logits_fit
from small_models.pairs import Pair, make_pairs
from small_models.policies import SMALL, Policy, choose_device, count_weights, load_policy, recompute_activations
from small_models.scorers import RewardModel
from small_models.tasks import FileTask, Task, with_reward
from small_models.tasks.base import Reward
from small_models.tasks.file_task import Chat
from small_models.tokenizer import ShippedTokenizer

LORA_BYTES = 4  # of a weight: itself, as adapters are small
RUN_BYTES = 5 * 4  # of a weight: itself, its gradient, Adam's two moments, and in the policy that the run began with


def train(
    policy: Policy | Task | str,
    task: Task | Algorithm | str,
    algorithm: Algorithm | Settings | str | None = None,
    settings: Settings | None = None,
    *,
    reward: Reward | None = None,
    reward_model: RewardModel | None = None,
    pairs: Sequence[Pair] | None = None,
    reference: Policy | str | None = None,
    out: str | os.PathLike[str] | None = None,
    **unknown: Any,
) -> TrainingRun[Any]:
    """Return a run to iterate over: `for record in train("chain", GRPO): …`.

    `train(task, algorithm, settings)` trains the task's own policy, its warm start; `train(policy, task, algorithm, settings)`
    a policy of yours, which changes in place. Each of the three may be a name, as in `rlviz train`.
    settings: `TrainSettings` for an algorithm that samples, `PairSettings` for one of pairs; `default_settings(algorithm)`
    unless given. reward: a function of prompt and response in place of the task's reward, which returns a number, or numbers by
    name that add up; the accuracy stays the task's. reward_model: scores responses in place of both; a copy of it is used. pairs:
    what an algorithm of pairs learns from (None: responses of the policy, higher against lower reward), or what the reward model
    learned from, for its refreshes to replay. reference: π_ref in place of the policy that the run begins with, such as the
    teacher that distillation learns from: a policy (a copy of it is used), or the name or folder of one, of the same vocabulary.
    With `out`, the run is kept in that folder and can be resumed. The same seed on the same machine's CPU gives the
    same curve. Raises ValueError for unknown names, settings out of range and what is of the wrong kind, FileExistsError when
    `out` is not empty, OSError in one sentence when it cannot be written; while it trains, OSError again, and
    FloatingPointError at the first loss or gradient that is not finite, RewardError at such a reward and where a rule raises.
    TypeError for an argument that it has not.
    """
    for name in unknown:
        _raise_unknown(name)
    policy, task, algorithm, settings = _resolve(policy, task, algorithm, settings)
    check_type("reward", reward, Callable | None)
    task = task if reward is None else with_reward(task, reward)
    check_type("reward_model", reward_model, RewardModel | None)
    check_type("pairs", pairs, Sequence[Pair] | None)
    check_type("reference", reference, Policy | str | None)
    check_type("out", out, str | os.PathLike | None)
    reference = None if reference is None else _load_reference(reference, policy)
    if isinstance(algorithm, PreferenceOptimization) and pairs is None and isinstance(settings, PairSettings):
        longest = settings.max_new_tokens
        pairs = make_pairs(policy, task, settings.num_pairs, seed=settings.seed, max_new_tokens=longest)
    copied = None if reward_model is None else reward_model.copy()
    begun = Beginning(policy, policy.as_reference(), task, algorithm, settings, copied, pairs, reference)
    run = _new_run(begun, None)
    if out is not None:
        config = {
            "rlviz": rlviz.__version__,
            **task.described,
            "policy": policy.source,
            "algorithm": to_json(algorithm),
            "settings": asdict(settings),
            "path": run.path,
        }
        if reference is not None:
            config["reference"] = reference.source
        if reward is not None:
            config["reward"] = getattr(reward, "__name__", type(reward).__name__)
        folder = RunFolder.create(out)
        try:
            folder.save_start(replace(begun, start=run.start))
            run.folder = folder
            run.save()
            folder.finish_beginning(config)
        except BaseException:
            folder.release("could not begin")
            shutil.rmtree(folder.path, ignore_errors=True)  # it was empty before
            raise
    return run


def policy_to_train(source: str | os.PathLike[str], device: str = "auto", lora: int | None = None) -> Policy:
    """Return `load_policy(source)`; raises ValueError, before it is read, where a run of it would not fit into memory."""
    number = count_weights(source)
    check_fits(
        (RUN_BYTES if lora is None else LORA_BYTES) * number,
        choose_device(device),
        f"policy: a run of the {number:,} weights in {source}, with the policy that it began with, gradients and Adam's moments,",
        "begin with a smaller one, or with a LoRA adapter (--lora 16), or take the algorithm to a larger machine: `rlviz export` "
        "writes it for TRL and verl",
    )
    return load_policy(source, device=device, lora=lora)


def task_and_policy(
    task: str, policy: str | None, *, rule: str | None, chat: Chat, device: str, lora: int | None = None
) -> tuple[Task, Policy]:
    """Return task and policy by name (None: the task's warm start); prompts of a file are in the policy's chat format.

    lora: the rank of an adapter that is put on the policy (None: none).
    """
    if not is_file(task):
        shipped = find_task(task, rule=rule, chat=chat)
        return shipped, policy_to_train(policy or start_of(shipped), device, lora)
    if policy is None:
        raise ValueError(f"policy is missing: a task from a file, such as {task}, has no warm start; name a model")
    # What is no task is refused before a large model is read, which may take a minute.
    if rule is None:
        find_task(task)
    else:
        FileTask(task, rule, write=str).load_rule()
    loaded = policy_to_train(policy, device, lora)
    return find_task(task, rule=rule, chat=chat, policy=loaded), loaded


def _resolve(policy: Any, task: Any, algorithm: Any, settings: Any) -> tuple[Policy, Task, Algorithm, Settings]:
    """Return policy, task, algorithm and settings: names are looked up, missing ones get their defaults."""
    short = algorithm is None or (settings is None and isinstance(algorithm, Settings))
    if short and not isinstance(policy, Policy):  # train(task, algorithm, settings)
        task, algorithm, settings, policy = policy, task, settings or algorithm, None
    task = find_task(task) if isinstance(task, str) else task
    algorithm = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    check_type("task", task, Task)
    check_type("algorithm", algorithm, Algorithm)
    settings = default_settings(algorithm) if settings is None else settings
    check_type("settings", settings, Settings)
    if isinstance(policy, str) or (short and policy is None):
        policy = policy_to_train(policy or start_of(task))
    check_type("policy", policy, Policy)
    return policy, task, algorithm, settle(settings, policy)


def settle(settings: Settings, policy: Policy) -> Settings:
    """Return the settings with the learning rate that suits this policy, where none was set."""
    if not isinstance(settings.lr, UsualNumber):
        return settings
    every_weight = float(SMALL_LR) if policy.num_parameters <= SMALL else LARGE_LR
    return replace(settings, lr=LORA_LR if has_adapter(policy.weights) else every_weight)


def _load_reference(reference: Policy | str, policy: Policy) -> Policy:
    """Return a frozen copy of the reference on the policy's device. Raises ValueError where their tokens are not the same."""
    try:
        loaded = load_policy(reference, device=str(policy.device)) if isinstance(reference, str) else reference
    except ValueError as error:
        raise ValueError(f"reference: {str(error).removeprefix('policy: ')}") from None
    theirs, ours = (
        known.folder if isinstance(known, ShippedTokenizer) else None
        for known in (loaded.vocabulary, policy.vocabulary)
    )
    is_shared = ours is not None and ours == theirs  # one folder's tokenizer
    if not is_shared and loaded.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise ValueError(
            f"reference must have the policy's vocabulary, token for token; {loaded.source} has another one"
        )
    return loaded.as_reference()


def _raise_unknown(name: str) -> NoReturn:
    """Raise TypeError for an argument that `train` has not, and say where a setting stands."""
    kinds = {setting: kind for kind in (PairSettings, TrainSettings) for setting in declarations(kind)}
    meant = kinds.get(name) and f"it is a setting: train(…, {kinds[name].__name__}({name}=…))"
    arguments = "it has settings, reward, reward_model, pairs, reference, out; what a run does stands in its settings"
    raise TypeError(f"train has no argument {name!r}; {meant or nearest(name, list(kinds)) + arguments}")


def _new_run(begun: Beginning, folder: RunFolder | None) -> TrainingRun[Any]:
    policy, task, algorithm, settings = begun.policy, begun.task, begun.algorithm, begun.settings
    check_prompts(policy, task, settings.max_new_tokens)
    if settings.activations == "recomputed":
        policy = policy.on_transformers()
        recompute_activations(policy.model)
    with compute_precision(settings, policy):  # what a part computes now, and which path the run takes
        if policy.path == "transformers":  # log-probabilities that are compared must be computed in the same way
            policy, start = policy.on_transformers(), begun.start.on_transformers()
            reference = None if begun.reference is None else begun.reference.on_transformers()
            begun = replace(begun, policy=policy, start=start, reference=reference)
        if isinstance(algorithm, PreferenceOptimization):
            if not isinstance(settings, PairSettings):
                raise ValueError(f"settings must be PairSettings for {algorithm.name}; got {short_repr(settings)}")
            if begun.reward_model is not None:
                raise ValueError(f"reward_model: {algorithm.name} learns from pairs and has no use for a reward model")
            return PreferenceRun(begun, folder)
        if not isinstance(settings, TrainSettings):
            raise ValueError(f"settings must be TrainSettings for {algorithm.name}; got {short_repr(settings)}")
        if begun.pairs is not None and begun.reward_model is None:
            raise ValueError(
                f"pairs: {algorithm.name} learns from responses that it samples; only a reward model takes pairs"
            )
        if begun.reference is None and algorithm.can.from_teacher:
            raise ValueError(
                f"reference: {algorithm.name} learns from a teacher, a policy other than the one that the run begins with: "
                "give train(…, reference=…), or --reference, a policy, a name or a folder"
            )
        if begun.reference is not None and settings.reset_reference_every:
            raise ValueError(
                "reset_reference_every must be 0 where a reference is given, which it would take away; got "
                f"{settings.reset_reference_every}"
            )
        responses = settings.num_prompts * settings.group_size // settings.minibatches
        tokens = responses * (settings.max_new_tokens or task.max_new_tokens)
        check_logits_fit(
            policy,
            min(tokens, settings.micro_batch_tokens or tokens),
            "lower num_prompts, group_size or max_new_tokens, or set micro_batch_tokens",
        )
        return RolloutRun(begun, folder)


@checked
def resume(
    out: str | os.PathLike[str],
    *,
    steps: int | None = None,
    device: str = "auto",
    task: Task | None = None,
    algorithm: Algorithm | None = None,
    rule: str | None = None,
    reward: Reward | None = None,
) -> TrainingRun[Any]:
    """Return the run kept in `out`, to go on where its last checkpoint stands: the same curve as without the stop.

    `steps` sets a new total. A run with a task, pieces or a reward function of your own needs them again as `task`, `algorithm`
    and `reward` (a mended function will do), one on a file of prompts that code of yours grades that FILE.py:function as `rule`.
    A run of this process that still has the folder ends.
    Raises FileNotFoundError when there is no run, ValueError when it is damaged, done, of another algorithm, in another
    process, or of an unfinished comparison (which may have begun it with more steps than it can take) while `steps` is not given.
    """
    folder = RunFolder.open(out)
    config = folder.config
    described = config["algorithm"]
    settings = settings_from({**config["settings"], **({} if steps is None else {"steps": steps})})
    if algorithm is None:
        algorithm = from_json(described, f"{display_path(folder.path / 'config.json')}: algorithm")
    elif to_json(algorithm) != described:
        raise ValueError(f"algorithm: the run in {out} was trained with another one: {cut(str(described), 200)}")
    assert algorithm is not None
    task = folder.load_task(rule) if task is None else task
    for name, value in task.described.items():
        if config.get(name) != value:
            advice = "; restore its task.jsonl from a copy" if name == "rows" else ""
            raise ValueError(
                f"{name}: the run in {out} is one of {short_repr(config.get(name))}; got {short_repr(value)}{advice}"
            )
    begun = config.get("reward")
    if (reward is None) != (begun is None):
        advice = "its task: give no function" if begun is None else f"the function {begun}: give it again"
        raise ValueError(f"reward: the run in {out} was rewarded by {advice}")
    task = task if reward is None else with_reward(task, reward)
    folder = RunFolder.open_to_write(out)
    try:
        run = _restore_run(folder, settings, device, task, algorithm, new_total=steps is not None)
        with folder.writing():
            write_json(folder.path / "config.json", {**config, "settings": asdict(settings)})
    except BaseException:
        folder.release("could not be resumed")
        raise
    return run


def _restore_run(
    folder: RunFolder, settings: Settings, device: str, task: Task, algorithm: Algorithm, *, new_total: bool
) -> TrainingRun[Any]:
    """Return the run as its last checkpoint has it, its folder without what came after that."""

    policy, tensors, state = folder.load_state(device)
    if state["step"] >= settings.steps:
        raise ValueError(f"steps: the run in {folder.path} has done its {state['step']}; give a higher total to go on")
    if not new_total and (folder.path.parent / "comparison.json").is_file():
        raise ValueError(
            f"steps: the run in {folder.path} belongs to a comparison, which ends it by a budget; go on with the same "
            "rlviz compare, or give a total"
        )
    if folder.config["path"] == "transformers":  # a shipped policy was, too
        policy = policy.on_transformers()
    begun = Beginning(policy, task=task, algorithm=algorithm, settings=settings, **folder.load_start(device, policy))
    run = _new_run(begun, folder)
    try:
        run.restore(tensors, state)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        why = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else reason(error)
        raise ValueError(f"the checkpoint in {folder.path} does not fit its run ({why}); {ADVICE}") from error
    folder.forget_after(run.step)
    return run
