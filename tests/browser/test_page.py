"""The page as people use it: in a browser, against the whole service, with a real compilation."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx
import onnx
import pyarrow.parquet
import pytest

from tests.browser.conftest import SCREENS
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House
from tests.end_to_end.models import LONG, tiny

NODE = "a_strange_node"
ALL_OF_IT = "\ue009a\ue000"
"""Control and A, then both let go (WebDriver, section 17.4.2): what is typed after it replaces a field's text."""
SECONDS = "return import('/web/shown.js').then(({seconds}) => seconds(arguments[0]))"
"""How the page writes seconds."""
VIEWS = {
    "start": "What comes out",
    "jobs": "succeeded",
    "compile": "Drop an ONNX model here",
    "benchmarks": "Time them",
    "records": "Parquet",
    "operations": "Audit",
}
"""What each shows once it has been answered."""


def entered(house: House, window: Browser) -> Browser:
    """The page of somebody who has a key, and nobody is signed in before."""
    window.go(house.url)
    window.forget()
    window.run("location.reload()")
    with_key(window, house.key)
    window.sees("Sign out")
    lines = window.said()
    assert all("401" in line for line in lines), f"nobody was signed in, and nothing else: {lines}"
    return window


def with_key(window: Browser, key: str) -> None:
    """Sign in."""
    window.press("Use a key")
    window.type("#key", f"{ALL_OF_IT}{key}")
    window.press("Sign in")


