"""The table of dialects. A new engine is a file beside this one, and its name here."""

from workbench.engines.dialects.llama_cpp import LLAMA_CPP
from workbench.engines.dialects.other import OTHER
from workbench.engines.dialects.sglang import SGLANG
from workbench.engines.dialects.transformers import TRANSFORMERS
from workbench.engines.dialects.vllm import VLLM

DIALECTS = {each.kind: each for each in (VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS, OTHER)}
