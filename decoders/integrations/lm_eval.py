"""The decoders as a model of the lm-evaluation-harness: every task in which a model writes.

Example:
    import decoders, lm_eval
    from decoders.integrations.lm_eval import DecodersLM

    model = DecodersLM(decoders.load_pair(), "speculative")
    lm_eval.simple_evaluate(model=model, tasks=["gsm8k"])
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.utils import normalize_gen_kwargs

from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError
from decoders.generate import generate
from decoders.settings import Method
from decoders.shapes import TokenId

LONGEST = 1024  # tokens that a model sees, if its config does not say
ALONE = (
    "Log-likelihoods are the target's alone, whatever decodes; take the harness's own model \"hf\" "
    "for this task."
)


class DecodersLM(LM):
    """A pair and a decoder.

    Args:
        pair: the models, with a tokenizer
        method: a decoder or its name
        batch_size: requests decoded together
        max_gen_toks: new tokens if a task does not say
        seed: request i of a task's list has seed + i

    Raises:
        InputError: for a pair without a tokenizer
    """

    def __init__(
        self,
        pair: ModelPair,
        method: Method | str = "greedy",
        *,
        batch_size: int = 1,
        max_gen_toks: int = 256,
        seed: int = 0,
    ):
        super().__init__()
        if pair.tokenizer is None:
            raise InputError("Tasks are texts, and this pair has no tokenizer; load one that has.")
        self.pair, self.method, self.tokenizer = pair, method, pair.tokenizer
        self.batch_size, self.max_gen_toks, self.seed = batch_size, max_gen_toks, seed

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise InputError(
                "This pair's tokenizer has no chat template; leave apply_chat_template out, or "
                "load a chat model."
            )
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The text of each request up to the first of its stop strings.

        A context that is too long for the models loses its beginning.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for i, request in enumerate(requests):
            groups[repr(sorted(request.args[1].items()))].append(i)
        texts = [""] * len(requests)
        for members in groups.values():
            for start in range(0, len(members), self.batch_size):
                batch = members[start : start + self.batch_size]
                contexts = [requests[i].args[0] for i in batch]
                written = self._written(contexts, requests[batch[0]].args[1], batch)
                for i, texts[i] in zip(batch, written, strict=True):
                    self.cache_hook.add_partial("generate_until", requests[i].args, texts[i])
        return texts

    def _written(
        self, contexts: Sequence[str], wishes: dict[str, Any], numbers: Sequence[int]
    ) -> list[str]:
        options = normalize_gen_kwargs(wishes, self.max_gen_toks)
        until = options.get("until") or []
        budget, longest = options["max_gen_toks"], self.pair.positions or LONGEST
        if budget >= longest:
            raise InputError(
                f"A task asks for {budget} new tokens, and the models see {longest}; set "
                "max_gen_toks lower."
            )
        sampled = {"temperature": float(options.get("temperature") or 0.0)}
        if sampled["temperature"] > 0:
            sampled |= {
                "top_k": int(options.get("top_k") or 0),
                "top_p": float(options.get("top_p") or 1.0),
                "min_p": float(options.get("min_p") or 0.0),
            }
        results = generate(
            self.pair,
            [self._encode(context)[budget - longest :] for context in contexts],
            self.method,
            max_new_tokens=budget,
            stop=[until] if isinstance(until, str) else [words for words in until if words],
            seed=[self.seed + i for i in numbers],
            max_batch=self.batch_size,
            **sampled,
        )
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.text for result in results]

    def _encode(self, text: str) -> list[TokenId]:
        """The tokens of a context, an end token if it is empty."""
        start = self.tokenizer.bos_token
        # A chat template may have put the start there.
        starts = bool(start) and text.startswith(start)
        ids = self.tokenizer(text, add_special_tokens=not starts).input_ids
        return list(ids) or [min(self.pair.end_tokens)]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise InputError(ALONE)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise InputError(ALONE)
