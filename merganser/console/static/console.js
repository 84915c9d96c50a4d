// Refreshes parts of pages, fills figures, knows keys. The pages are complete without it, but for figures of the
// warehouse and the live tail.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = name => { try { return localStorage.getItem(name); } catch { return null; } };
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed: for this page only */ } };
  const theme = kept("theme");
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;

  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const switchTheme = () => { root.dataset.theme = isDark() ? "light" : "dark"; keep("theme", root.dataset.theme); };

  const typing = target => target.closest("input, textarea, select, [contenteditable]");
  const rows = () => [...document.querySelectorAll("tbody[data-lines] tr")];
  const move = by => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex(row => "here" in row.dataset);
    const to = Math.min(all.length - 1, Math.max(0, at + by));
    if (at >= 0) delete all[at].dataset.here;
    all[to].dataset.here = "";
    all[to].scrollIntoView({ block: "nearest" });
  };
  let after = "";
  document.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("[data-submit]"))
      return event.target.form.requestSubmit(event.target.form.querySelector("button.primary"));
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
    const key = event.key, first = after;
    after = "";
    if (first === "g") {
      const link = key === "h" ? document.querySelector(".brand") : document.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (key === "g") after = "g";
    else if (key === "?") document.getElementById("keys").showModal();
    else if (key === "t") switchTheme();
    else if (key === "/") {
      const field = document.querySelector("[data-filter]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "n") document.querySelector(".pager [rel=next]")?.click();
    else if (key === "p") document.querySelector(".pager [rel=prev]")?.click();
    else if (key === "Enter" && event.target === document.body) document.querySelector("tr[data-here] a")?.click();
  });
  document.addEventListener("click", event => {
    if (event.target.closest("[data-theme-switch]")) switchTheme();
    else if (event.target.closest("[data-keys]")) document.getElementById("keys").showModal();
  });

  // Files of a bucket: the line of the table and the rectangle of the drawing light up together.
  const light = event => {
    const file = event.target.closest?.("[data-file]")?.dataset.file;
    for (const each of document.querySelectorAll("[data-file]")) each.toggleAttribute("data-lit", each.dataset.file === file);
  };
  if (document.querySelector("[data-file]"))
    for (const name of ["mouseover", "focusin"]) document.addEventListener(name, light);
  document.addEventListener("click", event => {
    const file = event.target.closest("rect[data-file]")?.dataset.file;
    const link = file && document.querySelector(`tr[data-file="${file}"] a`);
    if (link) { link.scrollIntoView({ block: "nearest" }); link.focus(); }
  });

  // Parts that are asked for again while the page is looked at: data-refresh is the seconds between.
  const refresh = async part => {
    if (document.hidden || part.contains(document.activeElement)) return;
    const address = new URL(location.href);
    address.searchParams.set("part", part.dataset.part);
    const answer = await fetch(address, { headers: { accept: "text/html" } }).catch(() => null);
    part.toggleAttribute("data-stale", !answer?.ok);
    if (answer?.ok) part.innerHTML = await answer.text();
  };
  for (const part of document.querySelectorAll("[data-refresh]"))
    setInterval(() => refresh(part), 1000 * Number(part.dataset.refresh));

  // Figures of tables: asked for by lines in view, a few at once, since each is found in the files of a table.
  const lines = [...document.querySelectorAll("tr[data-figures]")];
  const fill = async some => {
    const query = new URLSearchParams({ figures: JSON.stringify(some.map(line => line.dataset.figures)) });
    const answer = await fetch("/?" + query).catch(() => null);
    const found = answer?.ok ? await answer.json() : {};
    for (const line of some)
      for (const cell of line.querySelectorAll("[data-field]")) {
        const value = found[line.dataset.figures]?.[cell.dataset.field];
        cell.textContent = value?.text ?? "–";
        if (value?.mark) { cell.innerHTML = ""; const mark = document.createElement("span"); mark.className = "mark " + value.mark; mark.textContent = value.text; mark.title = value.title ?? ""; cell.append(mark); }
      }
  };
  (async () => { while (lines.length) await fill(lines.splice(0, 20)); })();

  // The live tail of changes: commits come as server-sent events, each a <tbody> with its rows, added at the end. A lost
  // connection is opened again from the last commit that was told; what the server says is wrong ends it.
  const tail = document.querySelector("[data-tail]");
  if (tail) {
    const state = document.querySelector("[data-tail-state]"), pause = document.querySelector("[data-tail-pause]");
    const notices = document.querySelector("[data-tail-notices]"), most = Number(tail.dataset.tailRows);
    let since = tail.dataset.tailSince, paused = false, source = null, again = 0, waiting = [];
    const say = (text, mark) => { state.textContent = text; state.className = "mark tail-state " + mark; };
    const note = (text, mark) => {
      const line = document.createElement("p");
      line.className = "note " + mark;
      line.textContent = text;
      notices.append(line);
      while (notices.children.length > 3) notices.firstChild.remove();
    };
    const live = () => paused ? say(`paused, ${waiting.length} commits waiting`, "warn") : say("live", "good");
    const view = tail.parentElement;
    view.scrollTop = view.scrollHeight;
    const trim = () => {  // what is seen stays in its place: the browser anchors it
      while (tail.tBodies.length > 1 && tail.rows.length > most + 50) tail.tBodies[0].remove();
    };
    const add = text => {
      const holder = document.createElement("template");
      holder.innerHTML = `<table>${text}</table>`;
      const body = holder.content.querySelector("tbody");
      const atEnd = view.scrollTop + view.clientHeight > view.scrollHeight - 40;
      body.dataset.new = "";
      tail.append(body);
      document.querySelector("[data-tail-empty]").hidden = true;
      setTimeout(trim, 500);
      if (atEnd) requestAnimationFrame(() => { view.scrollTop = view.scrollHeight; });
    };
    const open = () => {
      const address = new URL(tail.dataset.tail, location.href);
      address.search = location.search;
      address.searchParams.set("since", since);
      source = new EventSource(address);
      source.addEventListener("open", () => { again = 0; pause.disabled = false; live(); });
      source.addEventListener("at", event => { since = event.data; });
      source.addEventListener("notice", event => note(event.data, "warn"));
      source.addEventListener("commit", event => {
        if (!paused) { add(event.data); return; }
        waiting.push(event.data);
        if (waiting.length > most) waiting.shift();
        live();
      });
      source.addEventListener("fault", event => {
        source.close();
        pause.disabled = true;
        note(new DOMParser().parseFromString(event.data, "text/html").body.textContent + " The tail has ended: load the page again.", "bad");
        say("ended", "bad");
      });
      source.addEventListener("error", () => {
        source.close();
        if (++again > 10) { say("ended: the server does not answer", "bad"); pause.disabled = true; return; }
        say("no connection, trying again", "warn");
        setTimeout(open, Math.min(1000 * again, 5000));
      });
    };
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Go on" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      if (!paused) waiting.splice(0).forEach(add);
      live();
    });
    open();
  }
})();
