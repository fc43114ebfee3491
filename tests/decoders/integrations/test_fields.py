"""Every field of a generation config is followed or refused, and soft prompts are refused."""

import peft
import pytest
import torch
from transformers import CompileConfig, GenerationConfig, WatermarkingConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

import decoders
from decoders import InputError
from decoders.integrations.fields import FIELDS, FOLLOWED, IDLE, OUTPUT, PROCESSOR, Refused
from tests.models import VOCABULARY, build

PROMPT, NEW = [5, 9, 3, 7, 1, 8], 8
# For each field a value that asks for something.
ASKING = {
    "max_length": 9, "max_new_tokens": 3, "max_time": 1e-9, "do_sample": True, "temperature": 0.5,
    "top_k": 3, "top_p": 0.5, "repetition_penalty": 1.9, "no_repeat_ngram_size": 1,
    "bad_words_ids": [[i] for i in range(9)], "suppress_tokens": [*range(33)],
    "begin_suppress_tokens": [*range(33)], "renormalize_logits": True, "pad_token_id": 2,
    "bos_token_id": 2, "eos_token_id": [*range(40)], "return_dict_in_generate": True,
    "min_length": 20, "min_new_tokens": 5, "min_p": 1.0, "top_h": 0.5, "typical_p": 0.5,
    "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "encoder_repetition_penalty": 1.5,
    "encoder_no_repeat_ngram_size": 2, "forced_bos_token_id": 3, "forced_eos_token_id": 3,
    "remove_invalid_values": True, "exponential_decay_length_penalty": (2, 1.5),
    "sequence_bias": {(3,): 5.0}, "guidance_scale": 1.5,
    "watermarking_config": WatermarkingConfig(), "output_scores": True, "output_logits": True,
    "output_attentions": True, "output_hidden_states": True, "use_cache": False,
    "cache_config": {"nbits": 4}, "max_cache_len": 64, "prefill_chunk_size": 2,
    "compile_config": CompileConfig(), "disable_compile": True, "low_memory": True,
    "decoder_start_token_id": 4, "transformers_version": "5.0.0", "num_beams": 3,
    "num_return_sequences": 2, "early_stopping": True, "length_penalty": 2.0, "num_beam_groups": 2,
    "diversity_penalty": 0.5, "constraints": [object()], "force_words_ids": [[3]],
    "penalty_alpha": 0.6, "dola_layers": "low", "use_mtp": True, "assistant_early_exit": 1,
    "speculation_type": "dflash", "assistant_ensemble_weight": 0.5, "num_assistant_tokens": 5,
    "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.2,
    "assistant_lookbehind": 5, "target_lookbehind": 5, "is_assistant": True,
    "prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 3, "stop_strings": ["a"],
    "token_healing": True, "cache_implementation": "static",
}  # fmt: skip
NOT_A_CALLS = {"continuous_batching_config"}  # of `generate_batch`, which takes no decoder
# it looks for a tokenizer before it calls a decoder
REFUSED_BY_TRANSFORMERS = {"stop_strings", "token_healing"}
OURS = decoders.hf("greedy")


@pytest.fixture(scope="module")
def model():
    return build(pad_token_id=0)


def written(model, **options) -> list[int]:
    given = {"max_new_tokens": NEW, **options}
    output = model.generate(torch.tensor([PROMPT]), **given)
    tokens = output if isinstance(output, torch.Tensor) else output.sequences
    return tokens[0, len(PROMPT) :].tolist()


def asking(name: str) -> dict:
    """One field and the other fields that it needs to count.

    Fields that change a draw need sampling, here of a single token."""
    value = {name: ASKING[name]}
    if name == "max_length":
        return {"max_new_tokens": None, **value}
    if name == "min_p":  # 1 leaves the likeliest token alone
        return {"do_sample": True, **value}
    if FIELDS[name] == OUTPUT:
        return {"return_dict_in_generate": True, **value}
    if FIELDS[name] == PROCESSOR:
        return {"do_sample": True, "eos_token_id": 13, **value}
    return (
        {"do_sample": True, "top_k": 1, **value}
        if name in ("do_sample", "temperature", "top_p", "num_return_sequences")
        else value
    )


def test_every_field_of_the_installed_transformers_is_in_the_table():
    """A new one of theirs must be honoured, refused, or shown to change nothing."""
    theirs = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert theirs <= set(FIELDS)
    assert set(FIELDS) - NOT_A_CALLS == set(ASKING)


