"""The papers' formulas, compared with a run: the pages of the Theory tab.

Each paper has a file. A page has sliders, figures with their formulas, and
a run's measurements in words.
"""

from workbench.theory.dsbd import DSBD
from workbench.theory.ems_sd import EMS_SD
from workbench.theory.mtad import MTAD
from workbench.theory.rules import RULES
from workbench.theory.speculative import SPECULATIVE

PAGES = (SPECULATIVE, MTAD, DSBD, EMS_SD, RULES)
