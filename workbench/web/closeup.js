// One round up close, under the lane: each guess with what both models give it; of beams and branches, the tree; where a copy comes from.
"use strict";

(() => {
  const { make, known } = Workbench;
  const SAYS = { accepted: "kept", rejected: "refused", discarded: "not reached", corrected: "instead", bonus: "bonus", sampled: "its own", searched: "its own" };
  const COLUMN = 112; // px of a tree's column where there is little room
  const SVG = "http://www.w3.org/2000/svg";
  const listed = (items) => (items.length > 1 ? `${items.slice(0, -1).join(", ")} and ${items.at(-1)}` : String(items[0]));

  function draw(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function bar(kind, value, text) {
    const fill = make(`i.${kind}`);
    fill.style.width = `${value > 0 ? Math.min(100, Math.max(2, 100 * value)) : 0}%`;
    return make("span.chance", {}, make("span.track", {}, fill), make("span.value", {}, text));
  }

  /** The raw p of a guess that a cut-off left no chance: as its place's likeliest tokens have it; null if it is not known. */
  function raw(film, round, trial) {
    const own = round.nodes.map((node) => film.token(node)).find((t) => t && t.fate === "corrected");
    const found = ((own && own.alternatives) || []).find(({ id }) => id === trial.token);
    return found ? found.p : null;
  }

  function cut({ temperature, top_p: topP, top_k: topK, min_p: minP, top_n_sigma: sigma } = {}) {
    if (temperature === 0) return "not its likeliest";
    const cuts = [topP < 1 && "top-p", topK > 0 && "top-k", minP > 0 && "min-p", sigma > 0 && "top-n-sigma"].filter(Boolean);
    return cuts.length ? `cut by ${cuts.join(" or ")}` : "";
  }

  /** The joint ratio from one guess to the next, from 1 at the top to 0, against its threshold: a piece of the line for each column. */
  function ratio(before, value, after, threshold, fate) {
    const y = (v) => 3 + 38 * (1 - Math.min(1, v)), points = [[0, (before + value) / 2], [50, value], ...(after === null ? [] : [[100, (value + after) / 2]])];
    const svg = draw("svg", { class: "ratio", viewBox: "0 0 100 44", preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(draw("line", { x1: 0, x2: 100, y1: y(threshold), y2: y(threshold), class: "threshold" }), draw("polyline", { points: points.map(([x, v]) => `${x},${y(v)}`).join(" "), class: fate }));
    return svg;
  }

  class Closeup {
    constructor(root, settings) {
      Object.assign(this, { root, settings, film: null, at: null });
      this.body = make("div.body");
      this.note = make("p.note");
      this.judging = Workbench.judging(root);
      this.box = make("div.closeup", {}, this.body, this.note, this.judging.fold);
    }

    show(film, at, phase) {
      this.box.dataset.phase = phase;
      if (film === this.film && at === this.at) return;
      Object.assign(this, { film, at });
      const round = film.rounds[at], chain = film.chains[at];
      this.box.hidden = !film.told || !round.trials.length;
      if (this.box.hidden) return;
      this.body.replaceChildren(...(chain ? this.columns(round, film.guesses(at)) : this.tree(at)));
      this.note.replaceChildren(...this.notes(round, at));
      this.judging.show(film.panel, round, chain && film.guesses(at).length > 0);
    }

    place(round) { return { panel: this.film.panel, round, at: null }; }

    columns(round, guesses) {
      const { film } = this, { rule } = film.panel, joint = rule.measure === "ratio";
      const own = round.trials.filter((t) => !guesses.includes(t));
      const told = guesses.some((t) => t.p > 0 && t.p < 1), path = guesses.map((t) => t.accept_probability);
      const lines = make("div.col.names", { "aria-hidden": "true" }, make("span.tok", {}, "\u00a0"), make("small", {}, "\u00a0"));
      if (joint) lines.append(make("span.name.ratio", {}, "joint ratio", make("i", {}, `threshold ${rule.threshold}`)));
      else if (told) lines.append(make("span.name", {}, film.panel.source === "head" ? "small head" : film.panel.source === "model" ? "small model" : "copy"), make("span.name", {}, "large model"));
      const columns = [...guesses, ...own].map((t, i) => {
        const token = film.token(t.node), span = Workbench.tokenSpan(token && token.id === t.token ? token : t), figures = Workbench.figures(t);
        span.place = { ...this.place(round), at: token && token.id === t.token ? film.places.get(t.node) ?? null : null };
        const column = make(`div.col.${t.fate}`, { class: `col ${t.fate}${i < guesses.length ? " drafted" : ""}` }, span, make("small", {}, make("span.fate", {}, SAYS[t.fate]), make("span.ghost", {}, "guess")));
        if (joint && i < guesses.length && known(path[i])) column.append(ratio(i ? path[i - 1] : 1, path[i], path[i + 1] ?? null, rule.threshold, t.fate), make("span.value", {}, figures.accept));
        else if (told && i < guesses.length) {
          const least = t.p === 0 ? raw(film, round, t) : null;
          column.append(known(t.q) ? bar("q", t.q, figures.q) : make("span.chance"), known(t.p) ? bar(t.p === 0 && least ? "p.raw" : "p", t.p || least || 0, figures.p) : make("span.chance"));
          if (t.p === 0 && cut(this.settings)) column.append(make("span.cut", {}, `${cut(this.settings)}${least ? `, ${Workbench.number(least)} before` : ""}`));
        } else if (told && !joint) column.append(make("span.chance"), known(t.p) ? bar("p", t.p, figures.p) : make("span.chance"));
        return column;
      });
      return [make("div.cols", {}, lines, ...columns)];
    }

    tree(at) {
      const { film } = this, width = Math.max(280, (this.root.clientWidth || 900) - 8), trials = film.shown(at, Math.max(1, Math.min(7, Math.floor(width / COLUMN) - 1))), round = { ...film.rounds[at], trials }, stands = new Set(film.after[at]), beams = film.provisional;
      const alive = trials === film.rounds[at].trials ? null : film.alive(at);
      const found = Workbench.tree(round, { width, height: 230 }, {
        standing: (node) => node.trunk || stands.has(node.trial.node), score: (node) => (beams ? film.scores.get(node) : null), place: this.place(film.rounds[at]),
        start: (node) => (film.texts.has(node) ? film.texts.get(node).text : "prompt"), alive: (node) => !alive || alive.has(node.trial.node),
      });
      const { fit } = found;
      for (const [name, value] of Object.entries({ viewBox: `-4 ${found.top - 4} ${found.width + 8} ${found.height + 8}`, width: (found.width + 8) * fit, height: (found.height + 8) * fit })) found.svg.setAttribute(name, value);
      return [make("div.tree", {}, found.svg)];
    }

    /** What decided, where a copy comes from, and what a head worked from. */
    notes(round, at) {
      const { film } = this, { panel } = film, refused = round.trials.find((t) => t.fate === "rejected"), parts = [];
      const why = film.chains[at] && refused ? Workbench.decided(refused, panel) : "", from = film.copied(at);
      if (why) parts.push(make("span", {}, make("bdi", {}, `“${Workbench.visible(refused.text.trim())}”: `), `${why} `));
      if (from) parts.push(make("span", {}, "Copied from “", make("bdi", {}, from.before), make("mark", {}, from.text), "”. "));
      const { reads, layers } = panel.head || {};
      if (panel.source === "head" && reads) parts.push(make("span.states", {}, `First guess from the large model’s ${reads[0] < 0 ? "last layer" : `layer${reads.length > 1 ? "s" : ""} ${listed(reads)} of ${layers}`}, later ones from the head. `));
      return parts;
    }
  }

  Workbench.closeup = (root, settings) => new Closeup(root, settings);
})();
