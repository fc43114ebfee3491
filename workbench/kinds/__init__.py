"""Kinds of study: a folder for each, with its study, view, form and command.

`registry` lists them.
"""
