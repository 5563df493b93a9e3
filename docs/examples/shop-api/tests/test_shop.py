"""The shop's own app with agents in it: who sees what at `/ai`, and that the app's own routes are as they were."""

from app.people import Person

MESSAGES = "/agents/shop-assistant/runs"


def ask(person, message):
    return person.ai.submit("shop-assistant", message, wait=20)


def tools_of(person):
    (assistant,) = person.ai.http.get("/agents").json()["items"]
    return [tool["name"] for tool in assistant["tools"]]


def test_people_who_sign_in_at_the_shop_are_known_to_the_agents(shop, person):
    ann = person("ann")
    wrong = ann.own.post("/token", data={"username": "ann", "password": "guess"})
    assert wrong.status_code == 401
    right = ann.own.post("/token", data={"username": "ann", "password": "ann-of-the-demo"}).json()
    ann.ai.http.headers["authorization"] = ann.own.headers["authorization"] = f"Bearer {right['access_token']}"
    assert [order["id"] for order in ann.own.get("/orders").json()] == ["A-1001", "A-1002"]
    assert "A-1001" in ask(ann, "Find the orders")["output"]


def test_two_tenants_do_not_see_each_others_orders_by_tool_nor_runs_by_id(shop, person):
    ann, bob, other_ann = person("ann"), person("bob"), person(Person("ann", "Ann", "birch"))
    run = ask(ann, "Find the orders")
    assert ("A-1001" in run["output"], "B-2001" in run["output"]) == (True, False)
    assert ("A-1001" in ask(bob, "Find the orders")["output"], len(bob.own.get("/orders").json())) == (False, 1)
    moved = ask(bob, "Change the address of order A-1001 to: 9 Birch Lane")
    assert moved["output"] == "That didn't work: There is no order A-1001."
    assert ann.own.get("/orders").json()[0]["address"] == "1 Oak Road"

    unknown = f"run_{'0' * 26}"
    for stranger in (bob, other_ann, person("max")):
        assert run["id"] not in stranger.ai.http.get("/runs").text
        for path in ("/runs/{}", "/runs/{}/events", "/agents/shop-assistant/runs/{}"):
            there, nowhere = (stranger.ai.http.get(path.format(run_id)) for run_id in (run["id"], unknown))
            assert (there.status_code, there.json()["code"]) == (404, nowhere.json()["code"])


def test_the_tool_for_managers_does_not_exist_for_others(shop, person):
    ann, manager = person("ann"), person("max")
    assert "total_sales" not in tools_of(ann)
    assert "total_sales" in tools_of(manager)
    assert ask(manager, "Tell me the total sales")["output"] == "143.00"
    assert "143.00" not in ask(ann, "Tell me the total sales")["output"]


def test_an_expired_or_forged_token_is_refused_at_both_doors_and_is_never_a_visitors(shop, person):
    expired, forged = person("ann", minutes=-1), person("ann", key="another-key-that-is-as-long-as-the-real-one")
    for ann, told in ((expired, "the token has expired; sign in anew"), (forged, "the token is not one of ours")):
        for answer in (ann.ai.http.post(MESSAGES, json={"message": "Find the orders"}), ann.own.get("/orders")):
            assert (answer.status_code, answer.json()["detail"]) == (401, told)
            assert "set-cookie" not in answer.headers
    del forged.ai.http.headers["authorization"]
    assert forged.ai.http.get("/agents").status_code == 401


def test_the_apps_own_routes_handler_and_openapi_are_as_they_were(shop, person):
    ann = person("ann")
    refused = ann.own.put("/orders/A-1002/address", json={"address": "7 Pine Street"})
    problem = {"problem": "The parcel of A-1002 is on the road, and its address is fixed."}
    assert (refused.status_code, refused.json()) == (409, problem)
    assert [order["address"] for order in ann.own.get("/orders").json()] == ["1 Oak Road", "2 Elm Road"]
    changed = ann.own.put("/orders/A-1001/address", json={"address": "7 Pine Street"})
    assert changed.json()["address"] == "7 Pine Street"

    assert ann.own.get("/nothing").json() == {"detail": "Not Found"}
    nothing = ann.ai.http.get("/nothing")
    assert (nothing.status_code, nothing.headers["content-type"]) == (404, "application/problem+json")
    described = ann.own.get("/openapi.json").json()
    assert (described["info"]["title"], set(described["paths"])) == (
        "Shop API",
        {"/token", "/orders", "/orders/{order_id}/address"},
    )
    assert shop.open_sessions() == 0
