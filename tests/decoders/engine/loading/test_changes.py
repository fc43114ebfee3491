"""A pair that is kept follows what its models' caller does to them between two calls.

Each row of the table changes a module in a way that PyTorch, transformers or peft document. Every
way of running a pass must then give what the module's own forward gives, and again once the change
is taken back. Before, calls went on with hooks that were gone, with old linear
layers beside new norms, or ended in a raw KeyError.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isroutine

import peft
import pytest
import torch
import torchao
from torch import nn
from torch.nn.modules import module as registry
from torch.nn.utils import parametrize, prune
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama import modeling_llama as llama

import decoders
from decoders import InputError, ModelPair, generate
from decoders.engine.fingerprint import Fingerprint
from decoders.engine.loading import pair as pair_module
from decoders.engine.loading.heads import load_head
from tests import zoo
from tests.decoders.engine.test_graphs import with_kernels
from tests.heads import save_small_head
from tests.models import VOCABULARY, build
from tests.pairwise import EVERYWHERE

PROMPT, LENGTH = [5, 9, 3, 7, 1, 8], 4
Undo = Callable[[], object]


def as_it_is(model: PreTrainedModel, length: int = LENGTH) -> tuple[list[int], list[float]]:
    """The likeliest tokens by the model's own forward over whole texts, with their log p."""
    text, values = list(PROMPT), list[float]()
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.inference_mode():
        for _ in range(length):
            row = model(torch.tensor([text]), use_cache=False).logits[0, -1].double()
            values.append(row.log_softmax(-1).max().item())
            text.append(int(row.argmax()))
    for module, training in modes.items():
        module.training = training
    return text[len(PROMPT) :], values


def agree(found, expected):
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-4)


# The rows: each changes the model, and returns what takes that back, if anything does.


def layer(model: PreTrainedModel) -> nn.Module:
    return model.model.layers[0]


def steps(kind: type[torch.optim.Optimizer], **options) -> Callable[[PreTrainedModel], None]:
    """Three steps of an optimizer."""

    def change(model: PreTrainedModel) -> None:
        optimizer = kind(model.parameters(), lr=0.05, **options)
        for _ in range(3):
            model(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return change


def writes(write: Callable[[nn.Parameter], object], name: str = "") -> Callable:
    """A write into each weight, or into one."""

    def change(model: PreTrainedModel) -> None:
        with torch.no_grad():
            for weight in [model.get_parameter(name)] if name else list(model.parameters()):
                write(weight)

    return change


def noise(weight: torch.Tensor) -> torch.Tensor:
    return 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))


def fill_data(weight):
    weight.data = weight.data + noise(weight)


def rows_of_some_tokens(model):
    """What a step writes into a table is in the rows of the tokens that it saw, and no version."""
    for token in PROMPT[-2:]:
        model.get_input_embeddings().weight.data[token] += 1


def loads(**options) -> Callable:
    other = build(dtype=torch.float32, seed=5, num_hidden_layers=1)
    return lambda model: model.load_state_dict(other.state_dict(), **options)


def swaps(model):
    weight = layer(model).mlp.up_proj.weight
    torch.utils.swap_tensors(weight, nn.Parameter(weight + noise(weight)))


def hook(register: str, function: Callable, path: str = "model.layers.0.mlp", **options):
    def change(model: PreTrainedModel) -> Undo:
        return getattr(model.get_submodule(path), register)(function, **options).remove

    return change


def on_all(register: str, function: Callable, **options) -> Callable:
    return lambda model: getattr(registry, register)(function, **options).remove


def larger(module, args, output):
    return 1.5 * output


def larger_logits(module, args, output):
    output.logits = output.logits * torch.linspace(0, 2, output.logits.shape[-1])
    return output


def other_ids(module, args, kwargs):
    """Ids given by place or by name."""
    if args:
        return ((args[0] + 1) % VOCABULARY, *args[1:]), kwargs
    return args, kwargs | {"input_ids": (kwargs["input_ids"] + 1) % VOCABULARY}


def only_of(kind: type, function: Callable) -> Callable:
    """A hook on all modules that acts on one kind."""
    return lambda module, *rest: function(module, *rest) if isinstance(module, kind) else None


