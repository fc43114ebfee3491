"""Prompts that are messages, and what tokenizers add to prompts."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import decoders
from decoders import InputError, ModelPair, generate, stream
from decoders.inputs import encode, render
from tests.models import CHATML, INST, build, build_both, build_chat_tokenizer, build_pair

TOKENIZER = build_chat_tokenizer()
SIZE = len(TOKENIZER)
HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Rhyme."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A fox."},
    {"role": "user", "content": "Why?"},
]


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return build_pair(torch.float32, TOKENIZER, vocab_size=SIZE)


def rendered(messages, tokenizer=TOKENIZER):
    """As transformers tokenises a chat."""
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    return tokenizer.apply_chat_template(messages, **options)


def ids_of(prompt, tokenizer=TOKENIZER):
    return encode(prompt, tokenizer, len(tokenizer)).ids


def notes(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "decoders"]


def test_messages_are_a_prompt(pair):
    """A list of messages was refused: "{'role': ...} is not a token id"."""
    result = generate(pair, TALK, "speculative", max_new_tokens=6, seed=3)
    assert result.prompt_tokens == rendered(TALK)
    (*_, last) = stream(pair, TALK, "speculative", max_new_tokens=6, seed=3)
    assert last.result.tokens == result.tokens
    assert decoders.read(pair, TALK, result.tokens).prompt_tokens == rendered(TALK)
    assert decoders.compare_greedy(pair, HELLO, "ab", "ab").verdict == "same"


def test_an_answer_that_the_messages_begin_is_continued():
    begun = [*HELLO, {"role": "assistant", "content": "I am"}]
    assert ids_of(begun) == [*rendered(HELLO), *TOKENIZER("I am").input_ids]
    begun[-1] = begun[-1] | {"content": "<|im_end|>"}  # also if it looks like the template's end
    assert ids_of(begun) == [*rendered(HELLO), 3]
    begun[-1] = begun[-1] | {"content": " "}
    with pytest.raises(InputError, match="assistant begins its answer, is empty; leave it out"):
        ids_of(begun)
    begun[-1] = begun[-1] | {"content": "I"}
    with pytest.raises(InputError, match="leave the last message, the assistant's, out"):
        ids_of(begun, build_chat_tokenizer("{{ messages[-1].content | lower }}"))


def message(**changes):
    return [{"role": "user", "content": "Hi"} | changes]


@pytest.mark.parametrize(("prompt", "complaint"), [
    ([{"role": "user"}], "Message 1 has no content; give it a text."),
    ([*HELLO, {"content": "Hi"}], "Message 2 has no role; give one of system, developer, "),
    (message(role="robot"), "Message 1 has the role 'robot'; give one of system, "),
    (message(content=[{"type": "text", "text": "Hi"}]),
     "The content of message 1 must be a text, not list: decoders read text alone."),
    (message(content="\ud83d"), "Message 1 holds half a character"),
    (message(name="Ann"), "Message 1 has 'name'; give role and content."),
    (HELLO[0], "A prompt of one message is a list that has it: [{'role': ...}]."),
    ({"input_ids": [1, 2]}, "A tokenizer's output is no prompt; give its input_ids."),
    ([*HELLO, "Hi"], "A prompt of one message is a list that has it: [{'role': ...}]."),
], ids=repr)  # fmt: skip
def test_what_is_no_message_is_refused(pair, prompt, complaint):
    with pytest.raises(InputError) as error:
        generate(pair, prompt, "greedy")
    assert str(error.value).startswith(complaint)


def test_a_template_that_refuses_is_quoted():
    """Templates raise errors of their own, for two messages of one role in a row and the like."""
    with pytest.raises(InputError, match=r"refuses these messages \(Roles must alternate\); "):
        ids_of(HELLO + HELLO, build_chat_tokenizer(INST))
    with pytest.raises(InputError, match="chat template refuses these messages"):
        ids_of(HELLO, build_chat_tokenizer("{{ nothing.at.all }}"))


# ---- The start token


@pytest.mark.parametrize("adds", [(), ("<s>",)])
@pytest.mark.parametrize("template", [CHATML, INST])
def test_the_start_token_is_never_there_twice(template, adds, caplog):
    """A rendered template through a tokenizer that adds <s> gave ids [1, 1, ...] without a word."""
    tokenizer = build_chat_tokenizer(template, adds)
    for messages in (HELLO, TALK):
        assert ids_of(messages, tokenizer) == rendered(messages, tokenizer)
        text, _ = render(messages, tokenizer)
        pair = build_pair(torch.float32, tokenizer, vocab_size=SIZE)
        caplog.clear()
        tokens = generate(pair, [text, text], "greedy", max_new_tokens=1)[1].prompt_tokens
        assert tokens[:2] != [1, 1]
        assert [1] * (template == CHATML and bool(adds)) + rendered(messages, tokenizer) == tokens
        said = "The prompt begins with <s>, which the tokenizer adds as well; it is read once."
        assert notes(caplog) == [said] * (template == INST and bool(adds))


@pytest.mark.parametrize("known", [True, False], ids=["a tokenizer", "a generation config"])
def test_ids_that_begin_twice_are_noted(known, caplog):
    """Ids are the caller's, also when a rendered chat was tokenised wrongly: a line says it."""
    target, _ = build_both(torch.float32, vocab_size=SIZE)
    target.generation_config.bos_token_id = 1
    target.generation_config.pad_token_id = 0
    inputs = torch.tensor([[1, 1, 9, 8]])
    if known:
        pair = ModelPair(target, None, TOKENIZER)
        assert generate(pair, inputs[0], "greedy", max_new_tokens=2).prompt_tokens == [1, 1, 9, 8]
    else:
        target.generate(inputs, max_new_tokens=2, custom_generate=decoders.hf("greedy"))
    (said,) = notes(caplog)
    assert said.startswith("A prompt's token ids begin with the start token (1) twice, as a ")


