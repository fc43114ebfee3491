"""Where other engines are installed (Places), and which versions."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORIES = ROOT / "assets" / "stories"
LLAMA_CPP_PYTHON, VLLM = "0.3.36", "0.32.0"


@dataclass(frozen=True)
class Places:
    """The folder with the environments of other engines; git ignores it."""

    root: Path = ROOT / ".engines"

    @property
    def llama_python(self) -> Path:
        """The environment of llama-cpp-python."""
        return self.root / "llama"

    @property
    def llama_cpp(self) -> Path:
        """llama.cpp as it was built: its programs and its library are in `bin`."""
        return self.root / "llama-build"

    @property
    def vllm(self) -> Path:
        """The environment of vLLM."""
        return self.root / "vllm"

    @property
    def target(self) -> Path:
        """The embedded target as GGUF."""
        return self.root / "target.gguf"

    @property
    def draft(self) -> Path:
        """The embedded draft as GGUF."""
        return self.root / "draft.gguf"
