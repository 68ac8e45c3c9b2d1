"""What a real Prometheus answers to the dashboard and the rules, over a simulated day."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _jsonnet
import pytest
import yaml  # type: ignore[import-untyped]

from scripts._docs_parts import alerts, metrics
from tests.lab.day import DAY, HOUR, LABS, MIDNIGHT, NAMES, POD, day
from tests.lab.prometheus import ROOT, Prometheus, prometheus, promtool
from tests.sizes import GIB
from tfgpu_magic.lab.exporter import METRICS, PORT

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAFANA = ROOT / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboard.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
RULES = {
    rule.get("record") or rule["alert"]: rule
    for group in yaml.safe_load((GRAFANA / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
}
MORNING, NOON, NIGHT = 2.5, 12.6, 23.6
"""Hours of the day at which the figures are looked at."""

Figures = dict[str, float]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus") / "data"
    day().blocks(folder)
    with prometheus(folder, GRAFANA / "rules.yml") as running:
        yield running


def gib_hours(*, unused: bool = False) -> Figures:
    """Return what each user has held on that day, by the day itself."""
    found = dict.fromkeys(NAMES.values(), 0.0)
    for lab in LABS:
        for one in lab.holds:
            size = one.unused_byte_hours if unused else one.byte_hours
            beyond = max(0.0, one.end - 24) * one.size  # it is there at midnight, without use
            found[NAMES[one.uid]] += (size - beyond) / GIB
    return found


HELD, UNUSED = gib_hours(), gib_hours(unused=True)
EXPECTED: dict[str, tuple[float, Figures]] = {
    "Machines that tell their figures": (NOON, {"up": 2, "not up": 0}),
    "Alerts": (NOON, {"": 1}),
    "GPU memory by machine": (
        NOON,
        {"lab1": 78 * GIB, "lab1, all": 160 * GIB, "lab2": 8 * GIB, "lab2, all": 16 * GIB},
    ),
    "Memory in use": (NOON, {"lab1 GPU 0": 78 / 80, "lab1 GPU 1": 0, "lab2 GPU 0": 0.5}),
    "Use": (NOON, {"lab1 GPU 0": 0.5, "lab1 GPU 1": 0, "lab2 GPU 0": 0.5}),
    "Held without use": (NOON, {"lab1 GPU 0": 40 * GIB, "lab2 GPU 0": 0}),
    "Temperature": (NOON, {"lab1 GPU 0": 30, "lab1 GPU 1": 40, "lab2 GPU 0": 30}),
    "Power": (NOON, {"lab1 GPU 0": 100, "lab1 GPU 1": 100, "lab2 GPU 0": 100}),
    "GPUs that cannot be read": (NIGHT, {"lab2 GPU 0": 1}),
    "Held by user": (NOON, {"ann": 40 * GIB, "ben": 38 * GIB, "cy": 8 * GIB}),
    "Held without use by user": (NOON, {"ann": 40 * GIB, "ben": 0, "cy": 0}),
    "Processes by user": (
        NOON,
        {"ann": 1, "ben": 1, "cy": 1, "ann, unused": 1, "ben, unused": 0, "cy, unused": 0},
    ),
    "What is held of what the driver allows": (NOON, {"ben lab1 GPU 0": 38 / 40}),
    "GiB-hours by user": (24, HELD),
    "Unused GiB-hours by user": (24, UNUSED),
    "Unused part of each user's GiB-hours": (24, {user: UNUSED[user] / HELD[user] for user in HELD}),
    "GiB-hours without use, by hour": (NOON, {"ann": 40, "ben": 2.4, "cy": 3.2, "dee": 0}),
}
"""What each panel shows at an hour: its legends and figures."""


def shown(asked: Prometheus, title: str, hour: float) -> Figures:
    """Return what Grafana would show of a panel."""
    found: Figures = {}
    for target in PANELS[title]["targets"]:
        expression = target["expr"].replace("$hostname", ".*").replace("$username", ".*").replace("$__range", "1d")
        for labels, value in asked.ask(expression, MIDNIGHT + hour * HOUR).items():
            legend = target["legendFormat"]
            for name, text in labels:
                legend = legend.replace(f"{{{{{name}}}}}", text)
            assert legend not in found
            found[legend] = value
    return found


def test_each_panel_is_one_of_which_the_figures_are_known() -> None:
    assert EXPECTED.keys() == PANELS.keys()


@pytest.mark.parametrize("title", EXPECTED)
def test_a_panel_shows_what_was_so_on_that_day(asked: Prometheus, title: str) -> None:
    hour, expected = EXPECTED[title]
    exact = 0.03 if title.endswith("by hour") else 0.01  # of an hour, Prometheus sees 59 minutes, and adds one

    assert shown(asked, title, hour) == pytest.approx(expected, rel=exact, abs=0.001)


WHERE = {
    "tfgpu_magic:user_gib_hours:30d": ("username", 24, HELD),
    "tfgpu_magic:user_unused_gib_hours:30d": ("username", 24, UNUSED),
    "tfgpu_magic:pod_held_bytes": ("pod", NOON, {POD["pod"]: 8 * GIB}),
    "TfGpuExporterAway": ("instance", NOON, {}),  # this Prometheus scrapes nothing
    "TfGpuCollectorAway": ("hostname", 4.5, {"lab2": 0}),
    "TfGpuReadingOld": ("hostname", NOON, {}),
    "TfGpuError": ("hostname", NIGHT, {"lab2": 1}),
    "TfGpuFull": ("gpu", NOON, {"0": 78 / 80}),
    "TfGpuHeldUnused": ("username", NOON, {"ann": 40 * GIB}),
    "TfGpuOverBound": ("username", MORNING, {"cy": 12 / 16}),
    "TfGpuLimitNotInForce": ("hostname", NOON, {"lab2": 3}),
    "TfGpuGone": ("hostname", NOON, {}),  # all are listed on that day; `rules_test.yml` has one that goes
}
"""What each rule's expression is at an hour, by a label."""


