// Runs the script of the sign-in page against a page, a wallet and a node that this file plays; prints what it did.
"use strict";
const fs = require("node:fs");
const vm = require("node:vm");

const button = () => ({ hidden: true, addEventListener(_, run) { this.click = run; } });
const [wallet, nostr, said, doors] = [button(), button(), { textContent: "" }, {}];
const count = { dataset: { left: "61000" }, textContent: "1 min 1 s" };
const state = { reloads: 0, refuse: false, asked: [], every: null, now: 0 };
const context = {
  document: {
    getElementById: (id) => ({ "by-wallet": wallet, "by-nostr": nostr, said, doors })[id],
    querySelectorAll: () => [count],
  },
  ethereum: {
    request: async ({ method, params }) => {
      if (method === "eth_requestAccounts") return ["0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"];
      if (method === "eth_chainId") return "0x2105";
      return `signed ${Buffer.from(params[0].slice(2), "hex")} by ${params[1].slice(0, 6)}`;
    },
  },
  fetch: async (path, { method, headers, body }) => {
    const [header] = Object.entries(headers);
    state.asked.push(`${method} ${path} ${header[0]} ${body || JSON.stringify(JSON.parse(atob(header[1].slice(6))).tags)}`);
    if (state.refuse) return { ok: false, status: 401, json: async () => ({ error: { message: "no" } }) };
    return { ok: true, json: async () => ({ message: "grüezi" }) };
  },
  location: { origin: "http://127.0.0.1:4848", reload: () => { state.reloads += 1; } },
  performance: { now: () => state.now },
  addEventListener: (name, run) => { if (name === "load") context.loaded = run; },
  setInterval: (run) => { state.every = run; },
  Date: { now: () => 1800000000000 },
  TextEncoder, WeakMap, btoa,
};
context.window = context;

(async () => {
  vm.runInNewContext(fs.readFileSync(process.argv[2], "utf8"), context);
  console.log("a wallet:", !wallet.hidden, "a key:", !nostr.hidden);
  await wallet.click();
  console.log(state.asked.splice(0).join("\n"));
  console.log("reloads:", state.reloads);
  context.nostr = { signEvent: async (event) => event };
  context.loaded();
  console.log("a key, later:", !nostr.hidden);
  await nostr.click();
  console.log(state.asked.splice(0).join("\n"));
  state.refuse = true;
  await nostr.click();
  console.log("refused:", said.textContent, state.reloads);
  state.every();
  state.now = 2500;
  state.every();
  console.log("counted:", count.textContent);
})();
