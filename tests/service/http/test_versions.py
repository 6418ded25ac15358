"""Paths below `/v1` are the same ones, and the type of every problem leads to a page."""

from __future__ import annotations

from fastapi.testclient import TestClient

from service.http.responses.error_pages import KINDS
from tests.service.databases import any_database


@any_database
def test_every_path_is_there_with_and_without_its_version(client: TestClient, stranger: dict[str, str]) -> None:
    sent = client.post("/v1/compile", files={"model": b"m"})
    assert sent.status_code == 202
    job = sent.json()["id"]
    assert client.get(f"/v1/jobs/{job}").json() == client.get(f"/jobs/{job}").json()
    assert client.get(f"/v1/jobs/{job}", headers=stranger).status_code == 404
    assert client.get("/v1/jobs", headers={"Authorization": ""}).status_code == 401
    for path in ("/v1", "/v2/jobs", "/v1/v1/jobs", "/v1jobs"):
        assert client.get(path).status_code == 404, path
    client.post("/v1/models", content=b"other")
    following = client.get("/v1/models?limit=1").links["next"]["url"]
    assert following.startswith("/v1/models?limit=1&cursor=")
    assert client.get(following).json()["next_cursor"] is None
    assert {one["url"] for one in client.get("/v1/openapi.json").json()["servers"]} == {"/v1", "/"}
    reported = client.get("/metrics").text
    assert 'route="/compile"' in reported
    assert "v1" not in reported


@any_database
def test_the_type_of_a_problem_leads_to_a_page_about_it(client: TestClient) -> None:
    problem = client.get("/jobs/00000000-0000-7000-8000-000000000000").json()
    page = client.get(problem["type"], headers={"Authorization": ""})
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "what another owner has is not there" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for kind in KINDS:
        assert kind.code in client.get(f"/docs/errors/{kind.code}").text
    assert client.get("/docs/errors/<script>").status_code == 404
