"""The kinds of study that this room knows, by the name that runs, links and files give them."""

from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw
from workbench.studies.study import Study

STUDIES: dict[str, type[Study]] = {study.kind: study for study in (Comparison, Batch, Draw)}
