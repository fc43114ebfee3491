"""Decoders of the embedded pair over our baselines, `generate`, theory and the head.

    python -m tests.speed.claims [--only decoders generate heads] [--threads 1]
                                 [--tokens 64] [--prompts 6] [--rounds 5] [--lengths 2 3 4 5 6 8]

*decoders*: every decoder beside greedy `generate`, which is quicker than its sampling, and beside
our own baseline: greedy decoding at T=0, sampling at T=1, and beam sampling of as many beams for
DSBD; settings are those kept with the pair (`tools.tune`) unless a row names others; draft lengths
also beside theorem 3.8. *generate*: prompt look-up and drafts against those of `transformers`, also
inside of its `generate`, and on how many prompts the tokens are the same. *heads*: the target's
head beside its draft model.

T=0, and T=1 with top-k 20 and top-p 0.9; what is compared is interleaved. Prints Markdown; a ratio
is the median of the rounds' ratios with the least and the most. Fifteen minutes on one thread.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import decoders
from decoders.theory import expected_tokens
from tests.speed.measure import (
    WARPINGS,
    Over,
    by_place,
    measure,
    options,
    perplexity,
    prompts,
    ratio,
    shares,
    table,
)
from workbench.models.presets import pair_settings, tuned

DRAFTING = ("speculative", "block", "mtad", "spectr", "specinfer", "mcss", "typical")
WIDTHS = (4, 2)  # of the beam sampling that each of DSBD's settings was chosen beside
PLACES = 4


def assistant(count: int, confidence: float) -> dict[str, Any]:
    return {
        "num_assistant_tokens": count,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": confidence,
    }


EXACTLY_4, UNTIL_UNSURE = assistant(4, 0.0), assistant(20, 0.4)
# What is compared: a decoder here and its settings, the options of `generate` there, those of its
# assistant, and the prompts. "hf" runs the decoder inside of `generate`.
CONTESTS: dict[str, tuple[str, dict, dict, dict, str]] = {
    "greedy": ("greedy", {}, {}, {}, "openings"),
    "prompt lookup": ("lookup", {"copy": 10}, {"prompt_lookup_num_tokens": 10}, {}, "refrains"),
    "draft model, 4 tokens": (
        "speculative", {"draft_length": 4}, {"assistant_model": True}, EXACTLY_4, "openings",
    ),
    "draft model, up to 20 while above 0.4": (
        "speculative", {"draft_length": 20, "confidence": 0.4}, {"assistant_model": True},
        UNTIL_UNSURE, "openings",
    ),
    "draft model, length chosen as it goes": (
        "speculative", {"draft_length": "auto"}, {"assistant_model": True}, UNTIL_UNSURE,
        "openings",
    ),
    "hf, greedy": ("greedy", {}, {}, {}, "openings"),
    "hf, draft model": ("speculative", {}, {"assistant_model": True}, EXACTLY_4, "openings"),
}  # fmt: skip


def theirs(pair: decoders.ModelPair, prompt: str, tokens: int, **more: Any) -> list[int]:
    """The new tokens of `transformers`' greedy generate."""
    ids = pair.tokenizer(prompt, return_tensors="pt").to(pair.target.device).input_ids
    if "assistant_model" in more:
        more["assistant_model"] = pair.draft
    with torch.inference_mode():
        out = pair.target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=None,
            pad_token_id=0, max_new_tokens=tokens, **more,
        )  # fmt: skip
    return out[0, ids.shape[1] :].tolist()


def generated(
    pair: decoders.ModelPair, texts: Sequence[str], tokens: int, **more: Any
) -> Callable[[], list]:
    def run() -> list:
        pair.draft.generation_config.update(**EXACTLY_4)
        return [theirs(pair, text, tokens, **more) for text in texts]

    return run


def steady(results: Sequence[decoders.Result]) -> list[decoders.Round]:
    """Their rounds without the first of each, which read the prompt."""
    return [entry for result in results for entry in result.rounds[1:]]


def seconds_per_token(rounds: Sequence[decoders.Round]) -> float:
    seconds = sum(r.draft_seconds + r.verify_seconds for r in rounds)
    return seconds / sum(len(r.tokens) for r in rounds)


def beside_theory(greedy: Over, drafted: Over, length: int) -> list[str]:
    """alpha, c, the cost of verifying, and the speed-up over greedy, promised and measured.

    The promise is that of theorem 3.8."""
    rounds, plain = steady(drafted.results), seconds_per_token(steady(greedy.results))
    alpha = sum(r.accepted for r in rounds) / max(1, sum(r.tested for r in rounds))
    calls = max(1, sum(r.draft_calls for r in rounds))
    c = sum(r.draft_seconds for r in rounds) / calls / plain
    verify = sum(r.verify_seconds for r in rounds) / len(rounds) / plain
    theory = expected_tokens(alpha, length) / (length * c + verify)
    gain = plain / seconds_per_token(rounds)
    return [f"{x:.3f}" for x in (alpha, c, verify, theory, gain, gain / theory)]


