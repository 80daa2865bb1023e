"""The symptoms on the site: a call opens its picture in the state that is meant, an entry quotes the rules of diagnose."""

import re
from pathlib import Path

from rlviz.runs.rules import RULES
from rlviz.site.lessons import with_rules

PAGE = Path(__file__).parents[2] / "notebooks" / "symptoms.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = with_rules(TEXT)


def test_a_call_is_a_link_to_the_picture_in_its_state():
    calls = re.findall(r"`(explore_\w+\([^`]*\))`", TEXT)
    links = dict(re.findall(r'<a href="\.\./explorers/(\S+?)"><code>(explore_.*?)</code>', SHOWN))
    assert len(re.findall(r"<code>explore_", SHOWN)) == len(calls) and "`explore_" not in SHOWN
    assert "kl.html#kl.show=estimators%3A+value&amp;kl.distance=2.0" in links
    assert "ratio.html#ratio.algorithm=GSPO&amp;ratio.eps_low=0.0003&amp;ratio.eps_high=0.0004" in links


def test_each_rule_stands_under_its_symptom():
    for rule in RULES:
        (entry,) = [part for part in re.split(r"^## ", SHOWN, flags=re.M) if part.startswith(f"{rule.symptom}\n")] or [
            ""
        ]
        assert bool(rule.symptom) == (re.sub(r"{[^}]*}", "…", rule.seen) in entry), rule.name
    assert (
        "The KL to the reference is … nats per token at step 1, before the first update. *Where `kl` at step 1 ≥ 0.05.*"
        in SHOWN
    )
