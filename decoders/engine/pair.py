"""Loading a pair of models, checking that they belong together, and refusing by name what cannot be run."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from decoders.engine.model import Engine, PackedModel, twin
from decoders.errors import InputError
from decoders.tree import TokenTree

EMBEDDED = Path(__file__).resolve().parents[2] / "assets" / "stories"


class ModelPair:
    """A target model, a draft model (or None) and the tokenizer they share.

    target, draft   `transformers` causal language models, on one device; they stay where and as they are, in eval mode
    tokenizer       may be None where prompts are lists of token ids
    Raises InputError, before any use, where the pair cannot be run, saying why.
    """

    def __init__(self, target: PreTrainedModel, draft: PreTrainedModel | None, tokenizer: Any = None):
        for model in (target, draft):
            if model is not None and not isinstance(model, PreTrainedModel):
                raise InputError(
                    f"A model of a pair is a transformers model, not {model!r}; load_pair() takes names and folders."
                )
        self.target, self.draft, self.tokenizer = target, draft, tokenizer
        if draft is not None and draft.device != target.device:
            raise InputError(
                f"The models are on different devices, target on {target.device} and draft on {draft.device}; move one with .to()."
            )
        self.packed: dict[str, PackedModel] = {}
        for role, model in (("target", target), ("draft", draft)):
            if model is not None:
                model.eval()
                self.packed[role] = PackedModel(model, role)
        if draft is not None and self.packed["draft"].vocabulary != self.packed["target"].vocabulary:
            raise InputError(
                f"Draft and target have different vocabularies: {self.packed['draft'].vocabulary} and "
                f"{self.packed['target'].vocabulary} tokens; take a draft of the target's family."
            )
        for packed in self.packed.values():
            agrees_with_plain_pass(packed)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text, by the target's generation config or else the tokenizer."""
        ids = getattr(self.target.generation_config, "eos_token_id", None)
        if ids is None:
            ids = getattr(self.tokenizer, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)

    @property
    def vocabulary(self) -> int:
        return self.packed["target"].vocabulary

    @property
    def positions(self) -> int | None:
        """How many tokens, prompt and output together, every model of the pair can see; None if no config names a limit."""
        return min((m.positions for m in self.packed.values() if m.positions is not None), default=None)