def test_each_rule_is_one_of_which_the_figures_are_known() -> None:
    assert WHERE.keys() == RULES.keys()


@pytest.mark.parametrize("name", WHERE)
def test_a_rule_finds_what_was_so_on_that_day(asked: Prometheus, name: str) -> None:
    label, hour, expected = WHERE[name]
    found: Figures = {}
    for labels, value in asked.ask(RULES[name]["expr"], MIDNIGHT + hour * HOUR).items():
        at = dict(labels)[label]
        found[at] = found.get(at, 0.0) + value

    assert found == pytest.approx(expected, rel=0.01)


def test_the_pages_expressions_find_who_holds_more_than_a_part_and_than_so_many_bytes(asked: Prometheus) -> None:
    (block,) = re.findall(r"```promql\n(.*?)```", (ROOT / "docs" / "metrics.md").read_text(), re.DOTALL)
    found = [asked.ask(expression, MIDNIGHT + NOON * HOUR) for expression in block.splitlines()]

    assert [{dict(labels)["username"] for labels in answer} for answer in found] == [{"cy"}, {"ann", "ben"}]


def test_the_quota_services_query_fits_the_recorded_bytes_of_pods(asked: Prometheus) -> None:
    (series,) = asked.ask(RULES["tfgpu_magic:pod_held_bytes"]["expr"], MIDNIGHT + NOON * HOUR)

    assert dict(series).items() >= POD.items()  # it selects by namespace, node and pod


def test_nothing_falls_to_zero_while_it_is_not_known(asked: Prometheus) -> None:
    hanging = MIDNIGHT + 4.5 * HOUR
    told = asked.ask('{__name__=~"tfgpu_magic_.+", hostname="lab2"}', hanging)

    assert [dict(labels)["__name__"] for labels in told] == ["tfgpu_magic_up"]
    lowest = asked.ask('min_over_time(tfgpu_magic_gpu_memory_total_bytes{hostname="lab2"}[1d])', MIDNIGHT + DAY)
    assert list(lowest.values()) == [16 * GIB]


