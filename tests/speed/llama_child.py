"""Decodes with llama.cpp's library in the environment of llama-cpp-python, told over a pipe.

    LLAMA_CPP_LIB_PATH=LIBRARIES PYTHON tests/speed/llama_child.py MODEL.gguf THREADS SEQUENCES

Each line of input is a list of prompts, lists of token ids, and the number of new tokens; each line
of output the seconds that the prompts took, those of the other passes, and the new tokens. Greedy,
one pass a token for all sequences, end tokens are no end. It does nothing but call the library:
the sampler is llama.cpp's.
"""

import ctypes
import json
import sys
import time

import llama_cpp

LENGTH = 512  # tokens of a sequence


class Library:
    """One model, and a context for some sequences of tokens.

    Args:
        model: the GGUF file
        threads: threads of each pass
        sequences: the most prompts at a time
    """

    def __init__(self, model: str, threads: int, sequences: int):
        llama_cpp.llama_backend_init()
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        loading = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), loading)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch = LENGTH * sequences, LENGTH * sequences
        settings.n_seq_max = sequences
        settings.n_threads = settings.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.batch = llama_cpp.llama_batch_init(LENGTH * sequences, 0, 1)
        self.greedy = llama_cpp.llama_sampler_init_greedy()

    def run(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        """One pass.

        Args:
            tokens: of each its id, its place in its sequence, the sequence, and whether the next
                token is wanted

        Returns:
            the likeliest next tokens that are wanted
        """
        batch, wanted = self.batch, []
        for i, (token, place, sequence, last) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, place, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, last
            if last:
                wanted.append(i)
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(self.context, batch):
            sys.exit("llama.cpp failed on a pass.")
        return [llama_cpp.llama_sampler_sample(self.greedy, self.context, i) for i in wanted]

    def decode(self, prompts: list[list[int]], count: int) -> tuple[float, float, list[list[int]]]:
        """Seconds of the prompts, seconds of the rest, and the new tokens of each prompt."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        began = time.perf_counter()
        last = self.run(
            [
                (token, place, sequence, place == len(prompt) - 1)
                for sequence, prompt in enumerate(prompts)
                for place, token in enumerate(prompt)
            ]
        )
        read, texts = time.perf_counter(), [[token] for token in last]
        for step in range(count - 1):
            places = enumerate(zip(last, prompts, strict=True))
            last = self.run([(token, len(prompt) + step, i, True) for i, (token, prompt) in places])
            for text, token in zip(texts, last, strict=True):
                text.append(token)
        return read - began, time.perf_counter() - read, texts


def main() -> None:
    library = Library(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    for line in sys.stdin:
        print(json.dumps(library.decode(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
