"""The measured parts of the model card, as Markdown between marks in its hand-written part."""

from collections.abc import Mapping
from typing import Any


def table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def training(log: list[Mapping[str, Any]]) -> str:
    """Steps, tokens, minutes and losses of each stage's last run.

    A resumed run repeats steps and restarts its clock.

    Args:
        log: the lines of losses.jsonl
    """
    rows = []
    for stage in dict.fromkeys(record["stage"] for record in log):
        records = [record for record in log if record["stage"] == stage]
        records = records[
            max((i for i, record in enumerate(records) if record["step"] == 1), default=0) :
        ]
        held_out = [record["held_out"] for record in records if "held_out" in record]
        last = records[-1]
        seconds = sum(
            a["seconds"]
            for a, b in zip(records, [*records[1:], {"seconds": 0}], strict=False)
            if b["seconds"] < a["seconds"]
        )
        loss = sum(record["loss"] for record in records[-50:]) / len(records[-50:])
        rows.append(
            [
                stage,
                f"{last['step']:,}",
                f"{last['tokens'] / 1e6:.1f}M",
                f"{seconds / 60:.0f}",
                f"{loss:.3f}",
                f"{held_out[-1]:.3f}" if held_out else "",
            ]
        )
    return table(
        ["stage", "steps", "tokens seen", "minutes", "last training loss", "held-out loss"], rows
    )


def figures_as_markdown(figures: Mapping[str, Any]) -> str:
    """The generated part of the card, from the figures that evaluate.py measured."""
    parts = (size_and_training, held_out_split, perplexity, acceptance, completions)
    return "\n\n".join(part(figures) for part in parts)


def size_and_training(figures: Mapping[str, Any]) -> str:
    parameters = figures["parameters"]
    return f"""\
## Size and training

The target has {parameters["target"]:,} parameters, the draft {parameters["draft"]:,}. \
Losses are nats a token, the draft's as above.
Of a pair that was trained on, the table has the last run of each stage in the work folder.

{training(figures["log"])}"""


def held_out_split(figures: Mapping[str, Any]) -> str:
    corpus = figures["corpus"]
    head = ["file", "training documents", "training tokens", "held-out documents"]
    head += ["held-out tokens", "near-duplicates dropped"]
    rows = [[name, *(f"{count:,}" for count in entry.values())] for name, entry in corpus.items()]
    total = sum(entry["near_duplicates_dropped"] for entry in corpus.values())
    return f"""\
## Held-out split and near-duplicates

{total:,} training documents shared a run of 24 tokens with a held-out document and were dropped.

{table(head, rows)}"""


def perplexity(figures: Mapping[str, Any]) -> str:
    models = ("target", "draft", "5-gram")
    rows = [
        [
            name,
            f"{row['tokens']:,}",
            *(f"{row[f'{m} per token']:.2f} / {row[f'{m} per byte']:.3f}" for m in models),
        ]
        for name, row in figures["perplexity"].items()
    ]
    return f"""\
## Held-out perplexity, per token / per byte

The 5-gram model is an interpolated Kneser-Ney over the same training tokens.

{table(["text", "tokens", *models], rows)}"""


def acceptance(figures: Mapping[str, Any]) -> str:
    head = ["setting", "accepted / tested", "without looping texts", "accepted / drafted"]
    head += ["tokens a target pass", "looping texts"]
    rows = [
        [
            name,
            f"{row['alpha']:.3f} ({row['accepted']} / {row['tested']})",
            f"{figures['acceptance_without_loops'][name]['alpha']:.3f}",
            f"{row['accepted_of_drafted']:.3f}",
            f"{row['block_efficiency']:.2f}",
            f"{figures['loops'][name]['looping']} of {row['texts']}",
        ]
        for name, row in figures["acceptance"].items()
    ]
    return f"""\
## Acceptance

Speculative decoding, 4 draft tokens a round, after {figures["loops"]["T=0"]["of"]} held-out \
prompts. A text loops if a run of 8 tokens occurs twice in its first 60.

{table(head, rows)}"""


def completions(figures: Mapping[str, Any]) -> str:
    loops = figures["loops"]["T=0"]
    samples = "\n".join(
        f"{i}. {quote(prompt)}**{quote(text)}**\n"
        for i, (prompt, text) in enumerate(figures["samples"], 1)
    )
    return f"""\
## Completions

At T=0, {loops["looping"]} of {loops["of"]} completions repeat a run of 8 tokens within 60 tokens. \
At T=0.7 and top-p 0.9, as they came, the model's part in bold:

{samples}"""


def quote(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return (
        text.translate({ord(c): f"\\{c}" for c in "\\`*_<>[]#|"})
        .replace("\n", " ⏎ ")
        .replace("⏎  ⏎", "⏎⏎")
    )


def fill(card: str, part: str, text: str) -> str:
    """Put `text` between the lines <!-- part --> and <!-- /part --> of the card.

    Raises:
        ValueError: if the card lacks these lines
    """
    begin, end = f"<!-- {part} -->", f"<!-- /{part} -->"
    if begin not in card or end not in card:
        raise ValueError(f"The card needs the lines {begin} and {end}.")
    return f"{card.split(begin)[0]}{begin}\n\n{text}\n{end}{card.split(end)[1]}"
