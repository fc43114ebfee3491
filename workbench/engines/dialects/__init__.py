"""How each engine is asked, and what its answers count: a file for each, and its name here."""

from workbench.engines.dialects.llama_cpp import LLAMA_CPP
from workbench.engines.dialects.sglang import SGLANG
from workbench.engines.dialects.transformers import TRANSFORMERS
from workbench.engines.dialects.vllm import VLLM
from workbench.engines.record import OTHER

DIALECTS = {each.kind: each for each in (VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS, OTHER)}
