// What the card of a token says: what decided about it, in words and drawn.
"use strict";

(() => {
  const { known, make, visible, number } = Workbench;
  const digits = (value) => (more) => number(value, 3 + more);
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

  /** p, q, p / q, u and the accept probability of a token as texts, of which is true what is true of the figures: which of two is less, and
   *  that p over q is p / q. */
  function shown(token) {
    const { p, q, u, accept_probability: accept } = token, both = known(p) && q > 0, isRatio = both && known(accept) && Math.abs(p / q - accept) < 1e-6;
    const bound = known(accept) && known(u) ? Workbench.enough((a, b) => a < b === u < accept, digits(u), digits(accept)) : [number(u), number(accept)];
    const ratio = isRatio ? bound[1] : both ? number(p / q) : null;
    const parts = both ? Workbench.enough((a, b) => Workbench.gives(ratio, a / b), digits(p), digits(q)) : [number(p), number(q)];
    return { p: parts[0], q: parts[1], ratio, isRatio, u: bound[0], accept: bound[1] };
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
      const { u, isRatio, accept } = shown(token);
      return `The random number ${u} is ${below ? "below" : "not below"} ${isRatio ? "p / q = " : ""}${accept}: ${kept ? "kept" : "refused"}.`;
    }
    const value = measure === "ratio" ? token.accept_probability : token.p;
    if (!known(threshold) || !known(value)) return "";
    if (atMost) return `p ${number(value)}: ${kept ? "likely enough, kept" : "not likely enough, refused"}.`;
    const name = measure === "ratio" ? "The joint ratio" : "p";
    const [given, least] = Workbench.enough((a, b) => a > b === value > threshold, digits(value), digits(threshold));
    return `${name} ${given} is ${value > threshold ? "above" : "not above"} ${least}${value > threshold === kept ? "" : kept ? ", but that of a longer part of the draft is" : ""}: ${kept ? "kept" : "refused"}.`;
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
      const gave = known(guess.p) && known(guess.q) ? `, to which the large model gave ${shown(guess).p} and the draft ${shown(guess).q}` : "";
      parts.push(`It replaces the guess ${quoted(guess)}${gave}.`, decided(guess, panel));
    } else if (token.fate === "corrected" && others.length) {
      const guesses = others.filter((t, i) => others.findIndex((other) => other.text === t.text) === i); // one may be drawn again and again
      parts.push(`It replaces ${guesses.slice(0, 3).map(quoted).join(", ")}${guesses.length > 3 ? " and others" : ""}, which ${guesses.length > 1 ? "were" : "was"} refused.`);
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
  const bar = (kind, name, value, text) => make("div.bar-line", {}, make("span", {}, name), track(kind, value), make("span.value", {}, text));

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
    const parts = [], drafted = token.fate === "accepted" || token.fate === "rejected", { p, q, u } = shown(token);
    if (known(token.p)) parts.push(bar("p", "p large model", token.p, p));
    if (known(token.q)) parts.push(bar("q", token.q === 1 ? "q draft (certain)" : "q draft", token.q, q));
    if (parts.length) parts.push(make("div.which", {}, `${known(token.q) ? "p and q" : "p"} ${raw && drafted ? "before" : "after"} temperature and cut-offs`));
    const kept = token.fate === "accepted";
    if (drafted && known(token.u) && known(token.accept_probability)) {
      parts.push(needleLine(0, token.accept_probability, token.u, `random number ${u}`, kept));
    } else if (drafted && known(threshold)) {
      const value = measure === "ratio" ? token.accept_probability : token.p;
      const says = `${measure === "ratio" ? "joint ratio" : "p"}; kept above ${atMost ? "at most " : ""}${number(threshold)}`;
      if (known(value)) parts.push(needleLine(threshold, 1, value, says, kept));
    }
    return parts.length ? make("div.picture", {}, ...parts) : null;
  }

  /** What a head drafted a token from: the large model's states, or its own of the step before; "" for other drafts. */
  function saw(token, panel, round) {
    const { reads, layers } = (panel && panel.head) || {};
    if (!reads || !round || (token.fate !== "accepted" && token.fate !== "rejected")) return "";
    const tried = new Map(round.trials.map((t) => [t.node, t])), before = [];
    for (let t = tried.get(token.parent); t && before.length < round.trials.length; t = tried.get(t.parent)) before.push(t);
    if (before.length) return `Step ${before.length + 1} of the draft: the head worked from its own state at step ${before.length} and its guess ${quoted(before[0])}, because the large model had not yet read that token.`;
    const states = reads.length > 1 ? `its layers ${reads.slice(0, -1).join(", ")} and ${reads[reads.length - 1]} of ${layers}` : reads[0] < 0 ? "its last layer" : `its layer ${reads[0]} of ${layers}`;
    return `Step 1 of the draft: the head worked from the large model’s own state (${states}) before the last token of the text, and from that token.`;
  }

  function facts(token, panel, round) {
    const rows = [];
    const index = known(token.round) ? token.round : round && round.index;
    if (known(index)) rows.push([panel && !panel.rounds.length ? "piece of the answer" : "round", String(index + 1)]);
    const { ratio, accept } = shown(token);
    if (ratio) rows.push(["p / q", ratio]);
    const joint = panel && panel.rule && panel.rule.measure === "ratio";
    if (known(token.accept_probability)) rows.push([joint ? "joint ratio of the draft up to here" : "accept probability", accept]);
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

  /** What is known of the token of an element: its card, as elements, and the sentences that are read aloud. */
  Workbench.told = (root, anchor) => {
    const { token } = anchor, { panel, round } = placeOf(root, anchor), fate = Workbench.fates[token.fate] || { label: token.fate, help: "" };
    const why = verdict(token, panel, round), guess = replaced(token, panel, round), seen = saw(token, panel, round);
    const rows = make("dl"), drafted = token.fate === "accepted" || token.fate === "rejected" || known(token.p);
    for (const [name, value] of facts(token, panel, round)) rows.append(make("dt", {}, name), make("dd", {}, value));
    const card = [
      make("div.card-head", {}, make(`span.tok.${token.fate}`, {}, make("bdi", {}, visible(token.text))), make("strong", {}, fate.label), make("span.id", {}, `#${token.id ?? token.token}`)),
      make("p", {}, fate.help), pictureOf(token, panel), why && make("p.why", {}, why), guess && pictureOf(guess, panel), seen && make("p.saw", {}, seen), rows,
      drafted && panel && panel.rule && panel.rule.says && make("p.rule", {}, panel.rule.says),
      ...(token.alternatives && token.alternatives.length ? alternatives(token) : []),
    ].filter(Boolean);
    const texts = shown(token), chances = ["p", "q"].filter((name) => known(token[name])).map((name) => `${name} ${texts[name]}. `).join("");
    return { card, spoken: [`${quoted(token)}, ${fate.label}. ${chances}${why}`, seen].filter(Boolean).join(" ") };
  };

  Object.assign(Workbench, { figures: shown, decided });
})();
