"""Checks of callers' input, and prompts as token ids: texts, lists of ids, and chats.

Every InputError is one sentence that names the fix. A tokenizer's template renders chats.
"""

import logging
import stat
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from decoders.errors import InputError, first_line, is_whole, plain, quoted, refuse
from decoders.shapes import TokenId

LONGEST_REFERENCE = 16 * 2**20
# Values of an array or range: one that takes no memory may claim to have any number of them.
MOST_LISTED = 2**24


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
    if hasattr(type(value), "tolist"):
        try:
            return value.tolist() if getattr(value, "nbytes", 0) <= 8 * MOST_LISTED else value
        except RuntimeError:  # sparse tensors, and those on "meta"
            return value
    return list(value) if isinstance(value, tuple) else value


def as_tokenizer(name: str, tokenizer: Any) -> Any:
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
    listed = as_list(seed)
    seeds = listed if isinstance(listed, list) else [listed]
    # Those of torch.Generator.
    if not all(is_whole(s) and -(2**63) <= plain(s) < 2**64 for s in seeds):
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


ROLES = ("system", "developer", "user", "assistant", "tool")
RULE = "A prompt is text, a list of token ids or a list of messages"
NO_TOKENIZER = "This pair has no tokenizer; give the prompt as a list of token ids."
log = logging.getLogger("decoders")


class Part(NamedTuple):
    """A stretch of a prompt that a chat template rendered.

    Attributes:
        text: its text
        tokens: how many tokens it has
        template: whether the template wrote it; otherwise it is the content of messages
    """

    text: str
    tokens: int
    template: bool


class Encoded(NamedTuple):
    """A prompt as token ids.

    Attributes:
        ids: the token ids
        parts: of messages, the stretches of the rendered text; () if the tokenizer does not tell
            which characters a token stands for, or the template changes what messages say
        notes: a sentence for each thing about the ids that a caller may not expect
    """

    ids: list[TokenId]
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()


def as_prompts(prompt: Any) -> tuple[list[Any], bool]:
    """The prompts, and whether the caller gave a list of prompts rather than one.

    A list of messages is one prompt, and a list of such lists is a batch, in which texts and ids
    may stand beside them.
    """
    prompt = as_list(prompt)
    batch = isinstance(prompt, list) and any(isinstance(as_list(p), (str, list)) for p in prompt)
    return (prompt if batch else [prompt]), batch


def encode_all(
    prompts: Sequence[Any], tokenizer: Any, vocabulary: int, bos: TokenId | None = None
) -> list[list[TokenId]]:
    """The token ids of each prompt, see `encode`; each note is logged once."""
    encoded = [encode(prompt, tokenizer, vocabulary, bos) for prompt in prompts]
    for note in dict.fromkeys(note for each in encoded for note in each.notes):
        log.warning(note)
    return [each.ids for each in encoded]


def encode(prompt: Any, tokenizer: Any, vocabulary: int, bos: TokenId | None = None) -> Encoded:
    """The token ids of one prompt.

    Args:
        prompt: text, token ids below `vocabulary`, or messages
        vocabulary: V
        bos: the id that begins a text, to note that ids have it twice

    Raises:
        InputError: for anything else, for an empty prompt, for text or messages without a
            tokenizer, and for messages that the tokenizer's template cannot render
    """
    if isinstance(prompt, str):
        if prompt and tokenizer is None:
            raise InputError(NO_TOKENIZER)
        encoded = _text(text("The prompt", prompt), tokenizer) if prompt else Encoded([])
    elif isinstance(prompt, Mapping):
        if "input_ids" in prompt:
            raise InputError("A tokenizer's output is no prompt; give its input_ids.")
        raise InputError("A prompt of one message is a list that has it: [{'role': ...}].")
    else:
        listed = as_list(prompt)
        if isinstance(listed, list) and any(isinstance(each, Mapping) for each in listed):
            encoded = _chat(checked(listed), tokenizer)
        else:
            encoded = Encoded(as_tokens(RULE, listed, vocabulary))
            if bos is not None and encoded.ids[:2] == [bos, bos]:
                note = (
                    f"A prompt's token ids begin with the start token ({bos}) twice, as a rendered "
                    "chat template does that is tokenised with add_special_tokens=True."
                )
                encoded = encoded._replace(notes=(note,))
    ids = as_tokens(RULE, encoded.ids, vocabulary)
    if not ids:
        raise InputError("The prompt is empty; give at least one character or token.")
    return encoded._replace(ids=ids)


def _text(words: str, tokenizer: Any) -> Encoded:
    ids, notes = list(tokenizer(words).input_ids), []
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    doubled, ended = bos is not None and ids[:2] == [bos] * 2, eos is not None and ids[-1:] == [eos]
    if not (doubled or ended):
        return Encoded(ids)
    own = list(tokenizer(words, add_special_tokens=False).input_ids)
    if doubled and own[:1] == [bos]:
        ids = ids[1:]
        notes.append(
            f"The prompt begins with {tokenizer.bos_token}, which the tokenizer adds as well; it "
            "is read once."
        )
    if ended and own[-1:] != [eos]:
        notes.append(
            f"The tokenizer adds its end token, {tokenizer.eos_token}, to the prompt; for a text "
            "that goes on, give token ids without it."
        )
    return Encoded(ids, notes=tuple(notes))


# ---- Messages


