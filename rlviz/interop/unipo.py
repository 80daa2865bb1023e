"""UNIPO's canonical JSON (Polo Club, arXiv 2605.11549; docs/canonical_schema.json of poloclub/unipo), written and read.

An object of `header` and `entries`, an entry a step: metrics, and prompts whose responses have their tokens as columns.
UNIPO takes columns beyond its own; lower, upper, clipped, weight, push and observed are ours, with which a run read back
is whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlviz.training.files import json_text, write_text
from rlviz.training.run_folder import RunFolder, metrics_of
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.checks import shown

PROMPTS = 3  # of an entry, as the schema asks for
METRICS = {  # ours → UNIPO's, where the names are others
    "loss": "policy_loss",
    "lr": "learning_rate",
    "ratio_mean": "importance_sampling_ratio",
}
NOT_METRICS = ("step", "tokens_sampled", "rounds")
EXTRA = ("lower", "upper", "clipped", "weight", "push", "observed")  # columns of ours beside UNIPO's own


def write_unipo(run: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
    """Write a run as UNIPO reads it; return what there is to say about it, a sentence each.

    Steps that were recorded with tokens have their first three groups with these. Raises FileNotFoundError where there is
    no run, ValueError for one of pairs, and for one without a step.
    """
    folder = RunFolder.open(run)
    config, records = folder.config, folder.records()
    if not records or not all(isinstance(record, StepRecord) for record in records):
        raise ValueError(f"{run} has no step with sampled responses, which UNIPO shows")
    ids: dict[str, int] = {}
    entries = [_entry(record, ids) for record in records]
    header = {
        "task": config["task"],
        "dataset": config["task"],
        "reward_strategy": "rule",
        "algorithm": config["algorithm"]["name"],
        "totalSteps": len(entries),
        "model_name": config["policy"],
        "reference_model_name": config["policy"],
        "hparams": _hyperparameters(config),
    }
    write_text(Path(out), json_text({"header": header, "entries": entries}) + "\n")
    told = sum("prompts" in entry for entry in entries)
    words = [
        f"{out}: {len(entries)} steps, {told} of them with tokens; python scripts/build_data.py {Path(out).name} "
        "in UNIPO's folder."
    ]
    if told:
        words.append(
            "Token ids are numbers of the run's different tokens, in their order: a run does not keep the tokenizer's."
        )
    return words


def _hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, and beside them what UNIPO's formulas look up: its default stands in them for what is not told."""
    told = {name: value for name, value in config["settings"].items() if value is not None}
    parts = {slot: dict(config["algorithm"].get(slot) or {}) for slot in ("bounds", "kl", "advantage")}
    low, high = (parts["bounds"].get(name) for name in ("eps_low", "eps_high"))
    if set(parts["bounds"]) == {"piece", "eps_low", "eps_high"}:
        told["clip_eps"] = low if low == high else [low, high]
    names = {"gamma": "gamma", "lam": "gae_lambda"}
    told |= {theirs: parts["advantage"][ours] for ours, theirs in names.items() if ours in parts["advantage"]}
    told["kl_coef"] = parts["kl"].get("beta", 0.0)
    return told | ({"learning_rate": told["lr"]} if "lr" in told else {})


def _entry(record: StepRecord, ids: dict[str, int]) -> dict[str, Any]:
    numbers = {name: value for name, value in metrics_of(record).items() if name not in NOT_METRICS and _finite(value)}
    metrics = {METRICS.get(name, name): value for name, value in numbers.items()}
    cut = [numbers.get(f"clip_fraction_{side}") for side in ("low", "high", "dual")]
    metrics |= {"policy_objective": -record.loss} if _finite(record.loss) else {}
    metrics |= (
        {"clip_fraction": math.fsum(each for each in cut if each is not None)}
        if any(e is not None for e in cut)
        else {}
    )
    entry: dict[str, Any] = {"step": record.step - 1, "is_first_step_after_rollout_phase": True, "metrics": metrics}
    prompts = [
        {
            "prompt": group.prompt,
            "responses": [
                _response(each, f"step{record.step - 1}_p{p}_sample{g}", ids) for g, each in enumerate(group.responses)
            ],
        }
        for p, group in enumerate([each for each in record.groups if any(r.tokens for r in each.responses)][:PROMPTS])
    ]
    return entry | ({"prompts": prompts} if prompts else {})


