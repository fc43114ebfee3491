"""Words that a student may not know, explained where they stand.

`terms.js` shows the explanation of a word on hover, focus or a tap.
"""

import html
import re

TERMS = {
    "token": "A piece of text, a word or a part of one: models read and write tokens.",
    "draft": "Tokens that were guessed ahead, usually by the small model. The large model has the "
    "last word on them.",
    "pass": "One run of a model over the text. The large model needs hardly longer to check "
    "several tokens in one pass than to write a single one.",
    "tokens per pass": "Block efficiency: new tokens divided by passes of the large model. Without "
    "drafts it is 1. It is counted, so it is the same on every machine.",
    "tokens/s": "New tokens divided by the seconds of computing. It depends on the machine.",
    "× greedy": "Tokens per second divided by greedy's in the same run: above 1 is faster.",
    "perplexity": "How surprising the large model finds a text: e to the power of minus the mean "
    "ln p of its tokens. Lower is likelier to the model; loops score well too.",
    "beam": "One of several continuations that are kept side by side, so that the likeliest whole "
    "text can be found.",
    "temperature": "How much chance decides: at 0 always the likeliest token is taken, at 1 tokens "
    "are drawn with the model's own probabilities, in between likely ones are preferred.",
    "top-k": "Tokens are drawn only from the k likeliest.",
    "top-p": "Tokens are drawn only from the likeliest ones whose probabilities add up to p.",
    "min-p": "Tokens are drawn only if they are at least this share as likely as the likeliest.",
    "seed": "The number that random draws begin with: the same seed gives the same text.",
    "distribution": "How likely each possible text is. Two decoders of the same distribution "
    "differ by chance alone.",
    "residual": "What is left of the large model's probabilities once those of the small model are "
    "taken away.",
    "cache": "What a model remembers of the tokens that it has read (keys and values), so that it "
    "need not read them again.",
    "padding": "Filling up the shorter requests of a batch with empty places, so that all have one "
    "length. It costs time and memory.",
    "batch": "Several prompts that are decoded at the same time.",
}
_WORDS = re.compile(rf"(?<![\w-])({'|'.join(sorted(TERMS, key=len, reverse=True))})(?:e?s)?(?!\w)")


def term(shown: str, help: str) -> str:
    """A word with its explanation, as HTML."""
    return (
        f'<button type="button" class="wb-term" data-help="{html.escape(help)}">'
        f"{html.escape(shown)}</button>"
    )


def explained(text: str) -> str:
    """A text as HTML, each term marked where it stands first."""
    seen, parts, end = set[str](), list[str](), 0
    for found in _WORDS.finditer(text):
        if found[1] in seen:
            continue
        seen.add(found[1])
        parts += [html.escape(text[end : found.start()]), term(found[0], TERMS[found[1]])]
        end = found.end()
    return "".join([*parts, html.escape(text[end:])])