def checked(messages: Sequence[Any]) -> list[dict[str, str]]:
    """The messages of one prompt; raises InputError for the first that cannot be used."""
    for number, message in enumerate(messages, 1):
        name = f"Message {number}"
        if not isinstance(message, Mapping):
            raise InputError(
                f"{name} must have a role and a content, as in {{'role': 'user', 'content': "
                f"'Hello'}}, not be {quoted(message)}."
            )
        role, content = message.get("role"), cast(str, message.get("content"))
        others = [key for key in message if key not in ("role", "content")]
        refuse(
            ("role" not in message, f"{name} has no role; give one of {', '.join(ROLES)}."),
            (
                not isinstance(role, str) or role not in ROLES,
                f"{name} has the role {quoted(role)}; give one of {', '.join(ROLES)}, or render "
                "the chat yourself and give it as text.",
            ),
            ("content" not in message, f"{name} has no content; give it a text."),
            (
                not isinstance(content, str),
                f"The content of message {number} must be a text, not {type(content).__name__}: "
                "decoders read text alone.",
            ),
            (others, f"{name} has {', '.join(map(quoted, others[:1]))}; give role and content."),
        )
        text(name, content)
    return [{"role": m["role"], "content": m["content"]} for m in messages]


Spans = list[tuple[int, int]]


def render(messages: Sequence[Mapping[str, str]], tokenizer: Any) -> tuple[str, Spans | None]:
    """A chat as text up to where the model answers, and where the content of each message stands.

    The template opens the answer (`add_generation_prompt`). If the last message is the
    assistant's, it is the beginning of the answer, and is left open. The places are None if they
    are not certain.

    Raises:
        InputError: if there is no template, or it cannot render these messages
    """
    refuse(
        (tokenizer is None, NO_TOKENIZER),
        (
            not getattr(tokenizer, "chat_template", None),
            "This pair's tokenizer has no chat template, so it cannot read messages; give the "
            "prompt as text, or load a chat model.",
        ),
    )
    begun, apply = messages[-1]["role"] == "assistant", tokenizer.apply_chat_template
    options = {"tokenize": False, "add_generation_prompt": not begun}
    try:
        whole = apply(list(messages), **options)
    # A template is a program of the model's makers.
    except Exception as error:
        raise InputError(
            f"The tokenizer's chat template refuses these messages ({first_line(error)}); change "
            "them, or render the chat yourself and give it as text."
        ) from None
    # A rendering of marks in place of the contents says what the template writes around them.
    marks = [f"\ue000{i}\ue001" for i in range(len(messages))]
    probe = [{**m, "content": mark} for m, mark in zip(messages, marks, strict=True)]
    try:
        spans = _places([m["content"] for m in messages], whole, apply(probe, **options), marks)
    except Exception:  # it may refuse the marks
        spans = None
    if begun:
        refuse(
            (
                not messages[-1]["content"].strip(),
                "The last message, with which the assistant begins its answer, is empty; leave it "
                "out.",
            ),
            (
                spans is None,
                "The tokenizer's chat template does not show where an answer goes on; leave the "
                "last message, the assistant's, out.",
            ),
        )
        whole = whole[: cast(Spans, spans)[-1][1]]
    return whole, spans


def _places(said: Sequence[str], whole: str, probe: str, marks: Sequence[str]) -> Spans | None:
    """Where contents stand in a rendered text, given the same text with marks in their place."""
    around = list[str]()
    for mark in marks:
        before, _, probe = probe.partition(mark)
        around.append(before)
    spans, at = Spans(), len(around[0])
    for content, after in zip(said, [*around[1:], probe], strict=True):
        # Many templates take white space away.
        forms = content, content.strip(), content.rstrip(), content.lstrip()
        form = next((form for form in forms if whole.startswith(form + after, at)), None)
        if form is None:
            return None
        spans.append((at, at + len(form)))
        at += len(form) + len(after)
    return spans if whole.startswith(around[0]) and at == len(whole) else None


def _chat(messages: list[dict[str, str]], tokenizer: Any) -> Encoded:
    whole, spans = render(messages, tokenizer)
    known = spans is not None and getattr(tokenizer, "is_fast", False)
    # The template writes the start token itself.
    options = {"add_special_tokens": False} | ({"return_offsets_mapping": True} if known else {})
    tokenised = tokenizer(whole, **options)
    ids = list(tokenised.input_ids)
    if spans is None or not known:
        return Encoded(ids)
    return Encoded(ids, tuple(_parts(whole, tokenised.offset_mapping, spans)))


def _parts(
    whole: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[Part]:
    """The stretches of a rendered text; a token belongs to the one in which it begins."""
    borders = [0, *chain(*((begin, end) for begin, end in spans if begin < end)), len(whole)]
    return [
        Part(whole[begin:end], sum(begin <= first < end for first, _ in offsets), i % 2 == 0)
        for i, (begin, end) in enumerate(pairwise(borders))
        if begin < end
    ]


def end_of_turn(tokenizer: Any) -> TokenId | None:
    """The special token with which a chat template ends an answer; None if there is none."""
    mark = "\ue000"
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        whole = tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}, {"role": "assistant", "content": mark}],
            tokenize=False,
        )
    except Exception:  # as in `render`
        return tokenizer.eos_token_id
    after = tokenizer(whole.rpartition(mark)[2], add_special_tokens=False).input_ids
    special = special_tokens(tokenizer)
    return next((token for token in after if token in special), None)


def specials(words: str, tokenizer: Any) -> list[str]:
    """The special tokens that a tokenizer reads in a text, each once, by name."""
    special = special_tokens(tokenizer)
    words = words.encode(errors="ignore").decode()  # half a character is no token
    ids = tokenizer(words, add_special_tokens=False).input_ids if words else []
    return [special[token] for token in dict.fromkeys(ids) if token in special]