@pytest.mark.parametrize("name", [n for n, met in FIELDS.items() if met == FOLLOWED])
def test_a_field_that_is_followed_gives_the_tokens_of_generate(name, model):
    options = asking(name)
    assert written(model, **options, custom_generate=OURS) == written(model, **options)


@pytest.mark.parametrize(
    "name", [n for n, met in FIELDS.items() if met == IDLE and n not in NOT_A_CALLS]
)
def test_a_field_that_changes_nothing(name, model):
    assert written(model, **asking(name), custom_generate=OURS) == written(model)


@pytest.mark.parametrize("name", [n for n, met in FIELDS.items() if met in (PROCESSOR, OUTPUT)])
def test_a_processor_or_an_output_is_refused(name, model):
    with pytest.raises(decoders.InputError, match=r"; leave (it|out|output_).*\.$"):
        written(model, **asking(name), custom_generate=OURS)


@pytest.mark.parametrize("name", [n for n, met in FIELDS.items() if isinstance(met, Refused)])
def test_another_way_of_decoding_is_refused_by_name(name, model):
    """penalty_alpha, dola_layers, prompt_lookup_num_tokens and more were silently dropped.

    The tokens were those of plain decoding."""
    error = ValueError if name in REFUSED_BY_TRANSFORMERS else decoders.InputError
    said = "tokenizer" if error is ValueError else f"^{name} .*leave it out.*\\.$"
    with pytest.raises(error, match=said):
        written(model, **asking(name), custom_generate=OURS)


def test_the_defaults_of_generate_ask_for_nothing(model):
    """They are numbers of transformers' own, which may change with its version."""
    defaults = GenerationConfig(**GenerationConfig._get_default_generation_params())
    assert written(model, generation_config=defaults, custom_generate=OURS) == written(model)
    assert max(PROMPT) < VOCABULARY


SOFT = torch.tensor([[5, 9, 3, 7, 1, 8]])
OPTIONS = {
    "input_ids": SOFT, "attention_mask": torch.ones_like(SOFT), "do_sample": False,
    "max_new_tokens": 6, "pad_token_id": 0,
}  # fmt: skip
SOFT = {
    "prompt tuning": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "prefix tuning": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "P-tuning": peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
}


@pytest.mark.parametrize("kind", SOFT)
def test_soft_prompts_are_refused_by_name(kind):
    """The base model's text was written: the soft prompt was dropped without a word."""
    model, method = build(dtype=torch.float32), decoders.hf("greedy")
    base = model.generate(**OPTIONS, custom_generate=method)
    soft = peft.get_peft_model(model, SOFT[kind])
    with pytest.raises(InputError, match=r"by PeftModelForCausalLM.*soft prompts") as error:
        soft.generate(**OPTIONS, custom_generate=method)
    assert "\n" not in str(error.value)
    # peft leaves the model's own method behind, in the model itself
    assert "prepare_inputs_for_generation" in vars(model)
    assert torch.equal(model.generate(**OPTIONS, custom_generate=method), base)


def test_other_adapters_of_peft_run_in_its_own_generate():
    torch.manual_seed(0)
    model, method = build(dtype=torch.float32), decoders.hf("greedy")
    base = model.generate(**OPTIONS, custom_generate=method)
    kind = {"target_modules": ["q_proj", "up_proj"], "task_type": "CAUSAL_LM"}
    config = peft.LoraConfig(r=4, init_lora_weights=False, **kind)
    adapted = peft.get_peft_model(model, config)
    expected = adapted.generate(**OPTIONS)
    assert not torch.equal(expected, base)
    assert torch.equal(adapted.generate(**OPTIONS, custom_generate=method), expected)
    with adapted.disable_adapter():
        assert torch.equal(adapted.generate(**OPTIONS, custom_generate=method), base)


def test_a_function_that_only_watches_is_none_of_a_decoders_business():
    model, seen = build(dtype=torch.float32), []

    def watching(*args, **kwargs):
        seen.append(args)
        return LlamaForCausalLM.prepare_inputs_for_generation(model, *args, **kwargs)

    model.prepare_inputs_for_generation = watching
    expected = model.generate(**OPTIONS)
    assert torch.equal(model.generate(**OPTIONS, custom_generate=OURS), expected)
    assert seen
    model.prepare_inputs_for_generation = lambda *args, **kwargs: {
        **watching(*args, **kwargs), "input_ids": args[0] + 1
    }  # fmt: skip
    with pytest.raises(InputError, match="prepare_inputs_for_generation is replaced, which"):
        model.generate(**OPTIONS, custom_generate=OURS)
