// Replay: the rounds of one decoder, each as the token tree it tried, with the text so far next to it.
"use strict";

(() => {
  const { make } = Workbench;
  const PAUSE_MS = 900, TALLEST = 0.62; // of the window
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";

  /** What is known of a decoder's rounds: the output after each, the kept token of each node, and the joint ln p up to it. */
  function history(rounds) {
    const texts = new Map(), scores = new Map(), after = [];
    let current = [];
    for (const round of rounds) {
      for (const t of round.trials) {
        if (!kept(t) && texts.has(t.node)) continue;
        texts.set(t.node, t);
        const above = scores.has(t.parent) ? scores.get(t.parent) : texts.has(t.parent) ? null : 0;
        scores.set(t.node, above === null || t.log_p === null || t.log_p === undefined ? null : above + t.log_p);
      }
      current = [...current.slice(0, round.keep), ...round.nodes];
      after.push(current);
    }
    const line = (node) => {
      const path = [];
      for (let t = texts.get(node); t && path.length < 1e5; t = texts.get(t.parent)) path.unshift(t);
      return path;
    };
    return { texts, scores, after, line };
  }

  /** The box around the tree: all of it at first; it can be zoomed, dragged, and follows the active path once it is zoomed. */
  function viewer() {
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
  }

  /** Arrow keys among the nodes: to the right a child, to the left the parent, up and down within a column. */
  function neighbour(nodes, node, key) {
    if (key === "ArrowRight") return node.children[0];
    if (key === "ArrowLeft") return nodes.find((other) => other.children.includes(node));
    const column = nodes.filter((other) => other.column === node.column).sort((a, b) => a.y - b.y);
    return column[column.indexOf(node) + (key === "ArrowDown" ? 1 : -1)];
  }

  function beamsTable(beams, answer) {
    const body = make("tbody");
    for (const beam of beams) {
      const best = answer.length && answer[answer.length - 1] === beam.node;
      body.append(make("tr", { class: best ? "best" : null }, make("td", {}, beam.score === null ? "–" : beam.score.toFixed(2)), make("td", {}, make("bdi", {}, `…${beam.text}`), best ? make("b", {}, " best now") : null)));
    }
    return make("table.beam-table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col", title: "the sum of ln p of all its tokens" }, "joint ln p"), make("th", { scope: "col" }, "beam ends with"))), body);
  }

  const button = (label, title) => make("button", { type: "button", title, "aria-label": title }, label);
  const milliseconds = (round) => `draft ${(1e3 * round.draft_seconds).toFixed(1)} ms, verify ${(1e3 * round.verify_seconds).toFixed(1)} ms`;

  /** Show the rounds of a panel under the panels; `opener` has the focus again when it is closed. */
  Workbench.replay = (root, panel, opener) => {
    const rounds = panel.rounds, { texts, scores, after, line } = history(rounds);
    const drafts = rounds.some((round) => round.trials.some((t) => t.fate === "accepted" || !kept(t)));
    const score = (node) => (panel.rule && rounds.some((r) => r.provisional) ? scores.get(node) : null);
    const view = viewer();
    const title = make("h3", { tabindex: -1 }, `Rounds of ${panel.title}`);
    const sentence = make("p.sentence", { "aria-live": "polite" }), caption = make("p.caption");
    const text = make("div.wb-paper"), beams = make("div.beams-now"), list = make("ul");
    const written = make("details.as-text", {}, make("summary", {}, "This round as text"), list);
    const slider = make("input", { type: "range", min: 0, max: rounds.length - 1, value: 0, "aria-label": "round" });
    const back = button("◀", "previous round"), play = button("▶ Play", "play"), next = button("▶", "next round"), close = button("✕", "close the replay");
    const closer = button("+", "zoom in"), wider = button("−", "zoom out"), whole = button("fit", "show the whole tree");
    let timer = null;
    const at = () => Number(slider.value);
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ Play"; play.setAttribute("aria-label", "play"); };

    function show(index) {
      slider.value = Math.max(0, Math.min(rounds.length - 1, index));
      const round = rounds[at()], answer = after[at()], stands = new Set(answer), fresh = new Set(round.nodes);
      view.show(round, {
        standing: (node) => node.trunk || stands.has(node.trial.node), score, place: { panel, round },
        start: (node) => (texts.has(node) ? texts.get(node).text : "prompt"),
      });
      sentence.textContent = Workbench.sentence(round, at() ? after[at() - 1].length : 0, drafts);
      caption.textContent = `Round ${round.index + 1} of ${rounds.length} · ${milliseconds(round)}`;
      slider.setAttribute("aria-valuetext", `round ${round.index + 1} of ${rounds.length}`);
      const body = make("div.wb-text", { dir: "auto" });
      for (const node of answer) {
        if (!texts.has(node)) continue;
        const span = Workbench.tokenSpan(texts.get(node));
        span.place = { panel, round: rounds.find((r) => r.nodes.includes(node)) };
        span.classList.toggle("fresh", fresh.has(node));
        body.append(span);
      }
      text.replaceChildren(make("span.prompt", { dir: "auto" }, panel.prompt), body);
      text.scrollTop = text.scrollHeight;
      const alive = Workbench.beams(round, line);
      beams.replaceChildren(...(alive.length ? [beamsTable(alive, answer)] : []));
      list.replaceChildren(...Workbench.treeText(view.tree.nodes, score).map(({ depth, text: said }) => {
        const item = make("li", {}, make("bdi", {}, said));
        item.style.marginLeft = `${Math.min(depth, 12) * 1.2}em`;
        return item;
      }));
      back.disabled = at() === 0;
      next.disabled = at() === rounds.length - 1;
    }
    const go = (index) => { stop(); show(index); };
    function toggle() {
      if (timer) return stop();
      if (at() === rounds.length - 1) show(0);
      play.textContent = "❚❚ Pause";
      play.setAttribute("aria-label", "pause");
      timer = setInterval(() => {
        if (!section.isConnected || at() === rounds.length - 1) return stop();
        show(at() + 1);
      }, PAUSE_MS);
    }
    function end() {
      stop();
      root.stage.replaceChildren();
      if (opener && opener.isConnected) opener.focus();
    }
    slider.addEventListener("input", () => go(at()));
    back.addEventListener("click", () => go(at() - 1));
    next.addEventListener("click", () => go(at() + 1));
    play.addEventListener("click", toggle);
    close.addEventListener("click", end);
    closer.addEventListener("click", () => view.zoom(1.5));
    wider.addEventListener("click", () => view.zoom(1 / 1.5));
    whole.addEventListener("click", () => view.whole());

    const section = make("section.wb-replay", { "aria-label": `Rounds of ${panel.title}` },
      make("header", {}, title, make("div.controls", {}, back, play, next, slider), make("div.zoom", {}, wider, closer, whole), close),
      sentence, caption, make("div.split", {}, view.frame, make("div.beside", {}, text, beams)), written,
      make("p.caption", {}, "Arrow keys step through the rounds, and through the tree once a token has the focus; Space plays, + and − zoom, 0 fits, Escape closes."));
    section.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const group = event.target.closest(".node"), inText = event.target.closest(".wb-text");
      if (group && event.key.startsWith("Arrow")) {
        const found = neighbour(view.tree.nodes, view.tree.nodes.find((node) => node.group === group), event.key);
        if (found) {
          group.setAttribute("tabindex", -1);
          found.group.setAttribute("tabindex", 0);
          found.group.focus({ preventScroll: true });
        }
        event.preventDefault();
        return;
      }
      const keys = { Escape: end, "+": () => view.zoom(1.5), "=": () => view.zoom(1.5), "-": () => view.zoom(1 / 1.5), 0: () => view.whole() };
      if (event.target === title || event.target === section) Object.assign(keys, { " ": toggle });
      if (event.target !== slider && !inText) {
        Object.assign(keys, { ArrowRight: () => go(at() + 1), ArrowLeft: () => go(at() - 1), Home: () => go(0), End: () => go(rounds.length - 1) });
      }
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    root.stage.replaceChildren(section);
    show(0);
    let width = view.frame.clientWidth;
    new ResizeObserver(() => {
      if (!section.isConnected || Math.abs(view.frame.clientWidth - width) < 2) return;
      width = view.frame.clientWidth;
      show(at());
    }).observe(view.frame);
    title.focus({ preventScroll: true });
    section.scrollIntoView({ behavior: calm() ? "auto" : "smooth", block: "start" });
  };
})();
