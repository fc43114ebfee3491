"""Tables of the papers, to compare with their formulas and with a run here.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), tables 1 and 4.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table1Row:
    """A row of table 1, for c = c_hat = 0.

    Attributes:
        alpha: acceptance
        gamma: draft length
        operations: operations / those of plain decoding
        speed: speed / that of plain decoding
    """

    alpha: float
    gamma: int
    operations: float
    speed: float


@dataclass(frozen=True, slots=True)
class Table4Row:
    """A row of table 4: T5-XXL (11B) with a smaller T5 as its draft model.

    Attributes:
        task: the task
        draft: the draft model
        temperature: 0 or 1
        gamma: draft length
        alpha: acceptance
        c: cost of a draft pass / cost of a target pass
        expected: the speed-up that the paper expects
        empirical: the speed-up that it measured
    """

    task: str
    draft: str
    temperature: int
    gamma: int
    alpha: float
    c: float
    expected: float
    empirical: float


TABLE_1 = (
    Table1Row(0.6, 2, 1.53, 1.96),
    Table1Row(0.7, 3, 1.58, 2.53),
    Table1Row(0.8, 2, 1.23, 2.44),
    Table1Row(0.8, 5, 1.63, 3.69),
    Table1Row(0.9, 2, 1.11, 2.71),
    Table1Row(0.9, 10, 1.60, 6.86),
)

TABLE_4 = (
    Table4Row("EnDe", "T5-small", 0, 7, 0.75, 0.02, 3.2, 3.4),
    Table4Row("EnDe", "T5-base", 0, 7, 0.80, 0.04, 3.3, 2.8),
    Table4Row("EnDe", "T5-large", 0, 7, 0.82, 0.11, 2.5, 1.7),
    Table4Row("EnDe", "T5-small", 1, 7, 0.62, 0.02, 2.3, 2.6),
    Table4Row("EnDe", "T5-base", 1, 5, 0.68, 0.04, 2.4, 2.4),
    Table4Row("EnDe", "T5-large", 1, 3, 0.71, 0.11, 2.0, 1.4),
    Table4Row("CNNDM", "T5-small", 0, 5, 0.65, 0.02, 2.4, 3.1),
    Table4Row("CNNDM", "T5-base", 0, 5, 0.73, 0.04, 2.6, 3.0),
    Table4Row("CNNDM", "T5-large", 0, 3, 0.74, 0.11, 2.0, 2.2),
    Table4Row("CNNDM", "T5-small", 1, 5, 0.53, 0.02, 1.9, 2.3),
    Table4Row("CNNDM", "T5-base", 1, 3, 0.55, 0.04, 1.8, 2.2),
    Table4Row("CNNDM", "T5-large", 1, 3, 0.56, 0.11, 1.6, 1.7),
)
