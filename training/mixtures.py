"""The mixtures of text files that the sizes of the recipe are trained on."""

# how often each file is seen, relative to its length
STORIES_FIRST = {
    "tinystories": 3,
    "tinystories_recased": 3,
    "snakes_stories": 1,
    "snakes_explain": 1,
    "snakes_scripts": 0.5,
    "snakes_textbook": 0.5,
    "storybooks": 2,
    "gutenberg_burgess": 2,
    "fairytaleqa": 1,
    "sgd": 1,
    "synthpersona": 1,
    "topicalchat": 1,
    "gsm8k_train": 1,
}
# A small number of tokens teaches one thing: nine in ten are stories, and the rest is there so that
# nothing in it is foreign.
STORIES_ABOVE_ALL = STORIES_FIRST | {
    "snakes_explain": 0.1,
    "snakes_scripts": 0.05,
    "snakes_textbook": 0.03,
    "gutenberg_burgess": 1,
    "fairytaleqa": 0.5,
    "sgd": 0.05,
    "synthpersona": 0.2,
    "topicalchat": 0.1,
    "gsm8k_train": 0.05,
}
# For a target that was grown from a smaller one: that one saw the older files up to six times, so
# the newer ones come first, and the old novels among them make up a seventeenth of the mixture.
NEW_FIRST = STORIES_ABOVE_ALL | {
    "tinystories": 1.5,
    "tinystories_recased": 1.5,
    "tinystories_more": 4,
    "fables_tf1": 4,
    "gutenberg_early": 0.8,
    "gutenberg_fairy": 0.6,
    "gutenberg_novels_easy": 0.25,
    "gutenberg_novels": 0.05,
}
# The books' English is a century old: what is learned last is how stories are told today.
MODERN_LAST = STORIES_ABOVE_ALL | {
    "tinystories": 2,
    "tinystories_recased": 2,
    "tinystories_more": 4,
    "fables_tf1": 2,
    "gutenberg_burgess": 0.5,
    "gutenberg_early": 0.25,
    "gutenberg_fairy": 0.15,
}
