"""Shared by Plotly's figures."""

from workbench.show.plots import canvas, or_words


def test_a_canvas_lets_either_ground_through():
    layout = canvas("x", "y").layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_words_stand_only_in_a_figure_without_points():
    empty = canvas().add_scatter(x=[1, 2], y=[None, None])
    assert [a.text for a in or_words(empty, "nothing here").layout.annotations] == ["nothing here"]
    assert not or_words(canvas().add_scatter(x=[1, 2], y=[None, 0])).layout.annotations
