// Gradio's status tracker counts its seconds in a frame after the other, and does not stop when it is taken off the page. The one that
// stands for the page until that is loaded therefore counts for ever, on every page of Gradio's 6: 60 frames a second, a seventh of a core
// without a GPU. Here such frames are given only while a tracker is on screen. Take this file out (show/web.py) once Gradio stops it.
"use strict";

(() => {
  const give = window.requestAnimationFrame.bind(window);

  /** Whether a function is the tracker's: `() => { seconds = (performance.now() - start) / 1000; if (on) run(); }`. */
  function counts(draw) {
    const text = String(draw);
    return text.length < 120 && /performance\.now\(\)\s*-.*\/\s*(1e3|1000)\b/s.test(text);
  }

  window.requestAnimationFrame = (draw) => {
    const idle = counts(draw) && !document.querySelector('[data-testid="status-tracker"]:not(.hide)');
    return idle ? 0 : give(draw);
  };
})();
