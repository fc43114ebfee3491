"""Tools that make the data which ships with the project or is committed to it.

python -m tools.record         assets/recorded: the runs that the page opens with
python -m tools.tune           settings.json of a pair: each decoder's quickest settings
python -m tools.batch          the tables of EMS-SD, as Markdown
python -m tools.picture        assets/workbench.png: the page in README.md
python -m tools.architectures  docs/models.md: which models run
python -m tools.experiment ID  docs/stories.md and the decoders' table of the model card
"""