@pytest.fixture(scope="module")
def job(house: House, page: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model that was chosen on the page, looked at, and compiled; its job as the API tells it in the end."""
    file = tmp_path_factory.mktemp("models") / "squeezenet.onnx"
    file.write_bytes(squeezenet())
    entered(house, page)
    page.visit("Compile")
    page.type("#model", str(file))
    page.sees("It can be compiled")
    page.sees("MaxPool")
    taken = "return document.querySelector('input[name=dim-batch]').value"
    page.until(lambda: page.run(taken) == "1", "the open dimension as the service would take it")
    page.type("input[name=dim-batch]", "\ue0032")
    page.press("Look again")
    page.until(lambda: "was not bound" not in page.text(), "the binding is known")
    page.picture(SCREENS / "compile.png")
    page.run("document.querySelector('input[type=number][step]').focus()")
    page.type("input[type=number][step]", "3")
    page.click("main button.main")
    page.until(lambda: "#/jobs/" in str(page.run("return location.hash")), "the job's view")
    page.sees("Steps")
    page.sees("succeeded")
    page.sees("Proof")
    (only,) = asked(house, "/jobs?kind=compile")["jobs"]
    assert isinstance(only, dict)
    assert only["name"] == file.name
    assert only["options"]["dims"] == {"batch": 2}
    return only


def squeezenet() -> bytes:
    """SqueezeNet 1.1 for small images, its batch left open."""
    network = onnx.load_from_string(tiny("squeezenet1_1", size=64))
    for value in (*network.graph.input, *network.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return bytes(network.SerializeToString())


def boxes(page: Browser) -> list[int]:
    """How many of them each drawing has."""
    return [
        int(count)
        for count in page.run("return [...document.querySelectorAll('canvas')].map((one) => one.dataset.boxes)")
    ]


def bearer(house: House) -> dict[str, str]:
    """The header that carries the key."""
    return {"Authorization": f"Bearer {house.key}"}


def asked(house: House, path: str) -> Any:
    """What the API tells of the same."""
    headers = {"Authorization": f"Bearer {house.key}"}
    return httpx.get(house.url + path, headers=headers, timeout=60.0, trust_env=False).raise_for_status().json()


def test_what_is_shown_of_a_job_is_what_the_api_tells(house: House, page: Browser, job: dict[str, Any]) -> None:
    report = asked(house, f"/jobs/{job['id']}/report")["report"]
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.sees(f"{report['kernels']} of {report['nodes']} operators")
    page.sees(report["target"])
    text = page.text()
    assert report["errors"]
    assert all(one["output"] in text for one in report["errors"])
    latency = page.run(SECONDS, report["latency_s"])
    assert text.count("one inference") == 1
    assert latency in text.partition("one inference")[2].split("\n")[1]
    assert page.run("return document.title") == f"squeezenet.onnx: {latency} · Tilewright"
    page.sees("What made it fast")
    graph = asked(house, f"{job['links']['artifact']}/graph")
    page.sees(f"{sum(len(step['applied']) for step in graph['steps'])} rule")
    page.sees(f"{report['nodes']} operators, {report['kernels']} kernels")
    page.sees(
        f"{len(report['plans'])} plans, {sum(one['measured_s'] is not None for one in report['plans'])} of them run"
    )
    page.picture(SCREENS / "job.png")


def drawn_as_told(house: House, page: Browser, job: dict[str, Any], number: int, reached: dict[str, Any]) -> None:
    """The timeline of a plan that was not taken has the tasks, lanes and times that the API tells of it."""
    reported = asked(house, f"/artifacts/{job['artifact_id']}/plan?candidate={number}")
    measured = all("measured_s" in task for task in reported["tasks"])
    assert (reported["scheduler"], reported["lanes"]) == (reached["scheduler"], reached["lanes"])
    assert measured <= (reached["measured_s"] is not None)
    page.run(
        "const at = document.querySelector('select[name=plan]'); at.selectedIndex = arguments[0];"
        "at.dispatchEvent(new Event('change', {bubbles: true}))",
        number,
    )
    lanes = 1 + max(task["lane"] for task in reported["tasks"])
    waits = sum(len(task["waits"]) for task in reported["tasks"])
    page.sees(f"{len(reported['tasks'])} tasks on {lanes} lane{'s' * (lanes > 1)}, {waits} hand-overs")
    page.sees(f'The plan "{reported["scheduler"]}"')
    assert boxes(page)[0] == (1 + measured) * len(reported["tasks"])
    ends = [max(task["end_s"] for task in reported["tasks"]), reported["predicted_s"]]
    shown = page.run("return [...document.querySelectorAll('main p')].map((one) => one.innerText).join(' ')")
    assert f"{page.run(SECONDS, ends[0])} predicted" in shown


def test_the_plan_is_drawn_whole(house: House, page: Browser, job: dict[str, Any]) -> None:
    plan = asked(house, f"/artifacts/{job['artifact_id']}/plan")
    assert plan["calls"]
    page.go(f"{house.url}/#/jobs/{job['id']}/schedule")
    page.find("canvas")
    drawn = 1 + all("measured_s" in task for task in plan["tasks"])
    used = {storage for call in plan["calls"] for storage in (*call["reads"], *call["writes"])}
    lying = [plan["storages"][str(one)] for one in used if str(one) in plan["storages"]]
    lying = [one for one in lying if one["space"] == "arena" and one["bytes"]]
    assert boxes(page) == [drawn * len(plan["tasks"]), *([len(lying)] if lying else [])]
    page.sees(f"{len(lying)} activations" if lying else "No activation lies in the arena")
    plans = asked(house, f"/jobs/{job['id']}/report")["report"]["plans"]
    page.until(lambda: page.run("return document.querySelectorAll('tbody tr').length") == len(plans), "all candidates")
    rows = page.run("return [...document.querySelectorAll('tbody tr')].map((one) => one.innerText)")
    for row, one in zip(rows, plans, strict=True):
        assert row.startswith("taken") is one["taken"]
        assert one["scheduler"] in row
        assert row.split("\t")[-1].strip(), "why it was taken, or was not"
    assert page.text().count("taken") >= sum(one["taken"] for one in plans) == 1
    assert len(plans) > 2
    choices = page.run("return [...document.querySelector('select[name=plan]').options].map((one) => one.text)")
    assert [text.partition(":")[0] for text in choices] == [
        f"{one['scheduler']} on {one['lanes']} lane{'s' * (one['lanes'] != 1)}" for one in plans
    ]
    for number, one in enumerate(plans):
        if not one["taken"]:
            drawn_as_told(house, page, job, number, one)
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.sees("Proof")
    page.go(f"{house.url}/#/jobs/{job['id']}/schedule")
    page.sees(f"{len(plan['tasks'])} tasks")
    longest = max(plan["tasks"], key=lambda task: task["end_s"] - task["begin_s"])
    ends = [end for task in plan["tasks"] for end in (task["end_s"], (task.get("measured_s") or [0, 0])[1])]
    middle = (longest["begin_s"] + longest["end_s"]) / 2 / max(ends)
    wide = page.run("return document.querySelector('canvas').clientWidth")
    page.click_at("canvas", round(wide * middle), (30 * drawn + 14) * longest["lane"] + 30)
    page.sees(plan["calls"][longest["call"]]["tile"])
    page.picture(SCREENS / "schedule.png")
    page.go(f"{house.url}/#/jobs/{job['id']}/kernels")
    page.sees("slowest first")
    assert page.run("return document.querySelectorAll('svg circle.dot').length") == sum(
        call["flops"] > 0 for call in plan["calls"]
    )
    assert page.run("return document.querySelectorAll('svg path.roof').length") == 1 + len(
        plan["ceilings"]["bytes_per_s"]
    )
    page.picture(SCREENS / "kernels.png")
    assert page.run("return document.querySelectorAll('tbody tr').length") == len(plan["calls"])


def test_a_search_is_drawn_live_and_as_the_api_tells_it(house: House, page: Browser, job: dict[str, Any]) -> None:
    sent = httpx.post(
        f"{house.url}/compile",
        files={"model": tiny(LONG)},
        data={"options": json.dumps({"threads": 1, "tuning_budget_s": 120})},
        headers={"Authorization": f"Bearer {house.key}"},
        trust_env=False,
    )
    number = sent.raise_for_status().json()["id"]
    assert number != job["id"]
    page.go(f"{house.url}/#/jobs/{number}/tuning")
    page.sees("Best so far")
    assert "running" in page.text(), "it is shown while it goes on"
    page.until(lambda: " % " in page.run("return document.title"), "how far it is, in the name of the tab")
    spent = "return parseInt(document.querySelector('[role=timer]').innerText)"
    before = page.run(spent)
    page.until(lambda: page.run(spent) > before, "time goes by without an event")
    page.until(lambda: " left" in page.run("return document.querySelector('[role=timer]').innerText"), "what is left")
    page.go(f"{house.url}/#/jobs/{number}")
    so_far = "return document.querySelector('svg text.running')?.textContent"
    drawn = page.until(lambda: page.run(so_far), "the step that runs is drawn")
    page.until(lambda: page.run(so_far) not in (None, drawn), "up to now, and now goes on")
    page.picture(SCREENS / "running.png")
    page.go(f"{house.url}/#/jobs/{number}/tuning")
    page.sees("the rest of the budget")
    page.run(
        "const real = fetch; window.sent = [];"
        "window.fetch = (to, ...more) => { sent.push(to); return real(to, ...more); }"
    )
    page.go(f"{house.url}/#/jobs")
    page.until(lambda: f"/jobs/{number}/events" in page.run("return sent"), "the list follows what runs")
    page.go(f"{house.url}/#/jobs/{number}/tuning")
    page.until(
        lambda: any(one["expected_s"] is not None for one in asked(house, f"/jobs/{number}/tuning")["points"]),
        "a forecast, once each kernel was measured",
    )
    page.picture(SCREENS / "searching.png")
    headers = {"Authorization": f"Bearer {house.key}"}
    httpx.post(f"{house.url}/jobs/{number}/finish", headers=headers, trust_env=False).raise_for_status()
    page.sees("succeeded")
    tuning = asked(house, f"/jobs/{number}/tuning")
    records = asked(house, f"/tuning-records?job={number}&kind=kernel&limit=500")["records"]
    measured = [one["measured_s"] for kernel in tuning["kernels"] for one in kernel["candidates"]]
    assert measured
    assert sorted(measured) == sorted(one["seconds"] for one in records if one["threads"] == 1)
    shown = "return +document.querySelector('svg[data-points]').dataset.points"
    page.until(lambda: page.run(shown) == len(tuning["points"]), "all points")
    last = tuning["points"][-1]
    page.sees(f"{last['measured']} of {tuning['legal']}")
    assert page.run("return document.querySelectorAll('svg circle.forecast').length") == len(measured)
    rows = "return document.querySelectorAll('tbody tr').length"
    page.until(lambda: page.run(rows) == len(tuning["kernels"]), "kernels")
    page.sees("plans beside each other")
    ahead = "return +document.querySelector('svg[data-forecast]').dataset.forecast"
    assert page.run(ahead) == len(tuning["forecast"] or [])
    foreseen = "return [...document.querySelectorAll('svg[data-points] circle title')].map((one) => one.textContent)"
    assert [("at the budget's end" in reported) for reported in page.run(foreseen)] == [
        one["expected_s"] is not None for one in tuning["points"]
    ]
    marks = "return [...document.querySelectorAll('svg[data-points] path.plan title')].map((one) => one.textContent)"
    page.until(lambda: len(page.run(marks)) == len(tuning["plans"]), "the plans that were run")
    assert all(one["scheduler"] in reported for one, reported in zip(tuning["plans"], page.run(marks), strict=True))
    page.picture(SCREENS / "tuning.png")
    page.click("tbody tr button")
    dearest = max(tuning["kernels"], key=lambda one: one["uses"] * one["best_s"])
    assert page.run("return document.querySelectorAll('svg circle.forecast').length") == len(dearest["candidates"])


def test_the_graph_is_shown_before_and_after_with_the_kernel_of_each_operator(
    house: House, page: Browser, job: dict[str, Any]
) -> None:
    graph = asked(house, f"/artifacts/{job['artifact_id']}/graph")
    plan = asked(house, f"/artifacts/{job['artifact_id']}/plan")
    loaded, *_, last = graph["steps"]
    page.go(f"{house.url}/#/jobs/{job['id']}/graph")
    page.find("canvas")
    assert boxes(page) == [len(plan["calls"])]
    page.press(f"as loaded ({len(loaded['nodes'])})")
    page.until(lambda: boxes(page) == [len(loaded["nodes"]), len(plan["calls"])], "two steps side by side")
    kernel, members = next((at, members) for at, members in enumerate(graph["kernels"]) if members)
    node = last["nodes"][members[0]]
    page.type("input[type=search]", node["name"])
    page.until(lambda: page.run("return document.querySelectorAll('main p button').length"), "what was found")
    page.click("main p button")
    page.sees(plan["calls"][kernel]["tile"])
    page.sees(f"{kernel}: {plan['calls'][kernel]['family']}")
    text = page.text()
    assert all(f"%{value} " in text for value in node["writes"])
    shown = "return document.querySelector('pre[data-kernel]')?.textContent"
    source = page.until(lambda: page.run(shown), "the kernel's code")
    files = asked(house, f"/artifacts/{job['artifact_id']}/files")["files"]
    names = [one["name"] for one in files if one["name"].startswith("source/kernels_")]
    texts = [
        httpx.get(f"{house.url}/artifacts/{job['artifact_id']}/{name}", headers=bearer(house), trust_env=False).text
        for name in names
    ]
    name = page.run("return document.querySelector('pre[data-kernel]').dataset.kernel")
    assert name.startswith(f"k{kernel}_")
    assert f"void {name}(" in source
    assert any(source.splitlines()[0] in text and source.splitlines()[-2] in text for text in texts)
    page.sees("Measurements")
    page.picture(SCREENS / "graph.png")
    (uploaded,) = asked(house, f"/jobs/{job['id']}/graph")["steps"]
    page.press("as uploaded")
    page.until(lambda: len(uploaded["nodes"]) in boxes(page), "the file's own operators")
    page.sees(f"as uploaded ({len(uploaded['nodes'])})")


def test_sources_and_the_log_can_be_read(house: House, page: Browser, job: dict[str, Any]) -> None:
    page.go(f"{house.url}/#/jobs/{job['id']}/source")
    page.sees("#include")
    page.go(f"{house.url}/#/jobs/{job['id']}/log")
    page.sees("the job is running")
    events = asked(house, f"/jobs/{job['id']}/log?format=json")["events"]
    lines = "return document.querySelector('pre.log').innerText.split('\\n')"
    told = page.run(lines)
    assert len(told) >= len(events) > 5
    assert told[-1].endswith("the job is succeeded")
    assert not any("{" in line for line in told if "the job is" in line or "step " in line)
    page.picture(SCREENS / "log.png")
    page.click("input[name=json]")
    page.until(lambda: page.run(lines)[0].startswith("{"), "the same as JSON")
    assert [json.loads(line) for line in page.run(lines)] == events


def test_a_job_is_named_found_and_compiled_again_with_changes(house: House, page: Browser, job: dict[str, Any]) -> None:
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.sees("compile it")
    for thing, name in (("job", "first"), ("model", "tiny one")):
        page.press(f"Name the {thing}")
        page.type("form.box input[name=name]", f"{ALL_OF_IT}{name}")
        page.type("form.box input[name=tags]", f"ci {thing}")
        page.type("form.box textarea", f"note of the {thing}")
        page.press("Save")
        page.sees(f"note of the {thing}")
    reported = [asked(house, path) for path in (f"/jobs/{job['id']}", f"/models/{job['model']}")]
    assert [(one["name"], one["tags"]) for one in reported] == [("first", ["ci", "job"]), ("tiny one", ["ci", "model"])]
    page.press("Compile with changes")
    page.sees("It can be compiled")
    filled = page.run("return [...document.querySelectorAll('input[type=number]')].map((one) => one.value)")
    wanted = [job["options"][name] for name in ("threads", "tuning_budget_s")]
    assert [float(one) if one else None for one in filled] == wanted
    page.run("document.querySelector('textarea[name=others]').value = ''")
    page.type("textarea[name=others]", '{"scheduler": "sequential", "seed": 7}')
    page.click("main button.main")
    number = page.until(lambda: str(page.run("return location.hash")).partition("#/jobs/")[2], "the job's view")
    httpx.post(f"{house.url}/jobs/{number}/cancel", headers=bearer(house), trust_env=False).raise_for_status()
    made = asked(house, f"/jobs/{number}")
    assert made["cloned_from"] == job["id"]
    assert made["options"] == {**job["options"], "scheduler": "sequential", "seed": 7}
    assert made["tags"] == ["ci", "job"]
    other = {"note": None, "tags": ["other"]}
    httpx.patch(f"{house.url}/jobs/{number}", json=other, headers=bearer(house), trust_env=False).raise_for_status()
    page.go(f"{house.url}/#/jobs")
    shown = "return [...document.querySelectorAll('tbody a')].map((one) => one.hash.split('/')[2])"
    for field, text, found in (("tag", "other", number), ("query", "note of the job", job["id"])):
        page.type(f"input[name={field}]", text)
        page.press("Filter")
        page.until(lambda found=found: page.run(shown) == [found], "the job that fits")  # type: ignore[misc]
        page.picture(SCREENS / "filtered.png")
        page.go(f"{house.url}/#/compile")
        page.sees("Drop an ONNX model here")
        page.go(f"{house.url}/#/jobs")
        page.sees("succeeded")
    choices = "return [...document.querySelector('select[name=model]').options].map((one) => one.text)"
    page.until(lambda: "tiny one" in page.run(choices), "the model by its name")


def test_records_are_narrowed_and_the_file_holds_what_is_shown(
    house: House, page: Browser, job: dict[str, Any]
) -> None:
    everything = asked(house, "/tuning-records?kind=machine&limit=500")["records"]
    one = everything[0]
    page.go(f"{house.url}/#/records")
    page.sees("Parquet")
    page.run(
        "const kind = document.querySelector('form select'); kind.value = 'machine';"
        "kind.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.type("input[name=query]", one["description"])
    page.run(
        "const at = document.querySelector('input[name=since]'); at.value = arguments[0];"
        "at.dispatchEvent(new Event('input', {bubbles: true}))",
        "2001-01-01T00:00:00",
    )
    page.press("Filter")
    fit = [each for each in everything if one["description"].lower() in each["description"].lower()]
    rows = "return document.querySelectorAll('tbody tr').length"
    page.until(lambda: page.run(rows) == len(fit) < len(everything), "what fits")
    page.run(
        "HTMLAnchorElement.prototype.click = () => {};"
        "URL.createObjectURL = (blob) => { window.kept = blob; return '#'; }"
    )
    page.press("CSV")
    page.until(lambda: page.run("return Boolean(window.kept)"), "the file")
    assert page.run("return kept.text()").count("\n") == 1 + len(fit)
    page.run("window.kept = null")
    page.press("Parquet")
    page.until(lambda: page.run("return Boolean(window.kept)"), "the other file")
    content = page.run("return kept.arrayBuffer().then((one) => btoa(String.fromCharCode(...new Uint8Array(one))))")
    held = pyarrow.parquet.read_table(io.BytesIO(base64.b64decode(content))).to_pylist()
    assert [(row["id"], row["seconds"]) for row in held] == [(each["id"], each["seconds"]) for each in fit]
    page.click("tbody button")
    page.until(lambda: page.run("return document.querySelector('input[name=hardware]').value") == one["hardware"], "it")
    page.picture(SCREENS / "records.png")
    page.run(
        "const at = document.querySelector('input[name=until]'); at.value = arguments[0];"
        "at.dispatchEvent(new Event('input', {bubbles: true}))",
        "2001-01-02T00:00:00",
    )
    page.press("Filter")
    page.sees("No measurement fits.")
    assert job["state"] == "SUCCEEDED"
    page.run("location.reload()")
    page.sees("Parquet")


def test_the_operator_sees_owners_queues_and_storage_as_the_api_tells_them(house: House, page: Browser) -> None:
    granted = {"name": "ada", "quotas": {"queued_jobs": 7, "stored_bytes": 5_000_000}}
    httpx.post(f"{house.url}/owners", json=granted, headers=bearer(house), trust_env=False).raise_for_status()
    page.go(f"{house.url}/#/operations")
    page.sees("0 B of 5 MB")
    page.sees("0 of 7")
    page.sees("files damaged")
    text = page.text()
    assert all(one["name"] in text for one in asked(house, "/owners")["owners"])
    assert all(one["name"] in text for one in asked(house, "/workers")["workers"])
    lines = httpx.get(f"{house.url}/metrics", trust_env=False).text.splitlines()
    kept = sum(float(line.split()[-1]) for line in lines if line.startswith("tilewright_tuning_records_total"))
    page.until(lambda: f"{kept:,.0f}" in page.text().partition("measurements kept")[2], "how many are kept")
    page.picture(SCREENS / "operations.png")


def test_nothing_was_wrong_and_nothing_came_from_elsewhere(house: House, page: Browser, job: dict[str, Any]) -> None:
    page.go("about:blank")
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.sees("succeeded")
    assert page.said() == []
    loaded = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert loaded
    assert all(name.startswith((house.url, "blob:")) for name in loaded), loaded
    files = {name for name in loaded if "/web/" in name}
    assert 10_000 < sum(len(httpx.get(name, trust_env=False).content) for name in files) < 200_000


def test_a_link_shows_one_job_without_a_key_until_it_is_revoked(
    house: House, page: Browser, job: dict[str, Any]
) -> None:
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.press("Share")
    page.press("Make a link")
    link = str(page.until(lambda: page.run("return document.querySelector('#link')?.value"), "the link"))
    page.picture(SCREENS / "share.png")
    with page.tab() as window:
        window.size(390, 900)
        window.go(link)
        window.sees("Proof")
        names = window.run("return [...document.querySelectorAll('button, nav a')].map((one) => one.innerText)")
        assert "Report" in names
        assert not {"Download", "Compile again", "Share", "Jobs", "Source", "Benchmark"} & set(names)
        for tab, text in (("schedule", "critical path"), ("graph", "one colour"), ("kernels", "slowest first")):
            window.go(f"{link}/{tab}")
            window.sees(text)
        window.go(f"{link}/log")
        window.sees("the job is running")
        assert window.run("return sessionStorage.length") == len(window.cookies()) == 0
        assert window.said() == []
    page.press("Revoke")
    page.sees("revoked")
    with page.tab() as window:
        window.go(link)
        window.sees("was revoked")