def _response(response: ResponseRecord, name: str, ids: dict[str, int]) -> dict[str, Any]:
    tokens = response.tokens
    columns: dict[str, list[Any]] = {
        "ids": [ids.setdefault(token.token, len(ids)) for token in tokens],
        "strings": [token.token for token in tokens],
        "log_probs": [_log(token.new_prob) for token in tokens],
        "old_log_probs": [_log(token.old_prob) for token in tokens],
        "advantages": [token.advantage for token in tokens],
        "token_objective": [token.objective for token in tokens],
        **{column: [getattr(token, column) for token in tokens] for column in EXTRA},
    }
    if all(token.ref_prob is not None for token in tokens):
        columns["ref_log_probs"] = [_log(token.ref_prob) for token in tokens]
        both = zip(columns["log_probs"], columns["ref_log_probs"], strict=True)
        columns["token_kl"] = [None if a is None or b is None else a - b for a, b in both]
    if all(token.value is not None for token in tokens):
        columns["values"] = [token.value for token in tokens]
    return {
        "id": name,
        "reward": response.reward,
        "advantage": response.advantage,
        "response_text": response.text,
        "response_length": response.length,
        "correct": response.correct,
        "tokens": columns,
    }


def read_unipo(
    header: Any, entries: Any, where: str
) -> tuple[str, list[tuple[int, dict[str, Any]]], dict[int, tuple[GroupRecord, ...]]]:
    """Return the algorithm's name, the metrics of each step, and its groups. Raises ValueError, which names the place,
    for damage.

    Tokens are read where the file has all that a token's record tells; of others the texts, rewards and advantages are.
    """
    name = header.get("algorithm") if isinstance(header, Mapping) else None
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 200
        or not name.isprintable()
        or not isinstance(entries, Sequence)
    ):
        raise ValueError(
            f"{where} must have a header with algorithm, a text of 1 to 200 printable characters, and a list of entries"
        )
    rows, groups = [], {}
    for place, entry in enumerate(entries):
        at = f"{where}: entries[{place}]"
        step, metrics = (entry.get("step"), entry.get("metrics")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(step, int) or isinstance(step, bool) or step < 0 or not isinstance(metrics, Mapping):
            raise ValueError(f"{at} must have a step, a whole number, and metrics; got {shown(entry)}")
        rows.append((step, {str(key): value for key, value in metrics.items() if _finite(value)}))
        prompts = entry.get("prompts") or []
        try:
            told = tuple(_group(prompt) for prompt in prompts)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"{at}: prompts are not as the schema has them ({type(error).__name__}: {error})"
            ) from None
        if told and all(group.responses for group in told):
            groups[step] = told
    return name, rows, groups


def _group(prompt: Mapping[str, Any]) -> GroupRecord:
    return GroupRecord(str(prompt["prompt"]), "", tuple(_read_response(each) for each in prompt["responses"]))


def _read_response(told: Mapping[str, Any]) -> ResponseRecord:
    reward, columns = float(told["reward"]), told.get("tokens") or {}
    return ResponseRecord(
        text=str(told["response_text"]),
        reward=reward,
        advantage=float(told.get("advantage") or 0.0),
        length=int(told.get("response_length") or 0),
        correct=bool(told.get("correct", reward > 0.5)),
        well_formed=True,
        truncated=False,
        tokens=_tokens(columns),
    )


def _tokens(columns: Mapping[str, Sequence[Any]]) -> tuple[TokenRecord, ...]:
    """Return the records of tokens, none where the columns do not tell all of one."""
    needed = ("strings", "log_probs", "old_log_probs", "advantages", "token_objective", *EXTRA)
    if any(name not in columns for name in needed):
        return ()
    size = len(columns["strings"])
    lengths = {name: len(values) for name, values in columns.items()}
    if any(length != size for length in lengths.values()):
        raise ValueError(f"columns of tokens must be of one length; got {lengths}")
    refs, values = columns.get("ref_log_probs"), columns.get("values")
    return tuple(
        TokenRecord(
            token=str(columns["strings"][t]),
            old_prob=_exp(columns["old_log_probs"][t]),
            new_prob=_exp(columns["log_probs"][t]),
            ref_prob=None if refs is None else _exp(refs[t]),
            ratio=_ratio(columns["log_probs"][t], columns["old_log_probs"][t]),
            lower=float(columns["lower"][t]),
            upper=None if columns["upper"][t] is None else float(columns["upper"][t]),
            advantage=float(columns["advantages"][t]),
            clipped=bool(columns["clipped"][t]),
            objective=float(columns["token_objective"][t]),
            weight=float(columns["weight"][t]),
            push=float(columns["push"][t]),
            value=None if values is None else float(values[t]),
            observed=bool(columns["observed"][t]),
        )
        for t in range(size)
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _log(probability: float | None) -> float | None:
    return math.log(probability) if probability is not None and probability > 0 else None


def _exp(logarithm: float | None) -> float:
    return 0.0 if logarithm is None else math.exp(min(float(logarithm), 0.0))


def _ratio(logp: float | None, old_logp: float | None) -> float:
    """Return the ratio of two probabilities, of which None is that of 0."""
    return math.nan if old_logp is None else 0.0 if logp is None else math.exp(min(logp - old_logp, 700.0))
