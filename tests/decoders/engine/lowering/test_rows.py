"""Results share memory only when nobody needs them any more, and views move no number."""

import random

import pytest

from decoders.engine.lowering.lower import TOKENS, WANTED, Instruction, Operand, placed
from decoders.engine.recorder import Size


def test_no_two_living_results_overlap():
    draw = random.Random(0)
    for _ in range(200):
        widths = [draw.choice([4, 4, 8, 16]) for _ in range(30)]
        instructions = [
            Instruction(0, tuple(draw.sample(range(max(0, i - 6), i), min(i, 2))), i)
            for i in range(30)
        ]
        answers = [29, draw.randrange(29)]
        layout = placed(instructions, widths, answers)
        last = {n: i for i, one in enumerate(instructions) for n in one.touched}
        assert [layout.places[n] for n in answers] == [-1, -2]
        for i in range(30):
            living = [n for n in range(i + 1) if last[n] >= i and n not in answers]
            taken = [
                p for n in living for p in range(layout.places[n], layout.places[n] + widths[n])
            ]
            assert len(taken) == len(set(taken))
            assert not taken or max(taken) < layout.width


ROWS = Operand(3, (1, TOKENS, 12))
HEADS = Operand(3, (1, 4, TOKENS, 3))


@pytest.mark.parametrize(
    ("rows", "name", "arguments", "shape"),
    [
        (ROWS, "view", [[1, TOKENS, -1, 3]], (1, TOKENS, 4, 3)),
        (Operand(3, (1, TOKENS, 4, 3)), "transpose", [1, 2], HEADS.shape),
        (HEADS, "transpose", [1, 2], (1, TOKENS, 4, 3)),
        (ROWS, "select", [0, 0], (TOKENS, 12)),
        (ROWS, "slice", [2, 0, 12], ROWS.shape),
        (ROWS, "slice", [1, 0, 2**63 - 1], ROWS.shape),
        (Operand(3, (1, WANTED, 12)), "select", [0, 0], (WANTED, 12)),
        # These move numbers, drop some, or mix tokens.
        (HEADS, "view", [[1, TOKENS, 12]], None),
        (HEADS, "clone", [], None),
        (ROWS, "transpose", [1, 2], None),
        (ROWS, "select", [1, 0], None),
        (ROWS, "slice", [2, 0, 11], None),
        (ROWS, "slice", [1, 0, 3], None),
        (ROWS, "slice", [2, 1, 12], None),
        (ROWS, "view", [[1, 12, TOKENS]], None),
        (ROWS, "view", [[4, TOKENS, 3]], None),
        (ROWS, "view", [[1, Size(2, 0, 0), 6]], None),
        (ROWS, "flip", [[1]], None),
    ],
)
def test_views(rows, name, arguments, shape):
    viewed = rows.viewed(name, arguments)
    assert (viewed and viewed.shape) == shape
