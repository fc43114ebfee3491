"""The papers' formulas, compared with a run: the pages of the Theory tab.

A page has sliders, figures with their formulas, and a run's measurements in words.
"""

from workbench.theory.papers import DSBD, EMS_SD, MTAD
from workbench.theory.rules import RULES
from workbench.theory.speculative import SPECULATIVE

PAGES = (SPECULATIVE, MTAD, DSBD, EMS_SD, RULES)
