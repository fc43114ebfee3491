"""Where two greedy texts part: near-ties, faults, and what cannot be told."""

import copy

import pytest
import torch

from decoders import InputError, ModelPair, compare_greedy, generate, load_pair
from tests.models import build, build_tokenizer, plain_logits
from tests.pairwise import part

PROMPT = [5, 9, 3, 7]
END = 0


@pytest.fixture(scope="module")
def pair():
    return paired(build(dtype=torch.float32))


@pytest.fixture(scope="module")
def stories():
    return load_pair()


def paired(model) -> ModelPair:
    model.generation_config.eos_token_id = END
    return ModelPair(model, None, build_tokenizer())


def greedy(pair, count: int = 12) -> list[int]:
    return generate(pair, PROMPT, "greedy", max_new_tokens=count, ignore_eos=True).tokens


def rival(pair, behind: float) -> tuple[ModelPair, list[int], list[int], list[int]]:
    """A copy of the pair with a token whose logit is this far behind that of the third greedy
    token, the prompt, and the two texts that end with one of them."""
    text, model = greedy(pair, 3), copy.deepcopy(pair.target)
    row = plain_logits(copy.deepcopy(model).double(), [*PROMPT, *text[:2]])
    other = next(t for t in range(20, 60) if t not in text)
    with torch.no_grad():
        weight = model.lm_head.weight
        weight[other] = weight[text[2]] * (1 - behind / row[text[2]].item())
    return paired(model), PROMPT, text, [*text[:2], other]


def test_equal_texts(pair):
    text = greedy(pair)
    found = compare_greedy(pair, PROMPT, text, text)
    assert (found.verdict, found.place, found.at_fault) == ("same", None, ())


@pytest.mark.parametrize("behind", [0.0, 1e-7])
def test_a_tie_and_a_near_tie(pair, behind):
    found = compare_greedy(*rival(pair, behind))
    assert (found.verdict, found.place, found.at_fault) == ("near-tie", 2, ())
    assert abs(found.gap_float64) <= found.bound < 1e-3
    assert found.says.startswith("Near-tie at new token 3 ")


def test_a_fault_names_the_text_and_how_far_it_is_off(pair):
    """The gaps are those of plain passes."""
    other, _, good, bad = rival(pair, 0.5)
    found = compare_greedy(other, PROMPT, good, bad)
    assert (found.verdict, found.place, found.at_fault) == ("fault", 2, ("second",))
    row = plain_logits(copy.deepcopy(other.target).double(), [*PROMPT, *good[:2]])
    assert found.gap_float64 == pytest.approx((row[good[2]] - row[bad[2]]).item(), abs=1e-4)
    assert found.gap_float32 == pytest.approx(found.gap_float64, abs=found.bound)
    assert found.behind == pytest.approx((0, found.gap_float64))
    swapped = compare_greedy(other, PROMPT, bad, good)
    assert (swapped.at_fault, swapped.gap_float64) == (("first",), -found.gap_float64)
    assert "the second text has" in found.says
    assert "the first text has" in swapped.says


def test_a_text_that_was_cut_off_and_one_that_ends_too_early(pair):
    text = greedy(pair)
    assert END not in text
    cut = compare_greedy(pair, PROMPT, text, text[:5])
    assert (cut.verdict, cut.place, cut.at_fault) == ("same", 5, ())
    ended = compare_greedy(pair, PROMPT, text, [*text[:5], END])
    assert (ended.verdict, ended.place, ended.at_fault) == ("fault", 5, ("second",))
    assert compare_greedy(pair, PROMPT, [], text).verdict == "same"


def test_a_text_that_goes_on_where_it_should_end(pair):
    """The shorter one needs no end token of its own."""
    text, model = greedy(pair, 3), copy.deepcopy(pair.target)
    with torch.no_grad():
        model.lm_head.weight[END] = 2 * model.lm_head.weight[text[2]]
    other = paired(model)
    found = compare_greedy(other, PROMPT, text[:2], text)
    assert (found.tokens, found.at_fault) == ((END, text[2]), ("second",))


