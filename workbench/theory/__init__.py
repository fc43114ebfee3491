"""The papers' formulas, compared with a run: the pages of the Theory tab.

A page has sliders, a formula with its figure, and a run's measurements in words.
"""

from workbench.theory.papers import DSBD, EMS_SD, MTAD, SPECULATIVE
from workbench.theory.rules import RULES

PAGES = (SPECULATIVE, MTAD, DSBD, EMS_SD, RULES)
