// Keeps the page fresh while it is looked at. Reading needs none of this.
(() => {
  "use strict";
  const sign = document.getElementById("live");
  if (!sign || !window.EventSource || !window.DOMParser) return;
  // The overview is made anew once a second: later than that, it has what happened.
  const SOON_MS = 1200;
  const ANYWAY_MS = 20000;
  let source = null;
  let due = 0;
  let asking = false;

  const inUse = () => {
    const main = document.getElementById("main");
    const selection = document.getSelection();
    return main.contains(document.activeElement) || (selection && !selection.isCollapsed);
  };

  const refresh = async () => {
    due = 0;
    if (asking || document.hidden || inUse()) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      // Whoever is signed in no longer is told so by the whole page.
      if (answer.status === 401) location.reload();
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const [old, fresh] = [document.getElementById("main"), page.getElementById("main")];
        if (fresh && fresh.innerHTML !== old.innerHTML) old.replaceChildren(...fresh.childNodes);
      }
    } catch (_) {
      // The node is away: the stream notices, and comes back by itself.
    }
    asking = false;
  };

  const soon = () => {
    if (!due) due = setTimeout(refresh, SOON_MS);
  };

  const show = (on) => {
    sign.hidden = false;
    sign.classList.toggle("on", on);
    sign.textContent = on ? "live" : "reconnecting";
    sign.title = on ? "This page shows news by itself." : "The node does not answer. This page tries again.";
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource((sign.dataset && sign.dataset.events) || "/api/market/events?last=0");
    source.onopen = () => { show(true); soon(); };
    source.onerror = () => show(false);
    source.addEventListener("market", soon);
    source.addEventListener("hosting", soon);
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  setInterval(soon, ANYWAY_MS);
  open();
})();
