// The box around a round's tree: how much of it is visible, and where.
"use strict";

(() => {
  const { make } = Workbench;
  const TALLEST = 0.62; // of the window

  /** The box around the tree: all of it at first; it can be zoomed, dragged, and follows the active path once it is zoomed. */
  Workbench.viewer = () => {
    const frame = make("div.tree", { role: "group", "aria-label": "the tokens tried" });
    const view = { zoom: 1, x: 0, y: 0 };
    let tree = null;
    const scale = () => tree.fit * view.zoom;
    const room = () => ({ width: Math.max(200, frame.clientWidth - 2), height: Math.max(220, Math.min(640, TALLEST * innerHeight)) });
    const size = () => {
      const { width, height } = room();
      return { width, height: Math.max(120, Math.min(height, (tree.height + 16) * scale())) };
    };
    function apply() {
      const { width, height } = size();
      const w = width / scale(), h = height / scale();
      const within = (at, span, whole) => (span >= whole ? (whole - span) / 2 : Math.min(Math.max(at, -8), whole + 8 - span));
      view.x = within(view.x, w, tree.width);
      view.y = within(view.y, h, tree.height);
      tree.svg.setAttribute("viewBox", `${w >= tree.width ? -4 : view.x} ${tree.top + view.y} ${w} ${h}`);
      tree.svg.setAttribute("width", width);
      tree.svg.setAttribute("height", height);
      frame.classList.toggle("zoomed", view.zoom > 1.001);
    }
    function zoom(factor, at) {
      const { width, height } = size();
      const fresh = view.zoom <= 1.001 && !at, before = scale(), px = at ? at.x : width / 2, py = at ? at.y : height / 2;
      view.zoom = Math.min(8 / tree.fit, Math.max(1, view.zoom * factor));
      view.x += px / before - px / scale();
      view.y += py / before - py / scale();
      if (fresh) follow(tree.end);
      else apply();
    }
    function follow(node) {
      if (!node || view.zoom <= 1.001) return apply();
      const { width, height } = size();
      view.x = node.column * tree.density.column + tree.density.width - (0.7 * width) / scale();
      view.y = node.y - tree.top - height / scale() / 2;
      apply();
    }
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = frame.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, { x: event.clientX - box.left, y: event.clientY - box.top });
    }, { passive: false });
    let from = null;
    frame.addEventListener("pointerdown", (event) => { if (view.zoom > 1.001) from = { x: event.clientX, y: event.clientY }; });
    frame.addEventListener("pointermove", (event) => {
      if (!from) return;
      view.x -= (event.clientX - from.x) / scale();
      view.y -= (event.clientY - from.y) / scale();
      from = { x: event.clientX, y: event.clientY };
      apply();
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) frame.addEventListener(end, () => { from = null; });
    const api = {
      frame, zoom, follow,
      whole: () => { view.zoom = 1; apply(); },
      show(round, how) {
        tree = Workbench.tree(round, room(), how);
        frame.replaceChildren(tree.svg);
        api.tree = tree;
        follow(tree.end);
        if (tree.end && tree.end.group) tree.end.group.setAttribute("tabindex", 0);
      },
    };
    return api;
  };
})();
