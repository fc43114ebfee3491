// What a visitor types and presses before Gradio's page is there: the prompt and Run of the picture that stands for it take it, and the
// page does it as soon as it can.
"use strict";

const WorkbenchEarly = (() => {
  let pressed = false, composing = false;

  /** Whether the visitor is in the middle of a character, as in writing Japanese: who takes the field away then breaks it. */
  for (const [event, now] of [["compositionstart", true], ["compositionend", false]]) document.addEventListener(event, () => { composing = now; });
  const settled = () => new Promise((resolve) => {
    const look = () => (composing ? setTimeout(look, 50) : resolve());
    look();
  });

  /** Enter makes no new line, as in Gradio's field. */
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.closest?.("#opening textarea")) event.preventDefault();
  });

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("#opening .wb-run");
    if (!button || pressed) return;
    pressed = true;
    document.querySelector("#opening textarea").readOnly = true; // what is run is what stands there now
    button.textContent = "Starting…";
    button.setAttribute("aria-disabled", "true");
  });

  function whenEnabled(button, act) {
    if (!button.disabled) return act();
    new MutationObserver((_, observer) => {
      if (button.disabled) return;
      observer.disconnect();
      act();
    }).observe(button, { attributeFilter: ["disabled"] });
  }

  /** Gradio's page takes the picture's place, with what was typed, the keyboard's place, and the press. */
  function handOver() {
    const picture = document.getElementById("opening");
    if (!picture) return;
    const typed = picture.querySelector("textarea"), button = picture.querySelector(".wb-run"), focused = document.activeElement;
    const prompt = document.querySelector("#prompt textarea"), run = document.getElementById("run");
    const { value, selectionStart, selectionEnd } = typed;
    run.style.transition = "none"; // Gradio's buttons change slowly, and what is still hidden cannot have the focus
    picture.id = ""; // Gradio's page is seen from now on; the picture goes last, or a phone would put its keyboard away
    if (value !== prompt.value) {
      prompt.value = value;
      prompt.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (focused === typed) {
      prompt.focus({ preventScroll: true });
      prompt.setSelectionRange(selectionStart, selectionEnd);
    }
    picture.remove();
    whenEnabled(run, () => {
      if (focused === button) run.focus({ preventScroll: true });
      if (pressed) run.click();
    });
  }

  return { settled, handOver };
})();