def patch_object(model) -> Undo:
    mlp = layer(model).mlp
    before = mlp.forward
    mlp.forward = lambda x: 1.5 * before(x)
    return lambda: vars(mlp).pop("forward")


def patch_root(model) -> Undo:
    before = model.forward

    def forward(*args, **kwargs):
        return larger_logits(model, args, before(*args, **kwargs))

    model.forward = forward
    return lambda: vars(model).pop("forward")


def patch_class(model) -> Undo:
    before = llama.LlamaMLP.forward
    llama.LlamaMLP.forward = lambda self, x: 1.5 * before(self, x)
    return lambda: setattr(llama.LlamaMLP, "forward", before)


def attribute(path: str, name: str, value: object) -> Callable:
    def change(model) -> Undo:
        module = model.get_submodule(path)
        before = getattr(module, name)
        setattr(module, name, value)
        return lambda: setattr(module, name, before)

    return change


def one_more_layer(model) -> None:
    more = build(dtype=torch.float32, seed=7).model.layers[1]
    more.self_attn.config = model.config
    model.model.layers.append(more)
    model.config.num_hidden_layers = 2


def other_turns(model) -> None:
    rotary = model.model.rotary_emb
    rotary.register_buffer("inv_freq", 0.3 * rotary.inv_freq, persistent=False)


def tie(model) -> None:
    model.config.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight


class Larger(nn.Module):
    def forward(self, weight):
        return 1.5 * weight


def parametrization(model) -> Undo:
    up = layer(model).mlp.up_proj
    parametrize.register_parametrization(up, "weight", Larger())
    return lambda: parametrize.remove_parametrizations(up, "weight", leave_parametrized=False)


def pruned(model) -> Undo:
    prune.l1_unstructured(layer(model).mlp.up_proj, "weight", amount=0.5)
    return lambda: prune.remove(layer(model).mlp.up_proj, "weight")


def lora(**options) -> peft.LoraConfig:
    kind = {"target_modules": ["q_proj", "up_proj"], "init_lora_weights": False}
    return peft.LoraConfig(r=4, **kind, **options)


def adapter(config: peft.PeftConfig | None = None) -> Callable:
    def change(model) -> Undo:
        torch.manual_seed(0)
        wrapped = peft.get_peft_model(model, config or lora())
        with torch.no_grad():  # some kinds begin as the model itself
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.add_(noise(weight))
        return wrapped.unload

    return change


def two_adapters(model) -> Undo:
    """One after the other."""
    wrapped = peft.get_peft_model(model, lora())
    wrapped.add_adapter("second", lora())
    wrapped.set_adapter("second")
    return lambda: wrapped.set_adapter("default")


def merged(model) -> Undo:
    wrapped = peft.get_peft_model(model, lora())
    wrapped.merge_adapter()
    return wrapped.unmerge_adapter


def scaled(model) -> Undo:
    wrapped = peft.get_peft_model(model, lora())
    layers = [m for m in wrapped.modules() if isinstance(m, peft.tuners.lora.LoraLayer)]
    for each in layers:
        each.scale_layer(3.0)
    return lambda: [each.unscale_layer(3.0) for each in layers]


def quantised(model) -> None:
    torchao.quantize_(model, torchao.quantization.Int8WeightOnlyConfig())


