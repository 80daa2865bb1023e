"""A task from a JSON-lines file of prompts and answers, graded by a rule.

In: a file, and a rule by name or as FILE.py:function. Out: a `FileTask`, whose prompts `chat_writer` may put through a chat
template. Begin with `FileTask`; `grade` says what a rule may return.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from small_models.checks import cut, short_repr
from small_models.files import check_text, convert, display_path, read_lines, reason
from small_models.tasks.base import Grade, RewardError, Task, error_text

TASK_FILE = "task.jsonl"  # a task's file in the folder of a run
NUMBER = re.compile(r"(?:(?<![\w.)])-)?\d[\d,]*(?:\.\d+)?")
Chat = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class Message:
    """A message of a prompt that is a conversation: who says what."""

    role: str
    content: str


Prompt = str | list[Message]


@dataclass(frozen=True)
class _Line:
    prompt: Prompt
    answer: str | int | float
    user_text: str = ""  # beside a prompt that a chat template wrote


@dataclass(frozen=True)
class _Row:
    answer: str
    where: str  # file and line, in words
    user_text: str


def numbers_in(text: str) -> list[Decimal]:
    """Return the numbers in a text, 1,234.5 as one; a hyphen after a word or a number is no sign."""
    return [Decimal(number.replace(",", "")) for number in NUMBER.findall(text)]


def last_number(response: str, answer: str) -> Grade:
    """Right where the last number of the response is the last of the answer; well formed where it has a number."""
    number, right = numbers_in(response)[-1:], numbers_in(answer)[-1:]
    return Grade(format=bool(number), correct=bool(number) and number == right)


def exact(response: str, answer: str) -> Grade:
    """Right where the response is the answer, white space around both left out; well formed where it is not empty."""
    text = response.strip()
    return Grade(format=bool(text), correct=bool(text) and text == answer.strip())


RULES: Mapping[str, Callable[[str, str], Grade]] = MappingProxyType({"last-number": last_number, "exact": exact})


def is_code(rule: str) -> bool:
    """Return whether a rule is a function of a Python file, which to read is to run."""
    return rule not in RULES


class FileTask(Task):
    """Prompts and answers of a file, `{"prompt": …, "answer": …}` a line; other keys are not read, but for `user_text`.

    rule: "last-number", "exact", or "FILE.py:function", whose function(prompt, response, answer) returns whether the response is
    right, a `Grade`, or a reward, a number or numbers by name; a first call, on the file's first answer, says which. The file of
    the function is imported then. write: turns a prompt, a text or a list of messages with role and content, into the text that
    the policy reads. user_text: what pages show in place of a prompt that is in a chat format already. name: the file's, unless
    given. A prompt that comes again with the same answer counts once. Raises ValueError, in one sentence that names the file and
    the line.
    """

    description = "prompts and answers of a file"
    max_new_tokens = 256
    repeats_prompts = False

    def __init__(
        self, file: str | Path, rule: str, write: Callable[[Prompt], str] | None = None, name: str | None = None
    ) -> None:
        script, _, function = rule.rpartition(":")
        if is_code(rule) and not (script.endswith(".py") and function.isidentifier()):
            raise ValueError(f"rule must be {', '.join(RULES)}, or FILE.py:function; got {short_repr(rule)}")
        self.file, self.rule = Path(file), rule
        self.name = self.file.name if name is None else name
        self._rows: dict[str, _Row] = {}
        try:
            for where, value in read_lines(self.file):
                self._add(convert(value, _Line, where), where, write or _text_alone)
        except FileNotFoundError:
            raise ValueError(f"task: there is no file {display_path(self.file)}") from None
        if len(self._rows) < 2:
            count = "one prompt" if self._rows else "no prompt"
            raise ValueError(
                f"task: {display_path(self.file)} holds {count}; two are needed, one to learn from and one to test on"
            )

    def _add(self, line: _Line, where: str, write: Callable[[Prompt], str]) -> None:
        if not line.prompt or (isinstance(line.prompt, str) and not line.prompt.strip()):
            raise ValueError(f"{where}: prompt must not be empty")
        try:
            prompt, answer = write(line.prompt), str(line.answer)
            check_text(prompt, answer)
        except ValueError as error:  # a UnicodeError among them
            raise ValueError(f"{where}: {reason(error) if isinstance(error, UnicodeError) else error}") from None
        row = self._rows.setdefault(prompt, _Row(answer, where, line.user_text or _user_text(line.prompt)))
        if row.answer != answer:
            raise ValueError(f"{where}: the prompt is that of {row.where.rpartition(', ')[2]}, with another answer")
        if not is_code(self.rule) and not RULES[self.rule](answer, answer).correct:
            needed = "a number" if self.rule == "last-number" else "a text"
            raise ValueError(
                f"{where}: answer must hold {needed}, which {self.rule} looks for; got {short_repr(answer)}"
            )

    def all_prompts(self) -> Sequence[str]:
        return list(self._rows)

    def user_text(self, prompt: str) -> str:
        return self._rows[prompt].user_text if prompt in self._rows else prompt

    def gold(self, prompt: str) -> str:
        return self._rows[prompt].answer

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        return self._rows[prompt].answer

    def where(self, prompt: str) -> str:
        """Return file and line of a prompt, in words."""
        return self._rows[prompt].where

    @cached_property
    def has_answers(self) -> bool:
        """Whether the rule says right or wrong: of code, what it returns for the first answer."""
        prompt, row = next(iter(self._rows.items()))
        return not is_code(self.rule) or isinstance(self._verdict(prompt, row.answer), bool | Grade)

    @property
    def reward_is_grade(self) -> bool:
        return self.has_answers and "reward" not in vars(self)

    def grade(self, prompt: str, response: str) -> Grade:
        if not self.has_answers:
            return Grade(format=True, correct=None)
        verdict = self._verdict(prompt, response)
        if isinstance(verdict, bool):
            return Grade(format=True, correct=verdict)
        if not isinstance(verdict, Grade):
            what = f"must return True or False, or a Grade, as for the first answer; got {short_repr(verdict)}"
            raise self.reward_error(prompt, response, what)
        return verdict

    def reward(self, prompt: str, response: str) -> float | Mapping[str, float]:
        return super().reward(prompt, response) if self.has_answers else self._verdict(prompt, response)

    def _verdict(self, prompt: str, response: str) -> Any:
        """Return what the rule returns. Raises RewardError for what it raises."""
        answer = self._rows[prompt].answer
        if not is_code(self.rule):
            return RULES[self.rule](response, answer)
        function = self._function  # whose refusals are no errors of the rule
        try:
            return function(prompt, response, answer)
        except (Exception, SystemExit) as error:
            raise self.reward_error(prompt, response, f"raised {error_text(error)}") from error

    def reward_error(self, prompt: str, response: str, what: str) -> RewardError:
        error = super().reward_error(prompt, response, f"by {self.rule} {what}")
        return RewardError(f"{error} ({self.where(prompt)})")

    @cached_property
    def _function(self) -> Callable[[str, str, str], Any]:
        """The function of FILE.py:function. Raises RewardError where it cannot be imported."""
        file, _, name = self.rule.rpartition(":")
        spec = importlib.util.spec_from_file_location(f"rule_{Path(file).stem}", file)
        if not Path(file).is_file() or spec is None or spec.loader is None:
            raise RewardError(f"rule: there is no Python file {display_path(file)}")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise RewardError(f"rule: {display_path(file)} cannot be imported ({error_text(error)})") from error
        function = vars(module).get(name)
        if not callable(function):
            names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise RewardError(
                f"rule: {display_path(file)} has no function {name}; it has {cut(', '.join(names) or 'none')}"
            )
        return function

    def load_rule(self) -> None:
        """Import the rule's function, where it is code. Raises RewardError where it cannot be."""
        if is_code(self.rule):
            _ = self._function

    def check_rule(self) -> None:
        """Score an answer of the file, so that what a rule refuses is refused at once."""
        prompt, row = next(iter(self._rows.items()))
        self.score(prompt, row.answer)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the rule's function: another process imports it itself."""
        return {name: value for name, value in vars(self).items() if name != "_function"}

    @property
    def described(self) -> dict[str, str]:
        """The rule goes without the folder of its file."""
        file, colon, function = self.rule.rpartition(":")
        rule = f"{Path(file).name}{colon}{function}"
        return {"task": self.name, "rule": rule, "rows": hashlib.sha256(self._text.encode()).hexdigest()[:16]}

    @property
    def _text(self) -> str:
        rows = []
        for prompt, row in self._rows.items():
            beside = {} if row.user_text == prompt else {"user_text": row.user_text}
            rows.append({"prompt": prompt, "answer": row.answer} | beside)
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)

    @property
    def files(self) -> dict[str, str]:
        return {TASK_FILE: self._text}


def _user_text(prompt: Prompt) -> str:
    """Return the last words of the user in a prompt."""
    if isinstance(prompt, str):
        return prompt
    return next((message.content for message in reversed(prompt) if message.role == "user"), prompt[-1].content)


def _text_alone(prompt: Prompt) -> str:
    if not isinstance(prompt, str):
        raise ValueError("prompt is a list of messages, which a chat template makes a text of; see chat")
    return prompt


def chat_writer(vocabulary: Any, chat: Chat, source: str) -> Callable[[Prompt], str]:
    """Return what writes a prompt as the policy is to read it: as a user's message by the chat template, or as it is.

    chat: "auto" takes the template where the tokenizer has one. source: the policy's, for refusals. Raises ValueError for "on"
    without a template.
    """
    if chat == "off" or (chat == "auto" and vocabulary.chat_template is None):
        return _text_alone
    if vocabulary.chat_template is None:
        raise ValueError(f"chat cannot be on: the tokenizer of {source} has no chat template")

    def write(prompt: Prompt) -> str:
        messages = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        try:
            text = vocabulary.apply_chat_template(
                [vars(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template raises what it likes
            raise ValueError(f"the chat template of {source} does not take the prompt ({reason(error)})") from error
        return str(text)

    return write
