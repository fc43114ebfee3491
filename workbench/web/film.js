// A decoder's rounds as a film: the words of each round, when it is over on a clock, and the round in a sentence.
"use strict";

(() => {
  const { visible, known } = Workbench;
  const DRAFTED = ["accepted", "rejected", "discarded"];
  const WINDOW = 7; // rounds of beams without drafts that are seen together: each is one word longer
  const SEEN = 0.04; // a probability whose bar can be seen
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";
  const drafted = (trial) => DRAFTED.includes(trial.fate);
  const plural = (count, word, several = `${word}s`) => `${count} ${count === 1 ? word : several}`;
  const quoted = (...trials) => `“${visible(trials.map((t) => t.text).join("")).replace(/^␣/, "").replace(/␣/g, " ")}”`;

  /** The output after each round, the token of each node, the round that wrote it, and the joint ln p up to it. */
  function history(rounds) {
    const texts = new Map(), scores = new Map(), made = new Map(), after = [];
    let current = [];
    for (const round of rounds) {
      for (const node of round.nodes) made.set(node, round);
      for (const t of round.trials) {
        if (!kept(t) && texts.has(t.node)) continue;
        texts.set(t.node, t);
        const above = scores.has(t.parent) ? scores.get(t.parent) : texts.has(t.parent) ? null : 0;
        scores.set(t.node, above === null || !known(t.log_p) ? null : above + t.log_p);
      }
      current = [...current.slice(0, round.keep), ...round.nodes];
      after.push(current);
    }
    const line = (node) => {
      const path = [];
      for (let t = texts.get(node); t; t = texts.get(t.parent)) path.push(t); // parents have lower numbers: it ends
      return path.reverse();
    };
    return { texts, scores, made, after, line };
  }

  /** The nodes at which the beams end that a round leaves: those of its deepest layer, for what no deeper layer continues is dropped.
   *  Only a beam whose text has ended stays where it is; a round tells that of the best one, with which the output ends. */
  function tips(round) {
    const depths = new Map(), parents = new Set();
    for (const t of round.trials.filter(kept)) {
      depths.set(t.node, 1 + (depths.get(t.parent) ?? 0));
      parents.add(t.parent);
    }
    const ends = [...depths].filter(([node]) => !parents.has(node)), deepest = Math.max(...ends.map(([, depth]) => depth));
    return ends.filter(([node, depth]) => depth === deepest || node === round.nodes.at(-1)).map(([node]) => node);
  }

  /** Whether the draft of a round is one chain of tokens. */
  const chained = (round) => {
    const chain = round.trials.filter(drafted), own = round.trials.length - chain.length;
    return !round.provisional && own <= Math.max(1, round.nodes.length) && chain.every((t, i) => i === 0 || t.parent === chain[i - 1].node);
  };

  class Film {
    constructor(panel) {
      Object.assign(this, { panel, told: panel.rounds.length > 0 }, history(panel.rounds));
      this.places = new Map(panel.tokens.map((token, at) => [token.node, at]));
      const pieces = 1 + Math.max(-1, ...panel.tokens.map((t) => t.round ?? 0));
      this.rounds = this.told ? panel.rounds : Array.from({ length: pieces }, (_, index) => ({ index, trials: [], nodes: panel.tokens.filter((t) => (t.round ?? 0) === index).map((t) => t.node), keep: 0, target_calls: 1 }));
      this.provisional = panel.rounds.some((round) => round.provisional);
      let passes = 0, seconds = 0;
      this.passes = this.rounds.map((round) => (passes += Math.max(1, round.target_calls)));
      this.seconds = (panel.clock || []).length === this.rounds.length ? panel.clock.map((s) => (seconds += s)) : null;
      this.chains = this.rounds.map(chained);
    }

    /** The token of a node: that of the finished text, or as it was tried. */
    token(node) { return this.panel.tokens[this.places.get(node)] || this.texts.get(node); }

    /** The guesses of a round. */
    guesses(at) { return this.rounds[at].trials.filter(drafted); }

    /** A round's words in the order in which they are read: kept guesses, refused ones, and the large model's own; and how many others of a
     *  tree's guesses there were. */
    words(at) {
      const round = this.rounds[at], own = round.nodes.map((node) => this.token(node)).filter(Boolean);
      const guesses = own.filter((t) => t.fate === "accepted"), refused = round.trials.filter((t) => !kept(t));
      const shown = this.chains[at] ? refused : [];
      return { words: [...guesses, ...shown, ...own.filter((t) => t.fate !== "accepted")], others: refused.length - shown.length };
    }

    /** What a round's picture shows: its trials; of beams that draft nothing also those of the rounds before it, in which they went apart. */
    shown(at, window = WINDOW) {
      const { trials } = this.rounds[at];
      return trials.some(drafted) || trials.length < 2 ? trials : this.rounds.slice(Math.max(0, at - window + 1), at + 1).flatMap((round) => round.trials);
    }

    /** The nodes of the beams after a round. */
    alive(at) { return new Set(tips(this.rounds[at]).flatMap((node) => this.line(node)).map((t) => t.node)); }

    /** How many different tokens of a round's picture count: of beams those that live. */
    width(at) {
      const nodes = new Set(this.shown(at).map((t) => t.node)), drafts = this.rounds[at].trials.some(drafted), alive = drafts ? nodes : this.alive(at);
      return [...nodes].filter((node) => alive.has(node)).length;
    }

    /** Where a copied draft stands in the text before it: the words around it, and the first and last token of the output that it covers
     *  (-1 in the prompt); null if it is no copy. After the same token as now, if it stands there several times. */
    copied(at) {
      const guesses = this.chains[at] ? this.guesses(at) : [];
      if (this.panel.source !== "text" || !guesses.length) return null;
      const before = (at ? this.after[at - 1] : []).map((node) => this.token(node)), starts = [];
      let text = this.panel.prompt;
      for (const { text: piece } of before) {
        starts.push(text.length);
        text += piece;
      }
      const draft = guesses.map((t) => t.text).join(""), key = before.length ? before.at(-1).text : "", after = text.slice(0, -1).lastIndexOf(key + draft);
      const start = after >= 0 ? after + key.length : text.lastIndexOf(draft);
      if (start < 0) return null;
      const inside = (i) => starts[i] + before[i].text.length > start && starts[i] < start + draft.length;
      return { before: `…${text.slice(Math.max(0, start - 24), start).replace(/^\S*\s/, "")}`, text: draft, first: before.findIndex((_, i) => inside(i)), last: before.findLastIndex((_, i) => inside(i)) };
    }

    /** The share of a round's time in which the draft is made, on a clock of seconds. */
    share(at) {
      const { draft_seconds: draft = 0, verify_seconds: verify = 0 } = this.rounds[at];
      return draft + verify > 0 ? draft / (draft + verify) : 0;
    }

    /** The round that is explained: the widest of beams and trees; of chains the one with a word that chance refused, its p / q nearest 0.3,
     *  so that both can be seen; or else any with a refusal, or with the most that was kept. */
    get telling() {
      const all = this.rounds.map((round, at) => ({ round, at }));
      const most = (list, value) => list.reduce((best, each) => (best && value(best) >= value(each) ? best : each), null);
      if (!this.told || !all.length) return 0;
      if (!this.chains.every(Boolean)) return most(all, ({ at }) => this.width(at)).at;
      const far = ({ round }) => {
        const t = round.trials.find((trial) => trial.fate === "rejected");
        return t && t.p > 0 && t.q > 0 ? Math.abs(t.p / t.q - 0.3) + (t.p >= SEEN && /\p{L}/u.test(t.text) ? 0 : 1) : Infinity;
      };
      const refusing = all.filter(({ round }) => round.trials.some((t) => t.fate === "rejected") && round.trials.some((t) => t.fate === "corrected"));
      const both = refusing.filter(({ round }) => round.trials.some((t) => t.fate === "accepted")), able = both.length ? both : refusing;
      return (most(able.filter((each) => far(each) < Infinity), (each) => -far(each)) || able[0] || most(all, ({ round }) => round.trials.length)).at;
    }

    /** A round before it is decided, in a sentence. */
    begun(at, phase) {
      const round = this.rounds[at], chain = this.guesses(at), head = `Round ${round.index + 1}: `;
      if (!this.told) return "";
      if (phase === "read" || !chain.length) return `${head}the large model ${chain.length ? "checks all of them in" : "makes"} one pass.`;
      const who = { head: "a small head", model: "the small model", text: "the text so far" }[this.panel.source];
      return `${head}${who || "counting"} guesses ${this.chains[at] ? quoted(...chain) : plural(chain.length, "token")}.`;
    }

    /** A round in a sentence. */
    sentence(at) {
      const round = this.rounds[at], head = `Round ${round.index + 1}: `, own = round.trials.filter((t) => !drafted(t)), chain = this.guesses(at);
      if (!this.told) return `Piece ${at + 1}: ${quoted(...round.nodes.map((node) => this.token(node)))}.`;
      if (!this.chains[at]) return head + this.ofTree(at, chain, own);
      if (!chain.length) return `${head}${this.panel.source ? "nothing guessed; " : ""}the large model wrote ${own.length ? quoted(...own) : "nothing"}.`;
      const held = chain.filter(kept).length, refused = chain.filter((t) => t.fate === "rejected"), last = own[0];
      const tried = `${this.panel.source === "text" ? "copied" : "guessed"} ${quoted(...chain)}; kept ${held === chain.length ? `all ${held}` : held || "none"}`;
      const no = refused.length ? `, ${quoted(refused[0])}${refused.length > 1 ? ` and ${refused.length - 1} more` : ""} refused` : "";
      const end = !last ? "" : last.fate === "corrected" ? `, corrected to ${quoted(last)}` : `, and one more for free: ${quoted(last)}`;
      return `${head}${tried}${no}${end}.`;
    }

    ofTree(at, chain, own) {
      const round = this.rounds[at], count = (fate) => round.trials.filter((t) => t.fate === fate).length, ends = tips(round).length;
      const undone = (at ? this.after[at - 1].length : 0) - round.keep, changed = undone > 0 ? ` Another beam is the best now: ${plural(undone, "earlier token")} changed.` : "";
      if (!chain.length) return `${plural(ends, "beam")} go on, each with one more token${own.length > ends ? `, out of ${own.length} drawn` : ""}.${changed}`;
      const fates = [["rejected", "refused"], ["discarded", "not reached"]].map(([fate, word]) => (count(fate) ? `, ${count(fate)} ${word}` : "")).join("");
      return `guessed ${plural(chain.length, "token")} in branches; kept ${count("accepted")}${fates}${own.length ? `, ${own.length} of its own` : ""}${round.provisional ? `; ${plural(ends, "beam")} ${ends === 1 ? "is" : "are"} left` : ""}.${changed}`;
    }
  }

  const seconds = (value) => `${value.toFixed(value < 1 ? 3 : value < 10 ? 2 : 1)} s`;

  Object.assign(Workbench, { tips, seconds, film: (panel) => new Film(panel) });
})();
