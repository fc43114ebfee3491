"""Checks of callers' input: seeds, texts, token ids, references and cancellation.

Every InputError is one sentence that names the fix.
"""

import stat
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from decoders.errors import InputError, is_whole, plain, quoted, refuse
from decoders.shapes import TokenId

LONGEST_REFERENCE = 16 * 2**20
# Values of an array or range: one that takes no memory may claim to have any number of them.
MOST_LISTED = 2**24
SEEDS = range(-(2**63), 2**64)  # those of torch.Generator


def text(name: str, value: str) -> str:
    """The text, if it can be encoded; InputError for half a character, which no tokenizer reads."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds half a character (a lone surrogate, {quoted(value[error.start])}) at "
            f"position {error.start}; remove it."
        ) from None
    return value


def is_gguf(name: Any) -> bool:
    """Whether a name is that of a GGUF file, there or not."""
    return isinstance(name, (str, Path)) and Path(name).suffix.lower() == ".gguf"


def as_list(value: Any) -> Any:
    """Tensors, arrays, tuples and ranges as lists (up to MOST_LISTED); anything else unchanged."""
    if isinstance(value, range):
        return list(value) if len(value[: MOST_LISTED + 1]) <= MOST_LISTED else value
    if hasattr(type(value), "tolist") and getattr(value, "nbytes", 0) <= 8 * MOST_LISTED:
        try:
            return value.tolist()
        except (RuntimeError, NotImplementedError):  # sparse tensors, and those on "meta"
            return value
    return list(value) if isinstance(value, tuple) else value


def as_tokenizer(name: str, tokenizer: Any) -> Any:
    """A tokenizer of transformers, or None; InputError for anything else."""
    if tokenizer is None or (
        callable(tokenizer) and hasattr(tokenizer, "get_vocab") and hasattr(tokenizer, "decode")
    ):
        return tokenizer
    raise InputError(
        f"{name} must be a tokenizer of transformers, as AutoTokenizer.from_pretrained(name) "
        f"gives, not {quoted(tokenizer)}."
    )


def as_tokens(rule: str, tokens: Any, vocabulary: int) -> list[TokenId]:
    """Token ids below `vocabulary`.

    Args:
        rule: the beginning of messages, which says what the ids are
        tokens: a sequence of ids
        vocabulary: V
    """
    ids = as_list(tokens)
    if not isinstance(ids, list):
        raise InputError(f"{rule}, not {type(tokens).__name__}.")
    for i in ids:
        if not is_whole(i):
            raise InputError(f"{rule}, and {quoted(i)} is not a token id.")
        if not 0 <= i < vocabulary:
            raise InputError(
                f"Token id {quoted(i)} is out of range; the vocabulary has ids 0 to "
                f"{vocabulary - 1}."
            )
    return [int(i) for i in ids]


def as_seed(seed: Any) -> int | list[int]:
    """One seed, or a list with one for each request."""
    listed = as_list(seed)
    seeds = listed if isinstance(listed, list) else [listed]
    if not all(is_whole(s) and plain(s) in SEEDS for s in seeds):
        raise InputError(
            f"seed must be a whole number below 2**64 or a list of them, not {quoted(seed)}."
        )
    return [int(s) for s in seeds] if isinstance(listed, list) else int(listed)


def as_seeds(seed: Any, count: int) -> list[int]:
    """One seed for each of `count` requests; from a single seed s, request i gets s + i."""
    first = as_seed(seed)
    seeds = first if isinstance(first, list) else [first + i for i in range(count)]
    # The last of the numbers that follow a seed may be too large.
    as_seed(seeds)
    if len(seeds) != count:
        raise InputError(
            f"There are {count} prompts and {len(seeds)} seeds; give one int, or one seed for each "
            "prompt."
        )
    return seeds


def as_stops(stop: Any, tokenizer: Any) -> list[str]:
    """The stop strings, as a list."""
    stops = [stop] if isinstance(stop, str) else as_list(stop)
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise InputError(
            "stop must be a text of at least one character or a list of such texts, not "
            f"{quoted(stop)}."
        )
    for i, s in enumerate(stops):
        text(f"Stop string {i + 1}", s)
    if stops and tokenizer is None:
        raise InputError("Stop strings need a tokenizer; this pair has none.")
    for name in special_tokens(tokenizer).values() if stops else ():
        for s in stops:
            if name and name in s and name != s:
                raise InputError(
                    f"The stop string {quoted(s)} has the special token {name} and more; give "
                    f"{quoted(name)} alone, as texts have no special tokens."
                )
    return stops


def special_tokens(tokenizer: Any) -> dict[TokenId, str]:
    """The tokens that are no text, each with its name."""
    added = {i: t.content for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    return {i: tokenizer.decode([i]) for i in tokenizer.all_special_ids} | added


def special_ids(tokenizer: Any) -> set[TokenId]:
    """The tokens that are no text."""
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return {*tokenizer.all_special_ids, *added}


def decoded(tokenizer: Any, tokens: Sequence[TokenId]) -> str:
    """The text of new tokens without special tokens, for results and for finding stop strings."""
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def stop_finder(tokenizer: Any, stops: Sequence[str]) -> Callable[[list[TokenId]], bool]:
    """A function that says whether new tokens contain a stop string.

    It looks for the text of the last tokens, and, as texts have no special tokens, for the ids of
    those that stop strings name. So it must be asked after every token.
    """
    # A character is at most four byte-level tokens; the rest allows for a tokenizer that drops a
    # leading space.
    window = 4 * max(map(len, stops)) + 8
    special = special_tokens(tokenizer)
    ends = {i for i, name in special.items() if name in stops}

    def finds(tokens: list[TokenId]) -> bool:
        if ends and tokens and tokens[-1] in ends:
            return True
        last = list(islice((t for t in reversed(tokens) if t not in special), window))
        written = decoded(tokenizer, last[::-1])
        return any(s in written for s in stops)

    return finds


def as_ids(name: str, ids: Any) -> frozenset[TokenId]:
    """A collection of token ids, or a single one, as a set."""
    listed = [ids] if is_whole(ids) else as_list(ids)
    if not isinstance(listed, (list, set, frozenset)) or not all(is_whole(i) for i in listed):
        raise InputError(f"{name} must be token ids, as in [0, 2], not {quoted(ids)}.")
    return frozenset(map(int, listed))


def cancel_check(cancel: Any) -> Callable[[], bool] | None:
    """A function that says whether to stop, from a threading.Event or a function; else None."""
    if cancel is None:
        return None
    check = getattr(cancel, "is_set", cancel)
    if not callable(check):
        raise InputError(
            "cancel must be a threading.Event or a function that returns True, not "
            f"{quoted(cancel)}."
        )
    return check


def as_references(owner: str, references: Any) -> tuple[str, ...]:
    """The reference documents of a decoder: one text or a list of texts, none of them empty."""
    texts = (references,) if isinstance(references, str) else as_list(references)
    if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) for t in texts):
        raise InputError(
            f"{owner}: references must be texts, not {quoted(references)}; read a file with "
            "read_reference(path)."
        )
    for i, words in enumerate(texts):
        if not text(f"Reference document {i + 1}", words).strip():
            raise InputError(
                f"Reference document {i + 1} is empty; give it some text or leave it out."
            )
    return tuple(texts)


def read_reference(path: str | Path) -> str:
    """The text of a reference file.

    Args:
        path: a file in UTF-8, not empty and at most 16 MB long (`LONGEST_REFERENCE`)

    Raises:
        InputError: for any other file, and for one that cannot be read
    """
    fix = "give the path of a text file"
    try:
        path = Path(path)
        mode, size = path.stat().st_mode, path.stat().st_size
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(0, "it is a device or a pipe")
        words = path.read_bytes().decode("utf-8-sig") if size <= LONGEST_REFERENCE else ""
    except OSError as error:
        raise InputError(f"{path!s:.200} cannot be read: {error.strerror}; {fix}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it as plain text first.") from None
    # Another type; or zero bytes and lone surrogates, which a path cannot hold.
    except (TypeError, ValueError):
        raise InputError(f"{quoted(path)} is no path; {fix}.") from None
    refuse(
        (
            size > LONGEST_REFERENCE,
            f"{path} is larger than {LONGEST_REFERENCE // 2**20} MB; give a shorter reference "
            "document.",
        ),
        (
            "\0" in words,
            f"{path} is not text: it holds zero bytes; save it as plain text first.",
        ),
        (not words.strip(), f"{path} is empty; give a file with some text."),
    )
    return words
