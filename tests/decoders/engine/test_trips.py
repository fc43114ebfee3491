"""What goes to a GPU and comes back: copies, waits and operators between the launches of graphs.

A CPU stands for the device. What it holds is marked, and so is the result of each operator that
reads something marked: such an operator, outside of a graph, is a launch of its own."""

from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoders import ModelPair, devices, generate
from decoders.engine.attention import interface
from tests.decoders.engine.test_graphs import stand_in, with_kernels
from tests.models import build_both

READS = "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy"
VIEWS = {
    "alias", "as_strided", "chunk", "detach", "empty", "expand", "lift_fresh", "narrow",
    "new_empty", "permute", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze",
    "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view", "empty_strided", "empty_like",
}  # fmt: skip


class Gpu(devices.Cuda):
    """A CPU that the package takes for a GPU."""

    name, free_bytes, _modern, pins = "stand-in", None, True, False
    default_dtype = torch.float32

    def has_kernels(self, dtype):
        return True

    def products(self):
        return "ieee"

    def current(self):
        return nullcontext()

    def synchronize(self):
        pass


class Doors(TorchDispatchMode):
    """Counts what passes between the host and the device.

    Attributes:
        count: "in" and "out" are copies, each of which waits; "operators" those on the device that
            no graph replays; "launches" graphs
    """

    def __init__(self):
        super().__init__()
        self.count, self.aside = Counter(), 0

    def note(self, kind):
        if not self.aside:
            self.count[kind] += 1

    @contextmanager
    def quiet(self):
        self.aside += 1
        try:
            yield
        finally:
            self.aside -= 1

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, function.__name__.split(".")[0]
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        on = [marked(x) for x in given]
        out = function(*args, **kwargs)
        if name == "copy_" and on[0] != on[1]:
            self.note("in" if on[0] else "out")
        elif any(on):
            mark(out)
            if name not in VIEWS:
                self.note("operators")
        return out


def marked(tensor):
    return getattr(tensor, "_on_device", False)


def mark(thing):
    for tensor in tree_leaves(thing):
        if isinstance(tensor, torch.Tensor):
            tensor._on_device = True
    return thing


@pytest.fixture(scope="module")
def doors():
    """Doors that are open while a pair of models is used."""
    doors = Doors()
    with pytest.MonkeyPatch.context() as patch:
        with_kernels(patch)
        patch.setattr(interface, "TRITON", False)
        patch.setitem(devices.KINDS, "cpu", Gpu)
        devices.device_of.cache_clear()

        def reading(name):
            plain = getattr(torch.Tensor, name)

            def read(tensor, *args, **kwargs):
                if not marked(tensor):
                    return plain(tensor, *args, **kwargs)
                doors.note("out")
                with doors.quiet():
                    if name != "cpu":
                        return plain(tensor, *args, **kwargs)
                    copy = tensor.clone()
                    copy._on_device = False
                    return copy

            patch.setattr(torch.Tensor, name, read)

        for name in READS:
            reading(name)
        to, tensor_of = torch.Tensor.to, torch.tensor

        def moved(tensor, *args, **kwargs):
            if marked(tensor) or not (args and isinstance(args[0], torch.device)):
                return to(tensor, *args, **kwargs)
            doors.note("in")
            with doors.quiet():
                return mark(to(tensor, *args, **kwargs).clone())

        def made(*args, **kwargs):
            if kwargs.get("device") is None:
                return tensor_of(*args, **kwargs)
            doors.note("in")
            with doors.quiet():
                return mark(tensor_of(*args, **kwargs))

        def placing(name):
            plain = getattr(torch, name)

            def place(*args, **kwargs):
                out = plain(*args, **kwargs)
                if kwargs.get("device") is not None:
                    mark(out)
                    if name != "empty":
                        doors.note("operators")
                return out

            patch.setattr(torch, name, place)

        for name in ("empty", "zeros", "arange", "full"):
            placing(name)
        patch.setattr(torch.Tensor, "to", moved)
        patch.setattr(torch, "tensor", made)

        def record(run):
            with doors.quiet():
                replay, answers = stand_in(run)

            def launch():
                doors.note("launches")
                with doors.quiet():
                    replay()

            return launch, answers

        from decoders.engine.graphs import Graphs

        patch.setattr(Graphs.__init__, "__defaults__", (record,))
        models = build_both(torch.float32)
        for model in models:
            mark([*model.parameters(), *model.buffers()])
        with doors, doors.quiet():
            doors.pair = ModelPair(*models)
        yield doors
    devices.device_of.cache_clear()


SAMPLINGS = {
    "T=0": {"temperature": 0},
    "T=1": {},
    "top-k": {"top_k": 20, "top_p": 0.9},
    "top-p": {"top_p": 0.9},
}
PROMPTS = [[5, 6, 7, 8], [3, 1, 4], [9] * 12, list(range(20, 45))]


def trips(doors, decoder, sampling, requests):
    """Rounds and what passed the doors in them, without those of the prompt."""

    def run(count):
        doors.count.clear()
        results = generate(
            doors.pair, PROMPTS[:requests], decoder, max_new_tokens=count, ignore_eos=True, seed=3,
            **SAMPLINGS[sampling],
        )  # fmt: skip
        rounds = max(len(result.rounds) for result in results)
        return Counter(doors.count, rounds=rounds, tokens=count * requests)

    with doors:
        with doors.quiet():
            run(40), run(8)  # all graphs, over an arena that grows no more
        few, many = run(8), run(40)
    many.subtract(few)
    return many


# Launches of a round: a draft and its verification, of which each may be made of two at its end.
LAUNCHES = {"greedy": 0.2, "multinomial": 0.2, "speculative": 2.3}


@pytest.mark.parametrize("requests", [1, 4])
@pytest.mark.parametrize("sampling", ["T=0", "top-k"])
@pytest.mark.parametrize("decoder", LAUNCHES)
def test_a_launch_takes_one_copy_in_and_one_back(doors, decoder, sampling, requests):
    """Each token of a draft was a launch, with 28 operators and two copies beside it."""
    count = trips(doors, decoder, sampling, requests)
    assert 0 < count["launches"] <= LAUNCHES[decoder] * count["rounds"]
    assert count["in"] == count["out"] == count["launches"]
    assert count["operators"] <= count["launches"]  # the copy of the logits, which may be looked at
