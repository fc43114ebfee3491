// What happened in a round, in words: a sentence, and the beams that are left.
"use strict";

(() => {
  const { visible } = Workbench;
  const plural = (count, word, several = `${word}s`) => `${count} ${count === 1 ? word : several}`;
  const quoted = (trial) => `“${visible(trial.text)}”`;
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";

  /** The nodes kept in a round that nothing of the round continues, each with its depth in the round. */
  function leaves(round) {
    const depths = new Map(), parents = new Set();
    for (const t of round.trials.filter(kept)) {
      depths.set(t.node, 1 + (depths.get(t.parent) ?? 0));
      parents.add(t.parent);
    }
    return [...depths].filter(([node]) => !parents.has(node)).map(([node, depth]) => ({ node, depth }));
  }

  /** The nodes at which the beams end that a round leaves: those of its deepest layer, for what no deeper layer continues is dropped.
   *  Only a beam whose text has ended stays where it is; a round tells that of the best one, with which the output ends. */
  function tips(round) {
    const ends = leaves(round), deepest = Math.max(...ends.map((leaf) => leaf.depth)), last = round.nodes[round.nodes.length - 1];
    return ends.filter((leaf) => leaf.depth === deepest || leaf.node === last).map((leaf) => leaf.node);
  }

  Workbench.tips = tips;

  const of = (round, fate) => round.trials.filter((t) => t.fate === fate);

  function drafted(round, beams) {
    const [accepted, rejected, discarded] = ["accepted", "rejected", "discarded"].map((fate) => of(round, fate).length);
    const own = round.trials.filter((t) => t.fate === "corrected" || t.fate === "bonus" || t.fate === "sampled");
    const total = accepted + rejected + discarded;
    const head = `The large model kept ${accepted === total ? (total === 1 ? "the" : `all ${total}`) : `${accepted} of ${total}`} drafted ${total === 1 ? "token" : "tokens"}`;
    let tail = rejected ? `, refused ${rejected}` : "";
    if (beams) tail += own.length ? ` and drew ${own.length} itself` : "";
    else if (own.length) {
      const refused = round.trials.filter((t) => t.fate === "rejected" && own[0].fate === "corrected" && t.parent === own[0].parent);
      tail = refused.length ? ` and wrote ${quoted(own[0])} in place of ${quoted(refused[0])}${refused.length > 1 ? ` and ${plural(refused.length - 1, "other")}` : ""}` : `${tail} and added ${quoted(own[0])}`;
    }
    const unreached = discarded ? `; ${discarded} ${discarded === 1 ? "was" : "were"} not reached` : "";
    return `${head}${tail}${unreached}.`;
  }

  /** A sentence or two that say what happened; `before` is the length of the output until then. */
  Workbench.sentence = (round, before, drafts) => {
    const ends = tips(round), roots = new Set(round.trials.filter((t) => !round.trials.some((other) => other.node === t.parent)).map((t) => t.parent));
    const beams = roots.size > 1 || leaves(round).length > 1, undone = before - round.keep;
    const parts = [];
    if (round.trials.some((t) => !kept(t) || t.fate === "accepted")) parts.push(drafted(round, beams));
    else if (beams && round.trials[0].fate === "searched") parts.push(`The large model kept the ${plural(ends.length, "likeliest continuation")}.`);
    else if (beams) parts.push(`The large model drew ${plural(round.trials.length, "continuation")}${ends.length < round.trials.length ? `, ${ends.length} of them different` : ""}.`);
    else if (round.trials.length > 1) parts.push(`The large model chose ${round.trials.length} tokens together.`);
    else if (round.trials.length) parts.push(`${drafts ? "Nothing was drafted: the" : "The"} large model wrote ${quoted(round.trials[0])}.`);
    if (beams) {
      if (!parts[0].includes("kept the")) parts.push(`${plural(ends.length, "beam")} ${ends.length === 1 ? "is" : "are"} left.`);
      if (undone > 0) parts.push(`Another beam is the best now: ${plural(undone, "earlier token")} changed.`);
    }
    parts.push(round.nodes.length ? `The text grew by ${plural(round.nodes.length, "token")}.` : "The text did not grow.");
    return parts.join(" ");
  };

  /** The beams after a round, the likeliest first: [{node, score, length, text}]; [] if there is one. `line(node)` gives the tokens up to a node. */
  Workbench.beams = (round, line) => {
    const ends = tips(round);
    if (ends.length < 2) return [];
    return ends.map((node) => {
      const path = line(node);
      const whole = path.length && path.every((t) => t.log_p !== null && t.log_p !== undefined);
      const score = whole ? path.reduce((sum, t) => sum + t.log_p, 0) : null;
      return { node, score, length: path.length, text: path.slice(-6).map((t) => t.text).join("") };
    }).sort((a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity));
  };
})();
