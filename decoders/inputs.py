"""Checks of what callers give: prompts, seeds, numbers, stop strings, cancellation. Each InputError is one sentence that names the fix."""

from collections.abc import Callable, Sequence
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any, TypeGuard

from decoders.errors import InputError
from decoders.shapes import TokenId

LONGEST_REFERENCE = 16 * 2**20
SEEDS = range(-(2**63), 2**64)  # what torch.Generator takes


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether this is a whole number, NumPy's included; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, most: int) -> int:
    """A whole number from 1 to `most`, or InputError."""
    if not is_whole(value) or not 1 <= value <= most:
        raise InputError(f"{name} must be a whole number from 1 to {most}, not {value!r}.")
    return int(value)


def as_list(value: Any) -> Any:
    """Tensors, arrays, tuples and ranges as lists; anything else unchanged."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (tuple, range)) else value


def as_prompts(prompt: Any) -> tuple[list[Any], bool]:
    """The prompts, and whether the caller gave a list of prompts rather than one."""
    prompt = as_list(prompt)
    batch = isinstance(prompt, list) and any(isinstance(as_list(p), (str, list)) for p in prompt)
    return (prompt if batch else [prompt]), batch


def encode(prompt: Any, tokenizer: Any, vocabulary: int) -> list[TokenId]:
    """The token ids of one prompt: text, or ids below `vocabulary`."""
    if isinstance(prompt, str) and prompt:
        if tokenizer is None:
            raise InputError("This pair has no tokenizer; give the prompt as a list of token ids.")
        prompt = tokenizer(prompt).input_ids
    ids = as_list(prompt)
    if not isinstance(ids, (str, list)):
        raise InputError(f"A prompt is text or a list of token ids, not {type(prompt).__name__}.")
    if not ids:
        raise InputError("The prompt is empty; give at least one character or token.")
    for i in ids:
        if not is_whole(i):
            raise InputError(f"A prompt is text or a list of token ids, and {i!r} is not a token id.")
        if not 0 <= i < vocabulary:
            raise InputError(f"Token id {i} is out of range; the vocabulary has ids 0 to {vocabulary - 1}.")
    return [int(i) for i in ids]


def as_seeds(seed: Any, count: int) -> list[int]:
    """One seed for each of `count` requests; of an int s, request i gets s + i."""
    seed = as_list(seed)
    seeds = [seed + i for i in range(count)] if is_whole(seed) else seed
    if not isinstance(seeds, list) or not all(is_whole(s) and s in SEEDS for s in seeds):
        raise InputError(f"seed must be a whole number below 2**64 or a list of them, not {seed!r}.")
    if len(seeds) != count:
        raise InputError(
            f"There are {count} prompts and {len(seeds)} seeds; give one int, or one seed for each prompt."
        )
    return [int(s) for s in seeds]


def as_stops(stop: Any, tokenizer: Any) -> list[str]:
    """The stop strings."""
    stops = [stop] if isinstance(stop, str) else as_list(stop)
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise InputError(f"stop must be a text of at least one character or a list of such texts, not {stop!r}.")
    if stops and tokenizer is None:
        raise InputError("Stop strings need a tokenizer; this pair has none.")
    return stops


def decoded(tokenizer: Any, tokens: Sequence[TokenId]) -> str:
    """The text of new tokens, as results have it and stop strings are looked for in it: without special tokens."""
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def stop_finder(tokenizer: Any, stops: Sequence[str]) -> Callable[[list[TokenId]], bool]:
    """A function that says whether the text of new tokens contains a stop string. It reads only the last tokens: earlier ones it has
    seen before."""
    # A character is at most four byte-level tokens; the slack is for a tokenizer that drops a leading space.
    window = 4 * max(map(len, stops)) + 8
    silent = {*tokenizer.all_special_ids, *(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)}

    def finds(tokens: list[TokenId]) -> bool:
        last = list(islice((t for t in reversed(tokens) if t not in silent), window))
        text = decoded(tokenizer, last[::-1])
        return any(s in text for s in stops)

    return finds


def as_ids(name: str, ids: Any) -> frozenset[TokenId]:
    """A collection of token ids."""
    listed = [ids] if is_whole(ids) else as_list(ids)
    if not isinstance(listed, (list, set, frozenset)) or not all(is_whole(i) for i in listed):
        raise InputError(f"{name} must be token ids, as in [0, 2], not {ids!r}.")
    return frozenset(map(int, listed))


def cancel_check(cancel: Any) -> Callable[[], bool]:
    """A function that says whether to end, from a threading.Event, a function or None."""
    if cancel is None:
        return lambda: False
    check = getattr(cancel, "is_set", cancel)
    if not callable(check):
        raise InputError(f"cancel must be a threading.Event or a function that returns True, not {cancel!r}.")
    return check


def as_references(owner: str, references: Any) -> tuple[str, ...]:
    """Reference documents of a decoder: one text or a list of them, none of them empty."""
    texts = (references,) if isinstance(references, str) else as_list(references)
    if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) for t in texts):
        raise InputError(
            f"{owner}: references must be texts, not {references!r}; read a file with read_reference(path)."
        )
    for i, text in enumerate(texts):
        if not text.strip():
            raise InputError(f"Reference document {i + 1} is empty; give it some text or leave it out.")
    return tuple(texts)


def encode_references(references: Sequence[str], tokenizer: Any) -> list[list[TokenId]]:
    """The token ids of reference documents, without a prompt's special tokens."""
    return [list(tokenizer(text, add_special_tokens=False).input_ids) for text in references]


def read_reference(path: str | Path) -> str:
    """The text of a reference file, which must be UTF-8, not empty and at most LONGEST_REFERENCE bytes."""
    path = Path(path)
    try:
        if path.stat().st_size > LONGEST_REFERENCE:
            raise InputError(
                f"{path} is larger than {LONGEST_REFERENCE // 2**20} MB; give a shorter reference document."
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give the path of a text file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it as plain text first.") from None
    if "\0" in text:
        raise InputError(f"{path} is not text: it holds zero bytes; save it as plain text first.")
    if not text.strip():
        raise InputError(f"{path} is empty; give a file with some text.")
    return text