def decode(args: argparse.Namespace) -> None:
    pair, texts = decoders.load_pair(args.pair), prompts()
    openings, refrains = (texts[kind][: args.prompts] for kind in ("openings", "refrains"))
    for title, warping in WARPINGS.items():
        cold = not warping["temperature"]

        def ours(name: str, on: Sequence[str] = openings, **settings: Any) -> Over:
            given = {**warping, "max_new_tokens": args.tokens}  # noqa: B023
            return Over(pair, decoders.catalog[name](**settings), on, given)

        base = "greedy" if cold else "sampling"
        own = {name: ours(name, **tuned().get(name, {})) for name in DRAFTING}
        lengths = {
            f"speculative, {n} draft tokens": ours("speculative", draft_length=n)
            for n in args.lengths
        }
        bases = dict.fromkeys([*own, *lengths], base)
        cases: dict[str, Callable] = {"generate": generated(pair, openings, args.tokens)}
        cases |= {"greedy": ours("greedy"), **own, **lengths}
        if cold:
            cases["lookup"] = ours("lookup", refrains, copy=10)
        else:
            cases["sampling"] = ours("multinomial")
            for width, settings in zip(WIDTHS, pair_settings().get("dsbd", []), strict=False):
                cases[f"beam sampling of {width}"] = ours("beam_sampling", beams=width)
                cases[f"dsbd beside {width}"] = ours("dsbd", **settings)
                bases[f"dsbd beside {width}"] = f"beam sampling of {width}"
        took = measure(cases, args.rounds)
        print(f"\n### {title}")
        rows = (
            (name, f"{args.prompts * args.tokens / statistics.median(took[name]):.0f}",
             ratio(took, name, "generate"),
             f"{ratio(took, name, bases[name])} {bases[name]}" if name in bases else "",
             f"{perplexity(run.results):.2f}" if isinstance(run, Over) else "")
            for name, run in cases.items()
        )  # fmt: skip
        table(("", "tokens/s", "over `generate`", "over our own", "perplexity"), rows)
        greedy: Any = cases["greedy"]
        table(
            ("draft tokens", "alpha", "c", "verifying, in greedy steps", "speed-up by theory",
             "measured", "measured / theory"),
            (
                (n, *beside_theory(greedy, run, n))
                for n, run in zip(args.lengths, lengths.values(), strict=True)
            ),
        )  # fmt: skip


def contests(args: argparse.Namespace) -> None:
    pair, texts = decoders.load_pair(args.pair), prompts()
    given: dict[str, Any] = {"max_new_tokens": args.tokens, "temperature": 0.0, "ignore_eos": True}

    def rows() -> Iterator[tuple[object, ...]]:
        for name, (decoder, settings, more, helper, kind) in CONTESTS.items():
            on = texts[kind][: args.prompts]
            method = decoders.catalog[decoder](**settings)
            inside = decoders.hf(method, draft=pair.draft if more else None)
            pair.draft.generation_config.update(**helper)
            cases: dict[str, Callable[[], list]] = {
                "ours": lambda: [decoders.generate(pair, t, method, **given).tokens for t in on],  # noqa: B023
                "theirs": lambda: [theirs(pair, t, args.tokens, **more) for t in on],  # noqa: B023
            }
            if name.startswith("hf"):
                own = {"custom_generate": inside}
                cases["ours"] = lambda: [theirs(pair, t, args.tokens, **own) for t in on]  # noqa: B023
            same = sum(a == b for a, b in zip(*(run() for run in cases.values()), strict=True))
            took = measure(cases, args.rounds)
            speed = len(on) * args.tokens / statistics.median(took["ours"])
            yield name, ratio(took, "ours", "theirs"), f"{speed:.0f}", f"{same} of {len(on)}"

    table(("against transformers", "times as fast", "ours, tokens/s", "same tokens"), rows())


def heads(args: argparse.Namespace) -> None:
    texts = prompts()["openings"][: args.prompts]
    pairs = {"draft model": decoders.load_pair(), "head": decoders.load_pair(draft="head")}
    for title, warping in WARPINGS.items():
        base = "multinomial" if warping["temperature"] else "greedy"

        def over(name: str, source: str = "draft model", **settings: Any) -> Over:
            given = {**warping, "max_new_tokens": args.tokens}  # noqa: B023
            return Over(pairs[source], decoders.catalog[name](**settings), texts, given)

        cases = {base: over(base), "look-up": over("lookup", copy=PLACES)}
        for source in pairs:
            for n in args.lengths:
                cases[f"{source}, {n} tokens"] = over("speculative", source, draft_length=n)
            tree = f"{source}, best-first tree of {PLACES}"
            cases[tree] = over("best_first", source, nodes=PLACES)
        took = measure(cases, args.rounds)
        print(f"\n### {title}")
        table(
            ("", "tokens/s", f"over {base}", "tokens a pass", "kept, by place", "ms a draft pass",
             "ms a target pass"),
            (
                (
                    name,
                    f"{args.prompts * args.tokens / statistics.median(took[name]):.0f}",
                    ratio(took, name, base),
                    f"{run.rate:.2f}",
                    shares(by_place(run.results, PLACES)) if "tokens" in name else "",
                    *parts(run.results),
                )
                for name, run in cases.items()
            ),
        )  # fmt: skip


def parts(results: Sequence[decoders.Result]) -> tuple[str, str]:
    """Milliseconds of a draft pass, and of a round's pass of the target."""
    rounds = steady(results)
    drafting = sum(r.draft_seconds for r in rounds) / max(1, sum(r.draft_calls for r in rounds))
    verifying = sum(r.verify_seconds for r in rounds) / len(rounds)
    return f"{1e3 * drafting:.2f}", f"{1e3 * verifying:.2f}"


SECTIONS = {"decoders": decode, "generate": contests, "heads": heads}

if __name__ == "__main__":
    args = options(
        __doc__, {"tokens": 8, "prompts": 1, "rounds": 1, "lengths": [2]}, SECTIONS, pair=None,
        tokens=64, prompts=6, rounds=5, lengths=[2, 3, 4, 5, 6, 8],
    )  # fmt: skip
    for name in args.only:
        SECTIONS[name](args)
