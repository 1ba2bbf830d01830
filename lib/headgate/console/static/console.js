// What a page does by itself: it is told of changes, opens dialogs, and writes times in the reader's zone.
"use strict";
(() => {
  const AGAIN_MS = 10000;
  const link = document.getElementById("link");
  const dialog = document.getElementById("dialog");

  function tick() {
    if (document.hidden) return;
    document.body.dispatchEvent(new CustomEvent("tick"));
  }
  function say(state, words) {
    link.className = `link ${state}`;
    link.querySelector(".words").textContent = words;
  }
  function listen() {
    const stream = new EventSource("/live");
    stream.addEventListener("open", () => say("on", "live"));
    stream.addEventListener("tick", tick);
    stream.addEventListener("error", () => {
      say("off", "not connected");
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { tick(); listen(); }, AGAIN_MS);
    });
    addEventListener("pagehide", () => stream.close(), { once: true });
  }
  if (link) {
    listen();
    document.addEventListener("visibilitychange", tick);
    addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  }

  function localTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      time.title = time.textContent;
      time.textContent = moment.toDateString() === new Date().toDateString()
        ? moment.toLocaleTimeString() : moment.toLocaleString();
    }
  }
  localTimes(document);
  document.addEventListener("htmx:after:swap", () => {
    localTimes(document);
    if (document.getElementById("dialog-body").childElementCount && !dialog.open) dialog.showModal();
  });
  document.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  dialog.addEventListener("close", () => { document.getElementById("dialog-body").replaceChildren(); tick(); });
})();
