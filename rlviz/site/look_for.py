"""What each explorer is called on the site, and what there is to look for in it."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """title: the question that the explorer answers. look: what to move, and what to see then."""

    title: str
    look: str


LOOK_FOR = {
    "clip": Words(
        "When does clipping stop a token?",
        "The objective is flat where the gradient is cut. Compare the two signs of A: a good token is stopped "
        "above the upper limit, a bad one below the lower limit. Then choose DCPO and make the token rare: its "
        "limits move apart.",
    ),
    "bounds": Words(
        "How far may a token's probability move?",
        "Fixed limits on the ratio leave a rare token almost no room: ±20 % of a small probability is next to "
        "nothing. Compare DCPO's band, which is widest for rare tokens, with DAPO's.",
    ),
    "ratio": Words(
        "Why do long responses need another ratio?",
        "A product of token ratios strays ever further from 1 as the response grows, and a geometric mean "
        "(GSPO's) ever less. See which share of tokens the limits cut.",
    ),
    "advantages": Words(
        "What is a good response compared with?",
        "A response is judged against its group. Move the success rate to 0.95: most groups are all right, and "
        "teach nothing. With a small group the mean is noisy.",
    ),
    "sampling": Words(
        "What can be done about groups that teach nothing?",
        "Keep them, replace them, repeat informative ones, or remember earlier visits. See what each answer costs"
        " in responses as the success rate comes near 1.",
    ),
    "aggregation": Words(
        "How much does one token count?",
        "The mean over a sequence gives a token of a long response less weight; the mean over all tokens gives "
        "each the same. Cut the batch in two and see where averaging the parts goes wrong.",
    ),
    "kl": Words(
        "What does a KL term pull at?",
        "One direction of the KL covers both humps of the target, the other picks one. Then look at the "
        "estimators: which one is right on average, and which one is less noisy.",
    ),
    "gae": Words(
        "Which token deserves the credit?",
        "λ trades the critic's errors against chance. At λ = 0 the critic's bias decides, at λ = 1 the outcome's noise.",
    ),
    "process": Words(
        "Does a reward for each step help?",
        "The outcome gives every token of an answer the same credit. With rewards of steps the credit changes "
        "along the answer; see on which token it falls below 0.",
    ),
    "dpo": Words(
        "What does DPO do to the chosen response?",
        "The margin of a pair grows, and yet the chosen response can become less likely: make the two responses "
        "more alike and look at the right-hand graph.",
    ),
    "entropy": Words(
        "When does the policy stop exploring?",
        "Entropy falls while the policy learns. Compare two algorithms at the same accuracy rather than at the same step.",
    ),
    "overlong": Words(
        "What does a punishment for length change?",
        "A right response near the length limit can end with a negative advantage. Find the length from which it does.",
    ),
    "mismatch": Words(
        "What if another engine samples than the one that trains?",
        "Each dot is a token. Take weights of fewer bits or of more steps ago, and dots leave the diagonal: the trainer would "
        "have drawn other tokens. Compare what TIS caps, what IcePop leaves out, and which responses the sequence mask drops.",
    ),
    "map": Words(
        "When does an idea matter?",
        "Each cell is a pair of algorithms on one table, blue where the first has more. Click a cell to see its runs. Cells "
        "are hatched where chance could have made the sign: do not read those.",
    ),
}
