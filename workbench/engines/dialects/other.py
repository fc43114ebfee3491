"""Any server with OpenAI's completions API: its text and its times, and nothing else.

Source:
    OpenAI, API reference, "Create completion (legacy)".
"""

from workbench.engines.dialects.dialect import Dialect, neutral

OTHER = Dialect("other", neutral)
