"""Models in GGUF files, whose passes llama.cpp computes."""
