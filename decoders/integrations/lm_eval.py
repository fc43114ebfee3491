"""The decoders as a model of the lm-evaluation-harness: every task, with every decoder.

Example:
    import decoders, lm_eval
    from decoders.integrations.lm_eval import DecodersLM

    model = DecodersLM(decoders.load_pair(), "speculative")
    lm_eval.simple_evaluate(model=model, tasks=["gsm8k"])
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from transformers import PreTrainedModel

from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.loaded import undisturbed
from decoders.errors import InputError
from decoders.generate import generate
from decoders.settings import Method
from decoders.shapes import TokenId

LONGEST = 1024  # tokens that a model sees, if its config does not say


class DecodersLM(TemplateLM):
    """A pair and a decoder.

    Args:
        pair: the models, with a tokenizer
        method: a decoder or its name; it writes the texts, while log-likelihoods are the target's
            own
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
        if not isinstance(pair.target, PreTrainedModel):
            raise InputError(
                f"The {pair.packed['target'].name} cannot score whole texts; load a target of "
                "transformers."
            )
        self.pair, self.method, self.tokenizer = pair, method, pair.tokenizer
        self.batch_size, self.max_gen_toks, self.seed = batch_size, max_gen_toks, seed
        self._device = pair.target.device

    @property
    def eot_token_id(self) -> TokenId:
        end = self.tokenizer.eos_token_id
        return end if end is not None else min(self.pair.end_tokens)

    @property
    def prefix_token_id(self) -> TokenId:
        start = self.tokenizer.bos_token_id
        return start if start is not None else self.eot_token_id

    @property
    def max_length(self) -> int:
        return self.pair.positions or LONGEST

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[TokenId]:
        start = self.tokenizer.bos_token
        if add_special_tokens is None and start and string.startswith(start):
            # A chat template has put it there.
            add_special_tokens = False
        special = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return list(self.tokenizer(string, **special).input_ids)

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
        budget = options["max_gen_toks"]
        room = self.max_length - budget
        if room < 1:
            raise InputError(
                f"A task asks for {budget} new tokens, and the models see {self.max_length}; set "
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
            [self.tok_encode(context)[-room:] or [self.prefix_token_id] for context in contexts],
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

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[TokenId], list[TokenId]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        return [self._scored(context, continuation) for _, context, continuation in requests]

    def _scored(self, context: list[TokenId], continuation: list[TokenId]) -> tuple[float, bool]:
        """The target's log-likelihood (nats) of the continuation; whether it is the greedy one."""
        ids = [*context, *continuation][-(self.max_length + 1) :]
        with undisturbed(self._device):
            logits = self.pair.target(
                torch.tensor([ids[:-1]], device=self._device), use_cache=False
            ).logits[0]
        logits = logits[-len(continuation) :]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        wanted = torch.tensor(ids[-len(continuation) :], device=self._device)
        total = logits.log_softmax(-1).gather(-1, wanted[:, None]).sum().item()
        return total, bool((logits.argmax(-1) == wanted).all())

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """The target's log-likelihood (nats) of each text, in windows of the model's length."""
        totals = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                self.tok_encode(request.args[0]), self.prefix_token_id, self.max_length, 1
            )
            scored = (self._scored(*utils.make_disjoint_window(window)) for window in windows)
            totals.append(sum(total for total, _ in scored))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, totals[-1])
        return totals