def test_a_tokenizer_that_appends_its_end_is_noted(caplog):
    tokenizer = build_chat_tokenizer(adds=("<end>",))
    pair = build_pair(torch.float32, tokenizer, vocab_size=SIZE)
    generate(pair, ["ab", "cd"], "greedy", max_new_tokens=1)
    (said,) = notes(caplog)
    assert said.startswith("The tokenizer adds its end token, <end>, to the prompt; for a text ")
    caplog.clear()
    generate(pair, [HELLO], "greedy", max_new_tokens=1)
    generate(build_pair(torch.float32, TOKENIZER, vocab_size=SIZE), "a<end>", "greedy")
    assert notes(caplog) == []


# ---- What the template wrote


def content_of(parts):
    return [part.text for part in parts if not part.template]


def test_a_prompt_knows_what_the_template_wrote():
    encoded = encode(TALK, TOKENIZER, SIZE)
    assert content_of(encoded.parts) == [m["content"] for m in TALK]
    assert encoded.parts[0] == ("<|im_start|>system\n", 1 + len("system\n"), True)
    assert encoded.parts[-1] == ("<|im_end|>\n<|im_start|>assistant\n", 13, True)
    other = encode(HELLO, build_chat_tokenizer(INST), SIZE)
    assert [part.text for part in other.parts] == [
        "<s>[SYS]Be kind.[/SYS][INST] ", "Hello", " [/INST]",
    ]  # fmt: skip


@given(
    st.sampled_from([CHATML, INST]),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=5),
)
def test_parts_are_the_whole_prompt(template, said):
    """Whatever is said, parts join to the rendered text, and their tokens to the prompt's."""
    tokenizer = build_chat_tokenizer(template)
    messages = [{"role": ("user", "assistant")[i % 2], "content": x} for i, x in enumerate(said)]
    assume(len(said) % 2 or said[-1].strip())  # an answer begun with nothing is refused
    text, _ = render(messages, tokenizer)
    encoded = encode(messages, tokenizer, SIZE)
    assert encoded.ids == tokenizer(text, add_special_tokens=False).input_ids
    assert "".join(part.text for part in encoded.parts) == text
    assert sum(part.tokens for part in encoded.parts) == len(encoded.ids)
    for part in encoded.parts:
        assert len(tokenizer(part.text, add_special_tokens=False).input_ids) == part.tokens


