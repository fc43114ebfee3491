"""Calls of all names of `decoders`, as source: most arguments are good, and at most two odd."""

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

import decoders
from tests.fuzz.odd import ODD, ODD_OR_CALLABLE, parts

# a function that is given here is called, and what it raises is its own
CALLED = ("stop", "cancel", "clock")


@st.composite
def written(draw: Any, head: str, required: dict[str, Any], optional: dict[str, Any]) -> str:
    """A call, given the good values of its arguments. Optional ones may be left out."""
    wrong = draw(st.sets(st.sampled_from([*required, *optional]), max_size=2))
    given = []
    for name, good in {**required, **optional}.items():
        if name in wrong:
            given.append(f"{name}={draw(ODD if name in CALLED else ODD_OR_CALLABLE)}")
        elif name in required or draw(st.integers(0, 3)) == 0:
            given.append(
                f"{name}={draw(st.sampled_from(parts(good)) if isinstance(good, str) else good)}"
            )
    return f"{head}({', '.join(given)})"


def made(name: str) -> st.SearchStrategy[str]:
    """A decoder with settings: of each its default, its choices and its bounds are good."""
    head, good = f"decoders.catalog[{name!r}]", {}
    for field in fields(decoders.catalog[name]):
        values = [
            field.default,
            *field.metadata["choices"],
            field.metadata["low"],
            field.metadata["high"],
        ]
        good[field.name] = st.sampled_from([repr(v) for v in values if v is not None])
    return written(head, {}, good) if good else st.just(f"{head}()")


NAMES = st.sampled_from([*decoders.catalog])
MADE = NAMES.flatmap(made)
METHODS = NAMES.map(repr) | MADE
CALL = {
    "pair": "pair  pair  bare",
    "prompt": (
        "'Once upon a time'  [5, 6, 7]  ['ab', [5]]  np.array([3, 4])  torch.tensor([[1, 2], [3, "
        "4]])  range(3)  [{'role': 'user', 'content': 'ab'}]"
    ),
    "method": METHODS,
    "max_new_tokens": "1  4  np.int32(6)",
}
WARPING = {
    "temperature": "0  0.7  1.0  np.float32(2)  100",
    "top_k": "0  1  5",
    "top_p": "1.0  0.5  1",
    "min_p": "0.0  0.2  1",
    "top_n_sigma": "0  1.5",
    "temperature_last": "False  True",
}
OPTIONS = WARPING | {
    "seed": "0  3  np.int64(2)  -1",
    "stop": "'a'  ['a', 'bc']  ()  lambda request, tokens: len(tokens) > 2",
    "ignore_eos": "True  False  np.True_",
    "end_tokens": "None  [1]  {2, 3}  ()",
    "penalties": "True  False  [Penalty(1.2)]",
    "max_batch": "None  1  2",
    "prefill_chunk": "None  1  64",
    "padding": "'none'  'inputs'  'kv'  'both'",
    "max_cache_bytes": "None  10**6  10**9  2**62",
    "cancel": "None  threading.Event()  lambda: False  lambda: True",
    "clock": "float",
}
READING = WARPING | {
    "text": "()  [3, 4]  np.array([3])  [[3], [4, 5]]",
    "penalties": "True  False",
    "draft": "True  False",
}
PLACES = (
    "folder  str(folder)  folder / 'target'  folder / 'nothing'  'org/nothing'  folder / "
    "'story.txt'"
)
LOADING = {
    "draft": f"None  {PLACES}",
    "device": "None  'cpu'  torch.device('cpu')",
    "draft_device": "None  'cpu'",
    "device_map": "None",
    "dtype": "'auto'  torch.float64  'bfloat16'",
    "passes": "'program'  'plain'",
    "safetensors": "None  True",
    "quantization": "None",
}
TOKENIZERS = {"tokenizer": "None  tokenizer", "draft_tokenizer": "None  tokenizer"}
HF = TOKENIZERS | {
    "draft": "None  draft  Lookup()",
    "stop": "()  'a'  ['a']",
    "seed": "None  3  [4]",
    "draft_length": "2",
    "beams": "2",
}
GENERATING = parts("""
do_sample=True, top_k=5  repetition_penalty=1.3  penalty_alpha=0.6  num_beams=2
bad_words_ids=[[999]]  return_dict_in_generate=True
streamer=TextStreamer(tokenizer)  assistant_model=draft  max_time=60.0
""")
CALLS = st.one_of(
    written("decoders.generate", CALL, OPTIONS),
    written("decoders.generate", CALL, OPTIONS),
    written("decoders.stream", CALL, OPTIONS).map(lambda call: f"list({call})"),
    written("decoders.check", CALL, OPTIONS),
    written("decoders.check", CALL, OPTIONS),
    written(
        "decoders.read",
        {"pair": "pair  pair  bare", "prompt": "'Once upon a time'  [5, 6, 7]"},
        READING,
    ),
    MADE,
    MADE.map(lambda method: f"decoders.generate(pair, [5, 6], {method}, max_new_tokens=3)"),
    written("decoders.hf", {"method": METHODS}, HF).flatmap(
        lambda call: st.sampled_from(GENERATING).map(
            lambda options: f"generated({call}, {options})"
        )
    ),
    written("decoders.load_pair", {"target": PLACES}, LOADING),
    written(
        "decoders.ModelPair",
        {"target": "target", "draft": "None  draft"},
        TOKENIZERS | {"passes": "'plain'"},
    ),
    written("decoders.Warping", {}, WARPING),
    written(
        "decoders.cache_need",
        {"pair": "pair", "method": METHODS, "prompt_tokens": "3", "max_new_tokens": "4"},
        {},
    ),
    written("decoders.read_reference", {"path": "folder / 'story.txt'  str(folder)"}, {}),
    written("decoders.parameters", {"target": PLACES}, {"draft": f"None  {PLACES}"}),
    ODD_OR_CALLABLE.map(lambda odd: f"decoders.catalog[{odd}]"),
    ODD_OR_CALLABLE.map(lambda odd: f"{odd} in decoders.catalog"),
)