def agrees_with_plain_pass(packed: PackedModel) -> None:
    """Run a 12-token pass of two branched requests and compare it with a plain one: some models fail silently.

    The plain pass takes the "eager" attention: it does all that the architecture asks for ("sdpa" has no soft-capping), though its
    softmax is never finer than float32. The bound on the relative error allows for rounding; a wrong mask or position is far
    outside it. Raises InputError.
    """
    size = packed.vocabulary
    a, b = TokenTree([i * 7 % size for i in range(1, 4)]), TokenTree([i * 5 % size for i in range(2, 4)])
    x = a.add(2, 4 % size)
    tips_a = [a.add(x, 1), a.add(x, 3 % size), a.add(2, 2 % size)]
    y = b.add(1, 3 % size)
    tips_b = [b.add(y, 1), b.add(b.add(1, 0), 2 % size)]
    engine, model = Engine(packed), twin(packed.model, "eager")
    bound = min(0.1, 256 * max(torch.finfo(dtype).eps for dtype in (packed.dtype, torch.float32)))
    with torch.inference_mode():
        wants = [(a, tips_a), (b, tips_b)]
        for tree, _ in wants:
            engine.admit(tree, 16)
        for (tree, tips), answer in zip(wants, engine.run(wants), strict=True):
            for tip, row in zip(tips, answer.logits, strict=True):
                ids = torch.tensor([[tree.tokens[n] for n in tree.lineage(tip)]], device=packed.device)
                plain = model(ids, use_cache=False).logits[0, -1].to(row.dtype)
                if not (row - plain).norm() <= bound * plain.norm():
                    raise InputError(
                        f"The {packed.name} ({packed.model.config.model_type}) answers a packed pass with other logits than a plain one; "
                        "its attention or positions are not modelled."
                    )


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "auto",
    compile: bool = False,
    safetensors: bool | None = None,
) -> ModelPair:
    """Load a pair: nothing for the embedded one; a folder with `target/` and `draft/` in it; or one or two hub ids or model folders.

    A hub id may name a revision: "org/model@revision". Code that a model brings along is never run.

    device   default: CUDA where there is one, else the CPU
    dtype    "auto": bfloat16 on CUDA, float32 on the CPU; or a torch dtype or its name
    compile  compile both models' passes once, which takes a minute or so and is announced
    safetensors   True refuses weights in any other format; by default those are read where there are no others, as plain tensors only
    Raises InputError where a model is missing or refused, before weights are loaded where that can be known.
    """
    device = _device(device)
    dtype = _dtype(dtype, device)
    if target is None:
        target = EMBEDDED
        if not (EMBEDDED / "target" / "config.json").is_file():
            raise InputError(
                f"The embedded models are missing from {EMBEDDED}; train them with `make train`, or name a model to load."
            )
    folder = Path(target)
    if draft is None and (folder / "target").is_dir():
        target, draft = folder / "target", folder / "draft" if (folder / "draft").is_dir() else None
    ids = [str(i) for i in (target, draft) if i is not None]
    for i in ids:
        if i.startswith(("/", ".", "~")) and not Path(i).is_dir():
            raise InputError(f"There is no folder {i}; name one that holds a model, or a model of the hub.")
    configs = [_fetch(AutoConfig, i) for i in ids]
    for i, config in zip(ids, configs, strict=True):
        if config.is_encoder_decoder:
            raise InputError(f"{i} is an encoder-decoder model; load a causal language model.")
    tokenizers = [_fetch(AutoTokenizer, i) for i in ids]
    if len(ids) == 2:
        _same_vocabulary(*configs, *tokenizers)
    models = [_fetch(AutoModelForCausalLM, i, dtype=dtype, use_safetensors=safetensors).to(device) for i in ids]
    pair = ModelPair(models[0], models[1] if len(models) == 2 else None, tokenizers[0])
    if compile:
        from decoders.engine.compiled import compile_passes  # the compiler is loaded only where it is wanted

        compile_passes(pair)
    return pair


def default_device() -> torch.device:
    """Where `load_pair` puts models if it is not told: CUDA if there is a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def default_dtype(device: torch.device) -> torch.dtype:
    """What dtype "auto" means to `load_pair`: bfloat16 on CUDA, else float32."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _device(device: str | torch.device | None) -> torch.device:
    try:
        return torch.empty(0, device=device or default_device()).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"There is no device {str(device)!r} here ({_first_line(error)}); take 'cpu'.") from error


def _dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return default_dtype(device)
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InputError(f"dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64', not {dtype!r}.")
    return found


def _fetch(kind: Any, name: str, **options: Any) -> Any:
    if "@" in name and not Path(name).is_dir():
        name, options["revision"] = name.split("@", 1)
    try:
        return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as error:  # files, network, JSON, safetensors: each has errors of its own
        raise InputError(f"{name} could not be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _same_vocabulary(target_config: Any, draft_config: Any, target: Any, draft: Any) -> None:
    sizes = [c.get_text_config().vocab_size for c in (target_config, draft_config)]
    if sizes[0] != sizes[1]:
        raise InputError(
            f"Draft and target have different vocabularies: {sizes[1]} and {sizes[0]} tokens; take a draft of the target's family."
        )
    words = [t.get_vocab() for t in (target, draft)]
    if words[0] != words[1]:
        by_id = [{i: w for w, i in vocabulary.items()} for vocabulary in words]
        differing = [i for i in sorted(by_id[0].keys() | by_id[1].keys()) if by_id[0].get(i) != by_id[1].get(i)][:3]
        shown = "; ".join(
            f"{i} is {by_id[0].get(i)!r} in the target and {by_id[1].get(i)!r} in the draft" for i in differing
        )
        raise InputError(
            f"Draft and target have different vocabularies, first at token {shown}; take a draft of the target's family."
        )
