// What the console does beyond plain pages: keys, copying, times that pass, and parts that follow what happens.
// Every page works without it.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const show = (id, is) => { const note = document.getElementById(id); if (note) note.hidden = !is; };

  // -- times that pass
  const span = (seconds) => {
    for (const [size, word, least] of [[86400, "d", 2], [3600, "h", 1], [60, "min", 1]])
      if (seconds >= size * least) return `${Math.floor(seconds / size)} ${word}`;
    return `${Math.floor(seconds)} s`;
  };
  const ended = new Map();  // by an instant that is over: how often the live parts were loaded again for it; clocks differ
  const tick = () => {
    for (const one of all("time[data-ago], time[data-left]")) {
      const seconds = (Date.now() - Date.parse(one.dateTime)) / 1000;
      if ("left" in one.dataset) {
        one.textContent = seconds < 0 ? `${span(-seconds)} left` : "over";
        if (one.parentElement.matches(".badge.quiet") && seconds > -300) one.parentElement.classList.replace("quiet", "warn");
        const tried = ended.get(one.dateTime) ?? 0;
        if (tried < 3 && seconds >= tried * 10) {
          ended.set(one.dateTime, tried + 1);
          soon("");
        }
      }
      else one.textContent = Math.abs(seconds) < 1 ? "just now" : seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
    }
  };
  setInterval(tick, 1000);

  // -- copying
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const said = button.dataset.said ??= button.textContent;  // it says "copied" when it is clicked again soon
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      button.textContent = "not copied: the browser does not allow it";
    }
    setTimeout(() => { button.textContent = said; }, 1200);
  });

  // -- menus close when something else is clicked
  document.addEventListener("click", (event) => {
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  // -- keys: an element with data-key is clicked or, if it takes text, focused; data-row elements are walked with j and k.
  // Letters that come within this time after typed ones belong to that text, though a new page may have taken its field.
  const TYPING_MS = 700;
  let typedAt = -Infinity;
  const typing = (target) => target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
  const rows = (root = document) => all("[data-row]", root).filter((row) => row.offsetParent);
  const focusRow = (row) => {
    const goal = row.matches("a, button") ? row : row.querySelector("a, summary, button:not(.id), input:not([type=hidden])") || row;
    if (goal === row && !row.matches("a, button")) row.tabIndex = -1;
    goal.focus();
    return goal;
  };
  const walk = (step) => {
    const found = rows();
    if (!found.length) return;
    const at = found.findIndex((row) => row.contains(document.activeElement) || row.matches("[aria-current]"));
    const next = found[Math.min(Math.max(at + step, 0), found.length - 1)];
    const goal = focusRow(next);
    if (next.dataset.row === "open") goal.click();
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = typing(event.target) || event.timeStamp - typedAt < TYPING_MS;
    typedAt = isTyping && event.key !== "Enter" && event.key !== "Escape" ? event.timeStamp : -Infinity;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      document.getElementById("search")?.focus();
      return;
    }
    const box = event.target.closest(".search");
    if (box && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const links = [document.getElementById("search"), ...all("#ahead a")];
      const at = links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      links[Math.min(Math.max(at, 0), links.length - 1)].focus();
      return;
    }
    const menu = document.querySelector("details.menu[open]");
    if (event.key === "Escape" && menu) { menu.open = false; menu.querySelector("summary").focus(); return; }
    if (event.key === "Escape" && (box || typing(event.target))) { event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
    if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); return; }
    if (isSending()) return;  // j would leave what is being answered
    if (event.key === "j" || event.key === "k") { event.preventDefault(); walk(event.key === "j" ? 1 : -1); return; }
    if (asked) return;  // its page is not shown yet, and the buttons that are there act on something else
    const wanted = all("[data-key]").find((one) => one.dataset.key === event.key && one.offsetParent);
    if (!wanted) return;
    event.preventDefault();
    if (wanted.matches("input, textarea, select")) wanted.focus(); else wanted.click();
  });

  // -- which answer becomes the page: that to what was chosen last. That to an earlier choice, such as a slow search, would
  // stand under a wrong address. While a form is sent nothing else can be chosen: only its answer tells what came of it.
  let asked = null;  // the request whose answer is to be the page, until it is shown
  const latest = new WeakMap();  // by link or form: the last request that it made for a page
  const isUnderWay = (request) => Boolean(request) && request.xhr.readyState !== XMLHttpRequest.DONE;
  const isSending = () => isUnderWay(asked) && asked.verb !== "get";
  const fieldsOf = (one) => (one.method === "get" ? new URLSearchParams(new FormData(one)).toString() : "");
  document.addEventListener("htmx:confirm", (event) => {
    const { elt, target } = event.detail;
    const own = latest.get(elt);
    if (target !== document.body || !isUnderWay(own)) return;
    event.preventDefault();  // htmx would queue a second one, and send it even after another page was chosen
    asked = own;
    own.isOutdated = own.fields !== fieldsOf(elt);
  });
  document.addEventListener("htmx:beforeSend", ({ detail: { elt, target, xhr, requestConfig } }) => {
    if (target !== document.body) return;
    asked = { xhr, elt, verb: requestConfig.verb, fields: fieldsOf(elt), isOutdated: false, after };
    latest.set(elt, asked);
    typedIn = null;
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr, serverResponse, requestConfig } = event.detail;
    if (target === document.body) {
      if (xhr !== asked?.xhr || asked.isOutdated) event.preventDefault(); else leave();
    } else {  // an answer without the part, such as an error, would take away what later answers are put into
      const part = requestConfig.elt.getAttribute("hx-select")?.split(" ")[0];
      const answer = new DOMParser().parseFromString(serverResponse, "text/html");
      if (part && !answer.querySelector(part)) event.preventDefault();
    }
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.xhr !== asked?.xhr || !asked.isOutdated) return;
    const { elt } = asked;
    queueMicrotask(() => elt.requestSubmit());  // when htmx has ended this one
  });
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    if (detail.xhr !== asked?.xhr) return;
    if (asked.after !== after) soon("");  // something happened after the server had made the page
    asked = null;
    isLost = false;
    arrive();
  });
  for (const failure of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(failure, ({ detail }) => {
    if (detail.xhr !== asked?.xhr) return;
    asked = null;
    lost(true);
    show("sending", false);
    // What was gone to is not shown, so it does not keep the focus: keys act on the page that is.
    if (!typing(document.activeElement)) document.getElementById("content").focus({ preventScroll: true });
  });
  window.addEventListener("popstate", ({ state }) => {
    if (state?.htmx) asked = null;  // htmx loads the page that was gone back to
  });

  // -- focus after a page was exchanged: at the field that is wrong, else where it was, else at what the address names, else at
  // the content, so that the next Tab does not begin at the top again. What was typed into a filter meanwhile stays in it.
  let before = [];
  let typedIn = null;  // the field that was typed into last, since a page was asked for
  let typed = null;  // what is in it, if it belongs to a filter and has the focus
  let isUnfocused = false;  // since the page was exchanged, and not because somebody has left a field meanwhile
  const selectors = (one) => {
    const form = one.form?.getAttribute("action");
    const field = one.name && `${form ? `form[action="${CSS.escape(form)}"] ` : ""}[name="${CSS.escape(one.name)}"]`;
    return [one.id && `#${CSS.escape(one.id)}`, field && `${field}[value="${CSS.escape(one.value)}"]`, field].filter(Boolean);
  };
  const known = () => before.flatMap((selector) => all(selector)).find((one) => one.offsetParent);
  document.addEventListener("input", ({ target }) => { typedIn = target; });
  const leave = () => {
    const at = document.activeElement || document.body;
    before = selectors(at);
    const isFilter = at === typedIn && at.form?.method === "get";
    typed = isFilter ? { text: at.value, from: at.selectionStart, to: at.selectionEnd } : null;
    if (at === typedIn) typedAt = performance.now();
    isBound = false;
    unbound = setTimeout(bound, BOUND_MS);
  };
  const arrive = () => {
    const wrong = document.querySelector("main [aria-invalid=true]");
    const field = known();
    if (wrong) wrong.focus(); else if (document.activeElement === document.body) field?.focus({ preventScroll: true });
    if (typed && field) {
      field.value = typed.text;
      if (typed.from != null) field.setSelectionRange(typed.from, typed.to);
      const isSentAsChanged = field.closest("form[data-auto]");  // but the browser knows of no change by a script
      if (isSentAsChanged) field.addEventListener("blur", () => field.form.requestSubmit(), { once: true });
    }
    isUnfocused = document.activeElement === document.body;
  };
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== document.body) return;
    bound();
    if (!isUnfocused || document.activeElement !== document.body) return;
    const place = location.hash && document.getElementById(location.hash.slice(1));
    if (place && !place.matches("a, button, input, select, textarea")) place.tabIndex = -1;
    (known() || place || document.getElementById("content")).focus({ preventScroll: true });
  });

  // htmx binds the forms and links of a new page a moment after they are shown. What is chosen in between waits for that: the
  // browser would load a whole page, with the focus at its top. A filter that was typed into counts as changed when the old
  // page is taken away; what it sends then waits too, and comes to nothing because its form is gone. What is chosen while a
  // form is sent counts for nothing, which a note says: its result would not be seen. Who has read the note can leave.
  const BOUND_MS = 500, NOTE_MS = 1000;
  let isBound = true;
  let unbound = null;
  const chosen = [];
  const bound = () => {
    clearTimeout(unbound);
    isBound = true;
    for (const choose of chosen.splice(0)) choose();
  };
  const defer = (event, choose) => {
    const isRead = event.type === "click" && event.timeStamp - asked?.notedAt > NOTE_MS;
    if (isBound && (!isSending() || isRead)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!isSending()) chosen.push(choose);
    else if (event.target !== asked.elt) { asked.notedAt ??= event.timeStamp; show("sending", true); }
  };
  document.addEventListener("submit", (event) => {
    const { target, submitter } = event;
    defer(event, () => (submitter ? submitter.click() : target.requestSubmit()));  // htmx learns of the button by its click
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]:not([href^='#'])");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) defer(event, () => link.click());
  }, true);

  // -- live parts: an element with an id and data-live="call." is loaded again when an event of such a name comes
  let source = null;
  let followed = null;
  let after = 0;
  let timer = null;
  let isLost = false;
  const stale = new Set();  // ids of parts that show less than there is
  const lost = (is) => { isLost = is; show("lost", is); };
  const isOf = (part, name) => !name || part.dataset.live.split(" ").some((begin) => name.startsWith(begin));
  const soon = (name) => {
    for (const part of all("[data-live][id]")) if (isOf(part, name)) stale.add(part.id);
    if (stale.size) timer ??= setTimeout(refresh, 250);
  };

  // What is pointed at is not moved: a list waits while a mouse is over it, unless that has rested for long; then a click
  // just after a change counts for nothing, because it was meant for what stood there before.
  const REST_MS = 10000, SETTLE_MS = 500;
  let held = false;  // while a button of the pointer is down: what is exchanged then loses its click
  let mouse = null;
  let changed = { part: null, at: 0 };
  document.addEventListener("pointerdown", () => { held = true; }, true);
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(() => { held = false; }, 100), true);
  document.addEventListener("pointermove", (event) => { mouse = event.pointerType === "mouse" ? { x: event.clientX, y: event.clientY, at: Date.now() } : null; }, { capture: true, passive: true });
  document.documentElement.addEventListener("pointerleave", () => { mouse = null; });
  document.addEventListener("click", (event) => {
    const recent = event.detail && Date.now() - changed.at < SETTLE_MS && changed.part?.contains(event.target);
    if (recent && (!mouse || mouse.at < changed.at)) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);
  const pointedList = () => {
    const at = mouse && Date.now() - mouse.at < REST_MS ? document.elementFromPoint(mouse.x, mouse.y) : null;
    const part = at?.closest("[data-live]");
    return part?.querySelector("[data-row]") && !at.closest("header") ? part : null;  // a header stands above what moves
  };
  const mustWait = (part, list) => {
    const field = document.activeElement?.closest("input, textarea, select");
    const moves = list && !part.closest(".rail") && (part === list || part.compareDocumentPosition(list) & Node.DOCUMENT_POSITION_FOLLOWING);
    return Boolean((field && part.contains(field)) || moves);
  };

  // Makes an element what another is, and leaves what is the same: focus, what is folded open and the drawing of a plot stay.
  const morph = (now, next) => {
    if (now.isEqualNode(next)) return;
    if (now.nodeType !== Node.ELEMENT_NODE) { now.nodeValue = next.nodeValue; return; }
    for (const { name } of [...now.attributes]) if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
    for (const { name, value } of [...next.attributes]) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    if (now.matches("figure[data-plot]")) { morph(now.querySelector(".plot-table"), next.querySelector(".plot-table")); return; }
    const wanted = new Set([...next.children].map((one) => one.id));
    for (const one of [...now.children]) if (one.id && !wanted.has(one.id)) one.remove();
    const named = new Map([...now.children].filter((one) => one.id).map((one) => [one.id, one]));
    let place = now.firstChild;
    for (const child of [...next.childNodes]) {
      const same = child.id ? named.get(child.id) : place && !place.id && place.nodeName === child.nodeName ? place : null;
      if (!same || same.nodeName !== child.nodeName) { now.insertBefore(child, place); continue; }
      if (same === place) place = place.nextSibling; else now.insertBefore(same, place);
      morph(same, child);
    }
    while (place) { const rest = place.nextSibling; place.remove(); place = rest; }
  };
  const exchange = (part, found) => {
    const known = rows(part);
    const ids = new Set(known.map((row) => row.id));
    const isFocused = part.contains(document.activeElement);
    const at = isFocused ? known.findIndex((row) => row.contains(document.activeElement)) : -1;
    const tops = known.map((row) => row.offsetTop);
    morph(part, found);
    const now = rows(part);
    for (const row of now) if (row.id && !ids.has(row.id)) row.classList.add("arrived");
    if (isFocused && document.activeElement === document.body) {  // what had the focus is gone
      if (at >= 0 && now.length) focusRow(now[Math.min(at, now.length - 1)]);
      else document.getElementById("content").focus({ preventScroll: true });
    }
    if (known.some((row, which) => !row.isConnected || row.offsetTop !== tops[which])) changed = { part, at: Date.now() };
    htmx.process(part);
    document.dispatchEvent(new CustomEvent("toolgate:part", { detail: part }));
  };
  const REFRESH_MS = 20000;
  let isLoading = false;  // one at a time: of two, the older answer could come last
  const refresh = async () => {
    timer = null;
    if (document.hidden) return;
    if (held || isLoading) { timer = setTimeout(refresh, 200); return; }
    const list = pointedList();
    const due = [...stale].map((id) => document.getElementById(id)).filter((part) => part?.matches("[data-live]:not([data-paused])"));
    const waiting = due.filter((part) => mustWait(part, list));
    const parts = due.filter((part) => !waiting.includes(part));
    show("held", list && waiting.includes(list));
    for (const id of [...stale]) if (!document.getElementById(id) || parts.some((part) => part.id === id)) stale.delete(id);
    isLoading = true;
    try {
      const pages = new Map();  // a part that names its own address (data-from) is loaded from there
      for (const from of new Set(parts.map((part) => part.dataset.from || location.href))) {
        const answer = await fetch(from, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(REFRESH_MS) });
        if (answer.status === 401 && !typing(document.activeElement)) { location.reload(); return; }  // the session is over
        if (answer.status >= 500 || answer.status === 429 || answer.status === 401) throw new Error(answer.statusText);
        if (answer.ok) pages.set(from, new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
      const pointed = pointedList();
      for (const part of parts) {
        const found = pages.get(part.dataset.from || location.href)?.getElementById(part.id);
        if (!found || !part.isConnected) continue;
        if (held || mustWait(part, pointed)) stale.add(part.id); else exchange(part, found);  // it was pointed at meanwhile
      }
      tick();
      loadPlots();
    } catch {
      for (const part of parts) stale.add(part.id);
      lost(true);
      timer ??= setTimeout(refresh, 3000);
      return;
    } finally { isLoading = false; }
    if (waiting.length || stale.size) timer ??= setTimeout(refresh, 300);
    if (isLost && source?.readyState === EventSource.OPEN) lost(false);
  };
  const follow = () => {
    const tenant = new URLSearchParams(location.search).get("tenant");
    if (source && tenant !== followed) { source.close(); source = null; }
    if (source || document.hidden || !document.querySelector("[data-live]")) return;
    followed = tenant;
    after ||= Number(document.body.dataset.after) || 0;
    const query = new URLSearchParams({ unnamed: "true", ...(tenant ? { tenant } : {}), ...(after ? { after } : {}) });
    source = new EventSource(`/v1/events?${query}`);
    source.onopen = () => { if (isLost) soon(""); lost(false); };
    source.onerror = () => {
      lost(true);
      if (source.readyState === EventSource.CLOSED) { source = null; soon(""); setTimeout(follow, 3000); }
    };
    source.onmessage = (message) => {
      after = Number(message.lastEventId) || after;
      soon(JSON.parse(message.data).event);
    };
  };
  // A browser has six connections to a server: a page that is not seen for a while gives its own to those that are.
  const HIDDEN_MS = 5000;
  let unseen = null;
  const unfollow = () => { source?.close(); source = null; };
  const resume = () => { follow(); soon(""); };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(unfollow, HIDDEN_MS); else resume();
  });
  window.addEventListener("pagehide", unfollow);
  window.addEventListener("pageshow", ({ persisted }) => { if (persisted) resume(); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pause]");
    if (!button) return;
    const part = document.getElementById(button.dataset.pause);
    const paused = part.toggleAttribute("data-paused");
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    if (!paused) soon("");
  });

  // -- filters that are sent as they are changed
  document.addEventListener("change", (event) => event.target.closest("form[data-auto]")?.requestSubmit());
  document.addEventListener("formdata", ({ target, formData }) => {  // empty fields are left out of the address
    if (target.method !== "get") return;
    for (const name of new Set(formData.keys())) if (!formData.getAll(name).some(Boolean)) formData.delete(name);
  });

  // -- plots: their library is loaded when the first one is there; without it, they stay tables
  let loading = false;
  const loadPlots = () => {
    const figure = document.querySelector("figure[data-plot]");
    if (!figure || loading) return;
    loading = true;
    for (const url of figure.dataset.assets.split(" ")) {
      const part = document.createElement(url.endsWith(".css") ? "link" : "script");
      if (url.endsWith(".css")) { part.rel = "stylesheet"; part.href = url; } else { part.async = false; part.src = url; }
      part.onerror = () => { document.documentElement.classList.add("no-plots"); };
      document.head.append(part);
    }
  };

  const begin = () => { tick(); follow(); loadPlots(); lost(isLost); };
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("htmx:load", begin);
})();
