// Runs the script of the pages against a page, a stream and a clock that this file moves; prints what it did.
"use strict";
const fs = require("node:fs");
const vm = require("node:vm");

const node = () => ({ html: "old", hidden: true, classList: { toggle(_, on) { this.on = on; } } });
const main = { ...node(), contains: () => state.focused, get innerHTML() { return this.html; } };
main.replaceChildren = (...children) => { main.html = children.join(""); };
const sign = node();
const state = { focused: false, fetched: 0, html: "new", timers: [], streams: [] };
const listeners = {};
const fresh = { get innerHTML() { return state.html; }, get childNodes() { return [state.html]; } };

class EventSource {
  constructor(url) { this.url = url; this.handlers = {}; state.streams.push(this); }
  addEventListener(name, handler) { this.handlers[name] = handler; }
  close() { this.closed = true; }
}
const context = {
  document: {
    hidden: false,
    getElementById: (id) => ({ main, live: sign })[id],
    getSelection: () => null,
    addEventListener: (name, handler) => { listeners[name] = handler; },
  },
  DOMParser: class { parseFromString() { return { getElementById: () => fresh }; } },
  EventSource,
  fetch: async () => { state.fetched += 1; return { ok: true, text: async () => state.html }; },
  location: { href: "/requests" },
  addEventListener: () => {},
  setInterval: () => {},
  setTimeout: (run) => state.timers.push(run),
};
context.window = context;
const tick = async () => {
  const due = state.timers.splice(0);
  due.forEach((run) => run());
  await new Promise((done) => setImmediate(done));
};

(async () => {
  vm.runInNewContext(fs.readFileSync(process.argv[2], "utf8"), context);
  const [stream] = state.streams;
  stream.onopen();
  await tick();
  console.log("opened:", stream.url, sign.textContent, main.html, state.fetched);
  state.html = "newer";
  for (let i = 0; i < 50; i += 1) stream.handlers.market();
  await tick();
  console.log("fifty events:", main.html, state.fetched);
  state.focused = true;
  stream.handlers.market();
  await tick();
  console.log("in use:", state.fetched);
  state.focused = false;
  context.document.hidden = true;
  listeners.visibilitychange();
  console.log("hidden:", stream.closed);
  context.document.hidden = false;
  listeners.visibilitychange();
  state.streams[1].onerror();
  console.log("back:", state.streams.length, sign.textContent);
})();
