// Words with an explanation: a mouse that points, the keyboard's focus or a tap shows it beside the word.
"use strict";

(() => {
  const { make } = Workbench;
  const box = make("div.wb.wb-help", { role: "tooltip", id: "wb-help", hidden: true });
  let current = null;

  /** A word or a few that explain themselves; without an explanation they are plain text. */
  Workbench.term = (shown, help, classes = "") => (help ? make(`button.wb-term${classes}`, { type: "button", "data-help": help }, shown) : make(`span${classes}`, {}, shown));

  /** A text as nodes: each term of the glossary is marked where it stands first. */
  Workbench.explained = (text) => {
    const words = Object.keys(Workbench.terms || {}).sort((a, b) => b.length - a.length).map((word) => word.replace(/[/.*+?^$|()]/g, "\\$&"));
    const found = new RegExp(`(?<![\\w-])(${words.join("|")})(?:e?s)?(?!\\w)`, "g"), seen = new Set(), nodes = [];
    let end = 0;
    for (const match of words.length ? text.matchAll(found) : []) {
      if (seen.has(match[1])) continue;
      seen.add(match[1]);
      nodes.push(text.slice(end, match.index), Workbench.term(match[0], Workbench.terms[match[1]]));
      end = match.index + match[0].length;
    }
    return [...nodes, text.slice(end)].filter((node) => node !== "");
  };

  function hide() {
    if (!current) return;
    current.removeAttribute("aria-describedby");
    current = null;
    box.hidden = true;
  }

  function show(term) {
    if (term === current) return;
    hide();
    current = term;
    if (!box.isConnected) document.body.append(box);
    box.textContent = term.dataset.help;
    box.hidden = false;
    term.setAttribute("aria-describedby", box.id);
    const at = term.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = box;
    const below = at.bottom + 6 + height < window.innerHeight;
    box.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - width - 8))}px`;
    box.style.top = `${Math.max(8, below ? at.bottom + 6 : at.top - height - 6)}px`;
  }

  function again(term) {
    hide();
    if (term && term.matches(":hover, :focus")) show(term);
  }

  const termOf = (event) => event.target.closest && event.target.closest(".wb-term");
  document.addEventListener("pointerover", (event) => event.pointerType === "mouse" && termOf(event) && show(termOf(event)));
  document.addEventListener("pointerout", (event) => event.pointerType === "mouse" && termOf(event) && document.activeElement !== current && hide());
  document.addEventListener("focusin", (event) => (termOf(event) ? show(termOf(event)) : hide()));
  document.addEventListener("focusout", (event) => termOf(event) && hide());
  document.addEventListener("click", (event) => (termOf(event) ? show(termOf(event)) : hide()));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  window.addEventListener("scroll", () => again(current), { passive: true, capture: true }); // of the page, or of a lane that plays
})();
