"""The places from which models are read: folders and the hub.

What is wrong with them is said in one sentence that names the fix.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from huggingface_hub.utils import get_session

from decoders.errors import InputError, first_line, installed, quoted, refuse
from decoders.inputs import is_gguf

ADAPTER = "adapter_config.json"
MTP = "mtp"  # in the place of a draft: a layer that the target brings along
# Messages of transformers and safetensors, and what to do about each. The first that fits counts.
MEANINGS = (
    (
        r"couldn't connect to|offline mode|Connection error|Max retries",
        "is not among the downloaded models, and huggingface.co cannot be reached; connect to the "
        "network, or name a folder",
    ),
    (
        r"is not a local folder and is not a valid model identifier|404 Client Error|"
        r"Repository Not Found",
        "is neither a folder nor a model of the hub; check its name, and for a private one log in "
        "with `hf auth login`",
    ),
    (
        r"Repo id must|Repo id must use",
        "is neither a folder nor the name of a model of the hub, which looks like "
        "organisation/model",
    ),
    (
        r"no file named model\.safetensors found|"
        r"does not appear to have a file named model\.safetensors(?! or|,)",
        "has no weights as safetensors, and others are read from pinned presets only; name a "
        "repository with safetensors files",
    ),
    (
        r"No such file or directory: .*\.safetensors",
        "lacks one of its weights files; download it again",
    ),
    (
        r"no file named|does not appear to have a file named (pytorch|model)",
        "holds no weights; name a folder or revision that holds the whole model",
    ),
    (
        r"deserializing header|file not fully covered|header too|MetadataIncompleteBuffer|"
        r"InvalidHeader",
        "has a broken or incomplete weights file; download it again",
    ),
    (
        r"not a valid JSON file",
        "has a broken config.json; download it again",
    ),
    (
        r"JSONDecode|expected value at line|EOF while parsing|key must be a string",
        "has a broken tokenizer file or index of weights; download it again",
    ),
    (
        r"ignore_mismatched_sizes",
        "has weights of other sizes than its config.json says; download it again",
    ),
    (
        r"[Vv]alidation error|Trying to create tensor with negative",
        "has invalid settings in its config.json; download it again",
    ),
    (
        r"backend tokenizer|tokenizer class|Can't load tokenizer|sentencepiece or tiktoken",
        "has no tokenizer that can be read here; name a folder that holds tokenizer.json",
    ),
    (
        r"Unrecognized configuration class",
        "is not a causal language model; name one that generates text",
    ),
    (
        r"does not recognize this architecture",
        "is of a type that the installed transformers does not know; update transformers",
    ),
    (
        r"Unrecognized model",
        "has a config.json without a model type; name a model in the format of transformers",
    ),
    (
        r"GGUF magic bytes|mmap an empty file|unpack_from requires|cannot reshape array of size",
        "is a broken or incomplete GGUF file; download it again",
    ),
    (
        r"GGUF model with architecture",
        "is a GGUF file of an architecture that transformers does not read from such files; name a "
        "folder or model of the hub with its safetensors",
    ),
)

MERGE = (
    "merge it into its base with merge_and_unload() of peft, save the result with its tokenizer, "
    "and name that"
)
# The same of peft.
OF_ADAPTERS = (
    (
        r"ignore_mismatched_sizes|out of bounds",
        f"was trained on another base, or has tokens that its base lacks; {MERGE}",
    ),
    (
        r"does not support prompt learning",
        "is a soft prompt or another adapter that is no change of layers; name one that is, as "
        "LoRA",
    ),
    (
        r"inject_adapter_in_model",
        f"is an adapter of a kind that transformers does not load; {MERGE}",
    ),
    *MEANINGS,
)


def model_names(target: str | Path, draft: str | Path | None) -> list[str]:
    """The hub ids or model folders of the target and, if there is one, the draft.

    Args:
        target: folder or hub id of the target, or a folder with both models
        draft: folder or hub id of the draft, the name of one in the target's folder, or None for
            the one that is called "draft" there, if there is one; with MTP there is none

    Raises:
        InputError: if a folder holds no model
    """
    for name in (target,) if draft is None else (target, draft):
        refuse_unnameable(name)
    folder = Path(target)
    if (folder / "target").is_dir():
        inside = folder / (draft or "draft")
        target, draft = folder / "target", inside if inside.is_dir() else draft
    names = [str(name) for name in (target, draft) if name not in (None, MTP)]
    for name in names:
        _look(name)
    return names


def head_name(target: str | Path, draft: str | Path | None, head: str | Path | None) -> str | None:
    """The hub id or folder of the head beside the draft; None if there is none.

    Args:
        target: see `model_names`
        draft: the same
        head: folder or hub id, the name of one in the target's folder, or None for the one that is
            called "head" there, if there is one and no draft is named

    Raises:
        InputError: if a folder holds no model
    """
    folder = Path(target)
    inside = folder / (head or "head")
    if (folder / "target").is_dir() and inside.is_dir() and (head or draft is None):
        return str(inside)
    if head is None:
        return None
    refuse_unnameable(head)
    _look(str(head))
    return str(head)


def refuse_unnameable(name: Any) -> None:
    """Raise InputError unless a model can have this name."""
    if not isinstance(name, (str, Path)):
        raise InputError(
            f"A model is named by text or a Path, not {quoted(name)}; name a folder, or a model of "
            "the hub."
        )
    try:
        (Path(name) / ADAPTER).stat()
    except (FileNotFoundError, NotADirectoryError):  # it may be a model of the hub
        return
    # For example a zero byte, half a character, too many characters, no permission.
    except (ValueError, OSError) as error:
        raise InputError(
            f"{quoted(str(name))} cannot be looked up "
            f"({getattr(error, 'strerror', None) or first_line(error)}); "
            "name a folder that holds a model, or a model of the hub."
        ) from None


def _look(name: str) -> None:
    path, gguf = Path(name), is_gguf(name)
    folder = path.is_dir()
    files = [file for file in ("config.json", ADAPTER) if (path / file).is_file()]
    refuse(
        (
            gguf and not path.is_file(),
            f"There is no file {name}; name a GGUF file that is there.",
        ),
        (
            not name.strip(),
            "The name of a model is empty; name a folder that holds one, or a model of the hub.",
        ),
        (
            folder and not files and any(path.glob("*.gguf")),
            f"{name} is a folder with GGUF files; name one of them.",
        ),
        (
            path.is_file() and not gguf,
            f"{name} is a file; name the folder that holds the whole model.",
        ),
        (
            name.startswith(("/", ".", "~")) and not path.exists(),
            f"There is no folder {name}; name one that holds a model, or a model of the hub.",
        ),
        (
            folder and not files,
            f"The folder {name} has no config.json; name one that holds a model in the format of "
            "transformers.",
        ),
    )


def base_of(name: str) -> str:
    """The model that an adapter changes, if the name is a folder with an adapter; else the name.

    Args:
        name: a folder or hub id

    Raises:
        InputError: if the adapter is broken or `peft` is missing
    """
    file = Path(name) / ADAPTER
    if not file.is_file():
        return name
    installed(("peft",), f"{name} is an adapter, which needs")
    try:
        base = json.loads(file.read_text())["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{name} has a broken {ADAPTER}; save the adapter again.") from None
    return model_names(base, None)[0]


def fetch(kind: Any, name: str, **options: Any) -> Any:
    """Call `kind.from_pretrained` with a folder, a GGUF file, or a hub id, perhaps "@revision".

    A model's own code is never run.

    Args:
        kind: a class of transformers such as AutoConfig
        name: the folder, GGUF file or hub id
        options: further arguments of `from_pretrained`

    Raises:
        InputError: if it cannot be read
    """
    place = name
    if is_gguf(name):
        place, options["gguf_file"] = str(Path(name).parent), Path(name).name
    place, where = located(place)
    with said_in_one_sentence(name):
        return kind.from_pretrained(place, trust_remote_code=False, **options, **where)


def located(name: str) -> tuple[str, dict[str, Any]]:
    """The name of a folder or hub model without its revision, and where transformers looks for it.

    Args:
        name: the folder or hub id, with or without "@revision"
    """
    if Path(name).is_dir():
        return name, {}
    name, _, revision = name.partition("@")
    # Its library asks five times for each file, half a minute and a line each, before it says so.
    where: dict[str, Any] = {"local_files_only": not hub_answers()}
    return name, where | ({"revision": revision} if revision else {})


def hub_answers() -> bool:
    """Whether the hub says anything at all, within as long as its library waits for a file."""
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    # No network, no address, no permission to use it: each has an error of its own.
    except Exception:
        return False
    return True


@contextmanager
def said_in_one_sentence(
    name: str, meanings: Sequence[tuple[str, str]] = MEANINGS
) -> Iterator[None]:
    """Turn anything that goes wrong while this model is read into an InputError.

    Args:
        name: the model's folder or hub id
        meanings: patterns of messages, and what each means
    """
    try:
        yield
    except Exception as error:  # files, network, JSON and safetensors each have their own errors
        message = f"{type(error).__name__}: {error}"
        meaning = next((words for pattern, words in meanings if re.search(pattern, message)), None)
        raise InputError(
            f"{name} {meaning}." if meaning else f"{name} could not be loaded: {first_line(error)}"
        ) from error