def test_an_end_token_that_the_vocabulary_lacks_ends_no_text():
    """It was an IndexError, as with the end token that GPT-2's config has for every size."""
    model = build(dtype=torch.float32)
    model.generation_config.eos_token_id = [END, 50_256, -1]
    assert compare_greedy(ModelPair(model, None), PROMPT, [11], [12]).verdict == "fault"


def test_pasted_texts_may_have_been_written_in_other_tokens():
    """“the” as three letters is greedy as one token."""
    tokenizer, model = build_tokenizer(("the",)), build(dtype=torch.float32)
    prompt = "ab"
    row = plain_logits(copy.deepcopy(model).double(), tokenizer(prompt).input_ids)
    with torch.no_grad():
        weight = model.lm_head.weight
        weight[tokenizer.convert_tokens_to_ids("the")] = 2 * weight[int(row.argmax())]
    pair = ModelPair(model, None, tokenizer)
    found = compare_greedy(pair, prompt, "the cat", "dog")
    assert (found.verdict, found.at_fault) == ("fault", ("second",))
    both = compare_greedy(pair, prompt, "the cat", "the dog")
    assert (both.verdict, both.place) == ("cannot tell", 0)
    assert "give token ids" in both.says
    by_ids = compare_greedy(pair, prompt, *(tokenizer(t).input_ids for t in ("the c", "the d")))
    assert by_ids.verdict == "fault"


@pytest.mark.parametrize("change", part([str.strip, "\n{}".format, "{} \n".format]))
def test_outer_white_space_of_a_pasted_text_is_no_fault(stories, change):
    """A text without the space that it began with, or with a line break at its end, was called a
    fault, as far below as 11.7."""
    prompt = "Once upon a time, there was"
    text = generate(stories, prompt, "greedy", max_new_tokens=8).text
    assert text != text.strip()
    found = compare_greedy(stories, prompt, text, change(text))
    assert (found.verdict, found.at_fault) == ("cannot tell", ())
    assert "outer white space alone" in found.says
    other = compare_greedy(stories, prompt, text, change("zebra" + text))
    assert (other.verdict, other.at_fault) == ("fault", ("second",))
    inside = compare_greedy(stories, prompt, text, text[0] + text[1:].replace(" ", "\n"))
    assert inside.verdict == "fault"


def test_float64_is_float64_in_norms_and_rotations_too():
    """A change of 1e-11 would vanish, or become 1e-7, where the model's code asks for float32."""
    gaps = []
    for change in (0.0, 1e-10, 2e-10):
        model = build()
        with torch.no_grad():
            model.get_input_embeddings().weight[PROMPT[-1], 3] += change
        gaps.append(compare_greedy(ModelPair(model, None), PROMPT, [11], [12]).gap_float64)
    assert gaps[1] != gaps[0]
    assert gaps[2] - gaps[0] == pytest.approx(2 * (gaps[1] - gaps[0]), rel=1e-2)


@pytest.mark.parametrize(("first", "dtype", "words"), [
    (3, "auto", "The first text is text or a list of token ids, not int"),
    ([5] * 600, "auto", "exceed the 512 positions"),
    ([5], "float8", "dtype must be"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_in_a_sentence(pair, first, dtype, words):
    with pytest.raises(InputError, match=words):
        compare_greedy(pair, PROMPT, first, [5] * 599 if len(str(first)) > 99 else [6], dtype=dtype)


def test_only_logits_that_count_are_made():
    """A prompt of 8,000 tokens took some 20 GB, so that whoever asked could end a server."""
    model, rows = build(dtype=torch.float32), []
    model.get_output_embeddings().register_forward_hook(lambda *x: rows.append(x[2].shape[-2]))
    pair, prompt, texts = paired(model), PROMPT * 20, ([3, 4, 5], [3, 4, 6])
    rows.clear()  # those of the check at load
    compare_greedy(pair, prompt, *texts, dtype="bfloat16")
    assert set(rows) == {3}


def test_between_the_two_it_cannot_be_told(pair):
    bound = compare_greedy(*rival(pair, 0.5)).bound
    found = compare_greedy(*rival(pair, 4 * bound))
    assert (found.verdict, found.at_fault) == ("cannot tell", ())
