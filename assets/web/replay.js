// Replay: the rounds of one decoder, each as the token tree it tried, with the text so far next to it.
"use strict";

(() => {
  const { make, visible } = Workbench;
  const SVG = "http://www.w3.org/2000/svg";
  const COLUMN = 132, ROW = 46, WIDTH = 108, HEIGHT = 34, PAUSE_MS = 900;

  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** A probability in the little room of a node: two digits that count. */
  const short = (p) => (p === 0 ? "0" : p >= 0.1 ? p.toFixed(2) : p >= 0.001 ? p.toFixed(3) : p.toExponential(0));
  const clip = (text, length) => ([...text].length > length ? [...text].slice(0, length - 1).join("") + "…" : text);
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";

  /** The trials of a round as trees: each node once (a node drawn twice keeps the kept trial), its children, its roots. */
  function forest(round) {
    const nodes = new Map();
    for (const trial of round.trials) {
      const seen = nodes.get(trial.node);
      if (!seen) nodes.set(trial.node, { trial, times: 1, children: [] });
      else { seen.times += 1; if (kept(trial)) seen.trial = trial; }
    }
    const roots = new Map();
    for (const node of nodes.values()) {
      const parent = nodes.get(node.trial.parent);
      if (parent) parent.children.push(node);
      else {
        if (!roots.has(node.trial.parent)) roots.set(node.trial.parent, []);
        roots.get(node.trial.parent).push(node);
      }
    }
    return roots;
  }

  /** Leaves take a row each, a parent stands in the middle of its children. Returns the number of rows and columns. */
  function layout(roots, start) {
    let row = 0, columns = 1;
    const place = (node, column) => {
      columns = Math.max(columns, column + 1);
      node.column = column;
      if (!node.children.length) { node.row = row; row += 1; return; }
      node.children.forEach((child) => place(child, column + 1));
      node.row = (node.children[0].row + node.children[node.children.length - 1].row) / 2;
    };
    const trunks = [...roots].map(([parent, children]) => ({ parent, children, trunk: true, text: start(parent) }));
    trunks.forEach((trunk) => place(trunk, 0));
    return { trunks, rows: row, columns };
  }

  function nodeBox(node, standing) {
    const x = node.column * COLUMN, y = node.row * ROW;
    const trial = node.trial;
    const label = clip(visible(node.trunk ? node.text : trial.text), 12);
    const group = draw("g", {
      class: `node ${node.trunk ? "trunk" : trial.fate} ${standing(node) ? "standing" : ""}`,
      transform: `translate(${x}, ${y})`, tabindex: node.trunk ? -1 : 0, "data-card": "",
    }, draw("rect", { width: WIDTH, height: HEIGHT, rx: 6 }));
    const word = draw("text", { x: WIDTH / 2, y: node.trunk ? 21 : 15, class: "word" });
    word.textContent = label + (node.times > 1 ? ` ×${node.times}` : "");
    group.append(word);
    if (!node.trunk) {
      const sub = draw("text", { x: WIDTH / 2, y: 28, class: "probability" });
      const parts = [];
      if (trial.p !== null && trial.p !== undefined) parts.push(`p ${short(trial.p)}`);
      if (trial.q !== null && trial.q !== undefined) parts.push(`q ${short(trial.q)}`);
      if (!parts.length && trial.log_p !== null && trial.log_p !== undefined) parts.push(`p ${short(Math.exp(trial.log_p))}`);
      sub.textContent = parts.join("  ") || (trial.fate === "discarded" ? "not reached" : "");
      group.append(sub);
      group.token = trial;
    }
    return group;
  }

  function picture(round, answer, start) {
    const roots = forest(round);
    const { trunks, rows, columns } = layout(roots, start);
    const width = columns * COLUMN, height = Math.max(1, rows) * ROW;
    const edges = draw("g", {}), boxes = draw("g", {});
    const standing = (node) => node.trunk || answer.has(node.trial.node);
    const visit = (node) => {
      boxes.append(nodeBox(node, standing));
      for (const child of node.children) {
        const x0 = node.column * COLUMN + WIDTH, y0 = node.row * ROW + HEIGHT / 2;
        const x1 = child.column * COLUMN, y1 = child.row * ROW + HEIGHT / 2, middle = (x0 + x1) / 2;
        edges.append(draw("path", {
          d: `M${x0},${y0} C${middle},${y0} ${middle},${y1} ${x1},${y1}`,
          class: `edge ${child.trial.fate} ${standing(child) ? "standing" : ""}`,
        }));
        visit(child);
      }
    };
    trunks.forEach(visit);
    const svg = draw("svg", { viewBox: `-4 -4 ${width + 8} ${height + 8}`, width: width + 8, height: height + 8, role: "img" });
    svg.setAttribute("aria-label", `Tokens tried in this round: ${round.trials.length}`);
    svg.append(edges, boxes);
    return svg;
  }

  /** The answer's nodes after each round: of the earlier answer the first `keep` stand, then come the round's own. */
  function answers(rounds) {
    let current = [];
    return rounds.map((round) => (current = [...current.slice(0, round.keep), ...round.nodes]));
  }

  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  function caption(round, total) {
    const count = (wanted) => round.trials.filter((t) => t.fate === wanted).length;
    const parts = [`Round ${round.index + 1} of ${total}`];
    const drafted = count("accepted") + count("rejected") + count("discarded");
    if (drafted) parts.push(`${plural(drafted, "draft token")}: ${count("accepted")} accepted, ${count("rejected")} rejected, ${count("discarded")} not reached`);
    parts.push(round.nodes.length ? `${plural(round.nodes.length, "token")} added` : "no token added");
    parts.push(`draft ${(1e3 * round.draft_seconds).toFixed(1)} ms, verify ${(1e3 * round.verify_seconds).toFixed(1)} ms`);
    return parts.join(" · ");
  }

  Workbench.replay = (root, panel) => {
    const rounds = panel.rounds;
    const texts = new Map();
    for (const round of rounds) for (const t of round.trials) if (kept(t) || !texts.has(t.node)) texts.set(t.node, t);
    const after = answers(rounds);
    const start = (node) => (texts.has(node) ? texts.get(node).text : "prompt");

    const tree = make("div.tree"), text = make("div.wb-paper"), line = make("p.caption", { "aria-live": "polite" });
    const slider = make("input", { type: "range", min: 0, max: rounds.length - 1, value: 0, "aria-label": "round" });
    const button = (label, title) => make("button", { type: "button", title, "aria-label": title }, label);
    const back = button("◀", "previous round"), play = button("▶ Play", "play"), next = button("▶", "next round"), close = button("✕", "close the replay");
    let timer = null;
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ Play"; };
    const at = () => Number(slider.value);
    function show(index) {
      slider.value = Math.max(0, Math.min(rounds.length - 1, index));
      const round = rounds[at()], answer = new Set(after[at()]);
      tree.replaceChildren(picture(round, answer, start));
      const prompt = make("span.prompt", { dir: "auto" }, panel.prompt);
      const body = make("div.wb-text", { dir: "auto" });
      const fresh = new Set(round.nodes);
      for (const node of after[at()]) {
        const trial = texts.get(node);
        if (!trial) continue;
        const span = Workbench.tokenSpan(trial);
        span.classList.toggle("fresh", fresh.has(node));
        body.append(span);
      }
      text.replaceChildren(prompt, body);
      line.textContent = caption(round, rounds.length);
      back.disabled = at() === 0;
      next.disabled = at() === rounds.length - 1;
    }
    slider.addEventListener("input", () => { stop(); show(at()); });
    back.addEventListener("click", () => { stop(); show(at() - 1); });
    next.addEventListener("click", () => { stop(); show(at() + 1); });
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (at() === rounds.length - 1) show(0);
      play.textContent = "❚❚ Pause";
      timer = setInterval(() => {
        if (!tree.isConnected || at() === rounds.length - 1) return stop();
        show(at() + 1);
      }, PAUSE_MS);
    });
    close.addEventListener("click", () => { stop(); root.stage.replaceChildren(); });
    root.stage.replaceChildren(make("section.wb-replay", { "aria-label": `Replay of ${panel.title}` },
      make("header", {}, make("h3", {}, `Replay: ${panel.title}`), make("div.controls", {}, back, play, next, slider), close),
      line, make("div.split", {}, tree, text)));
    show(0);
    root.stage.scrollIntoView({ behavior: "smooth", block: "nearest" });
  };
})();
