// The card of the token under the pointer: what decided about it, drawn; and the same position lit in all panels.
"use strict";

(() => {
  const { make, visible, number } = Workbench;
  const known = (value) => value !== null && value !== undefined;
  const quoted = (token) => `“${visible(token.text)}”`;

  /** Where a token belongs: its panel, and the round that tried it. */
  function placeOf(root, anchor) {
    if (anchor.place) return anchor.place;
    const index = root.panels.findIndex(({ box }) => box.contains(anchor));
    const panel = root.shown[index];
    const rounds = (panel && panel.rounds) || [];
    return { panel, round: rounds[anchor.token.round ?? anchor.round] };
  }

  /** The tokens refused where this one now stands, or the one that stands where this was refused. */
  function rivals(token, round) {
    if (!round) return [];
    if (token.fate === "rejected") return round.trials.filter((t) => t.fate === "corrected" && t.parent === token.parent);
    if (token.fate !== "corrected") return [];
    const own = round.trials.find((t) => t.node === token.node && t.fate === "corrected");
    return own ? round.trials.filter((t) => t.fate === "rejected" && t.parent === own.parent) : [];
  }

  /** By what a draft was kept or refused; "" for other tokens, and where nothing is known of it. */
  function decided(token, panel) {
    const { threshold, measure, at_most: atMost } = (panel && panel.rule) || {};
    const kept = token.fate !== "rejected";
    if (token.fate !== "accepted" && token.fate !== "rejected") return "";
    if (known(token.u) && known(token.accept_probability)) {
      const below = token.u < token.accept_probability;
      if (token.accept_probability >= 1) return "The accept probability is 1: kept, whatever the random number.";
      if (token.accept_probability <= 0) return "The accept probability is 0: refused, whatever the random number.";
      const isRatio = known(token.p) && token.q && Math.abs(token.p / token.q - token.accept_probability) < 1e-3;
      const bound = `${isRatio ? "p / q = " : ""}${number(token.accept_probability)}`;
      return `The random number ${number(token.u)} is ${below ? "below" : "not below"} ${bound}: ${kept ? "kept" : "refused"}.`;
    }
    const value = measure === "ratio" ? token.accept_probability : token.p;
    if (!known(threshold) || !known(value)) return "";
    if (atMost) return `p ${number(value)}: ${kept ? "likely enough, kept" : "not likely enough, refused"}.`;
    const name = measure === "ratio" ? "The joint ratio" : "p";
    return `${name} ${number(value)} is ${value > threshold ? "above" : "not above"} ${number(threshold)}${value > threshold === kept ? "" : kept ? ", but that of a longer part of the draft is" : ""}: ${kept ? "kept" : "refused"}.`;
  }

  /** The guess that a correction replaced, if it was one alone and it is known why. */
  function replaced(token, panel, round) {
    const others = token.fate === "corrected" ? rivals(token, round) : [];
    return others.length === 1 && decided(others[0], panel) ? others[0] : null;
  }

  /** Why it was kept or refused, in a sentence or two. */
  function verdict(token, panel, round) {
    const others = rivals(token, round), guess = replaced(token, panel, round), parts = [decided(token, panel)];
    if (token.fate === "rejected" && others.length) parts.push(`The large model wrote ${quoted(others[0])} in its place.`);
    if (guess) {
      const gave = known(guess.p) && known(guess.q) ? `, to which the large model gave ${number(guess.p)} and the draft ${number(guess.q)}` : "";
      parts.push(`It stands in place of the guess ${quoted(guess)}${gave}.`, decided(guess, panel));
    } else if (token.fate === "corrected" && others.length) {
      const guesses = others.filter((t, i) => others.findIndex((other) => other.text === t.text) === i); // one may be drawn again and again
      parts.push(`It stands in place of ${guesses.slice(0, 3).map(quoted).join(", ")}${guesses.length > 3 ? " and others" : ""}, which ${guesses.length > 1 ? "were" : "was"} refused.`);
      for (const other of guesses.slice(0, 3)) {
        const why = decided(other, panel);
        if (why) parts.push(`${quoted(other)}: ${why[0].toLowerCase()}${why.slice(1)}`);
      }
    }
    return parts.filter(Boolean).join(" ");
  }

  /** The track of a probability, filled from 0 to 1: one scale for the whole card. What is not 0 can be seen. */
  function track(kind, value) {
    const fill = make(`i.${kind}`);
    fill.style.width = `${value > 0 ? Math.min(100, Math.max(1, 100 * value)) : 0}%`;
    return make("span.track", {}, fill);
  }

  /** A bar with its name and value. */
  const bar = (kind, name, value) => make("div.bar-line", {}, make("span", {}, name), track(kind, value), make("span.value", {}, number(value)));

  /** A line from 0 to 1: the part that keeps a draft is filled, and a needle stands where it fell. */
  function needleLine(from, to, needle, says, kept) {
    const zone = make("i.zone"), pin = make(`i.needle.${kept ? "in" : "out"}`);
    const percent = (value) => `${100 * Math.min(1, Math.max(0, value))}%`;
    zone.style.left = percent(from);
    zone.style.width = `calc(${percent(to)} - ${percent(from)})`;
    pin.style.left = percent(needle);
    return make("div.toss", {}, make("div.line", {}, zone, pin), make("div.ends", {}, make("span", {}, "0"), make("span", {}, says), make("span", {}, "1")));
  }

  /** p and q of a token as bars, and for a draft the line on which it was decided. */
  function pictureOf(token, panel) {
    const { threshold, measure, raw, at_most: atMost } = (panel && panel.rule) || {};
    const parts = [], drafted = token.fate === "accepted" || token.fate === "rejected";
    if (known(token.p)) parts.push(bar("p", "p large model", token.p));
    if (known(token.q)) parts.push(bar("q", token.q === 1 ? "q draft (certain)" : "q draft", token.q));
    if (parts.length) parts.push(make("div.which", {}, `${known(token.q) ? "p and q" : "p"} ${raw && drafted ? "before" : "after"} temperature and cut-offs`));
    const kept = token.fate === "accepted";
    if (drafted && known(token.u) && known(token.accept_probability)) {
      parts.push(needleLine(0, token.accept_probability, token.u, `random number ${number(token.u)}`, kept));
    } else if (drafted && known(threshold)) {
      const value = measure === "ratio" ? token.accept_probability : token.p;
      const says = `${measure === "ratio" ? "joint ratio" : "p"}; kept above ${atMost ? "at most " : ""}${number(threshold)}`;
      if (known(value)) parts.push(needleLine(threshold, 1, value, says, kept));
    }
    return parts.length ? make("div.picture", {}, ...parts) : null;
  }

  function facts(token, panel, round) {
    const rows = [];
    const index = known(token.round) ? token.round : round && round.index;
    if (known(index)) rows.push(["round", String(index + 1)]);
    if (known(token.p) && token.q > 0) rows.push(["p / q", number(token.p / token.q)]);
    const joint = panel && panel.rule && panel.rule.measure === "ratio";
    if (known(token.accept_probability)) rows.push([joint ? "joint ratio of the draft up to here" : "accept probability", number(token.accept_probability)]);
    if (known(token.log_p)) rows.push(["ln p before temperature and cut-offs", number(token.log_p)]);
    return rows;
  }

  function alternatives(token) {
    const list = make("ol");
    for (const { id, text, p } of token.alternatives) {
      list.append(make("li", { class: id === (token.id ?? token.token) ? "chosen" : null }, make("bdi.alt", {}, visible(text)), track("p", p), make("span.value", {}, number(p))));
    }
    return [make("h4", {}, "Likeliest here, before temperature and cut-offs"), list];
  }

  /** The card's sentences, for the reader who sees it and for the one who hears it. */
  function says(token, panel, round) {
    const fate = Workbench.fates[token.fate] || { label: token.fate, help: "" };
    return { fate, verdict: verdict(token, panel, round) };
  }

  function fill(card, token, { panel, round }) {
    const { fate, verdict: why } = says(token, panel, round), guess = replaced(token, panel, round);
    const drafted = token.fate === "accepted" || token.fate === "rejected" || known(token.p);
    const rows = make("dl");
    for (const [name, value] of facts(token, panel, round)) rows.append(make("dt", {}, name), make("dd", {}, value));
    card.replaceChildren(
      make("div.card-head", {}, make(`span.tok.${token.fate}`, {}, make("bdi", {}, visible(token.text))), make("strong", {}, fate.label), make("span.id", {}, `#${token.id ?? token.token}`)),
      make("p", {}, fate.help),
      ...[pictureOf(token, panel), why && make("p.why", {}, why), guess && pictureOf(guess, panel), rows].filter(Boolean),
    );
    if (drafted && panel && panel.rule && panel.rule.says) card.append(make("p.rule", {}, panel.rule.says));
    if (token.alternatives && token.alternatives.length) card.append(...alternatives(token));
  }

  function place(card, anchor) {
    card.hidden = false;
    const box = anchor.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = card;
    const left = Math.max(8, Math.min(box.left, window.innerWidth - width - 8));
    const below = box.bottom + 8 + height < window.innerHeight || box.top < window.innerHeight - box.bottom;
    card.style.left = `${left}px`;
    card.style.top = `${Math.max(8, below ? Math.min(box.bottom + 8, window.innerHeight - height - 8) : box.top - height - 8)}px`;
  }

  /** The tokens at the same position of the other texts on the page. */
  function light(anchor) {
    const text = anchor.closest(".wb-panel .wb-paper > .wb-text");
    const at = text && text.tokens ? text.tokens.findIndex((group) => group.includes(anchor)) : -1;
    if (at < 0) return [];
    const lit = [...document.querySelectorAll(".wb-panel .wb-paper > .wb-text")].filter((box) => box.offsetParent && box.tokens && box.tokens[at]);
    return lit.map((box) => box.tokens[at][box.tokens[at].length - 1]);
  }

  /** Events are delegated on the root: tokens come and go while a decoder runs. */
  Workbench.card = (root) => {
    const card = make("div.wb-card", { role: "tooltip", hidden: true }), spoken = make("div.wb-unseen", { "aria-live": "polite" });
    let lit = [], current = null;
    root.append(card, spoken);
    const hide = () => {
      card.hidden = true;
      current = null;
      for (const span of lit.splice(0)) span.classList.remove("lit");
    };
    const show = (event) => {
      const anchor = event.target.closest && event.target.closest("[data-card], .tok");
      if (!anchor || !anchor.token || card.contains(anchor)) return;
      hide();
      const where = placeOf(root, anchor);
      fill(card, anchor.token, where);
      place(card, anchor);
      current = anchor;
      lit = light(anchor);
      for (const span of lit) span.classList.add("lit");
      if (event.type !== "focusin") return;
      const { fate, verdict: why } = says(anchor.token, where.panel, where.round);
      spoken.textContent = `${quoted(anchor.token)}, ${fate.label}. ${known(anchor.token.p) ? `p ${number(anchor.token.p)}. ` : ""}${known(anchor.token.q) ? `q ${number(anchor.token.q)}. ` : ""}${why}`;
    };
    root.addEventListener("pointerover", show);
    root.addEventListener("focusin", show);
    root.addEventListener("pointerout", () => current === document.activeElement || hide()); // the keyboard's card stays
    root.addEventListener("focusout", hide);
    window.addEventListener("scroll", () => current && (current === document.activeElement ? place(card, current) : hide()), { passive: true, capture: true });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !event.target.classList.contains("tok")) return;
      const tokens = [...event.target.closest(".wb-text").querySelectorAll(".tok")].filter((t) => t.offsetParent);
      const next = tokens[tokens.indexOf(event.target) + step];
      if (!next) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  };
})();
