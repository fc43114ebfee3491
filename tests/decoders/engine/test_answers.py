"""What passes answer: those that were made in advance, and their parts."""

from hypothesis import given
from hypothesis import strategies as st

from decoders.engine.answers import Made


@st.composite
def chains(draw):
    """Several passes, how many tokens were fed before them, and how many are taken each time."""
    first, more = draw(st.integers(1, 3)), draw(st.integers(0, 6))
    fed = draw(st.integers(0, 9))
    step, start = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    stop = draw(st.sampled_from([None, start + step * (1 + more)]))
    rows = slice(start, stop, step)
    made = Made(draw(st.integers(0, fed)), 20, [*range(100, 100 + first + more)], first, rows)
    counts = []
    while sum(counts) < made.passes:
        counts.append(draw(st.integers(1, made.passes - sum(counts))))
    return made, fed, counts


@given(chains())
def test_parts_are_what_the_passes_are_one_by_one(case):
    made, fed, counts = case
    # For each pass: what its first token follows, that token's place, its tokens and its row.
    expected = [(made.after, made.place, made.tokens[: made.first], made.rows.start)]
    for i, token in enumerate(made.tokens[made.first :]):
        at = made.first + i
        row = made.rows.start + (1 + i) * made.rows.step
        expected.append((fed + at, made.place + at, [token], row))
    assert made.passes == len(expected)
    found, rest = [], made
    for count in counts:
        if count < rest.passes:
            part, rest = rest.split(count, fed)
        else:
            part = rest
        assert part.passes == count
        begun = len(found)
        found += expected[begun : begun + count]
        assert (part.after, part.place) == found[begun][:2]
        assert part.tokens == [token for each in found[begun:] for token in each[2]]
        rows = range(*part.rows.indices(100))[:count]
        assert [*rows] == [each[3] for each in found[begun:]]
        if part.rows.stop is not None:
            assert len(range(*part.rows.indices(100))) == count
        fed += len(part.tokens)
