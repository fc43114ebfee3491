"""Adapters of peft around `generate(custom_generate=...)`: followed, or refused by name."""

import peft
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaForCausalLM

import decoders
from decoders import InputError
from tests.models import build

PROMPT = torch.tensor([[5, 9, 3, 7, 1, 8]])
OPTIONS = {
    "input_ids": PROMPT, "attention_mask": torch.ones_like(PROMPT), "do_sample": False,
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
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
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
    assert torch.equal(model.generate(**OPTIONS, custom_generate=decoders.hf("greedy")), expected)
    assert seen
    model.prepare_inputs_for_generation = lambda *args, **kwargs: {
        **watching(*args, **kwargs), "input_ids": args[0] + 1
    }  # fmt: skip
    with pytest.raises(InputError, match="prepare_inputs_for_generation is replaced, which"):
        model.generate(**OPTIONS, custom_generate=decoders.hf("greedy"))
