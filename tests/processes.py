"""Processes that tests start beside their own."""

import multiprocessing

# A process of a clean server has all modules already. A fork of the test's own process would keep
# whatever lock another thread holds at that moment: once SQLite's, for ever.
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(["tests.workbench.experiments.killed", "workbench.runs.store"])
