"""The whole way at the app's HTTP door, as its README walks it: a table up, a question, a chart down."""

SALES = b"month,region,sold\nJan,North,3\nJan,South,4\nFeb,North,5\nFeb,South,none\n"


def test_a_table_goes_in_and_a_chart_comes_out_for_who_asked(amoxi_app, amoxi_client, check_chart):
    uploaded = amoxi_client.http.post("/files", files={"file": ("sales.csv", SALES, "text/csv")})
    assert uploaded.status_code == 201
    table = uploaded.json()["id"]

    told = amoxi_client.submit("data-agent", "Describe the table.", wait=20, files=[table])
    assert "Rows: 4" in told["output"]

    asked = "Draw a bar chart: x = month, y = sold"
    run = amoxi_client.submit("data-agent", asked, wait=20, conversation_id=told["conversation_id"])
    *_, answer = amoxi_client.messages("data-agent", run["conversation_id"])
    (chart,) = answer["files"]
    shown = amoxi_client.http.get(f"/files/{chart}")
    assert shown.headers["content-type"] == "image/png"
    assert shown.headers["content-disposition"].startswith("inline")
    check_chart(shown.content)

    stranger = amoxi_app.client()
    unknown = stranger.http.get("/files/file_" + "0" * 26).json()
    for mine in (table, chart):
        answer = stranger.http.get(f"/files/{mine}")
        assert answer.status_code == 404
        assert answer.json()["code"] == unknown["code"]
    refused = stranger.http.post("/agents/data-agent/runs", json={"message": "Describe it.", "files": [table]})
    assert refused.status_code in (404, 422)
