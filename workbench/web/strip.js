// The coloured texts of a run: a panel each, one under another, two lines until it is opened.
// Everything a visitor or a model wrote enters the page through textContent, so nothing in it can be executed.
"use strict";

const Workbench = (() => {
  /** make("p.note", {title: "..."}, child or text, ...) -> element */
  function make(selector, attributes = {}, ...children) {
    const [tag, ...classes] = selector.split(".");
    const element = document.createElement(tag || "div");
    if (classes.length) element.className = classes.join(" ");
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  const fates = () => Workbench.fates;
  const known = (value) => value !== null && value !== undefined;
  const number = (value, digits = 3) =>
    value === null || value === undefined ? "–" : value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(Math.max(1, digits - 2)) : value.toFixed(digits);
  /** Whitespace and control characters as glyphs, for places where a token stands alone: there they would vanish or turn the line. */
  const visible = (text) => {
    const glyphs = text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/ /g, "␣").replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g, "¤");
    return glyphs.replace(/[\0-\x1f\x7f]/g, (c) => String.fromCharCode(c === "\x7f" ? 0x2421 : 0x2400 + c.charCodeAt(0))) || "▫";
  };

  /** What the clock gave, with ≈ if the timings of its panel cannot be trusted. */
  const timed = (panel, text) => `${panel.unsteady ? "≈" : ""}${text}`;
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  // ---- tokens

  /** A token as a span whose textContent is exactly its text; glyphs for newlines come from the style sheet. */
  function tokenSpan(token) {
    const span = make(`span.tok.${token.fate}`, { tabindex: "-1" });
    token.text.split(/(\n)/).forEach((part) => {
      if (part === "\n") span.append(make("span.newline", {}, part));
      else if (part) span.append(part);
    });
    if (token.text === "") span.classList.add("part");
    if (/^ \S+$/.test(token.text)) span.classList.add("word");
    if (/[\u202a-\u202e\u2066-\u2069]/.test(token.text)) span.classList.add("turns"); // an unclosed one would turn all that follows
    span.token = token;
    return span;
  }

  /** The refused and unreached drafts of a round that were tried in place of `token`: those of a chain in the order tried; of a tree,
   *  whose branches would be a jumble in one line, the refused ones, and how many others there were. */
  function refusedBefore(token, parent, rounds) {
    const round = rounds[token.round];
    if (!round || token.fate === "accepted") return { shown: [], others: 0 };
    const branch = new Set(), parents = new Set();
    let forks = false;
    const found = round.trials.filter((t) => {
      if ((t.fate !== "rejected" && t.fate !== "discarded") || (t.parent !== parent && !branch.has(t.parent))) return false;
      forks = forks || parents.has(t.parent);
      parents.add(t.parent);
      branch.add(t.node);
      return true;
    });
    const shown = forks ? found.filter((t) => t.fate === "rejected") : found;
    return { shown, others: found.length - shown.length };
  }

  /** The spans of what was refused before a token. */
  function refusedSpans(token, parent, rounds) {
    const { shown, others } = refusedBefore(token, parent, rounds);
    const spans = shown.map(tokenSpan);
    if (others) spans.push(make("span.others", { title: "guesses on other branches: the picture shows them round by round" }, `+${others}`));
    for (const span of spans) {
      span.classList.add("refused", "struck");
      span.round = token.round; // a trial does not say it, and the panel's rounds are parsed anew while its spans stay
    }
    return spans;
  }

  /** Bring the spans of `box` in line with `tokens`, touching only what changed, so that hover and selection survive. */
  function fillText(box, tokens, rounds, provisional) {
    // The first token's parent is the last of the prompt: the smallest parent there is.
    const trunk = rounds.length ? Math.min(...rounds[0].trials.map((t) => t.parent)) : -1;
    const keys = tokens.map((t) => `${t.node}/${t.id}/${t.fate}/${t.text}/${t.round}`);
    const old = box.keys || [];
    let same = 0;
    while (same < keys.length && keys[same] === old[same]) same += 1;
    const spans = box.tokens || [];
    for (const group of spans.splice(same)) group.forEach((span) => span.remove());
    spans.forEach((group, i) => { group[group.length - 1].token = tokens[i]; }); // more is known of it once the decoder is done
    for (let i = same; i < tokens.length; i += 1) {
      const parent = i ? tokens[i - 1].node : trunk;
      const group = [...refusedSpans(tokens[i], parent, rounds), tokenSpan(tokens[i])];
      box.append(...group);
      spans.push(group);
    }
    box.keys = keys;
    box.tokens = spans;
    box.classList.toggle("provisional", Boolean(provisional));
    const first = box.querySelector(".tok:not(.refused)");
    if (first && !box.querySelector('.tok[tabindex="0"]')) first.tabIndex = 0;
  }

  const LAST_WORDS = 6; // of a prompt, before a text

  /** The end of the prompt before a text; a click shows all of it, with what a chat template wrote set apart. */
  function fillPrompt(span, panel) {
    const pieces = panel.parts && panel.parts.length ? panel.parts : [[panel.prompt, false]];
    const whole = pieces.map(([text, template]) => (template ? make("span.template", { title: "written by the chat template" }, text) : text));
    const last = pieces.filter(([, template]) => !template).map(([text]) => text).join("").trimEnd().split(/\s+/).slice(-LAST_WORDS).join(" ");
    if (pieces.map(([text]) => text).join("").length <= last.length + 12) return span.replaceChildren(...whole), span;
    const more = make("button.whole", { type: "button", title: "show the whole prompt" }, `… ${last}`);
    more.addEventListener("click", () => span.replaceChildren(...whole));
    const turn = pieces.some(([, template]) => template) ? [make("span.template", { title: "written by the chat template" }, " → ")] : [];
    if (span.firstChild?.textContent !== more.textContent || span.childNodes.length !== 1 + turn.length) span.replaceChildren(more, ...turn);
    return span;
  }

  // ---- panels

  function numbersList(numbers) {
    const list = make("dl.numbers");
    for (const n of numbers) {
      list.append(make(`div.${n.name}`, {}, make("dt", {}, Workbench.term(n.label, n.help)), make("dd", {}, n.value), n.detail ? make("dd.detail", {}, n.detail) : null));
    }
    return list;
  }

  /** The beams that lived to the end and lost: leaves among the kept nodes of the last rounds, without the answer. */
  function losingBeams(panel) {
    const trials = new Map();
    const parents = new Set();
    for (const round of panel.rounds) {
      for (const t of round.trials) {
        if (t.fate !== "rejected" && t.fate !== "discarded") trials.set(t.node, { ...t, round: round.index });
      }
    }
    for (const t of trials.values()) parents.add(t.parent);
    const answer = new Set(panel.tokens.map((t) => t.node));
    const last = panel.rounds[panel.rounds.length - 1], left = new Set(last ? Workbench.tips(last) : []);
    const tips = [...trials.values()].filter((t) => left.has(t.node) && !parents.has(t.node) && !answer.has(t.node));
    return tips.map((tip) => {
      const path = [];
      for (let t = tip; t; t = trials.get(t.parent)) path.unshift(t);
      return { path, score: path.reduce((sum, t) => sum + (t.log_p || 0), 0) };
    }).sort((a, b) => b.score - a.score);
  }

  function beamsFold(panel) {
    const beams = losingBeams(panel);
    if (!beams.length) return null;
    const fold = make("details.beams", {}, make("summary", {}, `${beams.length} losing beam${beams.length > 1 ? "s" : ""}`));
    for (const beam of beams) {
      const text = make("div.wb-text", { dir: "auto" });
      fillText(text, beam.path, [], false);
      fold.append(make("div.beam", {}, beam.score ? make("span.detail", {}, `joint log p ${number(beam.score, 2)} nats`) : null, text));
    }
    return fold;
  }

  /** The colours of a text in words. */
  function countFates(panel) {
    const counts = new Map();
    for (const token of panel.tokens) counts.set(token.fate, (counts.get(token.fate) || 0) + 1);
    return `Tokens: ${[...counts].map(([name, count]) => `${count} ${(fates()[name] || { label: name }).label}`).join(", ") || "none"}.`;
  }

  /** What the repeats after the first one wrote. */
  function otherTexts(panel) {
    const fold = make("details.beams", {}, make("summary", {}, panel.others.length > 1 ? `${panel.others.length} more texts, one for each repeat` : "The other repeat's text"));
    for (const { seed, text } of panel.others) {
      fold.append(make("div.beam", {}, make("span.detail", {}, `seed ${seed}`), make("div.wb-text", { dir: "auto" }, text)));
    }
    return fold;
  }

  /** The button that shows a whole text with its figures, or two lines of it. */
  function opener(box) {
    const button = make("button.open-text", { type: "button", "aria-expanded": "false" }, "Show all");
    button.addEventListener("click", () => {
      const open = box().classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "Show less" : "Show all";
    });
    return button;
  }

  function newPanel(root, index) {
    const parts = {
      title: make("h3"), passes: make("span.passes"), pace: make("span.pace"), top: make("div.top"), marks: make("span.marks"), claim: make("span.claim"), unsteady: make("details.unsteady"), state: make("span.state"), summary: make("p.summary"),
      prompt: make("span.prompt", { dir: "auto" }), text: make("div.wb-text", { dir: "auto" }),
      end: make("span.end"), foot: make("div.foot"),
    };
    parts.paper = make("div.wb-paper", { dir: "auto" }, parts.prompt, parts.text, parts.end);
    const box = make("article.wb-panel", {}, make("header", {}, parts.title, parts.claim, parts.passes, opener(() => box)),
      make("div.chips-line", {}, parts.pace, parts.marks, parts.unsteady, parts.state), parts.top,
      parts.paper, parts.summary, parts.foot);
    root.panels[index] = { box, parts };
    root.grid.append(box);
    return root.panels[index];
  }

  function showPanel(root, index, panel) {
    const { box, parts } = root.panels[index] || newPanel(root, index);
    box.dataset.decoder = panel.decoder;
    box.dataset.status = panel.status;
    parts.title.textContent = panel.title;
    parts.title.title = panel.stands_for || "";
    parts.claim.replaceChildren(Workbench.term(panel.claim, panel.claim_help));
    const written = panel.status === "done" && panel.tokens.length > 0;
    parts.state.textContent = written ? "" : panel.state;
    parts.end.textContent = written ? ` (${panel.state})` : "";
    const passes = panel.passes ?? (panel.rounds.length || null);
    parts.passes.textContent = passes === null ? panel.state : `${passes} ${passes === 1 ? "pass" : "passes"}`;
    parts.pace.textContent = panel.pace || "";
    parts.pace.title = panel.status === "running" ? "provisional: the first timing is under way" : "";
    parts.marks.replaceChildren(...(panel.marks || []).map((mark) => make("span.mark", {}, mark)));
    parts.summary.replaceChildren(...Workbench.explained(panel.summary));
    fillPrompt(parts.prompt, panel);
    fillText(parts.text, panel.tokens, panel.rounds, panel.provisional);
    if (!box.classList.contains("open")) parts.paper.scrollTop = panel.status === "running" ? parts.paper.scrollHeight : 0;
    parts.foot.replaceChildren();
    if (panel.error) parts.foot.append(make("p.wb-error", { role: "alert" }, panel.error));
    parts.unsteady.hidden = !panel.unsteady;
    parts.unsteady.replaceChildren(make("summary", {}, "≈ unsteady"), make("p", {}, `${panel.unsteady}.`));
    for (const note of panel.notes || []) parts.foot.append(make("p.timing", {}, note));
    if (panel.badge) parts.foot.append(make(`p.badge.${panel.badge.kind}`, {}, Workbench.term(panel.badge.text, panel.badge.help)));
    const beams = panel.status === "done" && panel.rounds.length && beamsFold(panel);
    if (beams) parts.foot.append(beams);
    const placed = (place) => panel.numbers.filter((n) => n.place === place);
    parts.top.replaceChildren(...(panel.numbers.length ? [numbersList(placed("top").reverse())] : []));
    if (panel.numbers.length) {
      parts.foot.append(numbersList(placed("main").filter((n) => n.value !== "–")));
      const others = make("details.more", {}, make("summary", {}, "More figures"), numbersList(placed("")));
      others.open = root.more.has(panel.decoder);
      others.addEventListener("toggle", () => root.more[others.open ? "add" : "delete"](panel.decoder));
      others.append(make("p.fates", {}, countFates(panel)));
      parts.foot.append(others);
    }
    if (panel.others && panel.others.length) parts.foot.append(otherTexts(panel));
    if (written) parts.foot.append(Workbench.saving("this text", () => box, () => `${panel.decoder}-${root.run}`));
  }

  /** Show `value` = {panels: [one JSON string each, null for one that stays as it is]} in `root`; called again with every update. */
  function show(root, value) {
    if (!root.grid) {
      root.classList.add("wb", "wb-strip");
      Object.assign(root, { panels: [], shown: [], sources: [], more: new Set(), grid: make("div.wb-grid.wb-texts") }); // more: decoders whose figures are unfolded
      root.legend = Workbench.legend(root);
      root.replaceChildren(root.legend, root.grid);
      Workbench.card(root);
    }
    const sources = (value && value.panels) || [];
    root.hidden = sources.length === 0;
    if (sources.length === 0 || !root.sources.length || root.run !== value.run) Workbench.uncard(root);
    root.run = value && value.run;
    root.panels.splice(sources.length).forEach(({ box }) => box.remove());
    root.shown.length = sources.length;
    sources.forEach((source, i) => {
      if (source === null || source === root.sources[i]) return;
      root.shown[i] = JSON.parse(source);
      showPanel(root, i, root.shown[i]);
    });
    root.sources = sources.map((source, i) => source ?? root.sources[i]);
    root.legend.fill(root.shown);
    const picture = document.querySelector("wb-picture")?.picture;
    if (root.run === "live") picture?.live(root.shown);
    else picture?.able();
  }

  return { show, make, known, visible, number, timed, calm, tokenSpan, fillPrompt, fates: {} };
})();
