"""SGLang's answers as its sources describe them: not recorded, since it needs a GPU.

The fields are those of `python/sglang/srt/managers/tokenizer_manager.py` (older names) and
`python/sglang/srt/entrypoints/openai/utils.py` (newer ones, under `sglext`).
"""

import pytest

from decoders import InputError, Warping
from workbench.engines.dialects.sglang import SGLANG
from workbench.engines.record import Query, Speculation

OLDER = {
    "spec_accept_rate": 0.5,
    "spec_accept_length": 2.5,
    "spec_accept_token_num": 3,
    "spec_draft_token_num": 6,
    "spec_verify_ct": 2,
}
NEWER = {
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 6,
    "spec_verify_ct": 2,
    "spec_correct_drafts_histogram": [0, 1, 1, 0],
}


def chunk(text, ids, count, reason=None, **meta):
    finish = {"type": reason, "length": count} if reason else None
    return {
        "text": text,
        "output_ids": ids,
        "meta_info": {"completion_tokens": count, "finish_reason": finish, **meta},
    }


@pytest.mark.parametrize(
    "chunks",
    [
        [
            chunk("a", [1], 1),
            chunk("ab c", [1, 2, 3], 3),
            chunk("ab cd", [1, 2, 3, 4], 4, "length"),
        ],
        [chunk("a", [1], 1), chunk("b c", [2, 3], 3), chunk("d", [4], 4, "length")],
    ],
    ids=["from the beginning", "piece by piece"],
)
def test_chunks_come_whole_again_or_piece_by_piece(chunks):
    found = list(SGLANG.chunks(chunks))
    assert [each.text for each in found] == ["a", "b c", "d"]
    assert [each.ids for each in found] == [(1,), (2, 3), (4,)]
    assert [each.finished for each in found] == [None, None, "length"]
    assert found[-1].count == 4


@pytest.mark.parametrize("meta", [OLDER, NEWER], ids=["older", "newer"])
def test_the_target_s_own_token_is_not_counted_as_accepted(meta):
    (found,) = SGLANG.chunks([chunk("a", [1], 5, "length", **meta)])
    assert found.speculation == Speculation(6, 3, 2)
    assert found.speculation.length == 2.5


def test_the_figures_of_return_spec_tokens_details_are_the_same():
    answer = {
        "choices": [{"text": "a", "finish_reason": "length"}],
        "sglext": {"spec_tokens_details": NEWER},
    }
    (found,) = SGLANG.chunks([answer])
    assert found.speculation == Speculation(6, 3, 2)


def test_nothing_is_told_without_speculation():
    (found,) = SGLANG.chunks([chunk("a", [1], 1, "stop", spec_verify_ct=0)])
    assert (found.speculation, found.finished) == (None, "stop")


def test_a_prompt_is_ids_or_text_and_nothing_is_cut_off():
    body = SGLANG.body(Query((1, 2), 3, Warping(0.5), seed=9), "m")
    assert body["input_ids"] == [1, 2]
    assert SGLANG.body(Query("x", 3), None)["text"] == "x"
    sampling = body["sampling_params"]
    assert (sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (1.0, -1, 0.0)
    assert (sampling["max_new_tokens"], sampling["temperature"]) == (3, 0.5)


@pytest.mark.parametrize(
    "event",
    [
        {"text": "a", "meta_info": {}},
        {"text": "a", "output_ids": "1", "meta_info": {"completion_tokens": 1}},
        {"text": 5, "meta_info": {"completion_tokens": 1}},
        chunk("a", [1], 1, "length", **{**NEWER, "spec_num_correct_drafts": 7}),
    ],
)
def test_other_shapes_and_counts_that_contradict_each_other_are_refused(event):
    with pytest.raises(InputError, match=r"another shape|contradict"):
        list(SGLANG.chunks([event]))
