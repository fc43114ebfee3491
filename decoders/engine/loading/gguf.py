"""Loading a pair of GGUF files; llama.cpp must read a tree as it reads the texts in it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from decoders.engine.gguf.library import File
from decoders.engine.gguf.model import GgufModel
from decoders.engine.gguf.tokenizer import GgufTokenizer
from decoders.engine.loading.admission import agree
from decoders.engine.loading.pair import ModelPair, translation_between
from decoders.engine.loading.sources import refuse_unnameable
from decoders.errors import InputError, first_line, refuse
from decoders.inputs import is_gguf
from decoders.shapes import NodeId
from decoders.tree import TokenTree

PROMPT = 8  # tokens of the text with which a model is tried
SHAPE = (0, 0, 1, 2, 2), (0, 0, 1)  # of its trees: for each node, the one below which it grows


def load_gguf(target: Any, draft: Any, **given: Any) -> ModelPair:
    """Load a pair of GGUF files.

    Args:
        target: the target's file
        draft: the draft's, or None
        given: further options of `load_pair` that the caller has set, each false if not

    Raises:
        InputError: if a file is missing or cannot be used, or an option is set
    """
    names = [name for name in (target, draft) if name is not None]
    option = next((name for name, value in given.items() if value), "")
    refuse(
        (
            target is None or not all(map(is_gguf, names)),
            f"{next(filter(is_gguf, names))} is a GGUF file; load_pair() takes such files for the "
            "target and, if there is one, for the draft.",
        ),
        (option, f"llama.cpp runs GGUF files as they are stored; leave {option} out."),
    )
    for name in names:
        refuse_unnameable(name)
        if not Path(name).is_file():
            raise InputError(f"There is no file {name}; name a GGUF file that is there.")
    files = [opened(str(name)) for name in names]
    tokenizers = [GgufTokenizer(file) for file in files]
    first = GgufModel(files[0], "target")
    reads_trees(first)
    if len(files) == 1:
        return ModelPair(first, None, tokenizers[0])
    translation = translation_between(
        tokenizers[0], tokenizers[1], files[0].vocabulary, files[1].vocabulary
    )
    second = GgufModel(files[1], "draft", None if translation else first.vocabulary)
    reads_trees(second)
    return ModelPair(first, second, tokenizers[0], tokenizers[1] if translation else None)


def opened(name: str) -> File:
    try:
        return File(name)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}.") from None


def reads_trees(model: GgufModel) -> None:
    """Check that the logits at the nodes of a tree are those of the texts that end there.

    More than half of them must agree but for the rounding of eight bits: that many has a number
    when it meets quantised weights, and keys and values have eleven.

    Raises:
        InputError: if they do not, or llama.cpp fails
    """
    engine = model.engine()
    try:
        rows = list(tried(model, engine))
    except Exception as error:
        raise InputError(
            f"The {model.name} cannot read a tree in llama.cpp ({first_line(error)}); load the "
            "model from safetensors."
        ) from None
    agreeing = [agree(of_tree, of_text, torch.bfloat16) for of_tree, of_text in rows]
    refuse(
        (
            all(of_text.isnan().any() for _, of_text in rows),
            f"The {model.name} gives logits that are not numbers; download the file again.",
        ),
        (
            2 * sum(agreeing) <= len(agreeing),
            f"The {model.name} gives other logits in a tree than in a text, in llama.cpp; load the "
            "model from safetensors.",
        ),
    )


def tried(model: GgufModel, engine: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the logits of each node of a growing tree, and those of the text that ends there."""
    draw, tokens = random.Random(0), range(min(model.own, model.vocabulary))
    tree = TokenTree(draw.choices(tokens, k=PROMPT))
    engine.admit(tree, 0)
    answers: list[tuple[NodeId, torch.Tensor]] = []
    for shape in SHAPE:
        nodes = [tree.trunk[-1]]
        for parent in shape:
            nodes.append(tree.add(nodes[parent], draw.choice(tokens)))
        asked = nodes if not answers else nodes[1:]
        (answer,) = engine.run([(tree, asked)])
        answers += zip(asked, answer.rows[answer.part], strict=True)
        tree.keep(nodes[-1:])
    engine.release(tree)
    for node, row in answers:
        text = TokenTree(tree.text(node))
        engine.admit(text, 0)
        (answer,) = engine.run([(text, text.trunk[-1:])])
        engine.release(text)
        yield row, answer.rows[0]