@pytest.mark.parametrize("said", ["user", "", "assistant\n", "<|im_end|>\n"])
def test_words_that_look_like_the_templates_are_the_users(said):
    encoded = encode(message(content=f"a{said}b"), TOKENIZER, SIZE)
    assert content_of(encoded.parts) == [f"a{said}b"]


# ---- The end of an answer


def writes(pair, monkeypatch, tokens, **options):
    """The result of sampling that draws these tokens."""
    written = iter(tokens)
    monkeypatch.setattr("decoders.request.SeededSource.draw", lambda self, probs: [next(written)])
    return generate(pair, HELLO, "multinomial", max_new_tokens=len(tokens), **options)


@pytest.mark.parametrize("eos", [None, [0, 2]])
def test_an_answer_ends_where_the_template_ends_it(eos, monkeypatch):
    """Decoding ran on beyond <|im_end|> if the generation config had another end token."""
    target, draft = build_both(vocab_size=SIZE, eos=eos)  # in float64, which draws here
    pair = ModelPair(target, draft, TOKENIZER)
    assert pair.end_tokens >= {3}
    result = writes(pair, monkeypatch, [9, 3, 9, 9])
    assert (result.finished, result.tokens) == ("end of sequence", [9, 3])
    assert result.text == TOKENIZER.decode([9])


# ---- Stop strings


def test_a_special_token_is_a_stop_string(monkeypatch):
    """Special tokens are not in the text, so stop="<|im_end|>" was never found."""
    pair = build_pair(tokenizer=TOKENIZER, vocab_size=SIZE)
    result = writes(pair, monkeypatch, [9, 3, 9, 9], stop="<|im_end|>", ignore_eos=True)
    assert (result.finished, result.tokens) == ("stop string", [9, 3])
    assert result.text == TOKENIZER.decode([9])


# ---- transformers


@pytest.mark.parametrize(("inputs", "complaint"), [
    ({"inputs_embeds": torch.zeros(1, 3, 32)}, "not inputs_embeds; leave it out, and give in"),
    ({"input_ids": torch.zeros((1, 0), dtype=torch.long)}, "The prompt is empty; give generat"),
])  # fmt: skip
def test_generate_without_ids_is_refused_in_a_sentence(pair, inputs, complaint):
    """Both raised an IndexError from within."""
    with pytest.raises(InputError, match=complaint):
        pair.target.generate(**inputs, custom_generate=decoders.hf("greedy"), max_new_tokens=2)


def test_sampling_of_a_generation_config_is_named(caplog):
    """Its temperature and top-p were left out without a word."""
    model = build()
    model.generation_config.update(do_sample=True, temperature=0.6, top_p=0.9, top_k=20)
    ModelPair(model, None)
    assert notes(caplog) == [
        "The generation config of the target model LlamaForCausalLM asks for temperature=0.6, "
        "top_k=20, top_p=0.9, which `decoders.generate` and `decoders.stream` take from their "
        "arguments alone."
    ]
    caplog.clear()
    model.generation_config.update(do_sample=False)
    ModelPair(model, None)
    assert not notes(caplog)


@pytest.mark.parametrize("name", ["speculative", "dsbd"])
def test_texts_stop_at_a_special_token(pair, name):
    """For tokens that the models write by themselves, and in `generate` of transformers."""
    free = generate(pair, "ab", name, max_new_tokens=24, seed=5, ignore_eos=True)
    token = free.tokens[10]
    tokenizer = build_chat_tokenizer()
    names = [tokenizer.convert_ids_to_tokens(token)]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    stop = tokenizer.convert_ids_to_tokens(token)
    own = ModelPair(pair.target, pair.draft, tokenizer)
    options = {"max_new_tokens": 24, "seed": 5, "stop": ["never", stop], "ignore_eos": True}
    prompt = pair.tokenizer("ab").input_ids
    result = generate(own, prompt, name, **options)
    assert result.tokens == free.tokens[: free.tokens.index(token) + 1]
    assert result.finished == "stop string"
    assert result.tokens[-1] == token
