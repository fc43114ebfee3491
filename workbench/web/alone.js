// One drawing by itself, in an app of somebody else's: no panels stand around it, and it is never closed.
"use strict";

(() => {
  const stage = (root) => ({ stays: true, put: (section) => root.replaceChildren(section), reveal() {}, close() {} });
  const panelsOf = (value) => ((value && value.panels) || []).map((source) => JSON.parse(source));

  function prepare(root) {
    if (root.stage) return;
    root.classList.add("wb", "wb-alone");
    root.stage = stage(root);
    Workbench.card(root);
  }

  /** Draw in `root` what `draw` makes of the panels of `value` that are over; nothing if there are none. */
  const drawer = (draw) => (root, value) => {
    prepare(root);
    root.replaceChildren();
    const panels = panelsOf(value).filter(({ rounds }) => rounds.length);
    if (panels.length) draw(root, panels, value);
  };

  Workbench.alone = {
    texts: (root, value) => Workbench.show(root, value),
    rounds: drawer((root, panels, { decoder }) => Workbench.replay(root, panels.find((panel) => panel.decoder === decoder) || panels[0], root)),
    race: drawer((root, panels) => Workbench.start(root, panels, root)),
  };
})();
