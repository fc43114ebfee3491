"""The pages of the Theory tab, one file per paper, and two for all rules.

A page has sliders, figures with their formulas, and a run's measurements in words.
"""

from workbench.theory.pages.dsbd import DSBD
from workbench.theory.pages.ems_sd import EMS_SD
from workbench.theory.pages.mtad import MTAD
from workbench.theory.pages.one_draft import ONE_DRAFT
from workbench.theory.pages.rules import RULES
from workbench.theory.pages.speculative import SPECULATIVE

__all__ = ["PAGES"]

PAGES = (SPECULATIVE, MTAD, DSBD, EMS_SD, RULES, ONE_DRAFT)