CHANGES: dict[str, Callable[[PreTrainedModel], object]] = {
    "AdamW fused": steps(torch.optim.AdamW, fused=True),
    ".data =": writes(fill_data),
    ".data.add_ of one norm": writes(lambda w: w.data.add_(noise(w)), "model.norm.weight"),
    ".data turned": writes(
        lambda w: setattr(w, "data", w.data.t()), "model.layers.0.self_attn.q_proj.weight"),
    ".data of one token's row": writes(
        lambda w: w.data[PROMPT[-1]].neg_(), "model.embed_tokens.weight"),
    "in place, one number": writes(lambda w: w[3, PROMPT[-1]].add_(30), "lm_head.weight"),
    "swap_tensors": swaps,
    "load_state_dict": loads(),
    "load_state_dict assign": loads(assign=True),
    "forward hook": hook("register_forward_hook", larger),
    "forward pre-hook": hook("register_forward_pre_hook", lambda m, a: (1.5 * a[0],)),
    "forward hook of a linear layer": hook(
        "register_forward_hook", larger, "model.layers.0.mlp.up_proj"),
    "forward hook of the model": hook("register_forward_hook", larger_logits, ""),
    "forward pre-hook of the model": hook(
        "register_forward_pre_hook", other_ids, "", with_kwargs=True),
    "global forward hook": on_all(
        "register_module_forward_hook", only_of(llama.LlamaMLP, larger)),
    "forward of an object": patch_object,
    "forward of the model": patch_root,
    "forward of a class": patch_class,
    "attention's scale": attribute("model.layers.0.self_attn", "scaling", 1.5),
    "a norm's epsilon": attribute("model.norm", "variance_epsilon", 5.0),
    "an activation": attribute("model.layers.0.mlp", "act_fn", nn.Tanh()),
    "a layer replaced": attribute(
        "model.layers.0", "mlp", build(dtype=torch.float32, seed=7).model.layers[0].mlp),
    "a layer put around another": lambda model: setattr(
        model.model, "norm", nn.Sequential(model.model.norm, nn.Tanh())),
    "rows of some tokens": rows_of_some_tokens,
    "the head replaced": lambda model: setattr(
        model, "lm_head", nn.Linear(32, VOCABULARY, bias=False)),
    "one more layer": one_more_layer, "a buffer replaced": other_turns,
    "more tokens": lambda model: model.resize_token_embeddings(VOCABULARY + 5),
    "tied": tie, "float64": lambda model: model.double(),
    "parametrization": parametrization, "pruned": pruned,
    "LoRA": adapter(), "DoRA": adapter(lora(use_dora=True)),
    "IA3": adapter(
        peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "adapter switched": two_adapters, "adapter merged": merged, "adapter scaled": scaled,
    "quantised": quantised,
}  # fmt: skip

# The dtype alone changes no number; the log p below is exact to 1e-9 then.
IDLE = {"float64"}


class Door:
    """A way in which a caller keeps a pair and runs passes of it: here as programs."""

    def __init__(self, model: PreTrainedModel, **options):
        self.pair = ModelPair(model, None, **options)

    def __call__(self, **options) -> tuple[list[int], list[float]]:
        result = generate(self.pair, PROMPT, "greedy", max_new_tokens=LENGTH, **options)
        return result.tokens, [trial.log_p for trial in result.trials]


class Plain(Door):
    def __init__(self, model: PreTrainedModel):
        super().__init__(model, passes="plain")


class Padded(Door):
    def __call__(self):
        return super().__call__(padding="both")


class Graphs(Door):
    """With the stand-in for CUDA graphs."""


class Custom(Door):
    """The argument custom_generate of `generate`."""

    def __init__(self, model: PreTrainedModel):
        self.model, self.method = model, decoders.hf("greedy")

    def __call__(self):
        output = self.model.generate(
            torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), do_sample=False,
            max_new_tokens=LENGTH, custom_generate=self.method, return_dict_in_generate=True,
        )  # fmt: skip
        (result,) = output.results
        return result.tokens, [trial.log_p for trial in result.trials]


class Drafting(Door):
    """As the draft, whose distributions are read."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.pair = ModelPair(build(dtype=torch.float32, seed=9), model)

    def __call__(self):
        tokens, _ = as_it_is(self.model)
        q = decoders.read(self.pair, PROMPT, tokens).q[:LENGTH].double()
        return q.argmax(-1).tolist(), q.amax(-1).log().tolist()


class OwnCache(Door):
    """With the model's own cache."""

    def __init__(self, model: PreTrainedModel):
        model._supports_attention_backend = False
        super().__init__(model)
        assert self.pair.plain


