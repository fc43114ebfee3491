// The tokens tried in a round as trees: laid out as large as there is room for, and drawn.
"use strict";

(() => {
  const { known, visible } = Workbench;
  const SVG = "http://www.w3.org/2000/svg";
  // From roomy to dense: a wide forest gives the words of tokens that were never reached up first, then q, then all numbers.
  // `figures` is how many fit into a box.
  const DENSITIES = [
    { column: 164, width: 140, full: 38, small: 38, gap: 8, figures: 3 },
    { column: 164, width: 140, full: 36, small: 20, gap: 6, figures: 3 },
    { column: 134, width: 110, full: 38, small: 38, gap: 8, figures: 2 },
    { column: 134, width: 110, full: 36, small: 20, gap: 6, figures: 2 },
    { column: 112, width: 92, full: 22, small: 9, gap: 5, figures: 0 },
  ];

  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** A probability in the little room of a node: two digits that count. */
  const short = (p) => (p === 0 ? "0" : p >= 0.1 ? p.toFixed(2) : p >= 0.001 ? p.toFixed(3) : p.toExponential(0));
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";
  const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  const clip = (text, length) => {
    const parts = [...graphemes.segment(text.slice(0, 20 * length))].map((part) => part.segment);
    return parts.length > length ? parts.slice(0, length - 1).join("") + "…" : text;
  };

  /** The trials of a round as trees: each node once (a node drawn twice keeps the kept trial) with its children, under what they follow. */
  function forest(round) {
    const nodes = new Map();
    for (const trial of round.trials) {
      const seen = nodes.get(trial.node);
      if (!seen) nodes.set(trial.node, { trial, times: 1, children: [] });
      else {
        seen.times += 1;
        if (kept(trial)) seen.trial = trial;
      }
    }
    const trunks = new Map();
    for (const node of nodes.values()) {
      const parent = node.trial.parent, above = nodes.get(parent);
      if (above) above.children.push(node);
      else if (trunks.has(parent)) trunks.get(parent).children.push(node);
      else trunks.set(parent, { parent, trunk: true, children: [node] });
    }
    return [...trunks.values()];
  }

  /** Where each node lies: leaves one under another, a parent in the middle of its children. No recursion: a draft may be deep. */
  function layout(trunks, density) {
    let bottom = 0, columns = 1;
    const height = (node) => (!node.trunk && node.trial.fate === "discarded" ? density.small : density.full);
    const order = [], stack = [...trunks].reverse().map((node) => [node, 0]);
    while (stack.length) {
      const [node, column] = stack.pop();
      Object.assign(node, { column, height: height(node), width: height(node) < 18 ? 26 : density.width });
      columns = Math.max(columns, column + 1);
      order.push(node);
      for (const child of [...node.children].reverse()) stack.push([child, column + 1]);
    }
    const leaves = (node) => !node.children.length;
    for (const node of order.filter(leaves)) {
      node.y = bottom + node.height / 2;
      bottom += node.height + density.gap;
    }
    for (const node of [...order].reverse().filter((n) => !leaves(n))) node.y = (node.children[0].y + node.children[node.children.length - 1].y) / 2;
    apart(order, density.gap);
    const ends = order.map((node) => node.y + node.height / 2), starts = order.map((node) => node.y - node.height / 2);
    const top = starts.reduce((a, b) => Math.min(a, b), 0);
    return { order, top, width: columns * density.column, height: ends.reduce((a, b) => Math.max(a, b), 0) - top };
  }

  /** Nodes of one column that would overlap, because their children are smaller than they are, move down with all that is below. */
  function apart(order, gap) {
    const floor = new Map();
    for (const node of order) {
      const least = floor.has(node.column) ? floor.get(node.column) + gap + node.height / 2 : node.y;
      if (node.y < least) shift(node, least - node.y);
      floor.set(node.column, node.y + node.height / 2);
    }
  }

  function shift(node, by) {
    const stack = [node];
    while (stack.length) {
      const next = stack.pop();
      next.y += by;
      stack.push(...next.children);
    }
  }

  /** A draft of a beam decoder has three figures. */
  const three = (trial, score) => known(trial.p) && known(trial.q) && known(score);

  /** What a node says under its word, in so many figures; q, which the card has too, is given up first. */
  function numbers(trial, score, figures = 3) {
    const parts = [];
    if (known(trial.p)) parts.push(`p ${short(trial.p)}`);
    if (known(trial.q) && (figures > 2 || !three(trial, score))) parts.push(`q ${short(trial.q)}`);
    if (known(score)) parts.push(`Σ ${score.toFixed(1)}`);
    if (!parts.length && known(trial.log_p)) parts.push(`p ${short(Math.exp(trial.log_p))}`);
    return parts.join("  ") || (trial.fate === "discarded" ? "not reached" : "");
  }

  /** A node in words, for who hears it. */
  function described(node, score) {
    if (node.trunk) return `follows “${visible(node.text)}”`;
    const label = (Workbench.fates[node.trial.fate] || { label: node.trial.fate }).label;
    return [`“${visible(node.trial.text)}”`, label, numbers(node.trial, score)].filter(Boolean).join(", ");
  }

  function box(node, density, { standing, score, place, alive }) {
    const trial = node.trial;
    const group = draw("g", {
      class: `node ${node.trunk ? "trunk" : trial.fate}${standing(node) ? " standing" : ""}${node.trunk || alive(node) ? "" : " dropped"}`,
      transform: `translate(${node.column * density.column}, ${node.y - node.height / 2})`,
      role: "img", tabindex: -1, "data-card": "", "aria-label": described(node, node.trunk ? null : score(trial.node)),
    }, draw("rect", { width: node.width, height: node.height, rx: Math.min(6, node.height / 2) }));
    if (node.height >= 18) {
      const two = !node.trunk && node.height >= 30;
      const word = draw("text", { x: density.width / 2, y: two ? 15 : node.height / 2 + 4, class: "word" });
      const tail = node.times > 1 ? ` ×${node.times}` : "";
      word.textContent = clip(visible(node.trunk ? node.text : trial.text), Math.floor(density.width / 9) - tail.length) + tail;
      group.append(word);
      if (two) {
        const line = draw("text", { x: density.width / 2, y: 29, class: "probability" });
        line.textContent = numbers(trial, score(trial.node), density.figures);
        group.append(line);
      }
    }
    if (!node.trunk) Object.assign(group, { token: trial, place });
    group.style.setProperty("--i", node.column);
    node.group = group;
    return group;
  }

  /** The layout for this much room: the roomiest that need not shrink by much, or else the densest. `figures` is the most that a node has. */
  function fitting(trunks, room, figures) {
    let found;
    for (const density of DENSITIES.filter((d) => d.figures <= figures)) {
      found = { density, ...layout(trunks, density) };
      found.fit = Math.min(1, room.width / (found.width + 8), room.height / (found.height + 8));
      if (found.fit >= 0.8) break;
    }
    return found;
  }

  /** The picture of a round for this much room (width, height in px): {svg, width, height, top, fit}, `fit` being the scale at which all of
   *  it is visible. `standing(node)` says whether it is part of the output, `alive(node)` whether a beam goes on from it. */
  Workbench.tree = (round, room, { standing, score, start, place, alive }) => {
    const trunks = forest(round);
    for (const trunk of trunks) trunk.text = start(trunk.parent);
    const figures = round.trials.some((t) => three(t, score(t.node))) ? 3 : 2;
    const found = fitting(trunks, room, figures), { density } = found;
    const edges = draw("g", {}), boxes = draw("g", {});
    for (const node of found.order) {
      boxes.append(box(node, density, { standing, score, place, alive }));
      for (const child of node.children) {
        const x0 = node.column * density.column + node.width, x1 = child.column * density.column, middle = (x0 + x1) / 2;
        edges.append(draw("path", {
          d: `M${x0},${node.y} C${middle},${node.y} ${middle},${child.y} ${x1},${child.y}`,
          class: `edge ${child.trial.fate}${standing(child) ? " standing" : ""}${alive(child) ? "" : " dropped"}`,
        }));
      }
    }
    const svg = draw("svg", { role: "group", "aria-label": `Tokens tried in this round: ${round.trials.length}` }, edges, boxes);
    return { ...found, svg };
  };
})();
