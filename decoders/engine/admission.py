"""The check that admits a model: its packed passes must give the logits of a plain one."""

import torch

from decoders.engine.model import Engine, PackedModel, twin
from decoders.errors import InputError
from decoders.tree import TokenTree


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