# One row of each kind for the other doors, a few for each.
SOME = (
    "AdamW fused", ".data.add_ of one norm", "load_state_dict assign", "rows of some tokens",
    "forward hook", "forward pre-hook of the model", "global forward hook", "forward of an object",
    "forward of the model", "forward of a class", "attention's scale", "a layer replaced",
    "more tokens", "pruned", "adapter merged", "float64",
)  # fmt: skip
OTHER_DOORS = Plain, Padded, Graphs, Drafting, OwnCache, Custom
ROWS = [(Door, change) for change in CHANGES]
if EVERYWHERE:
    ROWS += [(door, change) for door in OTHER_DOORS for change in CHANGES]
else:
    ROWS += [(door, change) for i, door in enumerate(OTHER_DOORS) for change in SOME[i % 3 :: 3]]
# What a door cannot follow, and what it says.
REFUSED = {
    (Padded, "forward of the model"): "padding is for packed passes, and the target model runs one",
    (Drafting, "more tokens"): "Draft and target have different vocabularies: 72 and 67 tokens",
}


@pytest.fixture
def small():
    """A small model whose weights float16 holds, so that the kernels multiply."""
    model = build(dtype=torch.float32, num_hidden_layers=1)
    for weight in model.parameters():
        weight.data = weight.data.half().float()
    return model


@pytest.mark.parametrize(("door", "change"), ROWS, ids=lambda part: getattr(part, "__name__", part))
def test_what_is_changed_after_the_first_call_is_followed(door, change, small, monkeypatch):
    if door is Graphs:
        with_kernels(monkeypatch)
    run, before = door(small), as_it_is(small)
    run()
    undo = CHANGES[change](small)
    try:
        expected = as_it_is(small)
        assert change in IDLE or expected[1] != pytest.approx(before[1], abs=1e-3)
        if says := REFUSED.get((door, change)):
            with pytest.raises(InputError, match=says):
                run()
        else:
            agree(run(), expected)
    finally:
        undo() if isroutine(undo) else None
    if isroutine(undo):
        agree(run(), as_it_is(small))


@pytest.fixture
def prepared(monkeypatch):
    """Notes what is prepared."""
    found, prepare = [], pair_module.prepared
    monkeypatch.setattr(
        pair_module, "prepared", lambda model, *rest: found.append(model) or prepare(model, *rest)
    )
    return found


def generates(model):
    """Its own generation, which may change settings of the model."""
    model.generate(torch.tensor([PROMPT]), max_new_tokens=2, do_sample=False, pad_token_id=0)


def takes_gradients(model):
    """What training with an adapter and checkpoints puts into a model."""
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()


def shows_states(model):
    """transformers leaves hooks behind that collect hidden states."""
    model(torch.tensor([PROMPT]), output_hidden_states=True)


IDLE_CHANGES = {
    "none": lambda model: None, "its own generation": generates, "gradients": takes_gradients,
    "hidden states": shows_states, "the mode": lambda model: model.train(),
}  # fmt: skip


@pytest.mark.parametrize("change", IDLE_CHANGES)
def test_what_changes_no_pass_costs_nothing(change, small, prepared):
    run, before = Door(small), as_it_is(small)
    run()
    prepared.clear()
    IDLE_CHANGES[change](small)
    agree(run(), before)
    assert not prepared
    assert "as a program" in run.pair.packed["target"].engine_name
    ModelPair(small, None)
    assert "as a program" in run.pair.packed["target"].engine_name


@pytest.mark.parametrize("family", ["mamba", "gemma3_text"])
def test_a_model_that_runs_with_its_own_cache_is_prepared_once(family, prepared):
    """Passes of some models change their own attributes and weights."""
    model = zoo.build_pair(family)[0].float()
    pair = ModelPair(model, None)
    for _ in range(2):
        prepared.clear()
        first = generate(pair, PROMPT, "greedy", max_new_tokens=3).tokens
        model.train().eval()
    assert not prepared
    assert generate(pair, PROMPT, "greedy", max_new_tokens=3).tokens == first


class Scale:
    """A hook with a state."""

    factor = 1.5

    def __call__(self, module, args, output):
        return self.factor * output

    def method(self, x):
        return self.factor * x


