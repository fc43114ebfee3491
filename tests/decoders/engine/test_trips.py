"""What goes to a GPU and comes back: copies, waits and operators between the launches of graphs.

A CPU stands for the device. What it holds is marked, and so is the result of each operator that
reads something marked: such an operator, outside of a graph, is a launch of its own.
`python -m tests.decoders.engine.test_trips` prints the table of notes/cuda.md."""

from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoders import ModelPair, catalog, devices, generate
from decoders.engine.cache import Arena
from tests.decoders.engine.test_graphs import stand_in, with_kernels
from tests.models import build_both
from tests.pairwise import EVERYWHERE

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
            no graph replays; "launches" graphs; "moves" those of cache rows, which come before
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


@contextmanager
def opened():
    """Doors that are open while a pair of models is used."""
    doors = Doors()
    with pytest.MonkeyPatch.context() as patch:
        with_kernels(patch)
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
        shift = Arena.shift

        def moving(arena, *rows):
            doors.note("moves")
            with doors.quiet():
                shift(arena, *rows)

        patch.setattr(Arena, "shift", moving)

        def entering(place, name, enters):
            """Notes the calls of a function that copy to the device."""
            plain = getattr(place, name)

            def call(*args, **kwargs):
                if not enters(*args, **kwargs):
                    return plain(*args, **kwargs)
                doors.note("in")
                with doors.quiet():
                    return mark(plain(*args, **kwargs).clone())

            patch.setattr(place, name, call)

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

        def moves(tensor, to=None, *_, **others):
            return isinstance(to, torch.device) and not marked(tensor)

        entering(torch.Tensor, "to", moves)
        entering(torch, "tensor", lambda *_, device=None, **others: device is not None)
        entering(torch.Tensor, "new_tensor", lambda tensor, *_, **others: marked(tensor))

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


@pytest.fixture(scope="module")
def doors():
    with opened() as doors:
        yield doors


SAMPLINGS = {
    "T=0": {"temperature": 0}, "T=1": {}, "top-k": {"top_k": 20, "top_p": 0.9},
    "top-p": {"top_p": 0.9},
}  # fmt: skip
PROMPTS = [[5, 6, 7, 8], [3, 1, 4], [9] * 12, list(range(20, 45))]


# Launches of a round: those of its draft, a chain being one, and that of its verification.
LAUNCHES = {
    "greedy": 0, "multinomial": 0, "beam_search": 1, "beam_sampling": 1, "speculative": 2,
    "mtad": 5, "dsbd": 3, "mtjd": 4, "bild": 2, "spectr": 5, "specinfer": 5, "mcss": 5,
    "typical": 2, "lookup": 1, "ngram": 1, "block": 2, "match": 2,
    "traversal": 5, "multipath": 5, "cascade": 3,
    "ensemble": 3, "fly": 2, "best_first": 7, "suffix": 1,
    "recycling": 1, "speculative_beam_search": 3,
}  # fmt: skip
SETTINGS = {"speculative_beam_search": {"draft_length": 2}}  # and not what the clock says


def trips(doors, decoder, sampling, requests):
    """Rounds and what passed the doors in them, without those of the prompt."""
    method = catalog[decoder](**SETTINGS.get(decoder, {}))

    def run(count):
        doors.count.clear()
        results = generate(
            doors.pair, PROMPTS[:requests], method, max_new_tokens=count, ignore_eos=True, seed=3,
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


GRID = [(d, s, n) for d in LAUNCHES for s in SAMPLINGS for n in (1, 4)]
# A chain, a beam and several beams, each with another sampling and number of requests.
SOME = [
    ("speculative", "top-p", 4), ("mtad", "T=1", 4), ("dsbd", "top-k", 1),
]  # fmt: skip


@pytest.mark.parametrize(("decoder", "sampling", "requests"), GRID if EVERYWHERE else SOME)
def test_a_launch_takes_one_copy_in_and_one_back(doors, decoder, sampling, requests):
    """Each token of a draft was a launch, with 28 operators and two copies beside it; without a
    top-k, each distribution was read back by itself, up to 33 times a launch."""
    count = trips(doors, decoder, sampling, requests)
    # Near its end the shorter text has drafts of ever fewer layers; a chain may be of two launches,
    # as where another chain of its launch is shorter.
    most = LAUNCHES[decoder] + (requests > 1)
    assert 0 < count["launches"] <= most * count["rounds"] + most * (most - 1) // 2 + 2
    assert count["in"] == count["out"] == count["launches"]
    assert count["operators"] == 0
    # In the rows of either model, and of the rounds that the longer text begins with.
    assert count["moves"] <= 2 * count["rounds"] + 2


def test_all_decoders_are_counted():
    assert [name for name in catalog if not name.startswith("stranger")] == list(LAUNCHES)


if __name__ == "__main__":
    with opened() as doors:
        print("| |", " | ".join(SAMPLINGS), "|")
        for decoder in LAUNCHES:
            cells = []
            for sampling in SAMPLINGS:
                for requests in (1, 4):
                    n = trips(doors, decoder, sampling, requests)
                    each = [n[kind] / n["launches"] for kind in ("in", "out", "operators")]
                    beside = f" ({'/'.join(f'{x:.2g}' for x in each)})" if each != [1, 1, 0] else ""
                    cells.append(f"{n['launches'] / n['rounds']:.2f}{beside}")
            pairs = [f"{a}, {b}" for a, b in zip(cells[::2], cells[1::2], strict=True)]
            print("|", decoder, "|", " | ".join(pairs), "|", flush=True)
