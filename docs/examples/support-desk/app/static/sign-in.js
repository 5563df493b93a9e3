// Signs in, and goes on to where the person works: the desk or the chat.
const form = document.querySelector("form");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch("login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(Object.fromEntries(new FormData(form))),
  });
  const said = await answer.json();
  if (answer.ok) location.assign(said.roles.includes("staff") ? "desk" : "chat/support-agent");
  else form.querySelector("[role=alert]").textContent = said.detail;
});