@pytest.mark.parametrize("place", ["hook", "forward"])
def test_a_hook_may_change_its_mind(place, small):
    """A recording would repeat what it did first; a copy of it would not hear of the change."""
    scale, mlp = Scale(), layer(small).mlp
    run = Door(small)
    if place == "hook":
        mlp.register_forward_hook(scale)
    else:
        mlp.act_fn.forward = scale.method
    seen = []
    for factor in (1.5, 0.3):
        scale.factor = factor
        seen.append(run())
        agree(seen[-1], as_it_is(small))
    assert seen[0][1] != pytest.approx(seen[1][1], abs=1e-3)


def test_hooks_make_passes_plain_with_one_line_until_they_go(small, caplog):
    run = Door(small)
    run()
    handle = layer(small).mlp.register_forward_hook(larger)
    for _ in range(2):
        run()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "The passes of the target model LlamaForCausalLM run module by module, which takes longer "
        "(its module model.layers.0.mlp has a hook)."
    ]
    assert "module by module (its module" in run.pair.packed["target"].engine_name
    handle.remove()
    run()
    assert "as a program" in run.pair.packed["target"].engine_name


@pytest.mark.parametrize("own_cache", [False, True])
def test_a_model_back_in_training_is_read_in_eval_mode(own_cache):
    """With its own cache, dropout took part in decoding. Each module keeps its mode."""
    model = build("gpt2", dtype=torch.float32, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    run = (OwnCache if own_cache else Door)(model)
    expected = run()
    model.train()
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    assert run()[1] == pytest.approx(expected[1], abs=1e-4)
    layer_norm = model.transformer.ln_f
    layer_norm.register_forward_hook(larger)  # prepared anew
    assert run()[1] == pytest.approx(as_it_is(model)[1], abs=1e-4)
    assert [module.training for module in model.modules()] == modes


def test_a_config_within_a_config_is_followed():
    """DBRX, which has one, could not be loaded: a raw RuntimeError of the first fingerprint."""
    model = build(dtype=torch.float32, num_hidden_layers=1)
    model.config.inner = LlamaConfig()
    fingerprint = Fingerprint(model)
    assert not fingerprint.change()
    model.config.inner.rms_norm_eps = 0.5
    assert fingerprint.change() == "form"


def test_what_no_pass_can_follow_is_refused_by_name_until_it_is_taken_back(small):
    """A hook that treats the last token of a pass differently means another thing in each pass."""
    run = Door(small)
    before = run()

    def last(module, args, output):
        output = output.clone()
        output[:, -1] *= -3
        return output

    handle = layer(small).mlp.register_forward_hook(last)
    for _ in range(2):
        with pytest.raises(InputError, match=r"target model .* be run: .*mlp has a hook"):
            run()
    handle.remove()
    assert run() == before


@pytest.mark.parametrize("door", [Custom, Door])
def test_one_number_behind_the_back_of_autograd_needs_a_refresh(door, small):
    """A call looks at a few numbers of each weight."""
    run = door(small)
    run()
    small.lm_head.weight.data[as_it_is(small)[0][0], 1] += 3
    expected = as_it_is(small)
    run.method.refresh() if door is Custom else run.pair.refresh()
    assert run()[1] == pytest.approx(expected[1], abs=1e-4)


def test_heads_are_followed_too(tmp_path):
    """Their weights are trained in place; some of them are the target's."""
    target = build(dtype=torch.float32, num_hidden_layers=7)
    head = load_head(str(save_small_head(tmp_path / "head", VOCABULARY, 32)), target)
    pair = ModelPair(target, head)
    before = decoders.read(pair, PROMPT, [3, 4]).q
    for weight in head.parameters():
        weight.data.mul_(0.7)
    after = decoders.read(pair, PROMPT, [3, 4]).q
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, decoders.read(ModelPair(target, head), PROMPT, [3, 4]).q)


def test_several_threads_follow_one_change(small):
    run = Door(small)
    run()
    steps(torch.optim.AdamW, fused=True)(small)
    handle = layer(small).mlp.register_forward_hook(larger)
    expected = as_it_is(small)[0]
    with ThreadPoolExecutor(4) as pool:
        assert [found[0] for found in pool.map(lambda _: run(), range(8))] == [expected] * 8
    handle.remove()
