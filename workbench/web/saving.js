// A part of the page as a picture file: every word and box where the browser has put it, as SVG, or drawn as PNG.
"use strict";

(() => {
  const { make } = Workbench;
  const SVG = "http://www.w3.org/2000/svg";
  const EDGE = 10; // px around it
  const NOT_XML = /[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu; // which a model's text may have
  const SCALE = 2; // pixels of a PNG for each of the page

  function draw(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const clear = (colour) => /^rgba\(.*, 0\)$|^transparent$|\/ 0\)$/.test(colour);

  /** The ground, border and lines of an element, a piece for each of its lines of text. */
  function boxes(element, style, home) {
    const drawn = [], [line] = style.textDecorationLine.split(" ");
    for (const { left, top, width, height } of element.getClientRects()) {
      const x = left - home.left, y = top - home.top;
      if (!width || !height) continue;
      const outlined = style.outlineStyle !== "none" ? ["outline", style.outlineColor, style.outlineStyle] : parseFloat(style.borderTopWidth) && parseFloat(style.borderBottomWidth) ? ["border", style.borderTopColor, style.borderTopStyle] : null;
      const hatched = style.backgroundImage.startsWith("repeating-linear-gradient"), filled = hatched || !clear(style.backgroundColor);
      if (filled || outlined) {
        drawn.push(draw("rect", { x, y, width, height, rx: Math.min(6, parseFloat(style.borderTopLeftRadius) || 0), fill: hatched ? style.color : filled ? style.backgroundColor : "none", "fill-opacity": hatched ? 0.5 : 1, stroke: outlined ? outlined[1] : "none", "stroke-dasharray": outlined && outlined[2] !== "solid" ? "4 3" : "none" }));
      }
      if (element.matches(".tok") && line !== "none") {
        const at = line === "line-through" ? y + height / 2 : y + height - 3;
        for (const lower of style.textDecorationStyle === "double" ? [0, 3] : [0]) {
          drawn.push(draw("line", { x1: x, x2: x + width, y1: at + lower, y2: at + lower, stroke: style.textDecorationColor, "stroke-width": 1.5, "stroke-dasharray": { dotted: "2 2", dashed: "4 3", wavy: "3 1.5" }[style.textDecorationStyle] || "none" }));
        }
      }
    }
    return drawn;
  }

  /** The words of a text node, each where it stands. */
  function words(node, style, home) {
    const range = document.createRange(), drawn = [];
    for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const [box] = range.getClientRects();
      if (box) drawn.push(draw("text", { x: box.left - home.left, y: box.top - home.top + box.height * 0.78, "font-size": style.fontSize, "font-weight": style.fontWeight, "font-family": "system-ui, sans-serif", fill: style.color }, word));
    }
    return drawn;
  }

  /** An SVG of the page's own, with the styles that it has there. */
  function copied(svg, home) {
    const copy = svg.cloneNode(true), { left, top, width, height } = svg.getBoundingClientRect(), from = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
      const style = getComputedStyle(from[i]);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "text-anchor", "text-decoration"]) element.style.setProperty(name, style.getPropertyValue(name));
    });
    for (const [name, value] of Object.entries({ x: left - home.left, y: top - home.top, width, height })) copy.setAttribute(name, value);
    return copy;
  }

  /** An element as an SVG: what is visible of it, without its buttons. */
  Workbench.asSvg = (root) => {
    const home = root.getBoundingClientRect(), svg = draw("svg", { xmlns: SVG, width: home.width, height: home.height, viewBox: `0 0 ${home.width} ${home.height}` });
    const ground = [document.body, document.documentElement].map((each) => getComputedStyle(each).backgroundColor).find((colour) => !clear(colour)) || "#ffffff";
    svg.append(draw("rect", { width: home.width, height: home.height, fill: ground }));
    const visit = (element) => {
      const style = getComputedStyle(element);
      if (element.matches(".bar, .saving, .open-text, .modebar-container, .wb-card, .wb-unseen, details") || style.display === "none" || style.visibility === "hidden") return;
      if (element instanceof SVGElement) return svg.append(copied(element, home));
      svg.append(...boxes(element, style, home));
      for (const child of element.childNodes) {
        if (child instanceof Text) svg.append(...words(child, style, home));
        else if (child instanceof Element) visit(child);
      }
    };
    visit(root);
    // What stays out, such as buttons, leaves no room at the top or the foot.
    const number = (part, name) => parseFloat(part.getAttribute(name)) || 0;
    const parts = [...svg.children].slice(1).map((part) => (part.tagName === "text" ? [number(part, "y") - parseFloat(part.getAttribute("font-size")), number(part, "y") + 6] : part.tagName === "line" ? [number(part, "y1"), number(part, "y1")] : [number(part, "y"), number(part, "y") + number(part, "height")]));
    const top = Math.min(...parts.map(([y]) => y)) - EDGE, height = Math.max(...parts.map(([, y]) => y)) + EDGE - top;
    if (!parts.length) return svg;
    for (const [name, value] of Object.entries({ height, viewBox: `${-EDGE} ${top} ${home.width + 2 * EDGE} ${height}`, width: home.width + 2 * EDGE })) svg.setAttribute(name, value);
    for (const [name, value] of Object.entries({ x: -EDGE, y: top, width: home.width + 2 * EDGE, height })) svg.firstChild.setAttribute(name, value);
    return svg;
  };

  function download(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  /** Buttons that save an element. */
  Workbench.saving = (what, root, name) => make("span.saving", {}, ...["SVG", "PNG"].map((kind) => {
    const button = make("button", { type: "button", "aria-label": `save ${what} as ${kind}`, title: `save ${what} as ${kind}` }, kind);
    button.addEventListener("click", () => Workbench.save(root(), name(), kind.toLowerCase()));
    return button;
  }));

  /** Save an element as a file, `kind` "svg" or "png". */
  Workbench.save = async (root, name, kind) => {
    const svg = Workbench.asSvg(root), text = new XMLSerializer().serializeToString(svg).replace(NOT_XML, "\uFFFD");
    if (kind === "svg") return download(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
    const image = new Image(), canvas = document.createElement("canvas");
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    [canvas.width, canvas.height] = ["width", "height"].map((side) => Math.ceil(SCALE * svg.getAttribute(side)));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, `${name}.png`), "image/png");
  };
})();
