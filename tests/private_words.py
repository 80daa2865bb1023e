"""Words and turns that only their author understands: a pattern, and what to write in its place.

The first come from `STYLE.md`'s table of the workshop and from readers' reports; add what the next reader stumbles over.
"""

PRIVATE = {
    r"share right": "accuracy",
    r"worth speaking of": "smallest effect of interest",
    r"does something(?! else)": "what it does: which of them help, which changes the accuracy",
    r"value \w+ that drew": "the `GRPO` object that drew the pictures",
    r"may stand on the advantage": "multiplying the advantage by the weight gives the same",
    r"whoever(?:'s)?": "a person who, a reader who, anyone who; or simply the subject",
    r"(?-i:(?:^|[.!?;:>*|] )Who) [^.?!:]*\.": "a clause with its noun: A response that never ends is cut off.",
    r"what becomes of": "what happens to",
    r"(?:runs?|ran) away (?:with|before)": "what happened: it grows with the length; repeated updates amplified one lucky reward",
    r"has a post|post that never": "With a fixed reference, the penalty keeps growing as the policy improves.",
    r"is 0 nowhere": "is never 0",
    r"is charged for": "is taxed; costs reward",
    r"(?:two|both) have written the text": "The text has two authors.",
    r"is that moved as": "Seven of eight updates can clip, so 88 % is the ceiling; we see 74 %.",
    r"cries wolf": "A lenient test finds more true effects and more false ones.",
    r"join in as soon": "Once your function passes, it is added to the table.",
    r"half-and-half of": "half of them guesses, half with running sums",
    r"learn more \*?a step": "With more responses per prompt, each step teaches more.",
    r"dear(?:er|ly)?": "expensive",
    r"for there (?:is|are|was|were)": "because there are",
    r"ever (?:further|less|more|larger|smaller)": "further and further, less and less",
}
