"""Whether a pair can run a study, found out without running anything."""

from collections.abc import Sequence

from decoders import InputError, ModelPair, cache_need, catalog, check
from workbench.studies.schemes import BASELINE, MEGABYTE, least_budget
from workbench.studies.study import Study

Ids = list[int]


def admit(pair: ModelPair, study: Study) -> list[Ids]:
    """The token ids of the study's prompts.

    Raises:
        InputError: with the prompt's name, for everything that `decoders.stream` would refuse
    """
    settings = study.settings
    known = {
        p: list(p.ids) or encode_prompt(pair, p.text, settings.chat_template) for p in study.prompts
    }
    ids = [known[prompt] for prompt in study.prompts]
    for prompt, tokens in zip(study.prompts, ids, strict=True):
        if pair.positions is not None and len(tokens) + settings.max_new_tokens > pair.positions:
            raise InputError(
                f"{prompt.place}: its {len(tokens)} tokens and {settings.max_new_tokens} new ones "
                f"exceed the {pair.positions} positions of the models; shorten it or ask for fewer "
                "tokens."
            )
    jobs = study.jobs()
    if (budget := jobs[0].max_cache_bytes) is not None:
        _check_budget(pair, study, ids, budget)
    for job in {(job.method, job.scheme): job for job in jobs}.values():
        check(pair, ids, job.method, **settings.decoding, **job.batching)
    return ids


def encode_prompt(pair: ModelPair, prompt: str, chat_template: bool = False) -> Ids:
    """The prompt's token ids as a study uses them.

    Raises:
        InputError: if the prompt is empty, or if there is no chat template to apply
    """
    if not prompt:
        raise InputError("The prompt is empty; give at least one character.")
    if not chat_template:
        return list(pair.tokenizer(prompt).input_ids)
    if not getattr(pair.tokenizer, "chat_template", None):
        raise InputError(
            "This pair's tokenizer has no chat template; switch it off, or load a chat model."
        )
    text = pair.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
    )
    return list(pair.tokenizer(text, add_special_tokens=False).input_ids)


def _check_budget(pair: ModelPair, study: Study, ids: Sequence[Ids], budget: int) -> None:
    """Refuse a memory budget in bytes that a request alone can outgrow.

    The InputError names the prompt that needs most.
    """
    new = study.settings.max_new_tokens
    longest = max(range(len(ids)), key=lambda i: len(ids[i]))
    needs = {
        m: cache_need(pair, m, len(ids[longest]), new)
        for m in (catalog[BASELINE](), *study.settings.methods)
    }
    method = max(needs, key=needs.__getitem__)
    if needs[method] > budget:
        least = least_budget(needs[method])
        raise InputError(
            f"{study.prompts[longest].place}: with {method.name} its {len(ids[longest])} tokens "
            f"and {new} new ones can need {least:.2f} MB of cache, and the memory budget is "
            f"{budget / MEGABYTE:g} MB; give at least {least:.2f}, shorten the prompt or ask for "
            "fewer tokens."
        )
