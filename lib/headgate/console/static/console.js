// What a page does by itself: it receives updates, opens dialogs, draws charts, and writes times in the reader's zone.
"use strict";
(() => {
  const AGAIN_MS = 10000, LOST_MS = 15000, SILENT_MS = 40000;
  const byId = (id) => document.getElementById(id);
  const link = byId("link"), dialog = byId("dialog"), dialogBody = byId("dialog-body");

  // On a phone the navigation is a strip that scrolls: show the current screen in it.
  const here = document.querySelector(".top nav a[aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - here.parentElement.clientWidth / 2;

  // Changes.
  // A page that is being left requests no updates: refused after a sign-out, it would be reloaded instead of left.
  let leftAt = -Infinity;
  addEventListener("beforeunload", (event) => { leftAt = event.timeStamp; });
  function tick() {
    const isLeaving = performance.now() - leftAt < AGAIN_MS;
    if (!document.hidden && !isLeaving) document.body.dispatchEvent(new CustomEvent("tick"));
  }
  function say(state, words) {
    link.className = `link ${state}`;
    link.querySelector(".words").textContent = words;
  }
  let newsAt = Date.now(), isOpen = false, stream = null;
  function heard() {
    newsAt = Date.now();
    document.body.classList.remove("stale");
    if (isOpen) say("on", "live");
  }
  function listen() {
    const own = stream = new EventSource("/live");
    stream.addEventListener("open", () => { isOpen = true; heard(); });
    stream.addEventListener("still", heard);
    stream.addEventListener("tick", () => { heard(); tick(); });
    stream.addEventListener("error", () => {
      isOpen = false;
      say("off", "not connected");
      if (own.readyState === EventSource.CLOSED) setTimeout(() => { if (own === stream) { tick(); listen(); } }, AGAIN_MS);
    });
  }
  function hush() {
    stream?.close();
    stream = null;
    isOpen = false;
  }
  // A browser keeps six connections to a server, whatever the number of pages: if streams took them all, no click would be
  // answered. Of the hidden pages, one listens, so that the sources are still polled.
  let isLeaving = false, seen = null;
  function seenOrNot() {
    if (isLeaving) return;
    seen?.();
    seen = null;
    if (!document.hidden) {
      if (!stream) listen();
      return tick();
    }
    hush();
    const again = new Promise((resolve) => { seen = resolve; }), mine = seen;
    navigator.locks?.request("unseen", () => { if (seen === mine) { listen(); return again; } });
  }
  // A page that receives nothing any more must not look current.
  function watchSilence() {
    if (document.hidden || Date.now() - newsAt < (isOpen ? SILENT_MS : LOST_MS)) return;
    document.body.classList.add("stale");
    say("off", `no news since ${new Date(newsAt).toLocaleTimeString()}`);
  }
  if (link) {
    seenOrNot();
    setInterval(watchSilence, 1000);
    document.addEventListener("htmx:after:swap", heard);
    document.addEventListener("visibilitychange", seenOrNot);
    addEventListener("pagehide", () => { isLeaving = true; hush(); });
    addEventListener("pageshow", (event) => { if (event.persisted) { isLeaving = false; leftAt = -Infinity; seenOrNot(); } });
  }

  // What is pressed, by pointer or space bar, is not updated until that has become a click: an update could turn it into
  // another row's button. A finger's click comes after its release.
  const HELD_MS = 10000, CLICKED_MS = 300;
  let pressedAt = -Infinity, pressedOn = null, isBehind = false, lettingGo = 0;
  function press(event) {
    if (event.type === "keydown" ? event.key !== " " || event.repeat : !event.isPrimary || event.button) return;
    clearTimeout(lettingGo);
    [pressedAt, pressedOn] = [event.timeStamp, event.target];
  }
  function letGo() {
    pressedAt = -Infinity;
    if (isBehind) tick();
    isBehind = false;
  }
  function lift(event) {
    if (event.type === "keyup" && event.key !== " ") return;
    clearTimeout(lettingGo);
    lettingGo = setTimeout(letGo, CLICKED_MS);
  }
  for (const start of ["pointerdown", "keydown"]) addEventListener(start, press, true);
  for (const end of ["pointerup", "pointercancel", "keyup"]) addEventListener(end, lift, true);
  document.addEventListener("htmx:before:swap", (event) => {
    if (event.timeStamp - pressedAt > HELD_MS) return;
    event.preventDefault();
    isBehind = true;
  });

  // Times.
  function localTimes() {
    const today = new Date().toDateString();
    for (const time of document.querySelectorAll("time[datetime]:not([title], [data-runs])")) {
      const moment = new Date(time.dateTime);
      time.title = time.textContent;
      time.textContent = moment.toDateString() === today ? moment.toLocaleTimeString() : moment.toLocaleString();
    }
  }
  localTimes();
  document.addEventListener("htmx:after:swap", localTimes);

  // Durations keep counting: a page may have been made a while ago, and stay open for hours.
  function duration(seconds) {
    const [large, small, names] = seconds < 60 ? [seconds, null, "s"] : seconds < 3600 ? [seconds / 60, seconds % 60, "ms"] :
      seconds < 86400 ? [seconds / 3600, (seconds % 3600) / 60, "hm"] : [seconds / 86400, (seconds % 86400) / 3600, "dh"];
    return `${Math.floor(large)}${names[0]}` + (small === null ? "" : ` ${String(Math.floor(small)).padStart(2, "0")}${names[1]}`);
  }
  function count() {
    if (document.body.classList.contains("stale")) return;
    for (const time of document.querySelectorAll("time[data-runs]")) {
      const passed = Date.now() - Date.parse(time.dateTime);
      time.textContent = duration(Math.max(0, time.dataset.runs === "since" ? passed : -passed) / 1000);
    }
  }
  count();
  setInterval(count, 1000);
  document.addEventListener("htmx:after:swap", count);

  // Dialogs: a link or form that acts shows its response in one; so do links and forms in that response.
  const ANSWER_MS = 30000;
  const UNANSWERED = `<p class="message bad" role="alert"><strong>The console did not answer.</strong>
    Check whether it was done before you press again.</p><div class="actions"><button type="button" data-close>Close</button></div>`;
  let pressed = 0;
  async function show(address, options = {}) {
    const mine = ++pressed;
    let said = UNANSWERED;
    try {
      const answer = await fetch(address, { ...options, headers: { "HX-Request": "true" }, signal: AbortSignal.timeout(ANSWER_MS) });
      if (answer.status === 401) return location.reload();
      said = await answer.text();
    } catch (error) {
      console.warn(`${address} was not answered`, error);
    }
    if (mine !== pressed) return;  // something else was pressed meanwhile
    dialogBody.innerHTML = said;
    localTimes();
    if (!dialog.open) dialog.showModal();
    dialogBody.querySelector("[autofocus]")?.focus();
  }
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("a[data-dialog]");
    if (opener) {
      event.preventDefault();
      show(opener.href);
    } else if (event.target.closest("[data-close]") || (event.target === dialog && pressedOn === dialog && event.detail < 2)) {
      dialog.close();  // also by a click beside it, unless that is the second one of those that opened it, or began within
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-action]") && !dialog.contains(form)) return;
    event.preventDefault();
    show(form.getAttribute("action"), { method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)) });
  });
  dialog.addEventListener("close", () => { dialogBody.replaceChildren(); tick(); });
  document.addEventListener("change", (event) => {
    if (event.target.matches(".filters select")) event.target.form.requestSubmit();
  });

  // The chart of a gate.
  const chart = byId("chart");
  if (chart && window.uPlot) {
    const shade = (name) => { const probe = document.createElement("i"); probe.style.color = `var(${name})`; chart.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; };
    const line = (label, name, more = {}) => ({ label, stroke: shade(name), width: 1.5, spanGaps: true, points: { show: false }, ...more });
    const axis = (more = {}) => ({ stroke: shade("--quiet"), grid: { stroke: shade("--line"), width: 1 }, ticks: { stroke: shade("--line"), width: 1 }, font: "12px system-ui", ...more });
    let plot = null;
    const draw = async () => {
      const answer = await fetch(chart.dataset.history);
      if (!answer.ok) return;
      const { times, lines, refused } = await answer.json();
      const data = [times, lines.limit, lines.in_flight, lines.waiters, refused];
      if (times.length < 2 || data.some((one) => one.length !== times.length)) return;
      if (plot) return plot.setData(data);
      plot = new uPlot({
        width: chart.clientWidth, height: 220, padding: [null, 24, null, 24], cursor: { drag: { x: true, y: false } },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] }, share: { range: [0, 100] } },
        axes: [axis(), axis({ size: 50 }), axis({ scale: "share", side: 1, size: 50, grid: { show: false }, values: (_, all) => all.map((one) => `${one} %`) })],
        series: [{}, line("limit", "--accent", { dash: [5, 4] }), line("in flight", "--accent", { fill: shade("--wash") }), line("waiters", "--warn"), line("429", "--bad", { scale: "share", value: (_, one) => (one === null ? "–" : `${one.toFixed(1)} %`) })],
      }, data, chart);
    };
    draw();
    document.body.addEventListener("tick", draw);
    addEventListener("resize", () => plot?.setSize({ width: chart.clientWidth, height: 220 }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plot?.destroy(); plot = null; draw(); });
  }
})();
