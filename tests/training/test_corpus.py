import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from training.corpus import END_ID, CorpusSettings, documents, is_held_out, prepare, shingle_hashes
from training.recipe import sizes

TINY = sizes()["tiny"].corpus


@pytest.fixture(scope="module")
def work(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    prepare(data, folder, TINY)
    return folder


@pytest.fixture(scope="module")
def tokenizer(work):
    return AutoTokenizer.from_pretrained(work / "tokenizer")


@given(text=st.text())
@example(text="x<|endoftext|>\n y")
@example(text="naïve 👩‍👩‍👧  \n\n\t a  \x00")
def test_tokenizer_is_lossless(text, tokenizer):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokenizer_has_one_end_of_text(tokenizer):
    assert len(tokenizer) == TINY.vocab_size
    assert tokenizer.encode("<|endoftext|>") == [tokenizer.eos_token_id] == [END_ID]


def test_no_document_is_lost_or_on_both_sides(data, work, tokenizer):
    def texts(name, side):
        ids = np.load(work / "tokens" / f"{name}.{side}.npy")
        return {
            tokenizer.decode(part[:-1])
            for part in np.split(ids, np.flatnonzero(ids == END_ID) + 1)
            if len(part)
        }

    for name in TINY.weights:
        all_documents = set(documents(data / f"{name}.txt.xz"))
        held_out = {d for d in all_documents if is_held_out(d, TINY.held_out_every)}
        assert texts(name, "held_out") == held_out
        assert texts(name, "train") <= all_documents - held_out


def test_near_duplicates_across_the_split_are_dropped_and_counted(work):
    report = prepare(None, work, TINY)  # from the cache: the data folder is not read again
    held_out = [np.load(work / "tokens" / f"{name}.held_out.npy") for name in TINY.weights]
    parts = (part for ids in held_out for part in split(ids))
    seen = np.concatenate([shingle_hashes(part, TINY.shingle) for part in parts])
    for name in TINY.weights:
        train = np.load(work / "tokens" / f"{name}.train.npy")
        assert not np.isin(shingle_hashes(train, TINY.shingle), seen).any()
        assert report[name]["train_documents"] == (train == END_ID).sum()
    assert sum(entry["near_duplicates_dropped"] for entry in report.values()) > 0


def split(ids):
    return np.split(ids, np.flatnonzero(ids == END_ID))


@pytest.mark.parametrize("exists", [False, True])
def test_missing_or_empty_data_folder_is_named(tmp_path, exists):
    folder = tmp_path / "data"
    if exists:
        folder.mkdir()
    with pytest.raises(ValueError, match=f"{folder}.*--data"):
        prepare(folder, tmp_path / "work", CorpusSettings({"tinystories": 1.0}))
