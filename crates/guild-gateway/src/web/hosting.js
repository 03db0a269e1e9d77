// Signs in with what the browser has, and counts down what is paid. Reading needs none of this.
(() => {
  "use strict";
  const since = new WeakMap();
  const words = (ms) => {
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  };
  setInterval(() => {
    for (const place of document.querySelectorAll("[data-left]")) {
      if (!since.has(place)) since.set(place, performance.now());
      const left = Number(place.dataset.left) - (performance.now() - since.get(place));
      place.textContent = words(Math.max(0, left));
    }
  }, 1000);

  const doors = document.getElementById("doors");
  if (!doors) return;
  const [wallet, nostr, said] = ["by-wallet", "by-nostr", "said"].map((id) => document.getElementById(id));

  const send = async (path, headers, body) => {
    const answer = await fetch(path, { method: "POST", headers, body });
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => null);
    throw new Error((told && told.error && told.error.message) || `the node answers ${answer.status}`);
  };
  const json = { "content-type": "application/json" };
  const hex = (text) => "0x" + [...new TextEncoder().encode(text)].map((b) => b.toString(16).padStart(2, "0")).join("");

  const byWallet = async () => {
    const [address] = await window.ethereum.request({ method: "eth_requestAccounts" });
    const chain = Number(await window.ethereum.request({ method: "eth_chainId" }));
    const asked = await send("/hosting/sign-in/message", json, JSON.stringify({ address, chain_id: chain }));
    const { message } = await asked.json();
    const signature = await window.ethereum.request({ method: "personal_sign", params: [hex(message), address] });
    await send("/hosting/sign-in", json, JSON.stringify({ message, signature }));
  };

  const byNostr = async () => {
    const tags = [["u", location.origin + "/hosting/sign-in"], ["method", "POST"]];
    const draft = { kind: 27235, created_at: Math.floor(Date.now() / 1000), tags, content: "" };
    const event = JSON.stringify(await window.nostr.signEvent(draft));
    const bytes = String.fromCharCode(...new TextEncoder().encode(event));
    await send("/hosting/sign-in", { authorization: "Nostr " + btoa(bytes) });
  };

  const open = (button, how) => button.addEventListener("click", async () => {
    said.textContent = "Waiting for your signature …";
    try {
      await how();
      location.reload();
    } catch (error) {
      said.textContent = "That did not work: " + ((error && error.message) || "no reason was given");
    }
  });
  open(wallet, byWallet);
  open(nostr, byNostr);

  // What gives pages a wallet may come after the page.
  const look = () => {
    wallet.hidden = !window.ethereum;
    nostr.hidden = !window.nostr;
    said.textContent = window.ethereum || window.nostr ? "" : "This browser has neither a wallet nor a Nostr key.";
  };
  look();
  addEventListener("ethereum#initialized", look);
  addEventListener("load", look);
})();
