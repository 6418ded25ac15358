// A drawing of many boxes and lines that is moved and magnified: tens of thousands of boxes at the rate of the screen.

import { html, useEffect, useRef, useState } from "/web/vendor/htm-preact.js";

const TEXT_FROM = 0.55; // magnification from which text can be read
const READABLE = 0.8;
const MOST_LINES = 4000; // of more in sight none is drawn: one could not be told from another
const FONT = "11px system-ui, sans-serif";

/**
 * scene: {width, height, boxes, lines}, in its own units.
 *   boxes: {x, y, w, h, fill, title, text: [first line, second line], edge: "strong" | "good" | "bad" | "warn" | undefined}
 *   lines: {from: [x, y], to: [x, y], boxes: [number, number], curved}
 * flat: only x is magnified (time). lit: numbers of boxes that are outlined as one.
 * choose(number or null) is called when a box, or none, is clicked.
 */
export function Canvas({ scene, label, chosen = null, lit = null, choose, flat = false, axis = null, tall = 480 }) {
  const canvas = useRef(null);
  const view = useRef(null);
  const [title, setTitle] = useState("");
  const known = useRef(null);
  const clicked = useRef(null); // the box that was chosen here: it is in sight as large as was wished

  const whole = () => {
    const { clientWidth: wide, clientHeight: high } = canvas.current;
    const fit = wide / scene.width;
    if (flat) return { x: 0, y: 0, zoom: fit };
    const zoom = Math.min(1, Math.max(fit, Math.min(fit * 3, high / scene.height), 0.02));
    return { x: Math.min(0, (scene.width - wide / zoom) / 2), y: 0, zoom }; // what is narrow stands in the middle
  };
  const draw = () => {
    if (canvas.current) canvas.current.pending ||= requestAnimationFrame(() => { if (canvas.current) paint(canvas.current, scene, view.current, { chosen, lit, flat, axis }); });
  };
  const magnify = (factor, atX, atY) => {
    const now = view.current;
    const zoom = Math.min(flat ? 1e7 : 4, Math.max(whole().zoom / 4, now.zoom * factor));
    view.current = { x: atX / now.zoom + now.x - atX / zoom, y: flat ? now.y : atY / now.zoom + now.y - atY / zoom, zoom };
    draw();
  };
  const move = (dx, dy) => {
    view.current = { ...view.current, x: view.current.x - dx / view.current.zoom, y: flat ? 0 : view.current.y - dy / view.current.zoom };
    draw();
  };
  const place = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const under = (event) => {
    const [x, y] = place(event);
    const { x: left, y: up, zoom } = view.current;
    const [at, down] = [x / zoom + left, flat ? y : y / zoom + up];
    const margin = flat ? 1 / zoom : 0;
    for (let number = scene.boxes.length - 1; number >= 0; number--) {
      const box = scene.boxes[number];
      if (at >= box.x - margin && at <= box.x + box.w + margin && down >= box.y && down <= box.y + box.h) return number;
    }
    return null;
  };

  useEffect(() => {
    const redraw = () => draw();
    const sized = new ResizeObserver(redraw);
    sized.observe(canvas.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => { sized.disconnect(); scheme.removeEventListener("change", redraw); };
  });
  useEffect(() => {
    const wheel = (event) => {
      event.preventDefault();
      magnify(Math.exp(-event.deltaY / 300), ...place(event));
    };
    canvas.current.addEventListener("wheel", wheel, { passive: false });
    const element = canvas.current;
    return () => element.removeEventListener("wheel", wheel);
  });
  useEffect(() => {
    if (known.current !== scene) view.current = whole();
    known.current = scene;
    draw();
  }, [scene]);
  useEffect(() => {
    if (chosen !== null && !flat && scene.boxes[chosen] && chosen !== clicked.current) show(scene.boxes[chosen]);
    clicked.current = null;
  }, [chosen]);
  useEffect(draw, [chosen, lit]);

  /** Bring a box into sight, where its text can be read. */
  const show = (box) => {
    const { clientWidth, clientHeight } = canvas.current;
    const now = { ...view.current, zoom: Math.max(view.current.zoom, READABLE) };
    const [wide, high] = [clientWidth / now.zoom, clientHeight / now.zoom];
    const inside = box.x >= now.x && box.x + box.w <= now.x + wide && box.y >= now.y && box.y + box.h <= now.y + high;
    if (!inside || now.zoom !== view.current.zoom) view.current = { ...now, x: box.x + box.w / 2 - wide / 2, y: box.y + box.h / 2 - high / 2 };
  };

  const held = useRef(null);
  const down = (event) => {
    held.current = { x: event.clientX, y: event.clientY, moved: false };
    canvas.current.setPointerCapture(event.pointerId);
  };
  const over = (event) => {
    const from = held.current;
    if (!from) {
      const number = under(event);
      setTitle(number === null ? "" : scene.boxes[number].title);
      return;
    }
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    if (!from.moved && Math.hypot(dx, dy) < 4) return;
    held.current = { x: event.clientX, y: event.clientY, moved: true };
    move(dx, dy);
  };
  const up = (event) => {
    const from = held.current;
    held.current = null;
    if (from && !from.moved && choose) choose(clicked.current = under(event));
  };
  /** The box before or after the chosen one, from left to right: for who has no pointer. */
  const next = (way) => {
    const order = scene.boxes.map((_, at) => at).sort((a, b) => scene.boxes[a].x - scene.boxes[b].x || scene.boxes[a].y - scene.boxes[b].y || a - b);
    const at = chosen === null ? (way > 0 ? -1 : order.length) : order.indexOf(chosen);
    const number = order[at + way];
    if (number === undefined || !choose) return;
    setTitle(scene.boxes[number].title);
    choose(number);
  };
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [middleX, middleY] = [canvas.current.clientWidth / 2, canvas.current.clientHeight / 2];
    const act = {
      ArrowLeft: () => move(80, 0), ArrowRight: () => move(-80, 0), ArrowUp: () => move(0, 80), ArrowDown: () => move(0, -80),
      "+": () => magnify(1.25, middleX, middleY), "-": () => magnify(0.8, middleX, middleY), 0: () => { view.current = whole(); draw(); },
      n: () => next(1), p: () => next(-1), Escape: () => choose && choose(null),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  };
  const around = (factor) => magnify(factor, canvas.current.clientWidth / 2, canvas.current.clientHeight / 2);
  return html`<div class="drawing">
    <div class="row tools">
      <button type="button" aria-label="larger" onClick=${() => around(1.25)}>+</button>
      <button type="button" aria-label="smaller" onClick=${() => around(0.8)}>−</button>
      <button type="button" onClick=${() => { view.current = whole(); draw(); }}>Whole</button>
      <span class="quiet" aria-live="polite">${title || "Drag to move, wheel or + and − to magnify."}</span>
    </div>
    <canvas ref=${canvas} tabindex="0" role="img" aria-label=${`${label}; the arrow keys move it, + and - magnify, n and p choose the next and the one before`} data-boxes=${scene.boxes.length}
      style=${{ height: `${flat ? scene.height : tall}px` }} onPointerDown=${down} onPointerMove=${over} onPointerUp=${up} onKeyDown=${keys}></canvas>
  </div>`;
}

/** Draws what of a scene is in sight. */
function paint(canvas, scene, { x: left, y: up, zoom }, { chosen, lit, flat, axis }) {
  canvas.pending = 0;
  const dense = devicePixelRatio || 1;
  const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(wide * dense) || canvas.height !== Math.round(high * dense)) {
    canvas.width = Math.round(wide * dense);
    canvas.height = Math.round(high * dense);
  }
  const style = getComputedStyle(canvas);
  const colours = { text: style.color, accent: style.caretColor, page: style.backgroundColor, good: "#2da44e", bad: "#d1242f", warn: "#bf8700", strong: style.color };
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.font = FONT;
  const atX = (x) => (x - left) * zoom;
  const atY = (y) => (flat ? y : (y - up) * zoom);
  const long = (length) => (flat ? length : length * zoom);
  if (axis) axis(pen, { from: left, to: left + wide / zoom, at: atX, high, colour: colours.text });

  pen.lineWidth = 1;
  const right = left + wide / zoom;
  const [top, bottom] = flat ? [0, high] : [up, up + high / zoom];
  const inSight = ({ from, to }) => (from[0] >= left || to[0] >= left) && (from[0] <= right || to[0] <= right)
    && (from[1] >= top || to[1] >= top) && (from[1] <= bottom || to[1] <= bottom);
  const seen = scene.lines.filter(inSight);
  for (const pass of [false, true]) {
    pen.strokeStyle = pass ? colours.accent : colours.text;
    pen.globalAlpha = pass ? 1 : 0.3;
    pen.beginPath();
    for (const line of pass || seen.length <= MOST_LINES ? seen : []) {
      if (line.boxes.includes(chosen) !== pass) continue;
      const [x1, y1, x2, y2] = [atX(line.from[0]), atY(line.from[1]), atX(line.to[0]), atY(line.to[1])];
      pen.moveTo(x1, y1);
      if (line.curved) pen.bezierCurveTo(x1, y1 + 24 * zoom, x2, y2 - 24 * zoom, x2, y2);
      else pen.lineTo(x2, y2);
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;

  const outlined = lit && lit.size ? lit : null;
  const painted = new Map(); // by row the last column of pixels that has a box narrower than that
  scene.boxes.forEach((box, number) => { // tens of thousands: what is not in sight must cost next to nothing
    const x = atX(box.x);
    const w = Math.max(1, box.w * zoom);
    if (x + w < 0 || x > wide) return;
    const y = atY(box.y);
    const h = long(box.h);
    if (y + h < 0 || y > high) return;
    if (w <= 1 && number !== chosen) {
      if (painted.get(y) === Math.floor(x)) return;
      painted.set(y, Math.floor(x));
    }
    pen.globalAlpha = outlined && !outlined.has(number) ? 0.35 : 1;
    pen.fillStyle = box.fill;
    pen.fillRect(x, y, w, h);
    const edge = number === chosen ? "accent" : box.edge;
    if (edge && w > 3) {
      pen.strokeStyle = colours[edge];
      pen.lineWidth = number === chosen ? 3 : 2;
      pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
    if (box.text && (flat ? w > 40 : zoom >= TEXT_FROM)) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, w, h);
      pen.clip();
      pen.fillStyle = "#fff";
      if (!flat) pen.font = `${11 * Math.min(zoom, 1.4)}px system-ui, sans-serif`;
      box.text.forEach((text, line) => pen.fillText(text, x + 6, y + (flat ? 14 : 15 * Math.min(zoom, 1.4)) * (line + 1)));
      pen.restore();
    }
  });
  pen.globalAlpha = 1;
}
