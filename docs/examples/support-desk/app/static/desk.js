// Lists what waits for a decision, and decides. Texts of others are only ever set as text.
const list = document.querySelector("ul");
const status = document.getElementById("status");
const refused = document.getElementById("refused");
const template = document.querySelector("template");
const EVERY_MS = 5000;

async function ask(path, body) {
  const sent = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, sent);
  if (answer.status === 401) location.assign(".");
  return { ok: answer.ok, said: answer.status === 204 ? {} : await answer.json() };
}

async function waiting() {
  const found = [];
  for (let cursor = ""; cursor !== null; ) {
    const { ok, said } = await ask(`approvals?limit=100${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    if (!ok) throw new Error(said.detail);
    found.push(...said.items);
    cursor = said.next_cursor;
  }
  return found;
}

function card(approval) {
  const item = template.content.firstElementChild.cloneNode(true);
  item.id = approval.call_id;
  item.querySelector("h2").textContent = `${approval.tool} ${Object.values(approval.arguments).join(" ")}`;
  item.querySelector("p").textContent = `asked for by ${approval.requested_by.name}, ${new Date(approval.created_at).toLocaleString()}`;
  for (const button of item.querySelectorAll("button")) {
    button.addEventListener("click", async () => {
      const reason = item.querySelector("input").value.trim() || null;
      const path = `approvals/${encodeURIComponent(approval.call_id)}`;
      const { ok, said } = await ask(path, { decision: button.value, reason });
      refused.textContent = ok ? "" : `${item.querySelector("h2").textContent}: ${said.detail}`;  // such as: decided already
      await show();
    });
  }
  return item;
}

async function show() {
  try {
    const approvals = await waiting();
    const ids = new Set(approvals.map((one) => one.call_id));
    for (const item of [...list.children]) if (!ids.has(item.id)) item.remove();
    for (const one of approvals) if (!document.getElementById(one.call_id)) list.append(card(one));
    status.textContent = approvals.length ? "" : "Nothing waits.";
  } catch (error) {
    status.textContent = `The list could not be read: ${error.message}`;
  }
}

document.getElementById("logout").addEventListener("click", async () => {
  await ask("logout", {});
  location.assign(".");
});
await show();
setInterval(show, EVERY_MS);
