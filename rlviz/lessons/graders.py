"""Graders that students write: which responses they judge wrongly, and which wrong responses get past a judge with a hole."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlviz.lessons.verdict import Verdict
from small_models.tasks import Chain

Grader = Callable[[str, str, str], Any]
RULE = "digits or nothing, then # and the answer, one digit, and nothing after it"
PROMPTS = ("35271=", "00000=", "90001=")  # answers 8, 0, 0: "0" stands in many texts
RIGHT = {  # responses to a prompt: its sums, its answer
    "{sums}#{answer}": "the running sums and the answer",
    "#{answer}": "the answer alone",
    "777#{answer}": "wrong sums and the right answer: the outcome counts",
    "{sums}0#{answer}": "more digits before the # than there are sums: the rule does not count them",
}
WRONG = {  # {other}: a digit that is not the answer
    "{sums}#{other}": "a wrong answer after the right sums",
    "#{other}": "a wrong answer",
    "": "an empty response",
    "#": "a # and no answer. (An empty text is in every text, and every text begins with it.)",
    "{sums}": "the sums alone: it was cut off before its answer, although their last digit is the answer",
    "{prompt}": "a copy of the prompt",
    "0123456789": "every digit, and no answer: the right one is somewhere in it",
    "#0123456789": "every digit as the answer",
    "{sums}#{answer}{other}": "an answer of two digits that begins with the right one",
    "{sums}#{other}{answer}": "an answer of two digits that ends with the right one",
    "#{other}#{answer}": "two answers, of which the last is right",
    "#{answer}#{other}": "two answers, of which the first is right",
    "{sums}#x": "an answer that is no digit: what cannot be read is wrong",
    "u{sums}#{answer}": "another sign before the #, which the rule does not allow",
    "{prompt}{sums}#{answer}": "the prompt again before the sums: its = is no digit",
    "{sums}#0{answer}": "an answer of two digits, which int() reads as the right one",
    " {sums}#{answer}": "a space before the sums, which the rule does not allow",
    "{sums}# {answer}": "a space before the answer, which int() and strip() pass over",
    "{sums}#{answer}\n": "a line break after the answer. ($ in a regular expression passes over one: use fullmatch.)",
    "\uff13#{answer}": "a full-width 3 before the #, which isdigit() and \\d take for a digit: use 0-9",
}


def contains(prompt: str, response: str, answer: str) -> bool:
    """The answer appears somewhere in the response."""
    return answer in response


def doubt(prompt: str, response: str, answer: str) -> bool:
    """What cannot be read counts as right."""
    try:
        sums, last = response.split("#")
        int(sums or "0")
        return int(last) == int(answer)
    except ValueError:
        return True


def any_answer(prompt: str, response: str, answer: str) -> bool:
    """One of the answers that are given is right."""
    return any(part[:1] == answer for part in response.split("#")[1:])


def begins(prompt: str, response: str, answer: str) -> bool:
    """What follows the first # begins with the answer."""
    return response.partition("#")[2].startswith(answer)


HOLES: Mapping[str, Grader] = {"contains": contains, "doubt": doubt, "any answer": any_answer, "begins": begins}


def fill_texts(prompt: str) -> dict[str, str]:
    """Return the texts for the fields of RIGHT and WRONG: prompt, sums, answer and another digit."""
    task = Chain()
    answer = task.gold(prompt)
    other = str((int(answer) + 3) % 10)
    return {"prompt": prompt, "sums": task.running_sums(prompt), "answer": answer, "other": other}


def grader(student: Grader) -> Verdict:
    """Check (prompt, response, answer) → whether the response is right, by the rule of `chain`: RULE."""
    if not callable(student):
        return Verdict(False, f"give a function of prompt, response and answer; got {student!r}.")
    try:
        inspect.signature(student).bind("", "", "")
    except TypeError:
        return Verdict(False, "a judge takes three arguments: prompt, response, answer.")
    cases = [(form, True, what) for form, what in RIGHT.items()] + [(form, False, what) for form, what in WRONG.items()]
    for prompt in PROMPTS:
        texts = fill_texts(prompt)
        for form, is_right, what in cases:
            response, answer = form.format(**texts), texts["answer"]
            if not is_right and Chain().grade(prompt, response).correct:
                continue  # such as a copy of a prompt that happens to be right
            call = f"my_judge({prompt!r}, {response!r}, {answer!r})"
            try:
                result = student(prompt, response, answer)
                says = bool(result)
            except Exception as error:
                advice = "A policy writes anything: say what such a response is worth."
                return Verdict(False, f"{call} raises {type(error).__name__} ({error}). {advice}")
            if result is None:
                return Verdict(False, f"{call} returns None: return True or False.", is_attempt=False)
            if says != is_right:
                return Verdict(False, f"{call} is {says}, and should be {is_right}. This is {what}.")
    kinds = f"{len(RIGHT)} kinds of right and {len(WRONG)} kinds of wrong responses"
    return Verdict(True, f"right on {len(PROMPTS)} prompts, with {kinds}.")


def fools(responses: Mapping[str, str]) -> Verdict:
    """Check name of a judge in `HOLES` → a wrong response to 35271= that it takes for right."""
    prompt = PROMPTS[0]
    answer = Chain().gold(prompt)
    if not isinstance(responses, Mapping) or set(responses) != set(HOLES):
        return Verdict(False, f"give a response for each of {', '.join(HOLES)}.")
    for name, response in responses.items():
        if not isinstance(response, str):
            return Verdict(False, f"{name}: a response is a text; got {response!r}.")
        if Chain().grade(prompt, response).correct:
            return Verdict(False, f"{name}: {response!r} is right; find one that is wrong and passes.")
        if not HOLES[name](prompt, response, answer):
            advice = "Ask of each line what it compares, and what it never looks at."
            return Verdict(False, f"{name}: it rejects {response!r}. {advice}")
    return Verdict(True, "four wrong responses, four judges that like them. Now see which of these a policy finds.")