def test_prometheus_has_loaded_the_rules(asked: Prometheus) -> None:
    loaded = [rule for group in asked.get("rules")["groups"] for rule in group["rules"]]

    assert {rule["name"] for rule in loaded} == RULES.keys()


def test_the_rules_are_good_and_alert_when_they_say() -> None:
    assert "SUCCESS" in promtool("check", "rules", GRAFANA / "rules.yml")
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml", cwd=GRAFANA)
    tested = (GRAFANA / "rules_test.yml").read_text()
    assert [name for name in RULES if name not in tested] == []


def test_the_page_has_each_metric_each_alert_and_a_configuration_that_prometheus_takes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        page.partition("```yaml\n")[2].partition("```")[0].replace("/etc/prometheus/tfgpu_", f"{GRAFANA}/")
    )

    assert f'127.0.0.1:{PORT}"' in config.read_text()
    assert "SUCCESS" in promtool("check", "config", config)
    assert [name for name in METRICS if f"| `{name}` |" not in metrics()] == []
    assert [name for name in RULES if name.startswith("TfGpu") and f"| `{name}` |" not in alerts()] == []
    assert page.count("{{ metrics }}") == page.count("{{ alerts }}") == 1


def test_the_dashboard_is_what_its_source_makes() -> None:
    made = json.loads(_jsonnet.evaluate_file(str(GRAFANA / "dashboard.jsonnet")))
    places = [panel["gridPos"] for panel in made["panels"]]

    assert made == DASHBOARD
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))  # no panel lies on another


def test_the_form_for_jupyterhubs_dashboards_asks_what_a_real_prometheus_answers(asked: Prometheus) -> None:
    made = _jsonnet.evaluate_file(str(GRAFANA / "upstream" / "gpu.jsonnet"), import_callback=_stand_in)
    (expression,) = json.loads(made)["queries"]
    found = asked.ask(expression.replace("$hub_name", ".*").replace("$user_name", ".*"), MIDNIGHT + NOON * HOUR)

    owner = ("annotation_hub_jupyter_org_username", "cy")
    assert found == {frozenset({owner, ("namespace", "hub")}): 8 * GIB}


STAND_IN = """
local any = { __proto: null };
{
  dashboard: {
    new(title): { title: title, queries: [] },
    withTags(_): {}, withUid(_): {}, withEditable(_): {}, withVariables(_): {},
    withPanels(panels): { queries: std.flattenArrays([one.queries for one in panels]) },
  },
  panel: { timeSeries: {
    new(_): {},
    panelOptions: { withDescription(_): {} },
    standardOptions: { withUnit(_): {} },
    queryOptions: { withTargets(targets): { queries: [one.expr for one in targets] } },
  } },
  query: { prometheus: { new(_, expr): { expr: expr }, withLegendFormat(_): {} } },
  util: { grid: { makeGrid(panels, panelWidth, panelHeight): panels } },
}
"""
"""What the form uses of grafonnet, which is in no registry: what its functions are given comes out."""


def _stand_in(folder: str, name: str) -> tuple[str, bytes]:
    if name.endswith("common.libsonnet"):
        return name, b"{ tsOptions: {}, variables: { prometheus: 0, hub_name: 0, user_name: 0 } }"
    return name, STAND_IN.encode()


def mended(folder: Path = GRAFANA) -> None:
    """Write dashboard.json anew: `python -c "from tests.lab.test_day import mended; mended()"`."""
    made: Any = json.loads(_jsonnet.evaluate_file(str(folder / "dashboard.jsonnet")))
    (folder / "dashboard.json").write_text(json.dumps(made, indent=1) + "\n")
