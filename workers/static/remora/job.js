// Refreshes a job's page: every two seconds the hints (progress, rate), and the whole page's content whenever the
// durable facts changed. Text goes in as text; HTML only as the server rendered and escaped it.
"use strict";

(() => {
  const PERIOD_MS = 2000;
  let last = null;

  const text = (id, value) => {
    const element = document.getElementById(id);
    if (element) element.textContent = value;
  };

  const rate = (live) => {
    const now = performance.now();
    const before = last;
    last = live && { token: live.token, progress: live.progress, at: now };
    if (!live || !before || before.token !== live.token || live.progress <= before.progress) return "";
    const mib = (live.progress - before.progress) / 1048576 / ((now - before.at) / 1000);
    return `${mib.toFixed(1)} MiB/s`;
  };

  const showHints = (answer) => {
    const card = document.querySelector(".remora-live");
    if (!card) return;
    card.hidden = !answer.live;
    if (!answer.live) return;
    card.querySelector(".remora-fill").style.width = `${answer.percent || 0}%`;
    text("live-progress", answer.progress_text);
    text("live-rate", rate(answer.live));
    text("live-step", answer.live.phase || "");
    text("live-token", answer.live.token);
    text("live-age", answer.age_text);
  };

  const reload = async () => {
    const response = await fetch(window.location.href, { credentials: "same-origin" });
    if (!response.ok || response.redirected) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.getElementById("remora-job");
    if (fresh) document.getElementById("remora-job").replaceWith(fresh);
  };

  const refresh = async () => {
    const root = document.getElementById("remora-job");
    if (!root || document.hidden) return;
    const response = await fetch(root.dataset.live, { credentials: "same-origin" });
    if (!response.ok || response.redirected) return; // signed out, or the server is away: try again later
    const answer = await response.json();
    if (answer.version !== root.dataset.version) await reload();
    else showHints(answer);
  };

  const loop = async () => {
    try {
      await refresh();
    } catch (error) {
      console.warn("Remora: no answer", error);
    }
    const root = document.getElementById("remora-job");
    if (root && !("over" in root.dataset)) window.setTimeout(loop, PERIOD_MS);
  };

  document.addEventListener("DOMContentLoaded", loop);
})();
